"""Stand-ins for a zone, the DNS in front of it, and a clock.

They prove the order of writes, the guards and the way back after a kill. They do not prove that a server applies a
batch as one transaction, that caches behave, or that octoDNS sends what it should: tests/lab/test_dns.py does.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from inferlift import profile
from inferlift.artifacts import Figure, Gate, Verdict
from inferlift.dns import guards
from inferlift.dns.answers import Answers
from inferlift.dns.backend import Change, Desired, inverse_of, text_of
from inferlift.dns.eyes import Net
from inferlift.dns.octo import target
from inferlift.dns.record import Journal, RecordState, RRset, describe, encode, shares
from inferlift.dns.switch import Switch
from inferlift.errors import Refusal

NAME, OLD, NEW = "ai.demo.test", "192.0.2.10", "192.0.2.20"
OWNER = "demo@test"
PLAN = profile.Switch(ttl_s=2, steps=(1, 10, 50, 100), min_samples=5, failures_to_roll_back=2)


class Killed(BaseException):
    """The process is gone: nothing after it runs, no handler either."""


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@dataclass
class StandInZone:
    """One name in memory behind the Backend protocol, with the real guards."""

    owner: str = OWNER
    run: str = "run-1"
    possible: tuple[int, ...] | None = None
    state: RecordState = field(default_factory=lambda: simple(10))
    written: list[RecordState] = field(default_factory=list)
    before_write: Callable[[], None] = lambda: None
    after_write: Callable[[], None] = lambda: None

    def read(self, name: str) -> RecordState:
        return self.state

    def propose(self, state: RecordState, desired: Desired) -> Change:
        addresses = frozenset((OLD, NEW))
        guards.check(state, desired, names=frozenset((NAME,)), addresses=addresses, owner=self.owner)
        texts = encode(desired.journal) if desired.journal else ()
        after = describe(NAME, (target(desired.kind, desired.weights, desired.ttl_s),), texts)
        return Change(
            name=NAME, before=state, after=after, inverse=inverse_of(state), text=text_of(state, desired, "x")
        )

    def apply(self, change: Change) -> None:
        self.before_write()
        if self.state != change.before:
            raise Refusal("changed since it was reviewed")
        self.state = change.after
        self.written.append(change.after)
        self.after_write()

    def verify(self, change: Change) -> RecordState:
        if self.state != change.after:
            raise Refusal("not what was written")
        return self.state


@dataclass
class StandInDns:
    """Authority and caching resolver before a StandInZone. Answers by weight, from a seeded generator."""

    zone: StandInZone
    clock: Clock
    random: random.Random = field(default_factory=lambda: random.Random(7))
    cached: tuple[str, float] | None = None
    empty: int = 0

    def net(self) -> Net:
        return Net(self.shares, self.resolver, lambda authority, name: self.zone.state.journal)

    def pick(self) -> str | None:
        weights = shares(self.zone.state.weights)
        return self.random.choices(list(weights), list(weights.values()))[0] if weights else None

    def shares(self, authority: str, name: str, n: int) -> Answers:
        self.clock.now += 0.01
        weights = shares(self.zone.state.weights)
        if not weights:
            self.empty += n
            return Answers(n, {}, n, None)
        hits = {a: round(n * share) for a, share in weights.items()}
        return Answers(n, hits, n - sum(hits.values()), self.zone.state.ttl_s)

    def resolver(self, resolver: str, name: str) -> tuple[tuple[str, ...], int | None]:
        if self.cached is None or self.cached[1] <= self.clock.now:
            picked = self.pick()
            if picked is None:
                return (), None
            self.cached = picked, self.clock.now + (self.zone.state.ttl_s or 0)
        return (self.cached[0],), int(self.cached[1] - self.clock.now)


def simple(ttl_s: int) -> RecordState:
    return describe(NAME, (RRset(type="A", ttl_s=ttl_s, contents=(OLD,)),), ())


def gate(verdict: Verdict, name: str = "new side errors") -> Gate:
    figure = Figure(value=0.0, unit="share", basis="measured", source="test")
    return Gate(name=name, verdict=verdict, target=0.0, figure=figure, why=f"stand-in says {verdict}")


@contextlib.contextmanager
def no_intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
    yield


def switch(zone: StandInZone, clock: Clock, net: Net, gates: Callable[[int], tuple[Gate, ...]], **more: Any) -> Switch:
    more = {"on_intent": no_intent, "plan": PLAN, **more}
    return Switch(
        backend=zone,
        name=NAME,
        old=OLD,
        new=NEW,
        gates=gates,
        authority="a",
        resolver="r",
        clock=clock,
        sleep=clock.sleep,
        net=net,
        **more,
    )


def journal(**changed: Any) -> Journal:
    base: dict[str, Any] = {
        "owner": OWNER, "run": "run-1", "sequence": 3, "phase": "stepping", "intended": {OLD: 90, NEW: 10},
        "ttl_s": 2, "ttl_before_s": 10, "before": simple(10).raw,
    }  # fmt: skip
    return Journal.model_validate({**base, **changed})


def stands(weights: dict[str, int], book: Journal | None, kind: str = "weighted", ttl_s: int = 2) -> RecordState:
    return describe(NAME, (target(kind, weights, ttl_s),), encode(book) if book else ())
