"""Own hosts without a host: what a profile declares becomes a document, what a host tells is judged, names are kept."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferlift.artifacts import Host
from inferlift.artifacts.fleet import OwnMachine
from inferlift.declaration import load
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable
from inferlift.profile import ROOT, Profile
from inferlift.provision.static import notes, on_host, plan, target

MACHINE = OwnMachine(name="model-1", role="model", address="10.0.0.2", cores=8, memory_bytes=64 * 10**9)
FACTS: dict[str, Any] = {
    "root": True, "machine": "m1", "distribution": "debian", "version": "12", "systemd": "running", "cores": 8.0,
    "memory_bytes": 63 * 10**9, "gpus": [], "gpu_names": [], "link_mbps": None, "free_bytes": 10**12, "listening": [22],
    "manifests": [], "claim": None,
}  # fmt: skip
OURS = {"owner": "c/own/fleet", "name": "model-1", "role": "model"}
GPU = {"gpu": "H100 PCIe", "gpus": 2}


def profile(tmp_path: Path, section: str) -> Profile:
    path = tmp_path / "t-own.yaml"
    path.write_text(f"name: t-own\nextends: demo-small\ndescription: x\ntarget: static\nstatic:\n{section}")
    return load(str(path), ROOT).profile


def rows(*kinds: str) -> str:
    return "  hosts:\n" + "".join(f"    - {{{kind}, cores: 4, ram_gb: 8}}\n" for kind in kinds)


WHOLE = ("name: g, role: gateway, addresses: [10.0.0.1]", "name: a, addresses: [10.0.0.2, '10.0.0.3:2222']",
         "name: b, addresses: ['[2001:db8::4]:22']", "name: m, role: monitor, addresses: [10.0.0.9]")  # fmt: skip


def test_the_kind_that_was_chosen_and_as_many_as_are_needed(tmp_path: Path) -> None:
    told = profile(tmp_path, rows(*WHOLE))
    made = plan.document(told, choice="a", label="c/own/fleet", floors={"poc": 1})
    assert made.static is not None
    assert [(m.name, m.address, m.ssh_port) for m in made.static.machines] == [
        ("gateway-1", "10.0.0.1", 22), ("model-1", "10.0.0.2", 22), ("monitor-1", "10.0.0.9", 22),
    ]  # fmt: skip
    more = plan.document(told, choice="a", label="c/own/fleet", floors={"poc": 1, "scale": 2})
    assert more.static is not None
    assert [m.address for m in more.static.machines if m.role == "model"] == ["10.0.0.2", "10.0.0.3"]
    assert plan.too_few(more) is None
    other = plan.document(told, choice="b", label="c/own/fleet", floors={"scale": 2})
    assert "2 model hosts are needed and static.hosts has 1" in str(plan.too_few(other))


def test_hosts_to_plan_with_need_no_address_but_hosts_to_use_do(tmp_path: Path) -> None:
    told = profile(tmp_path, rows("name: a, count: 3"))
    assert told.static is not None
    assert told.static.hosts[0].count == 3
    with pytest.raises(DeclarationError, match="no address of a gateway and no address of a model"):
        plan.document(told, choice=None, label="l", floors={})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (rows("name: a, addresses: [h.example]"), "expected an IP address"),
        (rows("name: a, addresses: ['10.0.0.1:0']"), "port from 1 to 65535"),
        (rows("name: a, addresses: [10.0.0.1], count: 2"), "is 2, and 1 addresses are given"),
        (rows("name: a, addresses: [10.0.0.1]", "name: b, addresses: [10.0.0.1]"), "given twice"),
        (rows("name: a, role: gateway"), "with the role model"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_looked_at(section: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        profile(tmp_path, section)
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("facts", "machine", "said"),
    [
        ({}, {}, None),
        ({"claim": OURS, "listening": [8443], "manifests": ["base"], "free_bytes": 0}, {}, None),
        ({"gpus": ["a", "b"], "gpu_names": ["NVIDIA H100 PCIe"] * 2}, GPU, None),
        ({"gpus": ["a", "b"]}, GPU, None),  # no driver yet tells their names
        ({"link_mbps": 25000}, {"network_gbps": 25.0}, None),
        ({"claim": {**OURS, "owner": "x/y"}}, {}, "belongs to x/y"),
        ({"claim": {**OURS, "name": "model-2"}}, {}, "cannot become model-1"),
        ({"root": False}, {}, "not root's"),
        ({"distribution": "ubuntu", "version": "24.04"}, {}, "ubuntu 24.04"),
        ({"version": "11"}, {}, "needed: Debian 12"),
        ({"version": "trixie/sid"}, {}, "needed: Debian 12"),
        ({"systemd": "maintenance"}, {}, "systemd is maintenance"),
        ({"systemd": ""}, {}, "not there"),
        ({"cores": 7.9}, {}, "cores: 7.9 found, 8 declared"),
        ({"memory_bytes": 59 * 10**9}, {}, "ram_gb: 59.00 found, 64.00 declared"),
        ({"gpus": ["a"]}, GPU, "gpus: 1 found on the PCI bus, 2 declared"),
        ({"gpus": ["a", "b"], "gpu_names": ["NVIDIA L40S"] * 2}, GPU, "gpu: NVIDIA L40S found, H100 PCIe declared"),
        ({"link_mbps": 1000}, {"network_gbps": 25.0}, "network_gbps: 1 found, 25 declared"),
        ({"listening": [22, 8443]}, {}, "port 8443 already"),
        ({"manifests": ["base"]}, {}, "unknown owner"),
        ({"free_bytes": 10**9}, {}, "1.0 GB are free"),
    ],
)
def test_a_host_is_compared_with_what_was_declared(
    facts: dict[str, Any], machine: dict[str, Any], said: str | None
) -> None:
    found = plan.problems(MACHINE.model_copy(update=machine), {**FACTS, **facts}, OURS["owner"])
    assert (found == []) if said is None else (len(found) == 1 and said in found[0]), found


def test_one_machine_under_two_addresses_is_noticed() -> None:
    other = MACHINE.model_copy(update={"name": "model-2", "address": "10.0.0.3"})
    with pytest.raises(Refusal) as caught:
        target._refuse([MACHINE, other], [FACTS, FACTS], OURS["owner"])
    assert "model-2 (10.0.0.3): it is the same machine as model-1" in caught.value.why


def test_it_looks_at_any_host_with_nothing_but_its_python(tmp_path: Path) -> None:
    script = Path(on_host.__file__).read_text()
    argv = [sys.executable, "-I", "-", "look", "{}"]
    done = subprocess.run(argv, input=script, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == set(FACTS)


@pytest.mark.parametrize(
    ("there", "installed", "stays"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_what_packages_leave_goes_unless_it_or_they_were_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, installed: bool, stays: bool
) -> None:
    folder = tmp_path / "alertmanager"
    folder.mkdir()
    monkeypatch.setattr(on_host, "_packages", lambda: {"p"} if installed else set())
    before: dict[str, list[str]] = {
        "packages": [],
        "users": [],
        "groups": [],
        "folders": [str(folder)] if there else [],
    }
    on_host._clean({"package": "p", "folders": [str(folder)], "users": []}, before)
    assert folder.exists() == stays


def test_every_folder_that_packages_leave_is_one_of_those_looked_at_before() -> None:
    """Else it would be taken for new on every host."""
    places = re.findall(r'"(/[a-z/]*)"', inspect.getsource(on_host._state))
    for row in target._leftovers():
        assert {str(Path(folder).parent) for folder in row["folders"]} <= set(places), row


def _host(number: int, folder: Path) -> Host:
    return Host(
        name=f"model-{number}", role="model", address=f"10.0.0.{number}", ssh_key=str(folder / "k"), host_key="t k",
        container=f"machine:m{number}",
    )  # fmt: skip


def test_hosts_are_remembered_until_each_is_given_back(tmp_path: Path) -> None:
    assert notes.remembered("l", tmp_path) == []
    notes.remember(tmp_path, "l", [_host(1, tmp_path)])
    notes.remember(tmp_path, "l", [_host(2, tmp_path), _host(1, tmp_path)])
    assert [h.name for h in notes.remembered("l", tmp_path)] == ["model-1", "model-2"]
    assert not notes.is_here("other", tmp_path)
    notes.forget(tmp_path, "l", ["model-1"])
    assert [h.name for h in notes.remembered("l", tmp_path)] == ["model-2"]
    notes.forget(tmp_path, "l", ["model-2"])
    assert not notes.is_here("l", tmp_path)


def test_a_silent_host_is_left_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.remember(tmp_path, "l", [_host(1, tmp_path), _host(2, tmp_path)])

    def answer(host: Host, command: str, *_: Any, **__: Any) -> dict[str, Any]:
        if host.name == "model-2":
            raise Retryable("model-2 (10.0.0.2:22) does not answer over SSH", why="timed out")
        return {"left": []} if command == "release" else {**FACTS, "claim": {**OURS, "owner": "l"}}

    monkeypatch.setattr(target, "_ask", answer)
    fleet = target.read("l", tmp_path)
    assert fleet is not None
    assert len(fleet.hosts) == 2  # who does not answer may still be ours
    assert [h.name for h in target.staying_hosts("l", tmp_path)] == ["model-1"]
    assert [c.ok for c in target.verify(fleet)] == [True, False]
    left = target.destroy("l", tmp_path, lambda line: None)
    told = "model-2 (10.0.0.2:22) does not answer over SSH (timed out); what was put there is still there"
    assert left == [told]
    assert [h.name for h in notes.remembered("l", tmp_path)] == ["model-2"]


@pytest.mark.parametrize(
    ("why", "error", "said"),
    [
        ("Host key verification failed.", Refusal, "is not the host that"),
        ("root@10.0.0.1: Permission denied (publickey).", Refusal, "does not let us in"),
        ("connect to host 10.0.0.1 port 22: Connection refused", Retryable, "does not answer"),
    ],
)
def test_what_ssh_says_becomes_what_to_do(
    why: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise Retryable("model-1 does not answer over SSH", why=why)

    monkeypatch.setattr(target.ssh, "run", run)
    with pytest.raises(error, match=said):
        target._ask(_host(1, tmp_path), "look", {})


def test_no_python_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([127, 1])

    def run(*_: Any, **__: Any) -> Any:
        return subprocess.CompletedProcess([], next(codes), "", "disk full")

    monkeypatch.setattr(target.ssh, "run", run)
    with pytest.raises(Refusal, match="has no python3"):
        target._ask(_host(1, tmp_path), "look", {})
    with pytest.raises(CheckFailed, match="claim on model-1"):
        target._ask(_host(1, tmp_path), "claim", {})


def test_a_hosts_key_comes_from_known_hosts_only(tmp_path: Path) -> None:
    from inferlift.artifacts.fleet import StaticPlan

    known = tmp_path / "known_hosts"
    known.write_text(
        "10.0.0.2 ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ\n[10.0.0.2]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA\n"
    )
    own = StaticPlan(machines=(), ssh_key="x", known_hosts=str(known))
    assert target._host_key(MACHINE, own).startswith("ssh-rsa ")
    assert target._host_key(MACHINE.model_copy(update={"ssh_port": 2222}), own).startswith("ssh-ed25519 ")
    with pytest.raises(Refusal, match="is not in"):
        target._host_key(MACHINE.model_copy(update={"address": "10.0.0.7"}), own)
