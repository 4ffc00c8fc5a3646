"""The load test on two worker hosts of the lab: Locust carries the users, every sample comes back, nothing twice."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from role_hosts import RoleHosts

from inferlift import ssh
from inferlift.load.asked import Asked
from inferlift.load.samples import read_samples
from inferlift.load.standalone import standalone
from inferlift.load.timed_server import TimedServer
from inferlift.profile import ROOT, Targets
from inferlift.toolchain.store import cache

pytestmark = pytest.mark.lab

NEEDED = ("locust", "pydantic", "jinja2")  # of a worker; the rest of this package's dependencies stays at home
HERE = "10.244.43.1"  # this machine in the test's network


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleHosts]:
    folder = tmp_path_factory.mktemp("t-load-workers")
    made = RoleHosts("load", 43, folder)
    try:
        made.raise_hosts(["worker-1", "worker-2"], cpus=1.0, memory="1g")
        for wheel in wheels().glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder / "src")
        shutil.copytree(ROOT / "inferlift", folder / "src" / "inferlift", ignore=shutil.ignore_patterns("__pycache__"))
        for host in made.hosts:
            made.put(host.name, folder / "src", "/opt/src")
        yield made
    finally:
        made.sweep()
        shutil.rmtree(folder, ignore_errors=True)


def test_two_hosts_send_one_test(hosts: RoleHosts, tmp_path: Path) -> None:
    """1000 requests by 64 users on two hosts; the server on this machine counts them, by the address they came from."""
    server = TimedServer(0.05, 0.01, 16, address=HERE)
    with socket.create_server((HERE, 0)) as probe:
        port = probe.getsockname()[1]
    worker = f"timeout 120 python3 -m inferlift.load.locust_users {HERE}:{port}"
    children = [
        subprocess.Popen(
            ssh.argv(host, f"cd /opt/src && exec {worker}"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) for host in hosts.hosts
    ]  # fmt: skip
    said: list[str] = []
    try:
        with server:
            asked = Asked(
                (f"http://{HERE}:{server.port}",), 1000, users=64, workers=2, bind=f"{HERE}:{port}", warm_up=0,
                folder=tmp_path / "s", targets=Targets(error_share=0.0),
            )  # fmt: skip
            code = standalone(asked, as_json=True, say=print, out=said.append)
        truth = server.record()
    finally:
        for child in children:
            child.kill()
            child.wait()
    found = json.loads(said[0])
    run = found["endpoints"][0]["run"]
    print(json.dumps(found["figures"]), server.peers, {k: truth[k] for k in ("peak", "accepted", "requests")})
    assert run["counts"] == {"planned": 1000, "sent": 1000, "ok": 1000, "errors": {}, "retried": 0}
    assert truth["requests"] == 1000
    assert run["workers"] == 2
    assert sorted(server.peers) == [host.address for host in hosts.hosts]
    assert min(server.peers.values()) == 32  # users of each host
    assert run["in_flight_peak"] == 64
    samples = list(read_samples(tmp_path / "s" / "1.jsonl"))
    assert sorted(s["i"] for s in samples) == list(range(1000))
    assert run["tokens_out"] == 16_000
    assert code in (0, 3)  # two hosts of one core each beside this machine's other work may limit a figure, and say so
    if not run["client_limited"]:
        assert run["ttft"]["p95_ms"] < 50 + 30


def wheels() -> Path:
    """The workers' packages at the versions of requirements.lock, with its hashes, kept for the next run."""
    lock = (ROOT / "requirements.lock").read_text()
    blocks = {re.split("[=@ ]", b, maxsplit=1)[0]: b for b in re.split(r"\n(?=[a-z0-9])", lock) if "==" in b}
    wanted = sorted(closure(NEEDED) & blocks.keys())
    text = "\n".join(blocks[name].strip() for name in wanted) + "\n"
    folder = cache() / "wheels" / f"load-workers-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        draft = folder.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        (draft / "wheels.txt").write_text(text)
        options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--quiet", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", str(draft), "-r", str(draft / "wheels.txt")]
        subprocess.run(command, check=True)
        draft.rename(folder)
    return folder


def closure(names: tuple[str, ...]) -> set[str]:
    """Those packages and what they need, as installed here; extras are left out."""
    found: set[str] = set()
    open_ = list(names)
    while open_:
        name = re.sub(r"[-_.]+", "-", open_.pop()).lower()
        if name in found:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        open_ += [re.split(r"[\s<>=!~;\[(]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need]
    return found
