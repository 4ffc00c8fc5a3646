from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from inferlift import process
from inferlift.errors import CheckFailed, Refusal
from inferlift.provision import journal
from inferlift.provision import podman as podman_module
from inferlift.provision.models import HostSpec
from inferlift.provision.podman import OWNER, SPEC, Container, Podman

from .standin import StandInPodman

OURS = "3fa2c1/demo-lab/fleet"


def spec(name: str = "model-1", role: str = "model") -> HostSpec:
    return HostSpec(
        owner=OURS, name=name, role=role, image="image", cpus=0.5, memory_bytes=2**28, public_key="ssh-ed25519 AAAA"
    )


@pytest.fixture
def podman() -> StandInPodman:
    return StandInPodman()


def runs(podman: StandInPodman) -> list[tuple[str, ...]]:
    return [call for call in podman.calls if call[0] == "run"]


def test_made_once_then_found(podman: StandInPodman) -> None:
    first, second = podman.ensure_host(spec()), podman.ensure_host(spec())
    assert first.made
    assert not second.made
    assert first.container == second.container
    assert first.host_key == "ssh-ed25519 AAAAhost"
    assert len(runs(podman)) == 1


def test_only_model_hosts_are_privileged(podman: StandInPodman) -> None:
    podman.ensure_host(spec())
    podman.ensure_host(spec("gateway-1", "gateway"))
    model, gateway = runs(podman)
    assert "--privileged" in model
    assert "--privileged" not in gateway
    assert gateway[gateway.index("--cap-add") + 1] == "NET_ADMIN"


@pytest.mark.parametrize("state", ["created", "initialized", "exited", "paused"])
def test_what_does_not_run_is_made_anew(podman: StandInPodman, state: str) -> None:
    old = podman.add(spec().container, state, {OWNER: OURS, SPEC: spec().digest})
    host = podman.ensure_host(spec())
    assert host.made
    assert host.container.id != old
    assert len(podman.containers) == 1


def test_another_description_is_another_host(podman: StandInPodman) -> None:
    old = podman.ensure_host(spec())
    new = podman.ensure_host(spec().model_copy(update={"memory_bytes": 2**29}))
    assert new.made
    assert new.container.id != old.container.id
    assert len(podman.containers) == 1


@pytest.mark.parametrize("labels", [{}, {OWNER: "3fa2c1/demo-lab/fleet2"}, {OWNER: "3fa2c1"}])
def test_a_foreign_container_of_our_name_is_named_and_kept(podman: StandInPodman, labels: dict[str, str]) -> None:
    podman.add(spec().container, labels=labels)
    with pytest.raises(Refusal, match=spec().container):
        podman.ensure_host(spec())
    podman.sweep(OURS)
    assert list(podman.containers) == [spec().container]


def test_a_foreign_network_of_our_name_is_named_and_kept(podman: StandInPodman) -> None:
    podman.nets[spec().network] = {"name": spec().network, "labels": {}, "subnets": [{"subnet": "10.9.0.0/24"}]}
    with pytest.raises(Refusal, match=spec().network):
        podman.ensure_network(OURS)
    assert podman.sweep(OURS) == []
    assert spec().network in podman.nets


def test_storage_without_labels_is_ours_only_by_the_journal(podman: StandInPodman) -> None:
    """A killed `podman run` leaves a container that has no labels yet."""
    podman.add(spec().container, "storage")
    with pytest.raises(Refusal):
        podman.ensure_host(spec())
    assert podman.of(OURS) == []
    journal.note_host(OURS, spec().container)
    assert [c.state for c in podman.of(OURS)] == ["storage"]
    assert podman.ensure_host(spec()).container.running


def test_an_address_still_allocated_is_passed_over(podman: StandInPodman) -> None:
    network = podman.ensure_network(OURS)
    podman.allocated.add(str(network.subnet[100]))
    host = podman.ensure_host(spec())
    assert host.container.address not in podman.allocated
    assert len(podman.containers) == 1
    assert journal.leaks() == [network.subnet]
    podman.sweep(OURS)
    assert podman.ensure_network(OURS).subnet != network.subnet  # a new network starts on a clean subnet


def test_a_listing_is_asked_again_when_a_container_vanishes_meanwhile(podman: StandInPodman) -> None:
    podman.add(spec().container, labels={OWNER: OURS})
    podman.failures = ["Error: determining buildah container for container f3b5: container not known"] * 2
    assert [c.name for c in podman.of(OURS)] == [spec().container]


def test_a_listing_that_fails_is_not_an_empty_listing(podman: StandInPodman) -> None:
    podman.failures = ["Error: database is locked"]
    with pytest.raises(CheckFailed, match="does not list"):
        podman.of(OURS)


def test_sweep_takes_what_is_ours_and_forgets(podman: StandInPodman) -> None:
    podman.ensure_host(spec())
    podman.add("inferlift-3fa2c1-demo-lab-fleet-model-2", labels={OWNER: "somebody/else"})
    assert podman.sweep(OURS) == []
    assert list(podman.containers) == ["inferlift-3fa2c1-demo-lab-fleet-model-2"]
    assert podman.nets == {}
    assert not journal.folder(OURS).exists()


def test_two_owners_get_two_subnets(podman: StandInPodman) -> None:
    a, b = podman.ensure_network(OURS), podman.ensure_network("3fa2c1/demo-lab/world")
    assert not a.subnet.overlaps(b.subnet)
    assert podman.ensure_network(OURS) == a


def test_containers_do_not_inherit_the_process_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process.OWNER, "the-run")
    assert process.OWNER not in Podman({"CONTAINERS_CONF": "/x"})._env
    assert Podman({"CONTAINERS_CONF": "/x"})._env["CONTAINERS_CONF"] == "/x"


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [
        (0.5, 2**28, None),
        (0.502, 2**28, None),  # the kernel's quota is in steps
        (0.9, 2**28, "has 0.9 CPUs instead of 0.5"),
        (None, 2**28, "has no CPU quota any more"),
        (0.5, 2**29, "has another memory limit"),
        (0.5, None, "has another memory limit"),
    ],
)
def test_quota_drift(cpus: float | None, memory: int | None, expected: str | None) -> None:
    found = Container("id", "name", "running", {}, cpus=cpus, memory_bytes=memory)
    assert found.quota_drift(0.5, 2**28) == expected


def test_the_journal_keeps_subnets(tmp_path: Path) -> None:
    assert journal.subnets(OURS) == []
    journal.note_subnet(OURS, IPv4Network("10.64.1.0/24"))
    assert journal.subnets(OURS) == [IPv4Network("10.64.1.0/24")]
    assert journal.folder(OURS).is_relative_to(tmp_path)


@pytest.mark.parametrize(("before", "after"), [("128\n", 1024), ("1024\n", 1024), ("8192\n", 8192)])
def test_the_inotify_limit_is_raised_and_never_lowered(tmp_path: Path, before: str, after: int) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(before)
    podman_module._room_for_systemd(limit)
    assert int(limit.read_text()) == after


def test_a_machine_that_forbids_raising_the_limit_is_no_error(tmp_path: Path) -> None:
    podman_module._room_for_systemd(tmp_path / "absent" / "max_user_instances")
