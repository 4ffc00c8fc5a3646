from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dns_standins import NEW, OLD, OWNER, gate, journal, simple, stands

from inferlift.dns.record import Journal, RecordState
from inferlift.dns.steps import Position, Rules, Stand, decide, judged, position, verdict

NOW = datetime(2026, 11, 30, tzinfo=UTC)
RULES = Rules((1, 10, 50, 100), failures=2, undecided=3)


def where(state: RecordState, run: str = "run-1") -> Position:
    return position(state, owner=OWNER, run=run, old=OLD, new=NEW)


def at(weight: int, phase: str, *, kind: str = "weighted", **more: object) -> RecordState:
    intended = {OLD: 100 - weight, NEW: weight}
    book: Journal = journal(phase=phase, intended=intended, **more)
    return stands(intended if kind == "weighted" else {OLD: 1}, book, kind)


@pytest.mark.parametrize(
    ("state", "stand", "weight"),
    [
        (simple(10), Stand.NOT_STARTED, 0),
        (at(0, "ttl-lowered", kind="simple"), Stand.TTL_LOWERED, 0),
        (at(0, "weighted"), Stand.WEIGHTED, 0),
        (at(1, "rehearsing"), Stand.REHEARSING, 1),
        (at(10, "stepping"), Stand.STEPPING, 10),
        (at(100, "done"), Stand.DONE, 100),
        (at(0, "rolled-back"), Stand.ROLLED_BACK, 0),
        (at(0, "rolled-back", run="an earlier one"), Stand.WEIGHTED, 0),
        (at(0, "rolled-back", kind="simple", run="an earlier one"), Stand.NOT_STARTED, 0),
        (at(10, "stepping", owner="another"), Stand.STOPPED, 0),
        (stands({OLD: 50, NEW: 50}, journal()), Stand.STOPPED, 0),
        (stands({OLD: 90, NEW: 10}, None), Stand.STOPPED, 0),
        (stands({OLD: 100}, journal(intended={"192.0.2.1": 0, OLD: 100}, phase="done")), Stand.NOT_STARTED, 0),
        (stands({NEW: 100}, journal(intended={"192.0.2.1": 0, NEW: 100}, phase="done")), Stand.STOPPED, 0),
    ],
)
def test_position_is_rebuilt_from_the_record_alone(state: RecordState, stand: Stand, weight: int) -> None:
    assert (where(state).stand, where(state).weight) == (stand, weight)


def test_the_rehearsal_is_remembered_for_one_run() -> None:
    assert where(at(0, "weighted", rehearsed_s=0.1)).rehearsed
    assert not where(at(0, "rolled-back", rehearsed_s=0.1), run="run-2").rehearsed


def test_no_weight_moves_before_the_old_ttl_is_over() -> None:
    until = NOW + timedelta(seconds=10)
    lowered = where(at(0, "ttl-lowered", kind="simple", not_before=until))
    assert decide(lowered, RULES, NOW).what == "wait"
    assert decide(lowered, RULES, NOW).until == until
    assert decide(lowered, RULES, until).what == "make_weighted"


def test_the_order_of_an_undisturbed_switch() -> None:
    now = Position(Stand.WEIGHTED)
    assert decide(now, RULES, NOW).what == "judge"  # nothing moves before the new side passed once
    now = judged(now, [gate("pass")])
    assert decide(now, RULES, NOW).what == "rehearse"
    now = replace(now, rehearsed=True)
    seen = []
    for _ in range(4):
        action = decide(now, RULES, NOW)
        seen.append((action.what, action.weight))
        now = judged(Position(Stand.STEPPING, action.weight, rehearsed=True), [gate("pass")])
    assert seen == [("set_weight", 1), ("set_weight", 10), ("set_weight", 50), ("set_weight", 100)]
    assert decide(now, RULES, NOW).what == "finish"


@pytest.mark.parametrize(
    ("looks", "then"),
    [
        (["fail"], "judge"),
        (["fail", "fail"], "roll_back"),
        (["fail", "pass"], "set_weight"),
        (["fail", "inconclusive", "fail"], "roll_back"),
        (["inconclusive"] * 2, "judge"),
        (["inconclusive"] * 3, "hold"),
        (["inconclusive", "pass"], "set_weight"),
        (["fail", *["inconclusive"] * 3], "roll_back"),  # held users would sit on a side that failed
    ],
)
def test_failures_in_a_row_roll_back_and_the_undecided_hold(looks: list[str], then: str) -> None:
    now = Position(Stand.STEPPING, 10, rehearsed=True)
    for look in looks:
        now = judged(now, [gate(look)])  # type: ignore[arg-type]
    assert decide(now, RULES, NOW).what == then


def test_a_failure_before_the_first_weight_rolls_back_too() -> None:
    now = judged(judged(Position(Stand.WEIGHTED), [gate("fail")]), [gate("fail")])
    assert decide(now, RULES, NOW).what == "roll_back"


def test_no_gate_decides_nothing() -> None:
    assert verdict([]) == "inconclusive"
    assert judged(Position(Stand.STEPPING, 10), []).undecided == 1


@pytest.mark.parametrize(
    ("old", "new", "weight", "proven", "failures"),
    [
        ("fail", "pass", 10, True, 0),  # a bad old side is no reason to stay on it
        ("fail", "fail", 10, False, 1),
        ("inconclusive", "pass", 10, False, 0),
        ("inconclusive", "pass", 100, True, 0),  # it has no users any more
    ],
)
def test_both_sides_are_heard(old: str, new: str, weight: int, proven: bool, failures: int) -> None:
    gates = [gate(old, "old side errors"), gate(new)]  # type: ignore[arg-type]
    now = judged(Position(Stand.STEPPING, weight), gates)
    assert (now.proven, now.failures) == (proven, failures)


@pytest.mark.parametrize("stand", [Stand.DONE, Stand.ROLLED_BACK, Stand.HELD, Stand.STOPPED])
def test_what_has_ended_does_nothing(stand: Stand) -> None:
    assert decide(Position(stand, 10, failures=9), RULES, NOW).what == "none"
