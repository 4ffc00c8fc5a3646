from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.errors import Refusal
from inferlift.provision import lab_provider
from inferlift.provision.lab_provider import HOST, NETWORK, Lab, diff, host_spec, install
from inferlift.provision.podman import OWNER

from .standin import StandInPodman

pytestmark = pytest.mark.programs

INPUTS: dict[str, Any] = {
    "owner": "3fa2c1/demo-lab/fleet",
    "name": "model-1",
    "role": "model",
    "image": "image",
    "cpus": 0.7,
    "memoryBytes": 2.0**30,  # gRPC knows no integers
    "publicKey": "ssh-ed25519 AAAA",
    "site": "lab",
    "network": "inferlift-3fa2c1-demo-lab-fleet",
}
values = st.dictionaries(st.sampled_from("abcd"), st.one_of(st.integers(), st.text(max_size=3), st.none()))


@pytest.fixture
def lab() -> Lab:
    return Lab(StandInPodman())


@settings(deadline=None)
@given(values, values)
def test_diff_names_exactly_what_differs(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert diff(old, old) == []
    changed = diff(old, new)
    assert changed == diff(new, old)
    same = {k for k in (*old, *new) if k not in changed}
    assert all(old.get(k) == new.get(k) for k in same)
    assert all(old.get(k) != new.get(k) for k in changed)


def test_the_engines_own_keys_are_no_difference() -> None:
    assert diff({"__defaults": []}, {"__internal": 1}) == []


@pytest.mark.parametrize("key", sorted(INPUTS))
def test_a_missing_input_is_named(lab: Lab, key: str) -> None:
    assert lab.check(HOST, INPUTS) == []
    assert lab.check(HOST, {**INPUTS, key: None}) == [(key, "is missing")]


def test_an_impossible_size_is_refused(lab: Lab) -> None:
    assert [key for key, _ in lab.check(HOST, {**INPUTS, "cpus": 0, "memoryBytes": 1})] == ["cpus", "memoryBytes"]


def test_create_read_delete(lab: Lab) -> None:
    _, network = lab.create(NETWORK, {"owner": INPUTS["owner"]})
    identity, made = lab.create(HOST, INPUTS)
    assert identity == "inferlift-3fa2c1-demo-lab-fleet-model-1"
    assert lab.read(HOST, identity, INPUTS) == made
    assert lab.read(NETWORK, network["name"], {"owner": INPUTS["owner"]}) == network
    assert lab.create(HOST, INPUTS) == (identity, made)  # again: the same one
    lab.delete(HOST, identity, INPUTS)
    assert lab.read(HOST, identity, INPUTS) is None
    lab.delete(HOST, identity, INPUTS)  # gone already: no error
    lab.delete(NETWORK, network["name"], {"owner": INPUTS["owner"]})
    assert lab.read(NETWORK, network["name"], {"owner": INPUTS["owner"]}) is None


def test_read_sees_a_host_that_is_no_longer_as_described_as_gone(lab: Lab) -> None:
    identity, _ = lab.create(HOST, INPUTS)
    assert lab.read(HOST, identity, {**INPUTS, "cpus": 0.5}) is None
    lab.podman.containers[identity]["state"] = "exited"
    assert lab.read(HOST, identity, INPUTS) is None


def test_a_foreign_container_is_neither_read_nor_deleted(lab: Lab) -> None:
    name = host_spec(INPUTS).container
    lab.podman.add(name, labels={OWNER: "somebody"})
    assert lab.read(HOST, name, INPUTS) is None
    lab.delete(HOST, name, INPUTS)
    assert list(lab.podman.containers) == [name]
    with pytest.raises(Refusal):
        lab.create(HOST, INPUTS)


def test_the_executable_runs_this_python(tmp_path: Path) -> None:
    path = install(tmp_path)
    assert os.access(path, os.X_OK)
    assert sys.executable in path.read_text()
    stamp = path.stat().st_mtime_ns
    assert install(tmp_path).stat().st_mtime_ns == stamp


def test_the_provider_ends_when_the_engine_dies(tmp_path: Path) -> None:
    """The engine is a shell here; the provider is the real one, with its gRPC server."""
    executable = install(tmp_path)
    shell = subprocess.Popen(
        ["sh", "-c", f"{executable} 127.0.0.1:1 & echo $!; wait"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert shell.stdout is not None
    pid, port = int(shell.stdout.readline()), int(shell.stdout.readline())
    assert port > 0
    assert Path(f"/proc/{pid}").exists()
    shell.kill()
    shell.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_the_busy_count_is_waited_for() -> None:
    busy = lab_provider._Busy()
    with busy:
        started = time.monotonic()
        busy.wait(0.05)
        assert time.monotonic() - started >= 0.05
    busy.wait(5)
    assert time.monotonic() - started < 5
