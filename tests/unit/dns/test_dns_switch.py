"""The driver over stand-ins: order, resume after a kill at any instant, foreign changes, roll-backs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, PLAN, Clock, Killed, StandInDns, StandInZone, gate, simple, stands, switch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift.artifacts import Gate
from inferlift.dns import settle, verify
from inferlift.dns.record import RecordState, agrees, shares
from inferlift.dns.switch import Switch
from inferlift.errors import CheckFailed, Held, Refusal, Retryable, Uncertain


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.zone = StandInZone()
        self.dns = StandInDns(self.zone, self.clock)
        self.verdicts: dict[int, str] = {}
        self.judged: list[int] = []

    def gates(self, weight: int) -> tuple[Gate, ...]:
        self.judged.append(weight)
        return (gate(self.verdicts.get(weight, "pass")),)  # type: ignore[arg-type]

    def switch(self, **more: Any) -> Switch:
        return switch(self.zone, self.clock, self.dns.net(), self.gates, **more)

    def weights(self) -> list[int]:
        return [round(100 * shares(s.weights).get(NEW, 0)) for s in self.zone.written]


@pytest.fixture
def world() -> World:
    return World()


def test_a_whole_switch(world: World) -> None:
    start = world.clock.now
    ended = []
    result = world.switch(on_step=ended.append).run()
    assert not result.rolled_back
    assert world.weights() == [0, 0, 1, 0, 0, 1, 10, 50, 100, 100]
    assert [s.kind for s in world.zone.written[:2]] == ["simple", "weighted"]
    assert [s.journal.phase for s in world.zone.written if s.journal][0:4] == [
        "ttl-lowered", "weighted", "rehearsing", "weighted",
    ]  # fmt: skip
    assert [s.weight for s in result.steps] == [0, 1, 10, 50, 100]
    assert ended == list(result.steps)
    assert all(s.asked > 0 and s.resolver_answers for s in result.steps)
    assert world.zone.state.weights == {NEW: 100}
    assert result.rehearsed_rollback_s is not None
    assert (result.ttl_before_s, result.ttl_s) == (10, 2)
    assert world.clock.now - start >= 10 + 4 * 2 * PLAN.ttl_s  # one old TTL, then two new ones a step
    assert world.dns.empty == 0


def test_a_second_run_of_a_finished_switch_writes_nothing(world: World) -> None:
    world.switch().run()
    written = len(world.zone.written)
    world.zone.run = "run-2"
    assert world.switch().run().steps == ()
    assert len(world.zone.written) == written


def test_a_ttl_that_is_low_already_is_neither_raised_nor_waited_for(world: World) -> None:
    world.zone.state = simple(1)
    start = world.clock.now
    assert world.switch().run().ttl_s == 1
    assert world.clock.now - start < 10 + 4 * 2 * 1


def test_a_longer_ttl_known_from_before_is_waited_for(world: World) -> None:
    start = world.clock.now
    world.switch(ttl_before=600).run()
    assert world.clock.now - start >= 600


def test_a_simple_record_with_an_hours_ttl_is_waited_for_before_a_weight_moves(world: World) -> None:
    world.zone.state = simple(3600)
    moved: list[float] = []
    world.zone.before_write = lambda: moved.append(world.clock.now)
    start = world.clock.now
    result = world.switch().run()
    assert moved[1] - moved[0] > 3600  # the lower TTL, and an hour later the weighted record
    assert (result.ttl_before_s, result.ttl_s) == (3600, 2)
    assert world.clock.now - start < 3600 + 120
    world.switch().rollback()
    world.switch().restore()
    assert world.zone.state == simple(3600)


@pytest.mark.parametrize("weight", [0, 1, 10, 50, 100])
def test_a_failing_side_is_left(world: World, weight: int) -> None:
    world.verdicts[weight] = "fail"
    result = world.switch().run()
    assert result.rolled_back
    assert world.zone.state.weights == {OLD: 100}
    assert world.judged.count(weight) == PLAN.failures_to_roll_back
    assert max(world.weights()) <= max(weight, 1)
    assert "stand-in says fail" in result.why
    assert result.rollback_s is not None
    assert result.rollback_resolver_s is not None
    assert result.steps[-1].weight == weight
    # the same attempt is over; a new one begins again and passes
    assert world.switch().run().rolled_back
    world.verdicts.clear()
    world.zone.run = "run-2"
    assert not world.switch().run().rolled_back
    assert world.zone.state.weights == {NEW: 100}


def test_the_undecided_hold_where_they_are(world: World) -> None:
    world.verdicts[10] = "inconclusive"
    with pytest.raises(Held, match="stays at 10 %"):
        world.switch(undecided=3).run()
    assert world.zone.state.weights == {OLD: 90, NEW: 10}
    assert world.judged.count(10) == 3
    world.verdicts.clear()
    assert not world.switch().run().rolled_back


def test_forward_back_forward(world: World) -> None:
    world.switch().run()
    times = world.switch().rollback()
    assert world.zone.state.weights == {OLD: 100}
    assert 0 < float(times) == times.authority_s < 1
    assert times.resolver_s is not None
    written = len(world.zone.written)
    world.switch().rollback()  # again: nothing to write, still looked at
    assert len(world.zone.written) == written
    world.zone.run = "run-2"
    assert not world.switch().run().rolled_back
    world.switch().rollback()
    world.switch().restore()
    assert world.zone.state == simple(10)


def test_rollback_of_a_switch_that_never_began(world: World) -> None:
    world.switch().rollback()
    assert world.zone.written == []


def test_a_resolver_that_serves_stale_answers_is_said(world: World) -> None:
    world.switch().run()
    world.dns.cached = (NEW, world.clock.now + 10_000)
    assert world.switch().rollback().resolver_s is None


def test_restore_refuses_while_the_new_side_is_answered(world: World) -> None:
    world.switch().run()
    with pytest.raises(Refusal, match="still answers"):
        world.switch().restore()


def test_a_weight_changed_by_someone_else_stops_the_run_and_is_named(world: World) -> None:
    def meddle(weight: int) -> tuple[Gate, ...]:
        if weight == 10:
            world.zone.state = stands({OLD: 30, NEW: 70}, world.zone.state.journal)
        return (gate("pass"),)

    with pytest.raises(Refusal) as stopped:
        switch(world.zone, world.clock, world.dns.net(), meddle).run()
    assert f"{NEW} 70%" in stopped.value.why
    assert world.zone.state.weights == {OLD: 30, NEW: 70}  # left as found
    with pytest.raises(Refusal):
        world.switch().run()
    (found, *_) = verify(world.zone, NAME, {OLD: 90, NEW: 10}, authority="a", resolver="r", net=world.dns.net())
    assert not found.ok
    assert "changed by someone else" in found.detail
    assert f"{NEW} 70%" in found.detail
    world.switch().rollback()  # but the operator may always go back
    assert world.zone.state.weights == {OLD: 100}


def test_a_guards_rollback_ends_the_run(world: World) -> None:
    def guard(weight: int) -> tuple[Gate, ...]:
        if weight == 50:
            other = StandInZone(run="guard", state=world.zone.state)
            switch(other, world.clock, StandInDns(other, world.clock).net(), world.gates).rollback()
            world.zone.state = other.state
        return (gate("pass"),)

    result = switch(world.zone, world.clock, world.dns.net(), guard).run()
    assert result.rolled_back
    assert "guard" in result.why
    assert world.zone.state.weights == {OLD: 100}


def test_an_authority_that_cannot_weight_gets_the_simple_record_back(world: World) -> None:
    net = world.dns.net()

    def shares_(authority: str, name: str, n: int) -> Any:
        got = world.dns.shares(authority, name, n)
        return got if world.zone.state.kind == "simple" else type(got)(n, {}, n, None)

    with pytest.raises(CheckFailed, match="taken back"):
        switch(world.zone, world.clock, type(net)(shares_, net.resolver, net.journal), world.gates).run()
    assert world.zone.state.kind == "simple"


def test_an_authority_that_lags_is_waited_for(world: World) -> None:
    net, shown = world.dns.net(), []

    def late(authority: str, name: str) -> Any:
        shown.append(world.clock.now)
        now = world.zone.state.journal
        assert now is not None
        older = now.model_copy(update={"sequence": now.sequence - 1}) if now.sequence > 1 else None
        return now if len(shown) % 4 == 0 else older

    assert not switch(world.zone, world.clock, type(net)(net.shares, net.resolver, late), world.gates).run().rolled_back
    assert len(shown) >= 4 * (len(world.zone.written) - 1)


def test_silent_dns_is_no_verdict(world: World) -> None:
    net = world.dns.net()

    def silent(resolver: str, name: str) -> Any:
        raise Retryable("r does not answer DNS")

    with pytest.raises(Held) as held:
        switch(world.zone, world.clock, type(net)(net.shares, silent, net.journal), world.gates).run()
    assert "r does not answer DNS" in held.value.why


@pytest.mark.parametrize("written", [True, False])
def test_a_write_of_unknown_outcome_is_settled_by_reading(world: World, written: bool) -> None:
    broken = []

    def once() -> None:
        if len(broken) < 3:
            broken.append(1)
            raise Uncertain("broke off")

    if written:
        world.zone.after_write = once
    else:
        world.zone.before_write = once
    assert not world.switch().run().rolled_back
    assert len(broken) == 3
    assert world.weights()[-1] == 100


def test_verify_passes_after_a_switch_and_finds_what_is_wrong(world: World) -> None:
    world.switch().run()
    world.dns.cached = None
    more: dict[str, Any] = {"authority": ("a",), "resolver": "r", "net": world.dns.net()}
    assert all(c.ok for c in verify(world.zone, NAME, {NEW: 100}, **more))
    assert [c.ok for c in verify(world.zone, NAME, {OLD: 100}, **more)] == [False, False, False]
    world.zone.owner = "another"
    assert not verify(world.zone, NAME, {NEW: 100}, **more)[0].ok


BOUNDARIES = ("before the intent", "inside, unwritten", "inside, written", "after the write", "after the outcome")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kills=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(BOUNDARIES)), max_size=8),
    looks=st.lists(st.sampled_from(("pass", "pass", "pass", "fail", "inconclusive")), max_size=40),
    meddle=st.none() | st.integers(0, 20),
)
def test_whatever_happens(kills: list[tuple[int, str]], looks: list[str], meddle: int | None) -> None:
    """Random gates, kills and a foreign change: never no answer, never weight left on a side that failed, always a
    way back, and every unknown intent is settled."""
    world, pending, script = World(), [], iter(looks)
    plan = list(kills)
    failed_in_a_row = 0

    def look(weight: int) -> tuple[Gate, ...]:
        nonlocal failed_in_a_row, meddle
        if meddle is not None and (meddle := meddle - 1) < 0:
            meddle = None
            world.zone.state = stands({OLD: 40, NEW: 60}, world.zone.state.journal)
        verdict = next(script, "pass")
        failed_in_a_row = failed_in_a_row + 1 if verdict == "fail" else 0 if verdict == "pass" else failed_in_a_row
        return (gate(verdict),)  # type: ignore[arg-type]

    def kill_now(boundary: str) -> bool:
        if plan and plan[0][1] == boundary:
            count = plan[0][0]
            plan[0] = (count - 1, boundary)
            if count <= 0:
                plan.pop(0)
                return True
        return False

    @contextlib.contextmanager
    def intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
        if kill_now("before the intent"):
            raise Killed
        pending.append(planned)
        yield
        if kill_now("after the write"):
            raise Killed
        pending.remove(planned)
        if kill_now("after the outcome"):
            raise Killed

    def before_write() -> None:
        if kill_now("inside, unwritten"):
            raise Killed

    def after_write() -> None:
        assert_safe(world.zone.state)
        if kill_now("inside, written"):
            raise Killed

    world.zone.before_write, world.zone.after_write = before_write, after_write
    foreign = False
    result = None
    for attempt in range(len(kills) + 20):
        for planned in list(pending):
            outcome = settle(world.zone.state, planned)
            changed = world.zone.state.journal is not None and not agrees(world.zone.state, world.zone.state.journal)
            assert outcome in ("done", "absent") or changed, outcome
            pending.remove(planned)
        world.zone.run = f"run-{attempt}"
        failed_in_a_row = 0
        try:
            result = switch(world.zone, world.clock, world.dns.net(), look, on_intent=intent).run()
            break
        except Killed:
            continue
        except Held:
            assert failed_in_a_row == 0  # never held on a side that failed
            continue
        except Refusal:
            foreign = True
            break
    assert world.dns.empty == 0
    assert_safe(world.zone.state)
    if not foreign:
        assert result is not None
        assert world.zone.state.weights == ({OLD: 100} if result.rolled_back else {NEW: 100})
        if failed_in_a_row >= PLAN.failures_to_roll_back:
            assert result.rolled_back
        elif result.rolled_back:  # one failed look, and then five that did not decide: not held on such a side
            assert failed_in_a_row > 0
    world.zone.before_write = world.zone.after_write = lambda: None
    world.switch().rollback()
    assert shares(world.zone.state.weights) == {OLD: 1.0}


def assert_safe(state: RecordState) -> None:
    assert shares(state.weights), "the name has no answer"
    assert set(state.weights) <= {OLD, NEW}
    assert state.journal is not None
    assert agrees(state, state.journal) or state.weights == {OLD: 40, NEW: 60}
