"""What the plan asks of hosts, and the validators that look for it there: memory, network, GPUs inside a container."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_configure_hosts_programs import load

from inferlift.configure.minima import minima
from inferlift.declaration import load as declared
from inferlift.profile import ROOT
from inferlift.stages._plan import planned

ROLES = "roles/{}/files/{}"


def test_the_plans_links_become_what_validators_ask_for() -> None:
    asked = minima(planned(declared("llm-13b", ROOT).profile, None))
    assert set(asked) >= {"base_ram_gib_least", "nvidia_vram_mib_least", "nvidia_pcie_generation_least"}
    ram: Any = asked["base_ram_gib_least"]
    vram: Any = asked["nvidia_vram_mib_least"]
    assert 8 < ram["model"] <= 16  # of a g5.xlarge
    assert 9_000 < vram <= 23_028  # its A10G
    assert asked["nvidia_pcie_generation_least"] == 3
    assert asked["gateway_latency_ms_most"] == 40


def test_what_no_plan_knows_is_not_asked_for() -> None:
    assert minima(None) == {}
    assert minima(planned(declared("demo", ROOT).profile, None)) == {}


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = load(ROLES.format("base", "checks.py"))
    monkeypatch.setitem(sys.modules, "checks", made)
    return made


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 4.0),
        ({"memory.max": "max"}, 4.0),
        ({"memory.max": str(2**30)}, 1.0),
        ({"memory/memory.limit_in_bytes": str(3 * 2**30)}, 3.0),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, 4.0),
    ],
)
def test_memory_is_the_machines_or_what_a_limit_leaves(
    checks: ModuleType, tmp_path: Path, files: dict[str, str], gib: float
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        4194304 kB\nMemFree: 1 kB\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert checks.memory_bytes(tmp_path / "meminfo", tmp_path) == gib * 2**30


def test_what_a_stopped_service_should_answer_is_asked_for_once(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "Id={0}\nActiveState={1}\nSubState=x\nNRestarts=0\n"
    states = {"a.service": "active", "b.service": "inactive"}
    monkeypatch.setattr(checks, "run", lambda command: "\n".join(shown.format(*kv) for kv in states.items()))
    asked: list[int] = []
    refused = lambda: asked.append(1) or checks.check("port", len(asked) > 1)  # noqa: E731
    assert [r["ok"] for r in checks.services(list(states))] == [True, False]
    assert not checks.until(60, refused)["ok"]
    checks.down.clear()
    assert checks.until(60, refused)["ok"]


def test_too_little_memory_is_told_with_both_figures(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "memory_bytes", lambda: 8 * 2**30)
    base = load(ROLES.format("base", "check-base"))
    assert [base.memory(least)["ok"] for least in (0.0, 8.0, 8.5)] == [True, True, False]
    assert base.memory(8.5)["detail"] == "8.00 GiB; needed: 8.50"


# --- the way from a gateway to a model host ---------------------------------------------------------------------


@pytest.fixture
def counter() -> Iterator[int]:
    """A stand-in for inferlift-network.socket: counts what comes in, as `wc -c` does, on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield int(server.getsockname()[1])


def _serve(server: socket.socket) -> None:
    while True:
        try:
            way, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_count, args=(way,), daemon=True).start()


def _count(way: socket.socket) -> None:
    with way, contextlib.suppress(OSError):
        way.sendall(b"%d\n" % sum(len(piece) for piece in iter(lambda: way.recv(1 << 16), b"")))


@pytest.fixture
def gateway(checks: ModuleType, counter: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = load(ROLES.format("gateway", "check-gateway"))
    for name, value in {"COUNTER": counter, "MOST": 1 << 20, "WAYS": tmp_path / "network.json"}.items():
        monkeypatch.setattr(made, name, value)
    return made


def test_speed_and_latency_are_measured_once_and_again_while_they_are_not_enough(
    gateway: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [c["ok"] for c in gateway.way("model-1", "127.0.0.1", 0.0, 0.0)] == [True, True]
    first = json.loads(gateway.WAYS.read_text())["127.0.0.1"]
    assert first["gbps"] > 0
    assert first["latency_ms"] > 0
    monkeypatch.setattr(gateway, "rate", lambda address: 7.0)
    monkeypatch.setattr(gateway, "latency", lambda address: 30.0)
    enough = {"least": first["gbps"] / 2, "most": first["latency_ms"] * 2}
    assert all(c["ok"] for c in gateway.way("model-1", "127.0.0.1", **enough))
    assert json.loads(gateway.WAYS.read_text())["127.0.0.1"] == first
    slow = list(gateway.way("model-1", "127.0.0.1", 1e6, 20.0))
    assert [(c["name"], c["ok"], c["detail"]) for c in slow] == [
        ("network to model-1", False, "7 Gbit/s; needed: 1000000.0"),
        ("latency to model-1", False, "30 ms there and back; allowed: 20.0"),
    ]


def test_a_way_that_is_closed_is_no_figure(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        monkeypatch.setattr(gateway, "COUNTER", gone.getsockname()[1])
    (told,) = gateway.way("model-1", "127.0.0.1", 0.0, 0.0)
    assert not told["ok"]
    assert "cannot be measured" in told["detail"]
    assert not gateway.WAYS.exists()


# --- inside a container ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status", "ok"),
    [
        ("NVIDIA L4, 23034\nNVIDIA L4, 23034\n", 0, True),
        ("NVIDIA L4, 23034\n", 0, False),
        ("No devices were found\n", 6, False),
        ("", 127, False),
    ],
)
def test_gpus_are_counted_by_a_process_of_the_container(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, said: str, status: int, ok: bool
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, status, said, "exec failed" if status == 127 else "")

    monkeypatch.setattr(checks.subprocess, "run", run)
    found = checks.gpus_inside("vllm", 2)
    assert found["ok"] is ok
    assert asked[0][:4] == ["podman", "exec", "vllm", "nvidia-smi"]
