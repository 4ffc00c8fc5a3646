"""Judges a time span of the moved workload from stored history only: nothing needs to have kept running meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from inferlift.artifacts import Check, Figure, Gate, Judgement, Series, Sizing, Verdict, Watch
from inferlift.observe.prometheus import Prometheus
from inferlift.observe.review import Plan, derived, due, review
from inferlift.profile import Profile

MIN_REQUESTS = 20  # below, no P95 and no error share is worth a verdict (artifacts.Percentiles)
MIN_COVERAGE = 0.9
MIN_UP = 0.99
MIN_SCRAPES = 4  # below, one that failed is too large a share to be overlooked
_POINTS = 120
_NO_GPU = "no GPU on these hosts"


def judge(
    client: Prometheus,
    profile: Profile,
    start: datetime,
    end: datetime,
    *,
    cost_per_hour: Figure | None = None,
    gpu: bool = False,
    plan: Plan | None = None,
    replan: Callable[[float], Sizing | None] = lambda peak_rps: None,
) -> Watch:
    """The watch over `start` to `end`. `gpu`: the hosts have GPUs, so that absent GPU metrics are a gap.

    No data never passes: such gates are inconclusive. `plan`: what use and costs are held against; `replan` makes
    the plan for a measured peak. Raises what the client raises.
    """
    seconds = max(1.0, (end - start).total_seconds())
    figures = _figures(client, end, seconds, gpu)
    figures["coverage"] = _coverage(client, start, end)
    _derive(figures, seconds, cost_per_hour, end)
    judgements: tuple[Judgement, ...] = ()
    if plan is not None:
        peak = figures["peak_rps"].value
        plan = replace(plan, replanned=replan(peak) if peak else None)
        figures |= derived(plan, figures)
        judgements = review(plan, figures, seconds)
    gates = _gates(profile, figures, gpu)
    failed = [g for g in gates if g.verdict == "fail"]
    unclear = [g for g in gates if g.verdict == "inconclusive"]
    verdict: Verdict = "fail" if failed else "inconclusive" if unclear else "pass"
    shown = failed or unclear or gates
    return Watch(
        start=start,
        end=end,
        gates=tuple(gates),
        figures=figures,
        series=tuple(_series(client, start, end, seconds, gpu)),
        judgements=judgements,
        triggers=due(figures) if plan is not None else (),
        replanned=plan.replanned if plan is not None else None,
        verdict=verdict,
        why=f"all {len(gates)} gates hold" if verdict == "pass" else "; ".join(f"{g.name}: {g.why}" for g in shown),
    )


def up(client: Prometheus) -> list[Check]:
    """One check for each target that Prometheus scrapes: did its last scrape succeed?"""
    found = [
        Check(
            name=f"metrics of {s.labels.get('job', '?')} on {s.labels.get('instance', '?')}",
            ok=s.value == 1,
            detail="" if s.value == 1 else "the last scrape failed",
        )
        for s in client.query("up", datetime.now(UTC))
    ]
    return found or [Check(name="metrics", ok=False, detail="Prometheus scrapes nothing")]


def _figures(client: Prometheus, end: datetime, seconds: float, gpu: bool) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name, row in _table()["figures"].items():
        value = client.scalar(row["query"].format(window=f"{math.ceil(seconds)}s"), end)
        source = row["source"]
        if value is None and row.get("gpu"):
            source = f"{row['source']}: missing" if gpu else _NO_GPU
        elif value is None:
            source = f"{row['source']}: no data"
        basis = "unknown" if value is None else "measured"
        found[name] = Figure(value=value, unit=row["unit"], basis=basis, source=source, at=end.isoformat())
    for name, counter in (("p95_total_ms", "requests_timed"), ("p95_ttft_ms", "first_tokens_timed")):
        n = found[counter].value
        found[name] = found[name].model_copy(update={"n": None if n is None else round(n)})
    return found


def _coverage(client: Prometheus, start: datetime, end: datetime) -> Figure:
    """Share of the time for which the gateway's figures are stored."""
    seconds = max(1.0, (end - start).total_seconds())
    # A scrape interval is at most 15 s here: a slice of 15 s or more with no sample is a gap.
    step = max(15.0, seconds / _POINTS)
    slices = max(1, int(seconds // step))
    first = datetime.fromtimestamp(end.timestamp() - (slices - 1) * step, UTC)
    lines = client.query_range(f'count_over_time(up{{job="gateway"}}[{math.ceil(step)}s])', first, end, step)
    covered = {at for line in lines for at, count in line.points if count > 0}
    return Figure(
        value=min(1.0, len(covered) / slices), unit="share", basis="measured", n=slices, at=end.isoformat(),
        source=f"Prometheus, samples of the gateway in {slices} slices of {step:.0f} s",
    )  # fmt: skip


def _derive(figures: dict[str, Figure], seconds: float, cost: Figure | None, end: datetime) -> None:
    requests, errors = figures["requests"], figures["errors"]
    n = None if requests.value is None else round(requests.value)
    at = end.isoformat()

    def derived(value: float | None, unit: str, source: str) -> Figure:
        basis = "unknown" if value is None else "measured"
        return Figure(value=value, unit=unit, basis=basis, source=source, at=at, n=n)

    share = None
    if n and requests.value and errors.value is not None:
        share = min(1.0, errors.value / requests.value)
    figures["error_share"] = derived(share, "share", errors.source)
    rate = None if requests.value is None else requests.value / seconds
    figures["rate_rps"] = derived(rate, "requests/s", requests.source)
    if cost is None or cost.value is None:
        source = cost.source if cost else "no price given"
        figures["cost_so_far"] = Figure(value=None, unit="?", basis="unknown", source=source, at=at)
        return
    currency = cost.unit.split("/")[0]
    spent = cost.value * seconds / 3600
    figures["cost_so_far"] = Figure(
        value=spent, unit=currency, basis=cost.basis, at=at,
        source=f"{seconds / 3600:.3f} h at {cost.value:.4g} {cost.unit} ({cost.source})",
    )  # fmt: skip
    figures["cost_per_1000_at_this_rate"] = Figure(
        value=1000 * spent / requests.value if requests.value else None,
        unit=f"{currency}/1000 requests", basis=cost.basis if requests.value else "unknown", n=n, at=at,
        source="cost so far over the requests answered; falls as users fill the replicas",
    )  # fmt: skip


def _gates(profile: Profile, figures: dict[str, Figure], gpu: bool) -> list[Gate]:
    targets = profile.targets
    gates = [
        _gate("history", MIN_COVERAGE, figures["coverage"], lambda v, t: v >= t, absent_below=True),
        _gate("targets up", _least_up(figures["scrapes"].value), figures["targets_up_share"], lambda v, t: v >= t),
        _gate("errors", targets.error_share, figures["error_share"], lambda v, t: v <= t, MIN_REQUESTS),
    ]
    for name, target, key in (
        ("P95 total", targets.p95_total_ms, "p95_total_ms"),
        ("P95 TTFT", targets.p95_ttft_ms, "p95_ttft_ms"),
    ):
        if target is not None:
            gates.append(_gate(name, target, figures[key], lambda v, t: v <= t, MIN_REQUESTS))
    if gpu:
        gates.append(_gate("GPU metrics", 0.0, figures["memory_bandwidth_share"], lambda v, t: v >= t))
    return gates


def _least_up(scrapes: float | None) -> float:
    """One scrape that failed in a short watch is a restart, no outage."""
    return min(MIN_UP, 1 - 1.5 / scrapes) if scrapes is not None and scrapes >= MIN_SCRAPES else MIN_UP


def _gate(
    name: str,
    target: float,
    figure: Figure,
    holds: Callable[[float, float], bool],
    at_least: int | None = None,
    *,
    absent_below: bool = False,
) -> Gate:
    """`absent_below`: too little is no failure of the service, but too little to judge by."""
    value, verdict = figure.value, "inconclusive"
    if value is None:
        why = f"no data ({figure.source})"
    elif at_least is not None and (figure.n or 0) < at_least:
        why = f"{figure.n or 0} requests, at least {at_least} are needed"
    elif holds(value, target):
        verdict, why = "pass", f"{_text(value)} {figure.unit}, target {_text(target)}"
    else:
        verdict = "inconclusive" if absent_below else "fail"
        why = f"{_text(value)} {figure.unit}, target {_text(target)}"
    return Gate(name=name, verdict=verdict, target=target, figure=figure, why=why)


def _text(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _series(client: Prometheus, start: datetime, end: datetime, seconds: float, gpu: bool) -> list[Series]:
    step = max(5.0, seconds / _POINTS)
    found = []
    for name, row in _table()["series"].items():
        if row.get("gpu") and not gpu:
            continue
        lines = client.query_range(row["query"].format(step=f"{max(30, math.ceil(step * 2))}s"), start, end, step)
        points = lines[0].points if lines else ()
        found.append(Series(name=name, unit=row["unit"], points=points))
    return found


def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("metrics.yaml").read_text("utf-8"))
    return table
