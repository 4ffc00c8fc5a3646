"""AWS' lists lag behind what was made and what was removed: waited for within bounds, never taken for the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferlift.artifacts import Fleet, Host
from inferlift.errors import CheckFailed
from inferlift.provision.aws import listing, notes, removal, target, undo
from inferlift.provision.aws.listing import Thing

from .aws_documents import document, resolved

DESIRED = resolved(document("multimodal", floors={"poc": 1}))
NAMES = ("gateway-1", "model-1", "monitor-1")
VPC = Thing("network", "vpc-1", "vpc", "eu-north-1", tags={"inferlift:resource": "vpc"})
STORE = Thing("bucket", "inferlift-x", "store", "eu-north-1", data=True)
SESSION: Any = None


def fleet(*names: str) -> Fleet:
    hosts = tuple(
        Host(name=n, role="model", address="10.0.0.1", ssh_key="k", host_key="ssh-ed25519 A", container=f"i-{n}")
        for n in names
    )
    return Fleet(label=DESIRED.label, network=None, subnet=None, hosts=hosts, endpoints=(), generation="g")


def quiet(line: str) -> None:
    """Nobody reads along here."""


def test_hosts_that_are_not_listed_yet_are_waited_for() -> None:
    answers = iter([None, fleet("gateway-1"), fleet(*NAMES)])
    said: list[str] = []
    waits: list[float] = []
    found = target.wait_listed(DESIRED, lambda: next(answers), said.append, sleep=waits.append)
    assert {h.name for h in found.hosts} == set(NAMES)
    assert waits == [target.LIST_PAUSE_S] * 2
    assert said[1] == "waiting for AWS to list model-1, monitor-1"


def test_a_host_that_is_never_listed_is_named_after_a_bounded_wait() -> None:
    waits: list[float] = []
    with pytest.raises(CheckFailed, match="AWS does not list model-1"):
        target.wait_listed(DESIRED, lambda: fleet("gateway-1", "monitor-1"), quiet, limit_s=60, sleep=waits.append)
    assert sum(waits) == 60


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[list[Thing]]:
    """What the lists say, look by look; the last answer stays."""
    answers: list[list[Thing]] = []
    monkeypatch.setattr(listing, "left", lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])
    return answers


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_a_killed_create_that_is_not_listed_at_once_is_still_taken_back(
    listed: list[list[Thing]], monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    listed += [*([[]] * lag), [VPC]]
    removed: list[Thing] = []
    waits: list[float] = []
    monkeypatch.setattr(removal, "remove", lambda things, *_, **__: removed.extend(things))
    pending = {"urn": "urn:pulumi:fleet::p::aws:ec2/vpc:Vpc::vpc", "type": "aws:ec2/vpc:Vpc", "inputs": {}}
    undo.undo_creates([pending], DESIRED.label, ["eu-north-1"], SESSION, quiet, sleep=waits.append)
    assert removed == ([VPC] if lag < 3 else []), "a longer lag is the next run's own look to find"
    assert waits == [0.0, *undo.LOOK_AGAIN_S][: lag + 1]


@pytest.mark.parametrize(("data", "rest"), [(False, [STORE]), (True, [])])
def test_what_is_removed_and_still_listed_is_not_said_to_be_left(
    listed: list[list[Thing]], tmp_path: Path, data: bool, rest: list[Thing]
) -> None:
    notes.remember(tmp_path, DESIRED)
    listed += [[VPC, STORE], [STORE], [] if data else [STORE]]
    found = target._listed_again(DESIRED.label, tmp_path, SESSION, data=data, sleep=lambda s: None)
    assert found == rest


def test_what_stays_is_said_after_a_bounded_wait(listed: list[list[Thing]], tmp_path: Path) -> None:
    notes.remember(tmp_path, DESIRED)
    listed.append([VPC])
    waits: list[float] = []
    assert target._listed_again(DESIRED.label, tmp_path, SESSION, data=False, sleep=waits.append) == [VPC]
    assert sum(waits) < 60
