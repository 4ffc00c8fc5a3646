"""Compares all offers on equal terms: hosts for the peak and the spare ones, cost, targets missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inferlift.artifacts import Basis, Figure, Offer, OfferResult
from inferlift.profile import Profile
from inferlift.sizing.capacity import needed_replicas
from inferlift.sizing.copies import Known, said
from inferlift.sizing.hardware import assumed
from inferlift.sizing.reach import TOKENS_PER_S, Served, Unserved, no_memory
from inferlift.sizing.serving import serve

ZONES_ASSUMED = 3  # of a region whose zones are not known; most of AWS' have three
COST = "max_cost_per_1000"
ZONES = "failure_domain"
NOT_NAMED = "is not among operations.hardware"
REFRESH = "./invoke prices --refresh asks AWS for it"
Sold = Literal["on demand", "spot", "reserved", "owned"]
_SAID = {"p95_ttft_ms": "first token after {:.0f} ms", "p95_total_ms": "answer after {:.0f} ms"}


@dataclass(frozen=True)
class Row:
    """One offer, compared. `served` is None where it cannot be used; then `why` says so."""

    offer: Offer
    name: str
    served: Served | None
    why: str
    rate: Figure
    replicas: int
    spare: int
    sold_as: Sold
    cost_per_hour: Figure  # of all hosts, in the profile's currency
    per_1000: Figure
    usd_per_hour: Figure
    misses: tuple[tuple[str, float, float], ...]  # target, wanted, reached
    doubtful: tuple[str, ...] = ()  # targets met by the prediction, not by the unlucky end of its range

    @property
    def hosts(self) -> int:
        return self.replicas + self.spare

    @property
    def short(self) -> float:
        """By how much targets are missed, as shares added up; 0: all are met."""
        return sum(
            wanted / reached - 1 if key in (TOKENS_PER_S, ZONES) else reached / wanted - 1
            for key, wanted, reached in self.misses
        )


@dataclass(frozen=True)
class Terms:
    """What every offer is held against."""

    profile: Profile
    peak: float | None  # requests/s to be answered
    mean: float | None  # requests/s over a day, for the cost of 1000
    measured: Figure | None = None  # rate of a replica of the choice, once it was measured


def compare(terms: Terms, offers: Sequence[Offer], known: Known | None = None) -> list[Row]:
    """All offers, in their order."""
    known = {} if known is None else known
    return [row(terms, offer, known) for offer in offers]


def preference(found: Row) -> tuple[bool, int, bool, int, float, float, str]:
    """Usable ones first, then fewest targets of speed missed, known prices, the cost target, then the cheapest.

    An offer whose price nobody knows is chosen only where no priced one is as fast as asked.
    """
    price = found.cost_per_hour.value
    slow = sum(key != COST for key, _, _ in found.misses)
    return found.served is None, slow, price is None, len(found.misses) - slow, price or 0.0, found.short, found.name


def row(terms: Terms, offer: Offer, known: Known) -> Row:
    profile = terms.profile
    allowed = profile.operations.hardware
    found: Served | Unserved
    if allowed and (offer.gpu or "cpu").lower() not in {name.strip().lower() for name in allowed}:
        found = Unserved(offer.name, no_memory(profile), f"{offer.gpu or 'a CPU'} {NOT_NAMED}")
    else:
        found = serve(profile, offer, known)
    sold, usd_hour, basis, source, date = _price(profile, offer)
    if isinstance(found, Unserved) or (offer.reserve_only and profile.operations.reservation != "capacity-block"):
        why = found.why if isinstance(found, Unserved) else (
            "sold by capacity block only; operations.reservation capacity-block would allow it"
        )  # fmt: skip
        nothing = Figure(value=None, unit="requests/s", basis="unknown", source=why)
        per_hour, per_1000 = (_money(profile, None, per, "unknown", source, date) for per in ("h", "1000"))
        no_price = Figure(value=None, unit="USD/h", basis="unknown", source=source, at=date or None)
        return Row(offer, found.name, None, why, nothing, 0, 0, sold, per_hour, per_1000, no_price, ())
    rate = terms.measured or Figure(value=found.rate, unit="requests/s", basis="predicted", source=found.explain)
    each = rate.value or found.rate
    if terms.measured is None and found.need is not None:
        each *= assumed("peak_utilisation")  # arrivals are no clockwork: what is full all the time has a queue
    replicas = needed_replicas(
        terms.peak or 0.0,
        each,
        in_flight=profile.requests.in_flight_peak,
        deadline_s=profile.targets.acceptance_deadline_s,
    )
    spare = _spare(profile, offer, replicas)
    usd = None if usd_hour is None else usd_hour * (replicas + spare)
    per_hour = _money(profile, usd, "h", basis, source, date)
    per_1000 = _per_1000(profile, per_hour, terms)
    misses = found.misses(profile)
    limit = profile.targets.max_cost_per_1000
    if limit is not None and per_1000.value is not None and per_1000.value > limit:
        misses.append((COST, limit, per_1000.value))
    why = ""
    if offer.count is not None and replicas + spare > offer.count:
        why = f"{replicas + spare} hosts are needed, {offer.count} are there"
        misses.append(("hosts", float(offer.count), float(replicas + spare)))
    if profile.operations.failure_domain == "zone" and len(offer.zones) == 1:
        misses.append((ZONES, 2.0, 1.0))
    known_basis: Basis = basis if usd is not None else "unknown"
    in_usd = Figure(value=usd, unit="USD/h", basis=known_basis, source=source, at=date or None)
    return Row(
        offer, found.name, found, why, rate, replicas, spare, sold, per_hour, per_1000, in_usd, tuple(misses),
        tuple(found.doubtful(profile)),
    )  # fmt: skip


def result(found: Row, best: Row, currency: str) -> OfferResult:
    """What the plan says of an offer, beside the chosen one."""
    served = found.served
    return OfferResult(
        offer=found.name,
        fits=served is not None,
        replicas=found.replicas if served is not None else None,
        usd_per_hour=found.usd_per_hour,
        per_1000=found.per_1000,
        reason=_reason(found, best, currency),
        region=found.offer.region,
        sold_as=found.sold_as,
        hosts=found.hosts if served is not None else None,
        layout=f"{served.copies} x {said(served.layout)}" if served is not None and served.need is not None else "",
        misses=tuple(miss(key, wanted, reached, currency) for key, wanted, reached in found.misses),
    )


def alone(profile: Profile) -> bool:
    """Whether hosts of a cloud are to be no other customer's at the same time."""
    return profile.target == "aws" and profile.operations.tenancy == "dedicated"


