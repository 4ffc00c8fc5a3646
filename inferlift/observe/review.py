"""What was measured held against the plan and the old bill: use too low or too high, costs, what is due next. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from inferlift.artifacts import Figure, Judgement, Sizing, Trigger
from inferlift.profile import Profile

HOURS_A_MONTH = 730
LOW, HIGH = 0.3, 0.8  # of the capacity at the peak; between them nothing is said
COST_MARGIN = 0.25
DAY_S = 86400
Held = Literal["as planned", "too low", "too high", "unknown"]


@dataclass(frozen=True)
class Plan:
    """What the watch is held against. `replicas` stand now; `bill_monthly` is the old side's, in the same currency."""

    profile: Profile
    sizing: Sizing
    replicas: int
    replanned: Sizing | None = None
    bill_monthly: Figure | None = None


def review(plan: Plan, figures: Mapping[str, Figure], seconds: float) -> tuple[Judgement, ...]:
    """Use, then costs. `seconds`: how long was watched; less than a day is said to be no day."""
    return (_use(plan, figures, seconds), _cost(plan, figures), *old_bill(plan, figures, seconds))


def derived(plan: Plan, figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Shares that the triggers read: use at the peak, latency of its target, cost of the plan's."""
    rate, peak = plan.sizing.rate_per_replica.value, figures["peak_rps"].value
    bandwidth = figures["memory_bandwidth_p95_share"].value
    served = peak / (rate * plan.replicas) if rate and peak is not None and plan.replicas else None
    known = [v for v in (served, bandwidth) if v is not None]
    total, target = figures["p95_total_ms"].value, plan.profile.targets.p95_total_ms
    cost, planned = _per_1000(figures), plan.sizing.cost_per_1000.value
    said = "no data" if peak is None else f"peak {peak:.3g} requests/s of {plan.replicas} x {rate or 0:.3g}"
    if bandwidth is not None:
        said += f"; memory bandwidth {bandwidth:.2f}"
    return {
        "utilisation_peak": _figure(max(known) if known else None, "share", said),
        "p95_of_target": _figure(
            total / target if total is not None and target else None, "share", f"P95 total over its target {target} ms"
        ),
        "cost_of_plan": _figure(
            cost / planned if cost is not None and planned else None, "share", "cost of 1000 requests over the plan's"
        ),
    }


def due(figures: Mapping[str, Figure]) -> tuple[Trigger, ...]:
    """triggers.yaml, each met, not met or without data."""
    found = []
    for row in _table():
        figure, limit, below = figures.get(row["figure"]), row["at"], row.get("below", False)
        if figure is None or figure.value is None:
            verdict: Literal["met", "not met", "no data"] = "no data"
            why = figure.source if figure is not None else "not asked for here"
            figure = figure or _figure(None, "", why)
        else:
            met = figure.value < limit if below else figure.value >= limit
            verdict = "met" if met else "not met"
            why = f"{figure.value:.3g} {figure.unit}, {'below' if below else 'from'} {limit:g}: {row['step']}"
        found.append(Trigger(name=row["name"], verdict=verdict, figure=figure, threshold=limit, why=why))
    return tuple(found)


def old_bill(plan: Plan, figures: Mapping[str, Figure], seconds: float) -> tuple[Judgement, ...]:
    """A month of the new hosts against a month of the old bill; nothing where there is no bill."""
    bill = plan.bill_monthly
    if bill is None or bill.value is None:
        return ()
    spent = figures.get("cost_so_far") or _figure(None, "?", "no price")
    name, currency = "cost against the old bill", plan.sizing.currency
    if spent.value is None:
        return (Judgement(name=name, verdict="unknown", figure=spent, against=bill, why=f"no data ({spent.source})"),)
    month = spent.value / max(seconds, 1.0) * HOURS_A_MONTH * 3600
    figure = Figure(value=month, unit=f"{currency}/month", basis=spent.basis, source=spent.source, at=spent.at)
    saved = bill.value - month
    verdict: Held = "too high" if saved < 0 else "as planned"
    saving = Figure(value=saved, unit=f"{currency}/month", basis=spent.basis, source=f"{bill.source} less {month:.4g}")
    why = f"{month:.4g} {currency} a month, {bill.value:.4g} before"
    return (
        Judgement(name=name, verdict=verdict, figure=figure, against=bill, why=why,
                  saving_monthly=saving if saved > 0 else None),
    )  # fmt: skip


def _use(plan: Plan, figures: Mapping[str, Figure], seconds: float) -> Judgement:
    use = figures["utilisation_peak"]
    against = _figure(HIGH, "share", f"between {LOW:.0%} and {HIGH:.0%} at the peak is as planned")
    if use.value is None:
        return Judgement(name="use", verdict="unknown", figure=use, against=against, why=f"no data ({use.source})")
    short = "" if seconds >= DAY_S else f"; {seconds / 3600:.2g} h were watched: a day's peak may be higher"
    new = plan.replanned
    if use.value >= HIGH:
        want = "" if new is None else f"; the plan for this peak is {_hosts(new)}"
        return Judgement(name="use", verdict="too high", figure=use, against=against, why=f"{use.source}{want}{short}")
    if use.value >= LOW:
        return Judgement(name="use", verdict="as planned", figure=use, against=against, why=f"{use.source}{short}")
    saving = _saving(plan)
    want = "the plan for this peak could not be made" if new is None else f"{_hosts(new)} would carry this peak"
    if new is not None and new.choice == plan.sizing.choice and new.replicas + new.spare >= plan.replicas:
        want += ": the same, since one and its spare are the least"
    return Judgement(
        name="use", verdict="too low", figure=use, against=against, saving_monthly=saving,
        why=f"{use.source}; {want}, with the declared growth counted in{short}",
    )  # fmt: skip


def _saving(plan: Plan) -> Figure | None:
    """A month of what stands less a month of the new plan; None where a price is unknown or nothing is saved."""
    new, now = plan.replanned, plan.sizing
    hosts = now.replicas + now.spare
    if new is None or now.cost_per_hour.value is None or new.cost_per_hour.value is None or not hosts:
        return None
    standing = now.cost_per_hour.value / hosts * plan.replicas
    saved = (standing - new.cost_per_hour.value) * HOURS_A_MONTH
    if saved <= 0:
        return None
    return Figure(
        value=saved, unit=f"{now.currency}/month", basis="predicted",
        source=f"{plan.replicas} hosts as they stand less {_hosts(new)}, {HOURS_A_MONTH} h a month",
    )  # fmt: skip


def _cost(plan: Plan, figures: Mapping[str, Figure]) -> Judgement:
    figure = figures.get("cost_per_1000_at_this_rate") or _figure(None, "?", "no price")
    planned = plan.sizing.cost_per_1000
    verdict: Held = "unknown"
    why = f"no data ({figure.source if figure.value is None else planned.source})"
    if figure.value is not None and planned.value is not None:
        share = figure.value / planned.value if planned.value else math.inf if figure.value else 1.0
        verdict = "too high" if share > 1 + COST_MARGIN else "as planned"
        why = f"{figure.value:.4g} {figure.unit}, planned {planned.value:.4g}"
        if verdict == "too high":
            why += ": fewer requests came than were planned for, and hosts cost the same"
    return Judgement(name="cost of 1000 requests", verdict=verdict, figure=figure, against=planned, why=why)


def _per_1000(figures: Mapping[str, Figure]) -> float | None:
    figure = figures.get("cost_per_1000_at_this_rate")
    return None if figure is None else figure.value


def _hosts(plan: Sizing) -> str:
    return f"{plan.replicas}+{plan.spare} x {plan.choice}"


def _figure(value: float | None, unit: str, source: str) -> Figure:
    return Figure(value=value, unit=unit, basis="unknown" if value is None else "measured", source=source)


def _table() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("triggers.yaml").read_text("utf-8"))
    return table
