"""Drives the step machine over a back end: one write a step, read back, visible at every authority, judged.

Killed anywhere, `run` goes on from what the record and its journal say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from inferlift import profile
from inferlift.artifacts import Artifact, Gate, SwitchStep
from inferlift.dns import guards, steps
from inferlift.dns.backend import Backend, Desired
from inferlift.dns.eyes import Eyes, Net, several
from inferlift.dns.record import Journal, Phase, RecordState, difference, shares, utc
from inferlift.dns.steps import Position, Stand
from inferlift.dns.writer import Intent, Writer
from inferlift.errors import CheckFailed, Held, Refusal

TTL_MARGIN_S = 1.0
PAUSE_S = 5.0  # longest pause before a look that did not pass is repeated
WATCH_S = 20.0  # the gates are looked at this often while a weight is held, or waits for an approval
ROUNDS = 2000  # actions of one run: a bound that no switch which ends comes near


class RollbackTimes(Artifact):
    """Seconds from the decision until every authority, then every resolver, names the old side alone.

    As a number it is the first: what DNS can promise.
    """

    authority_s: float
    resolver_s: float | None  # None: not within the TTL and a margin; that resolver's users are still on the new side

    def __float__(self) -> float:
        return self.authority_s


class Result(Artifact):
    steps: tuple[SwitchStep, ...]  # of this process; `on_step` got each as it ended
    rolled_back: bool
    rehearsed_rollback_s: float | None
    rollback_s: float | None  # until every authority named the old side alone
    rollback_resolver_s: float | None
    ttl_before_s: int
    ttl_s: int
    seconds: float
    why: str = ""


class Switch:
    """Moves `name` from `old` to `new`. `gates(weight)` judges both sides: names that start with "old side" judge
    the old one. The back end's `run` names this attempt: a roll-back of another attempt is begun anew, one of this
    is its end.

    `on_intent(action, subject, before, planned)` is entered before each write and left after it was read back;
    `planned` is the journal, which `record.settle` understands. `authority` and `resolver` are addresses that answer
    DNS, one or several. `ttl_before`: a TTL known to have been served before; the longer of it and the record's own
    is waited. `clock` gives Unix seconds. `approved(weight)`: may this weight be set now? Until it says yes the switch
    is paused, with the gates looked at all the time.

    A back end without weights (`possible`) takes only those steps that it can give; its roll-back is rehearsed with the
    journal alone.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        old: str,
        new: str,
        plan: profile.Switch,
        *,
        gates: Callable[[int], tuple[Gate, ...]],
        on_intent: Intent,
        authority: str | Sequence[str],
        resolver: str | Sequence[str],
        ttl_before: int | None = None,
        say: Callable[[str], None] = lambda _: None,
        on_step: Callable[[SwitchStep], None] = lambda _: None,
        approved: Callable[[int], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        net: Net | None = None,
        undecided: int = 5,
    ) -> None:
        if old == new:
            raise Refusal(f"{name}: old and new side are the same address {old}")
        self.backend, self.name, self.old, self.new, self.plan = backend, name, old, new, plan
        self.gates, self.ttl_before = gates, ttl_before
        self.say, self.on_step, self.clock, self.sleep, self.approved = say, on_step, clock, sleep, approved
        possible = backend.possible
        self.rules = steps.Rules.of(plan.steps, possible, plan.failures_to_roll_back, undecided)
        self._kind: Literal["simple", "weighted"] = "weighted" if possible is None else "simple"
        self._writer = Writer(backend, name, old, new, plan.ttl_s, on_intent, say, sleep)
        asked = several(authority), several(resolver)
        self._eyes = Eyes(name, old, new, *asked, clock, sleep, net or Net.real(), possible is None)
        self._journal: Journal | None = None
        self._written_at = clock()
        self._steps: list[SwitchStep] = []
        self._pending: SwitchStep | None = None  # the last look at a weight that has not ended yet
        self._rollback: RollbackTimes | None = None
        self._asked_for = 0  # the weight whose approval was asked for last

    def run(self) -> Result:
        """Drive the switch to its end, from wherever it stands.

        Raises Refusal when someone else changed the record (it is left as found), Held when the gates do not decide
        (the weight stays where it is), Retryable when the back end cannot be reached, CheckFailed when a write does
        not become visible.
        """
        start = self.clock()
        state = self._writer.read()
        self._journal, self._written_at = state.journal, start
        at = steps.position(state, owner=self.backend.owner, run=self.backend.run, old=self.old, new=self.new)
        self.say(f"{self.name}: {at.stand}, {at.weight} % on {self.new}")
        if state.journal is not None and state.journal.phase == "rolled-back" and not at.ended:
            self.say(f"{self.name}: run {state.journal.run} had taken users back; this one begins anew")
        if self.rules.steps != self.plan.steps:
            given = ", ".join(map(str, self.rules.steps))
            self.say(f"{self.name}: this back end has no weights: users move in the steps {given} %")
        rounds = 0
        while rounds < ROUNDS:
            if at.stand is Stand.STOPPED:
                raise Refusal(f"the switch of {self.name} stops here", why=at.why, next_command=guards.LOOK)
            action = steps.decide(at, self.rules, self._now())
            if action.what == "hold":
                raise Held(
                    f"{self.name} stays at {at.weight} % on {self.new}: the gates do not decide",
                    why=at.why,
                    next_command="run the same command again to look anew, or invoke rollback",
                )
            if action.what == "none":
                return self._result(at, start)
            if action.what == "set_weight" and not self.approved(action.weight):
                at = self._paused(at, action.weight)
                continue
            at, rounds = self._act(at, action), rounds + 1
        raise CheckFailed(f"the switch of {self.name} did not end after {ROUNDS} actions")

    def rollback(self, why: str = "asked for") -> RollbackTimes:
        """Everything back to the old side: written, seen at every authority, then at the resolvers.

        Weights that someone else set between the two known addresses are overwritten, and named. Raises Refusal
        when the record is foreign or answers unknown addresses, CheckFailed when an authority does not show it.
        """
        decided = self.clock()
        state = self._writer.read()
        if changed := difference(state):
            self.say(f"found before rolling back: {changed}")
        journal = state.journal
        untouched = journal is None and shares(state.weights) == {self.old: 1.0}
        back = (
            journal is not None
            and journal.phase == "rolled-back"
            and journal.owner == self.backend.owner
            and not changed
        )
        if untouched or back:
            self._journal = journal
        else:
            self.say(f"{self.name}: rolling back to {self.old} ({why})")
            self._write("roll_back", state, 0, "rolled-back")
        authority_s = self._eyes.await_authorities(self._journal, decided, 0)
        self.say(f"{self.name}: the authority names {self.old} alone after {authority_s:.2f} s")
        ttl = state.ttl_s or self.plan.ttl_s
        resolver_s = self._eyes.await_resolvers(ttl, decided, 0)
        late = f"not within {ttl} s and a margin" if resolver_s is None else f"after {resolver_s:.1f} s"
        self.say(f"{self.name}: the resolver names {self.old} alone {late}")
        self._rollback = RollbackTimes(authority_s=authority_s, resolver_s=resolver_s)
        return self._rollback

    def restore(self) -> None:
        """After a roll-back: give the record back as it was found, TTL and type included, without a journal."""
        self._writer.restore()

    def _act(self, at: Position, action: steps.Action) -> Position:
        """Carry out one action of the machine, and say where the switch stands then."""
        if action.what == "wait" and action.until is not None:
            self._sleep_until(action.until.timestamp(), action.why)
            return at
        if action.what == "judge":
            return self._judge(at)
        state = self._writer.read()
        if (taken := self._taken(state)) is not None:
            return taken
        match action.what:
            case "lower_ttl":
                return self._lower_ttl(state)
            case "make_weighted":
                return self._make_weighted(state)
            case "rehearse":
                return self._rehearse(at, state)
            case "roll_back":
                self._end_step()
                self.rollback(at.why)
                return steps.moved(at, Stand.ROLLED_BACK, 0)
            case "finish":
                self._write_and_wait("finish", state, 100, "done")
                return steps.moved(at, Stand.DONE, 100)
        self._write_and_wait("set_weight", state, action.weight, "stepping")
        return steps.moved(at, Stand.STEPPING, action.weight)

    def _lower_ttl(self, state: RecordState) -> Position:
        """Lower the TTL; the earliest time for a weight is kept in the journal, so that a kill does not lose it."""
        ahead = Desired(kind=self._kind, weights={self.old: 100}, ttl_s=self.plan.ttl_s, journal=None)
        self.backend.propose(state, ahead)  # what will be refused later is refused before anything is written
        before = self._eyes.before(max(state.ttl_s or 0, self.ttl_before or 0))
        not_before: float | None = None
        if before > self.plan.ttl_s:
            not_before = self.clock() + before + TTL_MARGIN_S
        self._write_and_wait("lower_ttl", state, 0, "ttl-lowered", not_before=not_before)
        if not_before is not None and self.clock() + before > not_before:  # an authority was late, so is everything
            not_before = self.clock() + before
            self._write("lower_ttl", self._writer.read(), 0, "ttl-lowered", not_before=not_before)
        return Position(Stand.TTL_LOWERED, not_before=self._journal.not_before if self._journal else None)

    def _make_weighted(self, state: RecordState) -> Position:
        """One batch at 100/0. An authority that answers it with nothing gets the simple record back at once."""
        try:
            self._write_and_wait("make_weighted", state, 0, "weighted", kind=self._kind)
        except CheckFailed as error:
            self._write("roll_back", self._writer.read(), 0, "rolled-back", kind="simple")
            raise CheckFailed("the weighted record was taken back: " + error.what, why=error.why) from None
        return Position(Stand.WEIGHTED)

    def _rehearse(self, at: Position, state: RecordState) -> Position:
        """Out to 1 % and back (without weights: the journal alone); the seconds of the way back are kept in it.
        A killed rehearsal goes back."""
        proven = at.proven and at.stand is Stand.WEIGHTED
        if at.stand is not Stand.REHEARSING:
            self._write_and_wait("rehearse", state, self.rules.rehearsal, "rehearsing")
            state = self._writer.read()
        decided = self.clock()
        self._write("rehearse", state, 0, "weighted")
        seconds = self._eyes.await_authorities(self._journal, decided, 0)
        self._write("rehearse", self._writer.read(), 0, "weighted", rehearsed_s=round(seconds, 3))
        self.say(f"{self.name}: the rehearsed roll-back was at the authority after {seconds:.2f} s")
        return replace(at, stand=Stand.WEIGHTED, weight=0, proven=proven, rehearsed=True)

    def _judge(self, at: Position) -> Position:
        """Hold for two TTLs, then look at DNS and at the gates. A look that does not pass is repeated after a pause."""
        ttl = self._journal.ttl_s if self._journal else self.plan.ttl_s
        if at.failures + at.undecided > 0:
            self.sleep(min(float(ttl), PAUSE_S))
        elif at.weight > 0 and (failing := self._hold(at, self._written_at + 2 * ttl)) is not None:
            return failing
        return self._look(at)

    def _hold(self, at: Position, until: float) -> Position | None:
        """Hold a weight, the gates watched meanwhile: a failing look counts at once, any other counts at the end only.
        None: held to its end."""
        while (left := until - self.clock()) > 0:
            self.say(f"{self.name}: holding {at.weight} %, {left:.0f} s left")
            self.sleep(min(left, WATCH_S))
            if self.clock() < until:
                seen = self._look(at, ends=False)
                if seen.ended or seen.failures > at.failures:
                    return seen
        return None

    def _paused(self, at: Position, weight: int) -> Position:
        """Wait for the approval of the next weight; users who moved already are watched on."""
        if self._asked_for != weight:
            self._asked_for = weight
            self.say(f"{self.name}: {weight} % waits for an approval; the gates are watched at {at.weight} %")
        self.sleep(WATCH_S)
        return self._look(at, ends=False)

    def _look(self, at: Position, *, ends: bool = True) -> Position:
        """Take in one look. `ends`: does a pass end this step? One in between leaves no trace unless it fails."""
        look = self._eyes.look(at.weight)
        gates = (look.gate, *self.gates(at.weight))
        if (taken := self._taken(self._writer.read())) is not None:
            return taken
        judged = steps.judged(at, gates)
        self.say(f"{self.name}: {at.weight} %: {steps.verdict(gates)}" + (f" ({judged.why})" if judged.why else ""))
        step = SwitchStep(
            weight=at.weight,
            at=utc(self._written_at),
            authority_share=look.share,
            asked=look.asked,
            resolver_answers=look.cached,
            gates=gates,
            seconds=round(self.clock() - self._written_at, 3),
        )
        if ends or not judged.proven:
            self._pending = step
        if (ends and judged.proven) or steps.decide(judged, self.rules, self._now()).what == "hold":
            self._end_step()
        return judged

    def _end_step(self) -> None:
        if self._pending is not None:
            self._steps.append(self._pending)
            self.on_step(self._pending)
            self._pending = None

    def _taken(self, state: RecordState) -> Position | None:
        """Did anyone write since our last write? A guard's roll-back ends the run, anything else stops it."""
        guards.check_unchanged(state)
        guards.check_present(state, addresses=frozenset((self.old, self.new)), owner=self.backend.owner)
        if state.journal == self._journal:
            return None
        if state.journal is not None and state.journal.phase == "rolled-back":
            self._journal = state.journal
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
        self._journal = self._writer.write(
            action, state, weight, phase, kind=kind, not_before=not_before, rehearsed_s=rehearsed_s
        )
        self._written_at = self.clock()

    def _write_and_wait(
        self,
        action: str,
        state: RecordState,
        weight: int,
        phase: Phase,
        *,
        kind: Literal["simple", "weighted"] | None = None,
        not_before: float | None = None,
    ) -> None:
        self._write(action, state, weight, phase, kind=kind, not_before=not_before)
        self._eyes.await_authorities(self._journal, self._written_at, weight)

    def _sleep_until(self, until: float, why: str) -> None:
        while (left := until - self.clock()) > 0:
            self.say(f"{self.name}: {why}, {left:.0f} s left")
            self.sleep(min(left, PAUSE_S))

    def _now(self) -> datetime:
        return utc(self.clock())

    def _result(self, at: Position, start: float) -> Result:
        journal, back = self._journal, self._rollback
        return Result(
            steps=tuple(self._steps),
            rolled_back=at.stand is Stand.ROLLED_BACK,
            rehearsed_rollback_s=journal.rehearsed_s if journal else None,
            rollback_s=back.authority_s if back else None,
            rollback_resolver_s=back.resolver_s if back else None,
            ttl_before_s=journal.ttl_before_s if journal else self.plan.ttl_s,
            ttl_s=journal.ttl_s if journal else self.plan.ttl_s,
            seconds=round(self.clock() - start, 3),
            why=at.why,
        )
