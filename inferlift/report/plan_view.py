"""What the page says of the plan in words and lists: the choice, the offers worth a line, what the TCO leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.artifacts import CompatCheck, Figure, Interval, OfferResult, Sensitivity, Sizing, Tco, Timeline
from inferlift.report.data import ProfileSummary
from inferlift.report.figures import count, number, quantity, seconds

SHOWN = 12  # offers in the table; where there are no more than that, all are
NAMES = {
    "p95_ttft_ms": "first token, P95",
    "p95_total_ms": "whole answer, P95",
    "min_tokens_per_s": "tokens a second that each user sees",
    "max_cost_per_1000": "cost of 1000 requests",
}
MORE_IS_BETTER = frozenset({"min_tokens_per_s"})


@dataclass(frozen=True)
class Others:
    """Offers that share the reason why they are not shown one by one: not usable, or without a price."""

    reason: str
    n: int
    names: tuple[str, ...]  # each kind once


@dataclass(frozen=True)
class Offers:
    """`shown` in the order of the table; `more` usable ones with a price follow that are not shown."""

    shown: tuple[OfferResult, ...]
    more: int
    others: tuple[Others, ...]


def has_plan(sizing: Sizing | None) -> bool:
    """Whether there is more to tell than memory and offers; an older sizing has none of it."""
    if sizing is None:
        return False
    parts = (sizing.costs, sizing.tco, sizing.timeline, sizing.chain, sizing.serving)
    lists = (sizing.compat, sizing.alternatives, sizing.unreachable, sizing.software)
    return any(part is not None for part in parts) or any(lists)


def choice(sizing: Sizing) -> str:
    """The hosts of the choice, where, and how they are paid for."""
    place = f" in {sizing.region}" if sizing.region else ""
    spare = f" + {sizing.spare} spare" if sizing.spare else ""
    return f"{sizing.replicas}{spare} × {sizing.choice}{place}, {sizing.sold_as}"


def layout(sizing: Sizing) -> str:
    """How a host's GPUs share the work; empty where there is none."""
    serving = sizing.serving
    if serving is None or serving.gpu is None:
        return ""
    said = [f"{serving.copies} × the model on {serving.gpu}", f"tensor parallel {serving.tensor}"]
    if serving.pipeline > 1:
        said.append(count(serving.pipeline, "pipeline stage"))
    if serving.sessions is not None:
        said.append(f"{count(serving.sessions, 'session')} a copy at once")
    return ", ".join(said)


def per_1000(sizing: Sizing) -> tuple[str, Figure]:
    """Cost of 1000 requests with all that is billed, where it is known; "at least " where parts are missing."""
    if sizing.costs is None:
        return "", sizing.cost_per_1000
    least = sizing.costs.at_least if sizing.costs.per_1000.value is not None else ""
    return least, sizing.costs.per_1000


def price_source(price: Figure, currency: str) -> str:
    """Where a price is from and of when, without the rate of exchange that stands once below the table."""
    source = price.source.split(f"; 1 {currency} = ")[0]
    return f"{source} ({price.at})" if price.at and price.at not in source else source


def is_choice(one: OfferResult, sizing: Sizing) -> bool:
    return (one.offer, one.region, one.sold_as) == (sizing.choice, sizing.region, sizing.sold_as)


def usable(sizing: Sizing) -> list[OfferResult]:
    """Fewest targets missed first, then the cheapest; those without a known price last."""
    return sorted(
        (one for one in sizing.offers if one.fits),
        key=lambda one: (len(one.misses), one.per_1000.value is None, one.per_1000.value or 0.0),
    )


def offers(sizing: Sizing) -> Offers:
    """A few offers are all shown, in their order; of many the choice and the best ones, the others by reason."""
    if len(sizing.offers) <= SHOWN:
        return Offers(sizing.offers, 0, ())
    ranked = sorted(usable(sizing), key=lambda one: not is_choice(one, sizing))
    ranked = [one for one in ranked if is_choice(one, sizing) or one.per_1000.value is not None]
    reasons: dict[str, list[str]] = {}
    for one in sizing.offers:
        if one not in ranked:
            reasons.setdefault(one.reason, []).append(one.offer)
    others = tuple(
        Others(reason, len(names), tuple(dict.fromkeys(names)))
        for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    )
    return Offers(tuple(ranked[:SHOWN]), max(0, len(ranked) - SHOWN), others)


def targets(profile: ProfileSummary) -> dict[str, float]:
    """The targets of speed that were declared, by key."""
    found = {key: getattr(profile, key) for key in ("p95_ttft_ms", "p95_total_ms", "min_tokens_per_s")}
    return {key: value for key, value in found.items() if value is not None}


def unpredicted(sizing: Sizing, profile: ProfileSummary) -> list[str]:
    """Targets of speed for which the plan predicts no range."""
    reached = sizing.serving.reached if sizing.serving is not None else {}
    return [
        f"{NAMES[key]} (target {quantity(value, unit_of(key))})"
        for key, value in targets(profile).items()
        if key not in reached
    ]


def unit_of(key: str) -> str:
    return "ms" if key.endswith("_ms") else "tokens/s" if key.endswith("tokens_per_s") else ""


def judged(key: str, found: Interval, target: float | None) -> str:
    """How a predicted range lies to its target; empty where there is none."""
    if target is None:
        return ""
    more = key in MORE_IS_BETTER
    inside = [value >= target if more else value <= target for value in (found.low, found.value, found.high)]
    if all(inside):
        return "met over the whole range"
    if inside[1]:
        return "met as predicted, missed at the unlucky end of the range"
    return "missed as predicted" + (", met at the lucky end of the range" if any(inside) else "")


def amount(value: float | None, unit: str) -> str:
    """A link's figure: PCIe has a generation 4, not 4 generations."""
    return f"{unit} {number(value)}" if unit == "generation" and value is not None else quantity(value, unit)


def compat(checks: tuple[CompatCheck, ...]) -> dict[str, list[CompatCheck]]:
    """What fails, what is not known, what passes."""
    return {verdict: [one for one in checks if one.verdict == verdict] for verdict in ("fail", "unknown", "pass")}


def fits(timeline: Timeline) -> str:
    said = {True: "fits", False: "does not fit", None: "cannot be said to fit"}[timeline.fits_plan]
    return f"{said} the plan of {seconds(timeline.plan_hours * 3600)}"


def term(found: Tco) -> str:
    """The time compared."""
    return f"{number(found.years)} {'year' if found.years == 1 else 'years'}"


def compared(found: Tco) -> bool:
    """Whether the cheapest way has another one to be cheaper than."""
    return sum(one.total.value is not None and not one.missing for one in found.options) > 1


def uncompared(found: Tco) -> list[tuple[str, list[str]]]:
    """(what is unknown, ways that have no total for it): one line for all ways that lack the same."""
    reasons: dict[str, list[str]] = {}
    for option in found.options:
        if option.total.value is None:
            line = next((part for part in option.lines if part.total is None), None)
            reasons.setdefault(line.formula if line is not None else option.total.source, []).append(option.way)
    return list(reasons.items())


def deciding(found: Tco) -> tuple[list[Sensitivity], list[Sensitivity]]:
    """Numbers that change the cheapest way a quarter up or down, and those that do not, narrowest margin first."""

    def margin(one: Sensitivity) -> float:
        known = [value for value in (one.margin_low, one.margin_high) if value is not None]
        return min(known, default=float("inf"))

    ordered = sorted(found.sensitivity, key=margin)
    return [one for one in ordered if one.changes], [one for one in ordered if not one.changes]