def miss(key: str, wanted: float, reached: float, currency: str) -> str:
    """One missed target in words."""
    if key == COST:
        return f"{reached:.4f} {currency} per 1000, at most {wanted:g} wanted"
    if key == TOKENS_PER_S:
        return f"{reached:.1f} tokens/s for each user at best, at least {wanted:g} wanted"
    if key == ZONES:
        return f"sold in one zone of the region only: a zone that fails takes all of it (operations.{ZONES} zone)"
    if key == "hosts":
        return f"{reached:.0f} hosts are needed, {wanted:.0f} are there"
    return f"{_SAID[key].format(reached)} at best, target {wanted:g}"


def _reason(found: Row, best: Row, currency: str) -> str:
    if found.served is None:
        return found.why
    missed = "; ".join(miss(key, wanted, reached, currency) for key, wanted, reached in found.misses)
    if found is best:
        return f"chosen: {missed or f'fits; {found.served.explain}'}"
    if missed:
        return missed
    if found.cost_per_hour.value is None:
        return f"fits, but its price is unknown ({found.usd_per_hour.source})"
    if best.cost_per_hour.value is None or found.cost_per_hour.value >= best.cost_per_hour.value:
        return f"fits, not cheaper than {best.name}"
    return f"fits and is cheaper, but comes after {best.name}"


def _price(profile: Profile, offer: Offer) -> tuple[Sold, float | None, Basis, str, str]:
    """How it would be paid, USD an hour, and from where that is known."""
    if profile.target == "static":
        return "owned", offer.usd_per_hour, "declared", offer.source, offer.date
    if alone(profile):  # spot and reserved dedicated instances have prices of their own, which no table has
        if offer.usd_dedicated_per_hour is not None:
            return "on demand", offer.usd_dedicated_per_hour, "declared", offer.dedicated_source, offer.dedicated_date
        return "on demand", None, "unknown", _no_dedicated_price(offer), ""
    if profile.interruptible and offer.usd_spot_per_hour is not None:
        return "spot", offer.usd_spot_per_hour, "declared", offer.spot_source, offer.spot_date
    if profile.operations.reservation in ("1y", "3y") and offer.usd_reserved_per_hour is not None:
        return "reserved", offer.usd_reserved_per_hour, "declared", offer.source, offer.date
    basis: Basis = "assumed" if offer.source.startswith("assumption") else "declared"
    return "on demand", offer.usd_per_hour, basis, offer.source, offer.date


def _no_dedicated_price(offer: Offer) -> str:
    least = f"; shared it costs {offer.usd_per_hour:g} USD/h, which is less" if offer.usd_per_hour is not None else ""
    return f"no price of {offer.name} as a dedicated instance in the table{least}; {REFRESH}"


def _spare(profile: Profile, offer: Offer, replicas: int) -> int:
    """Hosts beyond the peak's need: as declared; where a zone may fail, as many as one zone holds."""
    declared = profile.operations.spare
    if profile.operations.failure_domain != "zone":
        return declared
    zones = max(2, len(offer.zones) or ZONES_ASSUMED)
    return max(declared, math.ceil(replicas / (zones - 1)))


def _per_1000(profile: Profile, per_hour: Figure, terms: Terms) -> Figure:
    """Cost of 1000 requests: at the mean rate where it is known, else at the peak rate, which is the least."""
    rate, which = (terms.mean, "mean") if terms.mean is not None else (terms.peak, "peak")
    unit = f"{profile.budget.currency}/1000"
    if per_hour.value is None or not rate:
        return per_hour.model_copy(update={"value": None, "basis": "unknown", "unit": unit})
    source = f"at the {which} rate of {rate:.3g} requests/s; {per_hour.source}"
    return per_hour.model_copy(update={"value": per_hour.value / (rate * 3600) * 1000, "unit": unit, "source": source})


def _money(profile: Profile, usd: float | None, per: str, basis: Basis, source: str, date: str) -> Figure:
    """In the profile's currency, at its dated rate."""
    budget = profile.budget
    rate = 1.0 if budget.currency == "USD" else budget.usd_rate
    if budget.currency != "USD":
        source += f"; 1 {budget.currency} = {rate:g} USD ({budget.usd_rate_source}, {budget.usd_rate_date})"
    return Figure(
        value=None if usd is None else usd / rate,
        unit=f"{budget.currency}/{per}",
        basis="unknown" if usd is None else basis,
        source=source,
        at=date or None,
    )
