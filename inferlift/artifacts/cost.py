"""What running the service costs, and what each way to get the hardware costs over years."""

from __future__ import annotations

from typing import Literal

from inferlift.artifacts.base import Artifact, Check, Figure

Way = Literal["buy", "lease", "rented hardware", "cloud on demand", "cloud reserved", "managed service"]


class CostLine(Artifact):
    """One part of the costs, in the profile's currency."""

    name: str  # "compute", "disks", "egress", "addresses", "load balancer"
    monthly: Figure  # value None: unknown, and missing from the sum
    formula: str  # with the numbers in it


class Costs(Artifact):
    """In the profile's currency. Sums leave out what is unknown: `missing` names it, and then they are the least."""

    currency: str
    lines: tuple[CostLine, ...]
    hourly: Figure
    monthly: Figure  # 730 hours
    per_1000: Figure  # requests, at the mean rate where it is known, else at the peak
    per_1000_at_peak: Figure
    per_million_output_tokens: Figure  # unknown where the task writes none
    utilisation_mean: Figure  # share of what the hosts could serve
    utilisation_peak: Figure
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def at_least(self) -> str:
        """ "at least " before a sum that misses something."""
        return "at least " if self.missing else ""


class TcoLine(Artifact):
    """One part of an option over the whole term, in the profile's currency."""

    name: str
    total: float | None  # None: unknown
    formula: str


class TcoOption(Artifact):
    """One way to get the hardware or the service."""

    way: Way
    total: Figure  # over the term; None: its main price is unknown
    monthly: Figure
    per_million_output_tokens: Figure
    lines: tuple[TcoLine, ...]
    missing: tuple[str, ...] = ()  # what is unknown and left out: then the total is the least
    note: str = ""


class TcoAssumption(Artifact):
    """One number that the comparison stands on. Money is in the profile's currency."""

    name: str
    value: float
    unit: str
    source: str
    declared: bool  # by the profile's `tco:` section
    low: float | None = None  # how far it usually lies apart; None: one figure
    high: float | None = None


class Sensitivity(Artifact):
    """What happens to the cheapest way when one number is a quarter lower or higher."""

    name: str
    cheapest_low: Way | None
    cheapest_high: Way | None
    margin_low: float | None  # second cheapest total less the cheapest
    margin_high: float | None
    changes: bool  # the cheapest way is another one at either end


class Tco(Artifact):
    """The comparison on equal assumptions, in the profile's currency."""

    currency: str
    years: float
    options: tuple[TcoOption, ...]  # cheapest first, unknown ones last
    cheapest: Way | None  # of those whose total is whole; None: none is
    break_even_utilisation: Figure  # share of the hours from which buying is cheaper than the cloud on demand
    sensitivity: tuple[Sensitivity, ...]
    checks: tuple[Check, ...]  # racks, UPS, circuits
    assumptions: tuple[TcoAssumption, ...]
    bill_monthly: Figure | None = None  # today's
    saving_monthly: Figure | None = None  # of the cheapest against it; negative: dearer
    notes: tuple[str, ...] = ()
