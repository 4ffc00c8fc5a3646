"""How many replicas carry a load, and by when they must have answered it."""

from __future__ import annotations

import math

from inferlift.artifacts import Evidence, Figure
from inferlift.profile import Profile

MOST_GROWTH = 0.5  # a month: what logs seem to say beyond it is no trend to plan a year on
LOST_AFTER = 1 / 3  # share of the requests answered when the acceptance run loses a replica


def needed_replicas(
    peak_rps: float, rate_per_replica: float, *, in_flight: int = 0, deadline_s: float | None = None
) -> int:
    """Replicas for the peak, and for `in_flight` requests at once to be answered within `deadline_s` if given.

    Without a spare. Raises ValueError unless the rate (requests/s) and the deadline are above 0.
    """
    if rate_per_replica <= 0 or (deadline_s is not None and deadline_s <= 0):
        raise ValueError("rate and deadline must be above 0")
    by_peak = math.ceil(round(peak_rps / rate_per_replica, 9))
    by_burst = math.ceil(round(in_flight / (rate_per_replica * deadline_s), 9)) if deadline_s is not None else 0
    return max(1, by_peak, by_burst)


def deadline_s(requests: int, replicas: int, rate: float, margin: float | None = None) -> tuple[float, str]:
    """By when `replicas` of `rate` requests/s each have answered `requests` sent at once, and why by then.

    `replicas` is without the spare. The default margin lies midway (geometrically) between what they need and what
    they would need if one of them were lost after a third: with the spare the deadline is met despite a loss, without
    it a loss misses it. One replica alone gets 1.5: lost, it never answers. Raises ValueError for a rate of 0.
    """
    if requests < 1 or replicas < 1 or rate <= 0:
        raise ValueError("requests, replicas and rate must be above 0")
    if margin is None:
        left = LOST_AFTER + (1 - LOST_AFTER) * replicas / (replicas - 1) if replicas > 1 else 2.25
        margin = math.sqrt(left)
    seconds = requests / (replicas * rate) * margin
    return seconds, f"{requests} requests / ({replicas} replicas * {rate:.3g} requests/s) * {margin:.2f} margin"


def peak_rps(profile: Profile, evidence: Evidence | None) -> Figure:
    """Requests a second at the peak, grown by the planning horizon. Declared beats measured."""
    asked = profile.requests
    growth = profile_growth(profile, evidence)
    factor = (1 + growth) ** asked.growth_months
    grown = f"* (1 + {growth:g})^{asked.growth_months} growth" if factor != 1 else "without growth"
    if asked.per_minute_peak is not None:
        value = asked.per_minute_peak / 60 * factor
        source = f"requests.per_minute_peak {asked.per_minute_peak:g} / 60 {grown}"
        return Figure(value=value, unit="requests/s", basis="declared", source=source)
    if evidence is None or evidence.inference_n == 0 or not evidence.stamped:
        why = (
            "no audit"
            if evidence is None
            else "the logs tell no times"
            if not evidence.stamped
            else "no inference request"
        )
        return Figure(value=None, unit="requests/s", basis="unknown", source=f"{why} and no requests.per_minute_peak")
    return Figure(
        value=evidence.per_minute_peak / 60 * factor,
        unit="requests/s",
        basis="measured" if factor == 1 else "predicted",
        source=f"audit: busiest minute {evidence.per_minute_peak} / 60 {grown}",
        at=evidence.end.isoformat(),
        n=evidence.inference_n,
    )


def to_answer(profile: Profile, evidence: Evidence | None, peak: Figure) -> Figure:
    """Requests/s that hosts must keep up with: the peak, or what a deadline in hours lets a queue spread over.

    A batch that may wait `operations.deadline_hours` is answered in time at the mean rate of the busiest stretch of
    that length; a day or longer: at the mean of the day.
    """
    hours = profile.operations.deadline_hours
    curve = day_curve(profile, evidence)
    if profile.task != "batch" or hours is None or curve is None or peak.value is None:
        return peak
    window = min(len(curve), max(1, math.floor(hours)))
    twice = [*curve, *curve]
    busiest = max(sum(twice[start : start + window]) for start in range(len(curve))) / window / max(curve)
    return peak.model_copy(
        update={
            "value": peak.value * busiest,
            "source": f"{busiest:.2f} of the peak: the busiest {window} h of the day, since answers may take"
            f" {hours:g} h; {peak.source}",
        }
    )


def day_curve(profile: Profile, evidence: Evidence | None) -> tuple[float, ...] | None:
    """Load by hour relative to the busiest: as declared, else as audited."""
    told = profile.requests.day_curve or (evidence.day_curve if evidence is not None else None)
    return told if told and max(told) > 0 else None


def profile_growth(profile: Profile, evidence: Evidence | None) -> float:
    """Growth a month: the audit's where it could tell, else the profile's."""
    if evidence is not None and evidence.growth_per_month is not None:
        return max(-MOST_GROWTH, min(MOST_GROWTH, evidence.growth_per_month))
    return profile.requests.growth_per_month


def mean_rps(evidence: Evidence | None) -> float | None:
    """Inference requests a second on average; None unless the logs span a whole day (two significant digits)."""
    if evidence is None or evidence.inference_n == 0 or not evidence.stamped:
        return None
    span = (evidence.end - evidence.start).total_seconds()
    return float(f"{evidence.inference_n / span:.2g}") if span >= 24 * 3600 else None
