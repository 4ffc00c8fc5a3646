from __future__ import annotations

import random
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlift.artifacts import DesiredFleet, Host, HostGroup
from inferlift.errors import CheckFailed
from inferlift.provision import targets
from inferlift.provision.models import Tools
from inferlift.provision.podman import OWNER, Container

from .standin import StandInPodman

DESIRED = DesiredFleet(
    label="3fa2c1/demo-lab/fleet",
    groups=(
        HostGroup(role="gateway", count=1, cpus=0.3, memory_bytes=2**28),
        HostGroup(role="model", count=2, cpus=0.7, memory_bytes=2**30),
    ),
    floors={},
)
HOST = Host(
    name="model-1", role="model", address="10.64.1.100", ssh_key="k", host_key="h", cpus=0.7, memory_bytes=2**30,
    container="id1",
)  # fmt: skip
PRESENT = Container("id1", "c", "running", {}, cpus=0.7, memory_bytes=2**30, address="10.64.1.100")


@pytest.mark.parametrize(
    ("container", "banner", "detail"),
    [
        (PRESENT, "", "10.64.1.100, up"),
        (None, "", "deleted: no container of model-1 exists"),
        (Container("id1", "c", "exited", {}), "", "stopped: its container is exited"),
        (Container("id2", "c", "running", {}), "", "replaced: another container has taken its place"),
        (Container("id1", "c", "running", {}, address="10.64.1.200"), "", "moved from 10.64.1.100 to 10.64.1.200"),
        (
            Container("id1", "c", "running", {}, cpus=2, memory_bytes=2**30, address="10.64.1.100"),
            "",
            "changed: it has 2 CPUs instead of 0.7",
        ),
        (PRESENT, "does not answer", "does not answer"),
    ],
)
def test_what_is_wrong_with_a_host_is_named(container: Container | None, banner: str, detail: str) -> None:
    check = targets._check_host(HOST, container, banner)
    assert (check.name, check.detail) == ("host model-1", detail)
    assert check.ok == (detail == "10.64.1.100, up")
    assert not check.skipped


def test_the_generation_follows_the_containers_and_not_their_order() -> None:
    hosts = [HOST.model_copy(update={"name": f"model-{n}", "container": f"id{n}"}) for n in range(5)]
    first = targets.generation(hosts)
    shuffled = random.Random(1).sample(hosts, 5)
    assert targets.generation(shuffled) == first
    assert targets.generation(hosts[:4]) != first
    assert targets.generation([*hosts[:4], hosts[4].model_copy(update={"container": "other"})]) != first


def test_the_key_pair_is_made_once_and_private(tmp_path: Path) -> None:
    key = targets.ssh_key(tmp_path)
    text = key.read_text()
    assert targets.ssh_key(tmp_path).read_text() == text
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert targets.public_key(key).startswith("ssh-ed25519 ")
    assert sorted(p.name for p in key.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> StandInPodman:
    stand_in = StandInPodman()
    monkeypatch.setattr(targets, "Podman", lambda env: stand_in)
    return stand_in


def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path / "no engine", None, "image")


def test_the_preview_says_what_would_happen_and_does_nothing(tmp_path: Path, podman: StandInPodman) -> None:
    assert targets.preview_fleet(DESIRED, tmp_path, tools(tmp_path)) == [
        "make network inferlift-3fa2c1-demo-lab-fleet",
        "make host gateway-1 (0.3 CPU, 256 MiB)",
        "make host model-1 (0.7 CPU, 1024 MiB)",
        "make host model-2 (0.7 CPU, 1024 MiB)",
    ]
    assert list(tmp_path.iterdir()) == []
    assert podman.containers == {}
    for spec in targets.fleet_specs(DESIRED, "image", ""):
        podman.ensure_host(spec)
    assert targets.preview_fleet(DESIRED, tmp_path, tools(tmp_path)) == []
    podman.containers["inferlift-3fa2c1-demo-lab-fleet-model-1"]["state"] = "exited"
    smaller = DESIRED.model_copy(update={"groups": (DESIRED.groups[1].model_copy(update={"count": 1}),)})
    assert targets.preview_fleet(smaller, tmp_path, tools(tmp_path)) == [
        "make host model-1 anew (0.7 CPU, 1024 MiB): the present one is exited, not running",
        "remove host gateway-1",
        "remove host model-2",
    ]


def test_a_failed_listing_is_no_proof_of_an_empty_one(tmp_path: Path, podman: StandInPodman) -> None:
    podman.failures = ["Error: database is locked"] * 99
    with pytest.raises(CheckFailed):
        targets.read_fleet(DESIRED.label, tmp_path, tools(tmp_path))
    with pytest.raises(CheckFailed):
        targets.destroy_fleet(DESIRED.label, tmp_path, tools(tmp_path), print)


def test_destroy_without_any_state_sweeps_by_label(tmp_path: Path, podman: StandInPodman) -> None:
    for spec in targets.fleet_specs(DESIRED, "image", ""):
        podman.ensure_host(spec)
    podman.add("foreign", labels={OWNER: "somebody"})
    assert targets.destroy_fleet(DESIRED.label, tmp_path, tools(tmp_path), print) == []
    assert list(podman.containers) == ["foreign"]


def test_settle_with_nothing_there_says_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    targets.settle(tmp_path, tools(tmp_path), lines.append)
    assert lines == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("greeting", "expected"),
    [(b"SSH-2.0-OpenSSH_9.2p1\r\n", ""), (b"HTTP/1.1 400\r\n", "no SSH server"), (b"", "no SSH server")],
)
def test_a_port_counts_when_it_greets_as_ssh(listener: socket.socket, greeting: bytes, expected: str) -> None:
    def greet() -> None:
        connection, _ = listener.accept()
        connection.sendall(greeting)
        connection.close()

    thread = threading.Thread(target=greet)
    thread.start()
    answer = targets._answers(*listener.getsockname())
    thread.join()
    assert answer.startswith(expected)
    assert bool(answer) == bool(expected)


def test_a_closed_port_is_named(listener: socket.socket) -> None:
    address, port = listener.getsockname()
    listener.close()
    assert f"{address}:{port}" in targets._answers(address, port)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
