"""The proof of concept ends by itself until users are to be moved: when that is lifted, what a kill leaves of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from inferlift import migration, place
from inferlift.artifacts import Check, DesiredFleet, ParityCase
from inferlift.declaration import load
from inferlift.errors import CheckFailed, Refusal
from inferlift.profile import ROOT
from inferlift.stages import _fleet, _guarding, _users, _wanted
from inferlift.stages.switch import SwitchStage

pytestmark = pytest.mark.usefixtures("as_root")


class Killed(BaseException):
    """As a SIGKILL would: nothing of ours runs after it."""


class Reached(Exception):
    """The first write to the record is next."""


@pytest.fixture
def ctx(tmp_path: Path, table, monkeypatch: pytest.MonkeyPatch):
    declared = load("demo-aws", ROOT)
    where = place.Place(declared.profile, declared.path, tmp_path / "demo-aws", f"{uuid4().hex[:8]}/demo-aws")
    monkeypatch.setattr("inferlift.stages.base.Context.tools", lambda self: None)
    with migration.session(where, "deploy") as made:
        made.stage = "switch"
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[DesiredFleet]:
    """What AWS was told to let live on."""
    told: list[DesiredFleet] = []
    monkeypatch.setattr("inferlift.provision.lift_expiry", lambda wanted, *_: told.append(wanted), raising=False)
    return told


def test_it_is_set_with_the_first_hosts_and_gone_for_good_once_lifted(ctx, asked: list[DesiredFleet]) -> None:
    wanted = _wanted.desired(ctx, poc=1)
    first = _wanted.expiring(ctx, wanted)
    assert first.aws is not None
    assert first.aws.expires_at is not None
    assert _wanted.expiring(ctx, wanted) == first, "a second run does not move it"
    _wanted.lift_expiry(ctx)
    assert len(asked) == 1
    assert _wanted.expiring(ctx, wanted) == wanted


def test_a_kill_while_it_is_lifted_lifts_it_again(ctx, asked, monkeypatch: pytest.MonkeyPatch) -> None:
    _wanted.expiring(ctx, _wanted.desired(ctx, poc=1))

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("inferlift.provision.lift_expiry", killed)
        with pytest.raises(Killed):
            _wanted.lift_expiry(ctx)
    assert [i.action for i in ctx.ledger.open_intents()] == ["expiry"]
    _wanted.lift_expiry(ctx)
    assert len(asked) == 1


def test_where_nothing_was_ever_to_end_nothing_is_asked(ctx, asked: list[DesiredFleet]) -> None:
    _wanted.lift_expiry(ctx)
    assert asked == []
    assert ctx.ledger.open_intents() == []


@pytest.fixture
def steps(ctx, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a switch did, up to its first write."""
    done: list[str] = []

    def first_write(*_: Any) -> None:
        done.append("move users")
        raise Reached

    service = SimpleNamespace(endpoint=SimpleNamespace(address="b"))
    world = SimpleNamespace(contract=SimpleNamespace(name="n"), origin=SimpleNamespace(address="a"), ttl_s=1)
    monkeypatch.setattr("inferlift.stages.base.Context.need", lambda self, stage, model: world)
    monkeypatch.setattr(_fleet, "current", lambda ctx: service)
    monkeypatch.setattr(_wanted, "lift_expiry", lambda ctx: done.append("lift"))
    monkeypatch.setattr(_users, "running", lambda *_: nullcontext())
    monkeypatch.setattr(SwitchStage, "_hold_after_guard", lambda *_: None)
    monkeypatch.setattr(_guarding, "ensure", lambda *_: _guarding.Guarded(why="nobody is there in a test"))
    monkeypatch.setattr(SwitchStage, "_switch", first_write)
    return done


def parity(same: bool) -> Any:
    case = ParityCase(request="POST /api/chat", same=same, detail="status 200 and 500")
    return lambda self, ctx, world: (case,)


def test_it_is_lifted_after_the_replay_and_before_the_first_user(ctx, steps, monkeypatch) -> None:
    monkeypatch.setattr(SwitchStage, "_parity", parity(True))
    with pytest.raises(Reached):
        SwitchStage().run(ctx)
    assert steps == ["lift", "move users"]


def test_a_new_side_that_answers_otherwise_goes_on_to_its_end(ctx, steps, monkeypatch) -> None:
    monkeypatch.setattr(SwitchStage, "_parity", parity(False))
    with pytest.raises(CheckFailed, match="answered differently"):
        SwitchStage().run(ctx)
    assert steps == [], "what is not moved to may still end by itself"


def test_no_user_is_moved_while_something_still_expires(ctx, steps, monkeypatch) -> None:
    def still(ctx: Any) -> None:
        raise CheckFailed("1 hosts still expire")

    monkeypatch.setattr(SwitchStage, "_parity", parity(True))
    monkeypatch.setattr(_wanted, "lift_expiry", still)
    with pytest.raises(CheckFailed, match="still expire"):
        SwitchStage().run(ctx)
    assert steps == []


def test_an_account_that_is_not_ready_is_named_before_a_host_is_made(ctx, monkeypatch) -> None:
    checks = [Check(name="identity", ok=True), Check(name="quota in x", ok=False, detail="8 of 4 vCPUs")]
    monkeypatch.setattr("inferlift.provision.check_before_spending", lambda *_: checks, raising=False)
    with pytest.raises(Refusal, match="the account is not ready") as caught:
        _fleet.serve(ctx, _wanted.desired(ctx, poc=1))
    assert caught.value.why == "quota in x: 8 of 4 vCPUs"
    assert ctx.ledger.document("floors") is None
    assert ctx.ledger.open_intents() == []
