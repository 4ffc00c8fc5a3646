"""Drives the step machine over a back end: one write a step, read back, visible at every authority, judged.

Killed anywhere, `run` goes on from what the record and its journal say. Every write is announced to the caller's
ledger first (`intent`) and belongs to one sequence number of the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from inferlift import profile
from inferlift.artifacts import Artifact, Figure, Gate, SwitchStep
from inferlift.dns import answers, guards, steps
from inferlift.dns.backend import Backend, Desired
from inferlift.dns.record import Journal, Phase, RecordState, difference, settle, shares, show, utc
from inferlift.dns.steps import Position, Stand
from inferlift.errors import CheckFailed, Refusal, Retryable, Uncertain

Intent = Callable[[str, str, dict[str, Any], dict[str, Any]], AbstractContextManager[Any]]
TTL_MARGIN_S = 1.0
VISIBLE_S = 30.0  # a secondary may be that late
PROBE = 60  # direct queries that show a write is visible
SAMPLE = 300  # direct queries that show the share
READS = 5
ROUNDS = 2000  # actions of one run; a bound, never reached by a switch that ends


@dataclass(frozen=True)
class Net:
    """How DNS is asked; replaced in tests."""

    shares: Callable[[str, str, int], answers.Answers]
    resolver: Callable[[str, str], tuple[tuple[str, ...], int | None]]
    journal: Callable[[str, str], Journal | None]

    @classmethod
    def real(cls, port: int = 53) -> Net:
        return cls(
            partial(answers.authority_share, port=port),
            partial(answers.resolver_answers, port=port),
            partial(answers.journal_at, port=port),
        )


class RollbackTimes(Artifact):
    """Seconds from the decision until every authority, then every resolver, names the old side alone."""

    authority_s: float
    resolver_s: float | None  # None: not within the TTL and a margin; users of that resolver are still on the new side


class Result(Artifact):
    outcome: Literal["done", "rolled back", "held"]
    steps: tuple[SwitchStep, ...]  # of this process; `on_step` got each as it ended
    rolled_back: bool
    rehearsed_rollback_s: float | None
    rollback: RollbackTimes | None
    ttl_before_s: int
    ttl_s: int
    seconds: float
    why: str = ""


class Switch:
    """Moves `name` from `old` to `new`. `gates(weight)` judges both sides: names that start with `old:` judge the
    old one. `run_id` names this attempt: a roll-back of another attempt is begun anew, one of this is its end.

    `authorities` and `resolvers` are addresses that answer DNS. `clock` gives Unix seconds.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        old: str,
        new: str,
        plan: profile.Switch,
        *,
        owner: str,
        run_id: str,
        gates: Callable[[int], tuple[Gate, ...]],
        intent: Intent,
        authorities: Sequence[str],
        resolvers: Sequence[str],
        say: Callable[[str], None] = lambda _: None,
        on_step: Callable[[SwitchStep], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        net: Net | None = None,
        undecided: int = 5,
    ) -> None:
        if old == new:
            raise Refusal(f"{name}: old and new side are the same address {old}")
        self.backend, self.name, self.old, self.new, self.plan = backend, name, old, new, plan
        self.owner, self.run_id, self.gates, self.intent = owner, run_id, gates, intent
        self.authorities, self.resolvers = tuple(authorities), tuple(resolvers)
        self.say, self.on_step, self.clock, self.sleep = say, on_step, clock, sleep
        self.net = net or Net.real()
        self.rules = steps.Rules(plan.steps, plan.failures_to_roll_back, undecided)
        self._steps: list[SwitchStep] = []
        self._journal: Journal | None = None
        self._written_at = clock()
        self._rollback: RollbackTimes | None = None

    def run(self) -> Result:
        """Drive the switch to its end, from wherever it stands.

        Raises Refusal when someone else changed the record (it is left as found), Retryable when DNS or its API
        cannot be reached, CheckFailed when a write never becomes visible.
        """
        start = self.clock()
        state = self._read()
        self._journal = state.journal
        at = steps.position(state, owner=self.owner, run=self.run_id, old=self.old, new=self.new)
        self.say(f"{self.name}: {at.stand}, {at.weight} % on {self.new}")
        for _ in range(ROUNDS):
            if at.stand is Stand.STOPPED:
                raise Refusal(f"the switch of {self.name} stops here", why=at.why, next_command=guards.LOOK)
            action = steps.decide(at, self.rules, utc(self.clock()))
            if action.what in ("none", "hold"):
                return self._result(at, start)
            at = self._act(at, action)
        raise CheckFailed(f"the switch of {self.name} did not end after {ROUNDS} actions")

    def rollback(self, why: str = "asked for") -> RollbackTimes:
        """Everything back to the old side: written, seen at every authority, then at the resolvers.

        Weights someone else set between the two known addresses are overwritten, and named. Raises Refusal when the
        record is foreign or answers unknown addresses, CheckFailed when an authority does not show it.
        """
        decided = self.clock()
        state = self._read()
        if changed := difference(state):
            self.say(f"found before rolling back: {changed}")
        back = state.journal is not None and state.journal.phase == "rolled-back" and not changed
        untouched = state.journal is None and shares(state.weights) == {self.old: 1.0}
        if not back and not untouched:
            self.say(f"{self.name}: rolling back to {self.old} ({why})")
            self._write("roll_back", state, 0, "rolled-back")
        elif untouched or set(shares(state.weights)) != {self.old}:
            guards.check_present(state, addresses=frozenset((self.old, self.new)), owner=self.owner)
        self._journal = self._journal if not back else state.journal
        authority_s = self._await_visible(decided, {self.old})
        ttl = state.ttl_s or 0
        seen = answers.wait_visible(
            lambda: all(set(self.net.resolver(r, self.name)[0]) == {self.old} for r in self.resolvers),
            timeout_s=ttl + 5.0,
            clock=self.clock,
            sleep=self.sleep,
            every_s=0.1,
        )
        resolver_s = None if seen is None else self.clock() - decided
        self.say(
            f"{self.name}: old side alone at the authority after {authority_s:.2f} s, at the resolver "
            + (f"after {resolver_s:.1f} s" if resolver_s is not None else f"not within {ttl + 5} s")
        )
        self._rollback = RollbackTimes(authority_s=authority_s, resolver_s=resolver_s)
        return self._rollback

    def restore(self) -> None:
        """Give the record back as it was found before the switch, TTL and type included, and take the journal away.

        Raises Refusal unless the old side alone is answered.
        """
        state = self._read()
        if state.journal is None:
            return
        guards.check_unchanged(state)
        if set(shares(state.weights)) != {self.old}:
            raise Refusal(f"{self.name} still answers {show(state.weights)}", next_command="invoke rollback")
        before = next(r for r in state.journal.before if r.type in ("A", "LUA"))
        found = Desired(
            kind="simple" if before.type == "A" else "weighted",
            weights={self.old: 1 if before.type == "A" else 100},
            ttl_s=before.ttl_s,
            journal=None,
        )
        change = self.backend.propose(state, found)
        with self.intent("restore", self.name, _dump(state), {"journal": None, "ttl_s": before.ttl_s}):
            self._apply(change, None)

    def _act(self, at: Position, action: steps.Action) -> Position:
        """Carry out one action of the machine, and say where the switch stands then."""
        if action.what == "wait":
            assert action.until is not None  # noqa: S101 - the machine's own promise
            self._sleep_until(action.until.timestamp(), action.why)
            return at
        if action.what == "judge":
            return self._judge(at)
        if action.what == "roll_back":
            self._end_step(at, ())
            if (taken := self._taken()) is not None:
                return taken
            self.rollback(at.why)
            return steps.moved(at, Stand.ROLLED_BACK, 0)
        state = self._read()
        if (taken := self._taken(state)) is not None:
            return taken
        if action.what == "lower_ttl":
            return self._lower_ttl(at, state)
        if action.what == "make_weighted":
            self._make_weighted(state)
            return steps.moved(at, Stand.WEIGHTED, 0)
        if action.what == "rehearse":
            return self._rehearse(at, state)
        if action.what == "finish":
            self._write("finish", state, 100, "done")
            self._await_visible(self.clock(), {self.new})
            return steps.moved(at, Stand.DONE, 100)
        self._write("set_weight", state, action.weight, "stepping")
        self._await_visible(self._written_at, _answered(self.old, self.new, action.weight))
        return steps.moved(at, Stand.STEPPING, action.weight)

    def _lower_ttl(self, at: Position, state: RecordState) -> Position:
        before = state.ttl_s or 0
        not_before = self.clock() + before + TTL_MARGIN_S if before > self.plan.ttl_s else None
        self._write("lower_ttl", state, 0, "ttl-lowered", not_before=not_before)
        self._await_visible(self._written_at, {self.old})
        if not_before is not None and self.clock() + before > not_before:  # an authority was late: so is everything
            not_before = self.clock() + before
            self._write("lower_ttl", self._read(), 0, "ttl-lowered", not_before=not_before)
        return Position(Stand.TTL_LOWERED, not_before=None if not_before is None else utc(not_before))

    def _make_weighted(self, state: RecordState) -> None:
        """One batch at 100/0. An authority that answers it with nothing gets the simple record back at once."""
        self._write("make_weighted", state, 0, "weighted", kind="weighted")
        try:
            self._await_visible(self._written_at, {self.old})
        except CheckFailed as error:
            written = self._read()
            self._write("roll_back", written, 0, "rolled-back", kind="simple")
            raise CheckFailed("the weighted record was taken back: " + error.what, why=error.why) from None

    def _rehearse(self, at: Position, state: RecordState) -> Position:
        """Out to 1 % and back; the seconds of the way back are kept in the journal. A killed rehearsal goes back."""
        if at.stand is not Stand.REHEARSING:
            self._write("rehearse", state, steps.REHEARSAL, "rehearsing")
            self._await_visible(self._written_at, _answered(self.old, self.new, steps.REHEARSAL))
            state = self._read()
        decided = self.clock()
        self._write("rehearse", state, 0, "weighted")
        seconds = self._await_visible(decided, {self.old})
        self._write("rehearse", self._read(), 0, "weighted", rehearsed_s=seconds)
        self.say(f"{self.name}: rehearsed roll-back was at the authority after {seconds:.2f} s")
        proven = at.proven and at.stand is Stand.WEIGHTED
        return replace(at, stand=Stand.WEIGHTED, weight=0, proven=proven, rehearsed=True)

    def _judge(self, at: Position) -> Position:
        """Hold for two TTLs, look at DNS and at the gates; a look that does not pass is repeated after a pause."""
        again = at.failures + at.undecided > 0
        ttl = self._journal.ttl_s if self._journal else self.plan.ttl_s
        if again:
            self.sleep(min(float(ttl), 5.0))
        elif at.weight > 0:
            self._sleep_until(self._written_at + 2 * ttl, f"holding {at.weight} %")
        if (taken := self._taken()) is not None:
            return taken
        gate, share, asked, cached = self._look(at.weight)
        gates = (gate, *self.gates(at.weight))
        judged = steps.judged(at, gates)
        self.say(f"{self.name}: {at.weight} %: {steps.verdict(gates)}" + (f" ({judged.why})" if judged.why else ""))
        step = SwitchStep(
            weight=at.weight,
            at=utc(self._written_at),
            authority_share=share,
            asked=asked,
            resolver_answers=cached,
            gates=gates,
            seconds=round(self.clock() - self._written_at, 3),
        )
        self._last_step = step
        if judged.proven or steps.decide(judged, self.rules, utc(self.clock())).what == "hold":
            self._end_step(judged, (step,))
        return judged

    def _end_step(self, at: Position, ended: tuple[SwitchStep, ...]) -> None:
        for step in ended or ((self._last_step,) if self._last_step else ()):
            self._steps.append(step)
            self.on_step(step)
        self._last_step = None

    _last_step: SwitchStep | None = None

    def _look(self, weight: int) -> tuple[Gate, float | None, int, tuple[str, ...]]:
        """Does DNS answer as the record says? Out of band once is asked again: 1 of 1000 looks is, by chance."""
        allowed = _answered(self.old, self.new, weight)
        why, hits, asked, cached = "", 0, 0, []
        for n in (SAMPLE, 4 * SAMPLE):
            why, hits, asked = "", 0, 0
            for authority in self.authorities:
                got = self.net.shares(authority, self.name, n)
                here = got.hits.get(self.new, 0)
                hits, asked = hits + here, asked + got.asked
                if got.empty:
                    why = f"{authority} left {got.empty} of {got.asked} queries without an answer"
                elif strange := sorted(set(got.hits) - allowed):
                    why = f"{authority} answers {', '.join(strange)}"
                elif not answers.share_ok(weight, got.asked, here):
                    why = f"{authority} named {self.new} in {here} of {got.asked} answers at {weight} %"
            if not why:
                break
        for resolver in self.resolvers:
            addresses, _ = self.net.resolver(resolver, self.name)
            cached.extend(addresses)
            if set(addresses) - allowed or not addresses:
                why = why or f"resolver {resolver} still answers {', '.join(addresses) or 'nothing'}"
        share = hits / asked if asked else None
        figure = Figure(value=share, unit="share", basis="measured", source="direct queries", n=asked)
        gate = Gate(
            name="dns: answers",
            verdict="inconclusive" if why else "pass",
            target=weight / 100,
            figure=figure,
            why=why or f"{hits} of {asked} answers named the new side",
        )
        return gate, share, asked, tuple(cached)

    def _taken(self, state: RecordState | None = None) -> Position | None:
        """Did anyone write since our last write? A guard's roll-back ends the run; anything else stops it."""
        state = state or self._read()
        guards.check_unchanged(state)
        guards.check_present(state, addresses=frozenset((self.old, self.new)), owner=self.owner)
        if state.journal == self._journal:
            return None
        if state.journal is not None and state.journal.phase == "rolled-back":
            return Position(Stand.ROLLED_BACK, why=f"rolled back by run {state.journal.run}")
        by = f"run {state.journal.run}" if state.journal else "someone who removed the journal"
        raise Refusal(f"{self.name} was written meanwhile by {by}", next_command=guards.LOOK)

    def _write(
        self,
        action: str,
        state: RecordState,
        weight: int,
        phase: Phase,
        *,
        kind: Literal["simple", "weighted"] | None = None,
        not_before: float | None = None,
        rehearsed_s: float | None = None,
    ) -> None:
        previous = state.journal
        ours = previous is not None and set(previous.intended) == {self.old, self.new}
        ttl = min(state.ttl_s or self.plan.ttl_s, self.plan.ttl_s)
        keep = previous if ours else None
        journal = Journal(
            owner=self.owner,
            run=self.run_id,
            sequence=previous.sequence + 1 if previous else 1,
            phase=phase,
            intended={self.old: 100 - weight, self.new: weight},
            ttl_s=ttl,
            ttl_before_s=keep.ttl_before_s if keep else (state.ttl_s or ttl),
            not_before=utc(not_before) if not_before is not None else (keep.not_before if keep else None),
            rehearsed_s=rehearsed_s if rehearsed_s is not None else (keep.rehearsed_s if keep else None),
            before=keep.before if keep else state.raw,
        )
        shape = kind or ("weighted" if state.kind == "weighted" else "simple")
        desired = Desired(kind=shape, weights=journal.intended, ttl_s=ttl, journal=journal)
        change = self.backend.propose(state, desired)
        self.say(change.text)
        with self.intent(action, self.name, _dump(state), journal.model_dump(mode="json")):
            self._apply(change, journal)
        self._journal = journal
        self._written_at = self.clock()

    def _apply(self, change: Any, journal: Journal | None) -> None:
        """Apply and read back; a write with unknown outcome is settled by reading, and repeated if it is absent."""
        for _ in range(READS):
            try:
                self.backend.apply(change)
            except Uncertain:
                self.sleep(0.2)
                present = self._read()
                if present == change.before:
                    continue
                if journal is not None and settle(present, journal) == "foreign":
                    raise Refusal(
                        f"{self.name}: someone else wrote during our write", why=difference(present)
                    ) from None
            self._patiently(partial(self.backend.verify, change))
            return
        raise Uncertain(f"the DNS API broke off {READS} times; the record stands as before the write")

    def _await_visible(self, since: float, allowed: set[str]) -> float:
        """Seconds from `since` until every authority answers our last write, and nothing but `allowed`."""
        journal = self._journal

        def seen(authority: str) -> bool:
            if journal is not None:
                shown = self.net.journal(authority, self.name)
                if shown is None or shown.owner != journal.owner or shown.sequence < journal.sequence:
                    return False
            got = self.net.shares(authority, self.name, PROBE)
            return got.empty == 0 and set(got.hits) <= allowed

        for authority in self.authorities:
            if (
                answers.wait_visible(partial(seen, authority), timeout_s=VISIBLE_S, clock=self.clock, sleep=self.sleep)
                is None
            ):
                raise CheckFailed(
                    f"the authority {authority} does not show the last write to {self.name}",
                    why=f"not within {VISIBLE_S:.0f} s",
                    next_command="invoke rollback, or run the same command again to go on",
                )
        return self.clock() - since

    def _read(self) -> RecordState:
        return self._patiently(partial(self.backend.read, self.name))

    def _patiently(self, call: Callable[[], RecordState]) -> RecordState:
        for attempt in range(READS):
            try:
                return call()
            except Retryable:
                if attempt == READS - 1:
                    raise
                self.sleep(0.3 * 2**attempt)
        raise AssertionError("unreachable")

    def _sleep_until(self, until: float, why: str) -> None:
        while (left := until - self.clock()) > 0:
            self.say(f"{self.name}: {why}, {left:.0f} s left")
            self.sleep(min(left, 5.0))

    def _result(self, at: Position, start: float) -> Result:
        journal = self._journal
        outcome: Literal["done", "rolled back", "held"] = "held"
        if at.stand in (Stand.DONE, Stand.ROLLED_BACK):
            outcome = "done" if at.stand is Stand.DONE else "rolled back"
        return Result(
            outcome=outcome,
            steps=tuple(self._steps),
            rolled_back=at.stand is Stand.ROLLED_BACK,
            rehearsed_rollback_s=journal.rehearsed_s if journal else None,
            rollback=self._rollback,
            ttl_before_s=journal.ttl_before_s if journal else self.plan.ttl_s,
            ttl_s=journal.ttl_s if journal else self.plan.ttl_s,
            seconds=round(self.clock() - start, 3),
            why=at.why,
        )


def _answered(old: str, new: str, weight: int) -> set[str]:
    return {a for a, w in ((old, 100 - weight), (new, weight)) if w > 0}


def _dump(state: RecordState) -> dict[str, Any]:
    return state.model_dump(mode="json")
