"""What a switch sees of DNS: is the last write visible, do the answers fit the weights, what do resolvers hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from inferlift.artifacts import Figure, Gate
from inferlift.dns import answers
from inferlift.dns.record import Journal
from inferlift.errors import CheckFailed, Refusal, Retryable

VISIBLE_S = 30.0  # a secondary may be that late
BEFORE = 20  # direct queries for the present set, of each authority
PROBE = 60  # direct queries that show a write is visible
SAMPLE = 300  # direct queries that show the share
STALE_S = 5.0  # a resolver may be that late after its TTL


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


def several(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """One address or several."""
    return (addresses,) if isinstance(addresses, str) else tuple(addresses)


@dataclass(frozen=True)
class Look:
    """One look: the gate, the share of the new side over all authorities, how many were asked, what is cached."""

    gate: Gate
    share: float | None
    asked: int
    cached: tuple[str, ...]


@dataclass(frozen=True)
class Eyes:
    name: str
    old: str
    new: str
    authorities: tuple[str, ...]
    resolvers: tuple[str, ...]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    net: Net
    weighted: bool = True  # False: an answer holds the addresses of every side that has users

    def answered(self, weight: int) -> set[str]:
        """The addresses that may be answered when the new side has this many percent."""
        return {a for a, w in ((self.old, 100 - weight), (self.new, weight)) if w > 0}

    def before(self, ttl_s: int) -> int:
        """Ask every authority for the present set, before anything is written: the longest TTL that any serves, at
        least `ttl_s`. Raises Refusal when one answers anything but the old side, Retryable when one does not answer.
        """
        longest = ttl_s
        for authority in self.authorities:
            got = self.net.shares(authority, self.name, BEFORE)
            seen = {*got.hits, *(a for addresses in got.sets for a in addresses)}
            if got.empty or seen != {self.old}:
                found = ", ".join(sorted(seen)) or "nothing"
                raise Refusal(
                    f"the authority {authority} answers {found} for {self.name}, not {self.old} alone",
                    why=f"{got.empty} of {got.asked} queries without an answer; the authorities do not agree",
                    next_command="mend the zone transfer first, then run the same command again",
                )
            longest = max(longest, got.ttl_s or 0)
        return longest

    def await_authorities(self, journal: Journal | None, since: float, weight: int) -> float:
        """Seconds from `since` until every authority shows this write of the journal and answers as it says.

        Raises CheckFailed naming the authority that does not.
        """
        for authority in self.authorities:
            seen = partial(self._shows, authority, journal, self.answered(weight))
            took = answers.wait_visible(seen, timeout_s=VISIBLE_S, clock=self.clock, sleep=self.sleep)
            if took is None:
                raise CheckFailed(
                    f"the authority {authority} does not show the last write to {self.name}",
                    why=f"not within {VISIBLE_S:.0f} s",
                    next_command="invoke rollback, or run the same command again to go on",
                )
        return self.clock() - since

    def await_resolvers(self, ttl_s: int, since: float, weight: int) -> float | None:
        """Seconds from `since` until every resolver names only what may be answered; None: not within the TTL and a
        margin, its users are still where they were."""
        allowed = self.answered(weight)

        def seen() -> bool:
            found = [self.net.resolver(r, self.name)[0] for r in self.resolvers]
            return all(addresses and set(addresses) <= allowed for addresses in found)

        took = answers.wait_visible(seen, timeout_s=ttl_s + STALE_S, clock=self.clock, sleep=self.sleep, every_s=0.1)
        return None if took is None else self.clock() - since

    def look(self, weight: int) -> Look:
        """Does DNS answer as the record says? Out of band once is asked again: 1 of 1000 looks is, by chance."""
        share: float | None = None
        why, asked = "", 0
        for n in (SAMPLE, 4 * SAMPLE):
            why, hits, asked = self._authorities(weight, n)
            share = hits / asked if asked else None
            if not why:
                break
        cached: list[str] = []
        for resolver in self.resolvers:
            try:
                addresses, _ = self.net.resolver(resolver, self.name)
            except Retryable as error:
                why = why or error.what
                continue
            cached.extend(addresses)
            if set(addresses) - self.answered(weight) or not addresses:
                why = why or f"resolver {resolver} still answers {', '.join(addresses) or 'nothing'}"
        gate = Gate(
            name="dns: answers",
            verdict="inconclusive" if why else "pass",
            target=weight / 100,
            figure=Figure(value=share, unit="share", basis="measured", source="direct queries", n=asked),
            why=why or f"share of {asked} answers fits",
        )
        return Look(gate, share, asked, tuple(cached))

    def _authorities(self, weight: int, n: int) -> tuple[str, int, int]:
        """Ask each authority n times: what is wrong (or empty), answers that named the new side, answers in all."""
        why, hits, asked = "", 0, 0
        for authority in self.authorities:
            try:
                got = self.net.shares(authority, self.name, n)
            except Retryable as error:
                why = error.what
                continue
            here = got.hits.get(self.new, 0)
            hits, asked = hits + here, asked + got.asked
            if got.empty:
                why = f"{authority} left {got.empty} of {got.asked} queries without an answer"
            elif strange := sorted(set(got.hits) - {self.old, self.new}):
                why = f"{authority} answers {', '.join(strange)}"
            elif not self.weighted:
                if wrong := sorted(" and ".join(s) for s in got.sets if set(s) != self.answered(weight)):
                    why = f"{authority} answers {wrong[0]}, not {' and '.join(sorted(self.answered(weight)))}"
            elif not answers.share_ok(weight, got.asked, here):
                why = f"{authority} named {self.new} in {here} of {got.asked} answers at {weight} %"
        return why, hits, asked

    def _shows(self, authority: str, journal: Journal | None, allowed: set[str]) -> bool:
        if journal is not None:
            shown = self.net.journal(authority, self.name)
            if shown is None or shown.owner != journal.owner or shown.sequence < journal.sequence:
                return False
        got = self.net.shares(authority, self.name, PROBE)
        return got.empty == 0 and set(got.hits) <= allowed
