"""The switch of a name that each region answers for itself: regions made of it, then one region after another moved.

All or nothing for who looks from outside: where one region's side fails, the users of every region go back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferlift.dns.eyes import BEFORE, Net
from inferlift.dns.latency import Regions
from inferlift.dns.switch import Result, RollbackTimes, Switch
from inferlift.errors import CheckFailed


@dataclass(frozen=True)
class Leg:
    """One region's part: its own name, and the address that answers it in the end."""

    region: str
    name: str
    new: str


@dataclass(frozen=True)
class Edge:
    """Drives as `Switch` does, and goes on after a kill as it does: where it stands is in DNS alone.

    `switch(leg)` makes the switch of one region's name. `authority`: addresses that answer DNS.
    """

    regions: Regions
    legs: tuple[Leg, ...]
    switch: Callable[[Leg], Switch]
    authority: Sequence[str]
    net: Net
    say: Callable[[str], None]

    def run(self) -> Result:
        """Raises what `Regions.make` and `Switch.run` raise; CheckFailed when an authority does not answer the regions
        with the old side (the simple record is put back at once)."""
        self.regions.make()
        self._look()
        ended: list[Result] = []
        for leg in self.legs:
            self.say(f"{leg.name}: users of {leg.region}")
            ended.append(self.switch(leg).run())
            if ended[-1].rolled_back:
                back = self.rollback(f"{leg.region}: {ended[-1].why}")
                return _joined(ended, back, f"{leg.region}: {ended[-1].why}")
        return _joined(ended, None, "")

    def rollback(self, why: str = "asked for") -> RollbackTimes:
        """Every region back to the old side; nothing to do where no regions were made. The slowest one's seconds."""
        if self.regions.read().kind != "spread":
            return RollbackTimes(authority_s=0.0, resolver_s=0.0)
        times = [self.switch(leg).rollback(why) for leg in self.legs]
        late = [t.resolver_s for t in times]
        return RollbackTimes(
            authority_s=max(t.authority_s for t in times),
            resolver_s=None if None in late else max(s for s in late if s is not None),
        )

    def _look(self) -> None:
        """Regions changed nobody's answer: else they are unmade before anybody is moved."""
        allowed = {self.regions.old, *(leg.new for leg in self.legs)}
        for authority in self.authority:
            got = self.net.shares(authority, self.regions.name, BEFORE)
            if got.empty or not set(got.hits) <= allowed:
                self.regions.unmake()
                found = ", ".join(sorted(got.hits)) or "nothing"
                raise CheckFailed(
                    f"the authority {authority} answers {found} for {self.regions.name}: the regions were taken back",
                    why=f"expected {', '.join(sorted(allowed))}",
                )


def _joined(ended: Sequence[Result], back: RollbackTimes | None, why: str) -> Result:
    """Times are the slowest region's; a roll-back is one of all regions."""
    rehearsed = [r.rehearsed_rollback_s for r in ended if r.rehearsed_rollback_s is not None]
    return Result(
        steps=tuple(step for r in ended for step in r.steps),
        rolled_back=back is not None,
        rehearsed_rollback_s=max(rehearsed, default=None),
        rollback_s=back.authority_s if back else None,
        rollback_resolver_s=back.resolver_s if back else None,
        ttl_before_s=max(r.ttl_before_s for r in ended),
        ttl_s=max(r.ttl_s for r in ended),
        seconds=round(sum(r.seconds for r in ended), 3),
        why=why,
    )
