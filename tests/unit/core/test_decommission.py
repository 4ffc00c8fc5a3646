"""The end of the old side: what stands against it, what is shown, what is done, and the way back after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import decommission, migration, ssh, teardown
from inferlift.artifacts import Check, Cutover, Status
from inferlift.artifacts.cutover import Quiet, StubbornClient
from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.profile import Origin
from inferlift.stages import _edge, _fleet, _old_side
from inferlift.stages.switch import SwitchStage

pytestmark = pytest.mark.usefixtures("as_root")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MOVED = Cutover(
    name="ai.demo.test", old="a", new="b", ttl_before_s=1, ttl_s=1, steps=(), parity=(), rehearsed_rollback_s=None,
    users=(), rolled_back=False,
)  # fmt: skip
QUIET = Quiet(quiet=True, why="no user's request for 3 s", window_s=3)
STUBBORN = StubbornClient(address="192.0.2.7", agent="curl/8", requests=4, last=NOW - timedelta(seconds=1))
ORIGIN = SimpleNamespace(name="origin", user="root", address="192.0.2.1", role="origin")
MONITOR = SimpleNamespace(name="monitor-1", role="monitor")


@pytest.fixture
def said() -> list[tuple[str, str]]:
    """(host, command) of all that was run."""
    return []


@pytest.fixture
def ctx(where, table, monkeypatch: pytest.MonkeyPatch, said):
    def run(host: Any, command: str, **named: Any) -> Any:
        said.append((host.name, command))
        return SimpleNamespace(stdout="")

    fleet = SimpleNamespace(by_role=lambda role: [MONITOR] if role == "monitor" else [])
    monkeypatch.setattr(ssh, "run", run)
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=fleet))
    monkeypatch.setattr(_fleet, "origin_target", lambda ctx: None)
    monkeypatch.setattr(_old_side, "quiet", lambda world, **named: QUIET)
    monkeypatch.setattr(SwitchStage, "verify", lambda self, ctx, a: [Check(name="dns", ok=True, detail="b 100 %")])
    answers(monkeypatch, ok=True)
    monkeypatch.setattr("inferlift.stages.base.Context.need", lambda self, stage, model: SimpleNamespace(origin=ORIGIN))
    with migration.session(where, "decommission") as ctx:
        for name, artifact in (("switch", MOVED), ("watch", None)):
            ctx.ledger.begin(name, "k")
            ctx.ledger.finish(name, artifact, Status.DONE, 1.0)
        yield ctx


def answers(monkeypatch: pytest.MonkeyPatch, *, ok: bool) -> None:
    check = Check(name="completion", ok=ok, detail="connection refused")
    monkeypatch.setattr("inferlift.load.probe.complete", lambda *a, **k: [check])


def test_it_is_shown_and_nothing_is_done(ctx, said) -> None:
    seen, steps = decommission.decommission(ctx, apply=False)
    assert seen == QUIET
    assert [s.text.partition(":")[0] for s in steps] == ["monitor-1", "origin"]  # the guard first
    assert all(s.back for s in steps)
    assert said == []
    assert ctx.ledger.document("decommissioned") is None


def test_applied_it_stops_the_guard_and_then_the_old_side_once(ctx, said) -> None:
    decommission.decommission(ctx, apply=True)
    assert [(host, command.split(" ")[1]) for host, command in said] == [
        ("monitor-1", "disable"), ("origin", "disable"),
    ]  # fmt: skip
    assert "rm " not in " ".join(command for _, command in said)
    before = list(said)
    seen, _ = decommission.decommission(ctx, apply=True)
    assert seen is None
    assert said == before


def test_the_way_back_starts_the_old_side_first(ctx, said, monkeypatch) -> None:
    decommission.decommission(ctx, apply=True)
    said.clear()
    order: list[str] = []
    monkeypatch.setattr(SwitchStage, "rollback", lambda self, ctx: order.append(f"dns after {len(said)}") or 0.1)
    teardown.rollback(ctx)
    assert ("origin", "systemctl enable --now nginx chat llamacpp") in said
    assert order == ["dns after 1"]
    assert ctx.ledger.document("decommissioned") is None


def test_an_old_side_that_does_not_come_up_gets_no_users_back(ctx, monkeypatch) -> None:
    decommission.decommission(ctx, apply=True)
    answers(monkeypatch, ok=False)
    monkeypatch.setattr(SwitchStage, "rollback", lambda self, ctx: pytest.fail("users were sent to it"))
    with pytest.raises(CheckFailed, match="does not answer"):
        teardown.rollback(ctx)


def test_killed_in_between_it_is_undone_by_the_way_back_too(ctx, said, monkeypatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*a: Any, **k: Any) -> Any:
        raise Killed

    monkeypatch.setattr("inferlift.stages._guarding.stop", killed)
    with pytest.raises(Killed):
        decommission.decommission(ctx, apply=True)
    assert decommission.undo(ctx)
    assert said[0] == ("origin", "systemctl enable --now nginx chat llamacpp")


@pytest.mark.parametrize("missing", ["switch", "watch"])
def test_it_is_not_offered_before_the_watch_has_passed(ctx, missing) -> None:
    ctx.ledger.mark(missing, Status.HELD, "does not decide")
    with pytest.raises(Refusal, match=f"{missing} is held"):
        decommission.decommission(ctx, apply=True)


def test_it_is_not_offered_while_somebody_else_moved_users(ctx, monkeypatch) -> None:
    monkeypatch.setattr(SwitchStage, "verify", lambda self, ctx, a: [Check(name="dns", ok=False, detail="a 50 %")])
    with pytest.raises(Refusal, match="not all on the new side"):
        decommission.decommission(ctx, apply=True)


@pytest.mark.parametrize("quiet", [False, None])
def test_clients_that_still_come_are_named_by_address_and_agent(ctx, said, monkeypatch, quiet) -> None:
    busy = Quiet(quiet=quiet, why="1 clients asked", window_s=3, clients=(STUBBORN,))
    monkeypatch.setattr(_old_side, "quiet", lambda world, **named: busy)
    with pytest.raises(Refusal, match="not quiet yet") as refused:
        decommission.decommission(ctx, apply=True)
    assert "192.0.2.7 (curl/8): 4 requests" in refused.value.why
    assert said == []


def test_a_log_that_cannot_be_read_is_no_quiet_one(ctx, said, monkeypatch) -> None:
    def away(world: Any, **named: Any) -> Any:
        raise Retryable("origin does not answer over SSH")

    monkeypatch.setattr(_old_side, "quiet", away)
    with pytest.raises(Retryable):
        decommission.decommission(ctx, apply=True)
    assert said == []


def test_a_side_that_was_found_is_its_owners_to_stop(ctx, said, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(origin=ORIGIN, contract=SimpleNamespace(name="ai.x.test"))
    monkeypatch.setattr("inferlift.stages.base.Context.need", lambda self, stage, model: found)
    ctx.profile = ctx.profile.model_copy(update={"origin": Origin(name="ai.x.test", logs="/var/log/a.log")})
    _, steps = decommission.decommission(ctx, apply=True)
    assert steps[-1].text == "by hand, on root@192.0.2.1: stop what answers ai.x.test there"
    assert [host for host, _ in said] == ["monitor-1"]
    said.clear()
    assert decommission.undo(ctx)
    assert said == [], "whoever runs it starts it again; that it answers is looked at"


@pytest.mark.parametrize(("lab", "weights", "refused"), [(None, {"b": 100}, True), (None, {"a": 100}, False)])
def test_the_fleet_of_a_found_side_is_kept_while_users_are_on_it(
    ctx, monkeypatch: pytest.MonkeyPatch, lab: None, weights: dict[str, int], refused: bool
) -> None:
    fleet = SimpleNamespace(endpoints=[SimpleNamespace(address="b")], hosts=[])
    monkeypatch.setattr("inferlift.provision.read_fleet", lambda *a: fleet)
    monkeypatch.setattr("inferlift.provision.read_world", lambda *a: pytest.fail("the lab has none to be read"))
    monkeypatch.setattr("inferlift.stages.base.Context.world", lambda self: SimpleNamespace(lab=lab))
    monkeypatch.setattr("inferlift.stages.base.Context.tools", lambda self: None)
    monkeypatch.setattr(SwitchStage, "users_at", lambda self, ctx: weights)
    if refused:
        with pytest.raises(Refusal, match="DNS points at the fleet"):
            teardown._refuse_if_used(ctx)
    else:
        teardown._refuse_if_used(ctx)


@pytest.mark.parametrize(("lab", "restored"), [(None, ["b"]), ("the lab's", [])])
def test_a_found_sides_record_is_given_back_with_the_fleet(
    ctx, monkeypatch: pytest.MonkeyPatch, lab: Any, restored: list[str]
) -> None:
    done: list[str] = []
    switch = lambda self, ctx, world, service: SimpleNamespace(restore=lambda: done.append(service.endpoint.address))  # noqa: E731
    monkeypatch.setattr("inferlift.stages.base.Context.world", lambda self: SimpleNamespace(lab=lab))
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(endpoint=SimpleNamespace(address="b")))
    monkeypatch.setattr(SwitchStage, "_switch", switch)
    monkeypatch.setattr(_edge, "legs", lambda ctx, world: {})
    SwitchStage().give_back(ctx)
    assert done == [], "there is no fleet, so nobody was ever led to it"
    ctx.ledger.set_document("service", {"endpoint": {"address": "b"}})
    SwitchStage().give_back(ctx)
    assert done == restored
