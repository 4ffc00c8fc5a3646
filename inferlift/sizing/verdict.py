"""Whether to move at all: go, stay, the software first, a service instead, or not enough data to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from inferlift.artifacts import Evidence, Figure
from inferlift.artifacts.sizing import Verdict
from inferlift.profile import Profile
from inferlift.sizing.choice import COST, ZONES, Row, miss

# What decides for itself; bill and GPU use add reasons but cannot decide "stay" by being unknown.
MANY_HOSTS = 1000
DECIDING = ("P95 over 500 ms", "over 500 inference requests a minute", "over 500 in flight")


@dataclass(frozen=True)
class Service:
    """A managed model, in the profile's currency."""

    name: str
    per_1000: Figure


def verdict(
    profile: Profile, evidence: Evidence | None, peak: Figure, best: Row, service: Service | None,
    blockers: Sequence[str] = (),
) -> tuple[Verdict, str]:  # fmt: skip
    """The verdict and its reason in words. `blockers`: what the plan's own checks say no to."""
    if peak.value is None:
        return "defer", "the peak is unknown: audit the logs, or declare requests.per_minute_peak"
    instead = _as_service(profile, best, service)
    if evidence is None:
        if instead:
            return "buy-as-service", instead
        alone = _judged(profile, best, blockers) or "every target looks within reach"
        return (
            "conditional",
            f"no audit: nothing says that the present hosting does not do; by the profile alone {alone}",
        )
    verdicts = {trigger.name: trigger.verdict for trigger in evidence.triggers}
    met = [name for name, found in verdicts.items() if found == "met"]
    if not met:
        missing = [name for name in DECIDING if verdicts.get(name) != "not met"]
        if missing:
            return "defer", f"no trigger is met, and there is no data for: {', '.join(missing)}"
        return "stay", "no trigger is met: the present hosting does"
    first = [reason for reason, decides in software(evidence) if decides]
    if first:
        return "optimise-first", f"triggers met: {', '.join(met)}; but {'; '.join(first)}"
    if instead:
        return "buy-as-service", f"triggers met: {', '.join(met)}; {instead}"
    judged = _judged(profile, best, blockers)
    if judged:
        return "conditional", f"triggers met: {', '.join(met)}; but {judged}"
    return "go", f"triggers met: {', '.join(met)}; {best.name} looks able to reach the targets"


def software(evidence: Evidence) -> list[tuple[str, bool]]:
    """What the audit says could be done without moving, and whether it comes before any move."""
    found = []
    if evidence.model_kept_in_memory is False:
        found.append(("the model is loaded anew for each request: keep it in memory first", True))
    for share, name, said in (
        (evidence.cacheable_share, "cacheable_share", "of the requests repeat an earlier one: a cache answers them"),
        (evidence.oversized_share, "oversized_share", "of the inputs are far larger than the model uses: cut them"),
    ):
        if share is not None and share > 0.01:
            found.append((f"{share:.0%} {said}", share >= threshold(name)))
    if evidence.batched is False:
        idle = evidence.gpu_idle_share
        standing = idle is not None and idle >= threshold("gpu_idle_share")
        more = f", and the GPU stands still {idle:.0%} of the time" if standing else ""
        found.append((f"requests are answered one at a time, without batching{more}", standing))
    return found


def threshold(name: str) -> float:
    return _thresholds()[name]


def _judged(profile: Profile, best: Row, blockers: Sequence[str]) -> str:
    """What stands between the choice and the targets; nothing where all is well."""
    currency = profile.budget.currency
    found = [miss(key, wanted, reached, currency) for key, wanted, reached in best.misses]
    if profile.targets.max_cost_per_1000 is not None and best.per_1000.value is None:
        found.append("the cost is unknown and targets limit it")
    if best.served is not None and best.doubtful:
        shown = [best.served.ranges[key] for key in best.doubtful]
        ends = [f"{one.low if one.unit == 'tokens/s' else one.high:.4g} {one.unit}" for one in shown]
        words = ", ".join(f"{key} (at worst {end})" for key, end in zip(best.doubtful, ends, strict=True))
        found.append(f"in doubt within the prediction's range: {words}")
    found += blockers
    if best.hosts > MANY_HOSTS:
        found.append(f"{best.hosts} hosts: check requests and growth")
    budget = profile.budget.monthly
    if budget is not None and best.cost_per_hour.value is not None and best.cost_per_hour.value * 730 > budget:
        found.append(f"{best.cost_per_hour.value * 730:.0f} {currency} a month, budget.monthly is {budget:g}")
    return "; ".join(found)


def _as_service(profile: Profile, best: Row, service: Service | None) -> str:
    """Why a managed service of the same model comes first; nothing where it does not."""
    if service is None or service.per_1000.value is None:
        return ""
    own, theirs = best.per_1000.value, service.per_1000.value
    limit = profile.targets.max_cost_per_1000
    if profile.operations.tenancy == "dedicated":
        return ""
    said = f"{service.name} costs {theirs:.4g} {profile.budget.currency} per 1000 requests"
    too_dear = any(key == COST for key, _, _ in best.misses)
    if too_dear and limit is not None and theirs <= limit:
        return f"{said}, within the target that no host meets"
    if own is not None and theirs < own * threshold("service_factor"):
        return f"{said}, hosts of one's own {own:.4g}"
    return ""


@cache
def _thresholds() -> dict[str, float]:
    told = yaml.safe_load((Path(__file__).parent / "verdict.yaml").read_text(encoding="utf-8"))
    return {name: float(row["value"]) for name, row in told.items()}


def nearest(rows: Sequence[Row], key: str, better_is_more: bool) -> tuple[float, Row] | None:
    """The best value of a target that any usable offer reaches, and the offer."""
    found = []
    for row in rows:
        if row.served is None:
            continue
        value = row.per_1000.value if key == COST else row.served.reached.get(key)
        if key == ZONES:
            value = float(len(row.offer.zones)) or None
        if value is not None:
            found.append((value, row))
    if not found:
        return None
    return (max if better_is_more else min)(found, key=lambda pair: pair[0])
