"""The switch's step machine: pure, so that every order of gates, kills and changes can be tried in a test.

    not started -> ttl lowered -> weighted 100/0 -> (rehearsed roll-back) -> step by step -> done
                                        any of them -> rolled back | held | stopped

`position` rebuilds where a switch stands from the record and its journal alone, `decide` says what to do next,
`judged` takes the gates in. Counts of failures live in memory: a resumed run starts counting anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal

from inferlift.artifacts import Gate, Verdict
from inferlift.dns.record import RecordState, difference, shares

OLD_SIDE = ("old side", "old:")  # a gate whose name starts so judges the old side, any other the new one

REHEARSAL = 1  # percent on the new side while a roll-back is rehearsed

What = Literal[
    "lower_ttl", "wait", "make_weighted", "judge", "rehearse", "set_weight", "hold", "roll_back", "finish", "none"
]


class Stand(StrEnum):
    """Where a switch stands."""

    NOT_STARTED = "not started"
    TTL_LOWERED = "ttl lowered"
    WEIGHTED = "weighted"  # weighted record, everything on the old side
    REHEARSING = "rehearsing"  # a roll-back is being rehearsed: the first weight is out
    STEPPING = "stepping"
    DONE = "done"
    ROLLED_BACK = "rolled back"
    HELD = "held"
    STOPPED = "stopped"  # someone else changed the record


@dataclass(frozen=True)
class Rules:
    """`steps`: rising percents on the new side. `failures`: failing looks in a row that roll back. `undecided`:
    inconclusive looks in a row that hold. `rehearsal`: percent on the new side while a roll-back is rehearsed; 0: only
    the journal goes out and back, where a back end cannot give so few users."""

    steps: tuple[int, ...]
    failures: int = 2
    undecided: int = 5
    rehearsal: int = REHEARSAL

    @classmethod
    def of(cls, steps: tuple[int, ...], possible: tuple[int, ...] | None, failures: int, undecided: int) -> Rules:
        """The rules a back end can keep: steps that it cannot give are left out, 100 never is."""
        if possible is None:
            return cls(steps, failures, undecided)
        given = [s for s in steps if s in possible and s < 100]
        return cls((*given, 100), failures, undecided, rehearsal=0)


@dataclass(frozen=True)
class Position:
    """`weight`: percent on the new side. `proven`: the gates passed at this weight."""

    stand: Stand
    weight: int = 0
    proven: bool = False
    rehearsed: bool = False
    failures: int = 0
    undecided: int = 0
    not_before: datetime | None = None
    why: str = ""

    @property
    def ended(self) -> bool:
        return self.stand in (Stand.DONE, Stand.ROLLED_BACK, Stand.HELD, Stand.STOPPED)


@dataclass(frozen=True)
class Action:
    what: What
    weight: int = 0
    until: datetime | None = None
    why: str = ""


def position(state: RecordState, *, owner: str, run: str, old: str, new: str) -> Position:
    """Where this switch stands by what is in DNS. A record that differs from its journal stops it.

    A roll-back of an earlier run is where a new run begins; one of this run is its end.
    """
    journal = state.journal
    changed = difference(state)
    if changed:
        return Position(Stand.STOPPED, why=changed)
    if journal is not None and journal.owner != owner:
        return Position(Stand.STOPPED, why=f"the record belongs to {journal.owner}")
    if state.kind == "absent":
        return Position(Stand.STOPPED, why=f"{state.name} has no address record")
    present = shares(state.weights)
    if journal is None or set(journal.intended) != {old, new}:  # free, or an earlier switch between other addresses
        if present == {old: 1.0}:
            return Position(Stand.NOT_STARTED)
        return Position(Stand.STOPPED, why=f"{state.name} answers {', '.join(present)}, not {old} alone")
    weight = round(100 * present.get(new, 0.0))
    rehearsed = journal.rehearsed_s is not None
    match journal.phase:
        case "ttl-lowered":
            return Position(Stand.TTL_LOWERED, not_before=journal.not_before)
        case "rehearsing":
            return Position(Stand.REHEARSING, weight)
        case "stepping":
            return Position(Stand.STEPPING, weight, rehearsed=rehearsed)
        case "done":
            return Position(Stand.DONE, weight, proven=True, rehearsed=rehearsed)
        case "rolled-back" if journal.run == run:
            return Position(Stand.ROLLED_BACK, rehearsed=rehearsed)
        case "rolled-back" if state.kind == "simple":
            return Position(Stand.NOT_STARTED)
        case _:  # weighted, or rolled back by an earlier run
            return Position(Stand.WEIGHTED, rehearsed=rehearsed and journal.run == run)


def decide(at: Position, rules: Rules, now: datetime) -> Action:
    """The next action. `none`: the switch has ended."""
    if at.ended:
        return Action("none", at.weight, why=at.why)
    if at.failures >= rules.failures:
        return Action("roll_back", why=at.why)
    if at.undecided >= rules.undecided:
        # a side that failed its last decided look keeps no users while we wait for a person
        return Action("roll_back" if at.failures else "hold", at.weight, why=at.why)
    match at.stand:
        case Stand.NOT_STARTED:
            return Action("lower_ttl")
        case Stand.TTL_LOWERED if at.not_before is not None and now < at.not_before:
            return Action("wait", until=at.not_before, why="answers with the old TTL may still be cached")
        case Stand.TTL_LOWERED:
            return Action("make_weighted")
        case Stand.REHEARSING:
            return Action("rehearse", at.weight)
    if not at.proven:
        return Action("judge", at.weight)
    if at.stand is Stand.WEIGHTED and not at.rehearsed:
        return Action("rehearse", rules.rehearsal)
    following = next((s for s in rules.steps if s > at.weight), None)
    return Action("finish", at.weight) if following is None else Action("set_weight", following)


def judged(at: Position, gates: Sequence[Gate]) -> Position:
    """Take one look at the gates in. The new side decides; no gate at all decides nothing.

    A failing old side is no reason to stay on it; an undecided one holds, except at 100 % where it has no users.
    """
    new = verdict([g for g in gates if not g.name.startswith(OLD_SIDE)])
    old = {g.verdict for g in gates if g.name.startswith(OLD_SIDE)} if at.weight < 100 else set()
    why = "; ".join(f"{g.name}: {g.why}" for g in gates if g.verdict != "pass")
    if new == "fail":
        return replace(at, failures=at.failures + 1, proven=False, why=why)
    if new == "inconclusive" or ("inconclusive" in old and "fail" not in old):
        return replace(at, undecided=at.undecided + 1, proven=False, why=why)
    return replace(at, failures=0, undecided=0, proven=True, why=why)


def verdict(gates: Sequence[Gate]) -> Verdict:
    """One failing gate fails; otherwise one inconclusive gate, or none at all, is inconclusive."""
    verdicts = {g.verdict for g in gates}
    if "fail" in verdicts:
        return "fail"
    return "pass" if verdicts == {"pass"} else "inconclusive"


def moved(at: Position, stand: Stand, weight: int, *, rehearsed: bool | None = None) -> Position:
    """After a write: nothing is proven at the new weight yet, unless the weight did not change."""
    same = weight == at.weight
    return Position(
        stand,
        weight,
        proven=at.proven and same,
        rehearsed=at.rehearsed if rehearsed is None else rehearsed,
        why=at.why if stand is Stand.ROLLED_BACK else "",
    )
