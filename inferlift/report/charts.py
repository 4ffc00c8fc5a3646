"""Which charts the report draws, from the artifacts. None where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inferlift.artifacts import Evidence, LoadRun, Measurement, Percentiles, Scaled, SwitchStep
from inferlift.artifacts import Series as Watched
from inferlift.report.data import ReportData
from inferlift.report.figures import NARROW, count, milliseconds, moment, number, quantity, seconds, share, words
from inferlift.report.plots import Axis, Chart, Mark, Point, Series, clock_step, linear, spread, timeline

_RANKS = (("P50", "p50_ms", 0.5), ("P90", "p90_ms", 0.9), ("P95", "p95_ms", 0.95), ("P99", "p99_ms", 0.99))


def latencies(data: ReportData, measured: Measurement) -> Chart | None:
    """Share of requests answered within a time: the old side's percentiles as points, the new side as lines."""
    run, old = measured.run, measured.origin
    series: list[Series] = []
    marks_at = percentile_points(old)
    if live := measured.origin_live:
        series.append(Series(f"old side, asked directly (n={number(live.total.n)})", cdf(live.latencies_ms), "old"))
    elif marks_at:
        label = f"old side, percentiles from its log (n={number(old.n)})"
        points = [p for _, p in marks_at]
        notes = [f"old side {name}: {milliseconds(p[0])}" for name, p in marks_at]
        series += [Series("", points, "old", "guide"), Series(label, points, "old", "dots", notes)]
    if run.latencies_ms:
        series.append(Series(f"new side, whole answer (n={number(run.total.n)})", cdf(run.latencies_ms), "new"))
    if run.ttfts_ms and run.ttft:
        series.append(Series(f"new side, first token (n={number(run.ttft.n)})", cdf(run.ttfts_ms), "third"))
    if not series:
        return None
    values = [p[0] for s in series for p in s.points]
    targets = ((data.profile.p95_ttft_ms, "P95 first token"), (data.profile.p95_total_ms, "P95 whole answer"))
    marks = tuple(Mark(t, f"target {what} {milliseconds(t)}") for t, what in targets if t is not None)
    far = [m for m in marks if m.value > max(values) * 1.6]
    note = "; ".join(f"{m.label} lies beyond the right edge" for m in far)
    shown = tuple(m for m in marks if m not in far)
    return Chart(
        title="Latency, old against new",
        says=f"Share of requests answered within a time. Old side: {_said(old)}. New side: {_said(run.total)}.",
        x=spread(max(min(values), 1e-3), max([*values, *(m.value for m in shown)]), milliseconds),
        y=_shares(),
        series=tuple(series),
        marks=shown,
        height=260,
        note=note,
        x_title="answered within",
    )


def arrivals(evidence: Evidence) -> Chart | None:
    """The old side's traffic as the audit saw it: requests in equal slices of time."""
    gaps = evidence.shape.gaps_s
    if len(gaps) < 2:
        return None
    at, total = [], 0.0
    for gap in gaps:
        total += max(0.0, gap)
        at.append(total)
    slices = min(48, max(8, len(gaps) // 4))
    width = clock_step(total / slices) if total else 1.0
    bars = [0] * (math.floor(total / width) + 1)
    for t in at:
        bars[math.floor(t / width)] += 1
    points = [(k * width, float(n)) for k, n in enumerate(bars)]
    return Chart(
        title="Requests arriving at the old side",
        says=f"{number(len(gaps))} inference requests over {seconds(total)}, at most {max(bars)} in {seconds(width)}.",
        x=timeline(width * len(bars), seconds),
        y=linear(0.0, float(max(bars)), number, whole=True, steps=3),
        series=(Series(f"requests in each {seconds(width)}", points, "old", "bars"),),
        height=170,
        x_title="since the first request shown",
    )


def in_flight(runs: Sequence[tuple[LoadRun, str]], *, deadline_s: float | None = None, title: str = "") -> Chart | None:
    """Requests sent and not yet answered, over the time of one or two runs."""
    drawn = [(run, tone) for run, tone in runs if run.in_flight]
    if not drawn:
        return None
    last = max(point[0] for run, _ in drawn for point in run.in_flight)
    high = max(run.in_flight_peak for run, _ in drawn)
    marks = (Mark(deadline_s, f"deadline {seconds(deadline_s)}"),) if deadline_s else ()
    return Chart(
        title=title or "Requests in flight",
        says="; ".join(
            f"{run.label}: at most {run.in_flight_peak} in flight over {seconds(run.seconds)}" for run, _ in drawn
        ),
        x=timeline(max(last, deadline_s or 0.0), seconds),
        y=linear(0.0, float(max(high, 1)), number, whole=True),
        series=tuple(
            Series(run.label, [(t, float(n)) for t, n in run.in_flight], tone, "area" if len(drawn) == 1 else "step")
            for run, tone in drawn
        ),
        marks=marks,
        x_title="since the start",
    )


def rate(data: ReportData, runs: Sequence[tuple[LoadRun, str]]) -> Chart | None:
    """Answers a second, counted from every request's own record."""
    drawn = [(run, tone, data.rates[run.samples]) for run, tone in runs if data.rates.get(run.samples)]
    if not drawn:
        return None
    high = max(v for _, _, points in drawn for _, v in points)
    return Chart(
        title="Answers a second",
        says="; ".join(f"{run.label}: on average {quantity(run.rate_rps, '')} a second" for run, _, _ in drawn),
        x=timeline(max(t for _, _, points in drawn for t, _ in points), seconds),
        y=linear(0.0, high or 1.0, number),
        series=tuple(Series(run.label, points, tone, "step") for run, tone, points in drawn),
        x_title="since the start",
    )


def acceptance(scaled: Scaled) -> Chart | None:
    runs = [(scaled.acceptance, "new"), (scaled.with_loss, "third")]
    return in_flight(runs, deadline_s=scaled.deadline_s, title="All users at once, and again with one replica killed")


def weights(steps: Sequence[SwitchStep]) -> Chart | None:
    """The weight that was set against the share that the authority really answered with."""
    if not steps:
        return None
    first = steps[0].at
    at = [(s.at - first).total_seconds() for s in steps]
    set_to: list[Point] = [(t, s.weight / 100) for t, s in zip(at, steps, strict=True)]
    end = at[-1] + max(steps[-1].seconds, 1.0)
    seen = [(t, s) for t, s in zip(at, steps, strict=True) if s.authority_share is not None]
    return Chart(
        title="DNS: share of answers that name the new side",
        says="; ".join(f"{s.weight} % set, {share(s.authority_share)} answered" for s in steps),
        x=timeline(end, seconds),
        y=_shares(),
        series=(
            Series("weight set", [*set_to, (end, set_to[-1][1])], "new", "step"),
            Series(
                "answers of the authority",
                [(t, s.authority_share or 0.0) for t, s in seen],
                "third",
                "dots",
                [f"{share(s.authority_share)} of {count(s.asked, 'answer')}, {s.weight} % set" for _, s in seen],
            ),
        ),
        height=260,
        x_title="since the first step",
    )


def sides(found: Sequence[Watched]) -> Chart | None:
    """Where users' answers came from while the weights moved: what DNS did to real clients."""
    kept = [s for s in found if s.points]
    if not kept:
        return None
    first = min(s.points[0][0] for s in kept)
    end = max(s.points[-1][0] for s in kept) - first
    tones = ("new", "third", "old", "plain")
    return Chart(
        title="Users: share of answers from the new side",
        says="; ".join(f"{s.name}: {share(s.points[0][1])} at first, {share(s.points[-1][1])} at last" for s in kept),
        x=timeline(max(end, 1.0), seconds),
        y=_shares(),
        series=tuple(
            Series(s.name, [(t - first, value) for t, value in s.points], tone, "step")
            for s, tone in zip(kept, tones, strict=False)
        ),
        height=260,
        x_title="since the first answer",
    )


def watched(series: Watched) -> Chart | None:
    """One metric over the watch."""
    points = [p for p in series.points if math.isfinite(p[1])]
    if not points:
        return None
    start = points[0][0]
    values = [v for _, v in points]
    low = min(0.0, *values)
    spoken = series.unit in ("ms", "s", "bytes", "share") or not series.unit
    return Chart(
        title=words(series.name) + ("" if spoken else f", {series.unit}"),
        says=f"{series.name}: {quantity(min(values), series.unit)} to {quantity(max(values), series.unit)}, "
        f"{count(len(points), 'point')} from {moment_of(start)}",
        x=timeline(max(points[-1][0] - start, 1.0), seconds, steps=3),
        y=linear(low, max(max(values), low + 1e-9), lambda v: quantity(v, series.unit if spoken else ""), steps=2),
        series=(Series(series.name, [(t - start, v) for t, v in points], "new", "line"),),
        height=130,
        legend=False,
    )


def day(evidence: Evidence) -> Chart | None:
    """Requests by hour of the day."""
    curve = evidence.day_curve
    if not curve:
        return None
    return Chart(
        title="Requests by hour of the day (UTC)",
        says=f"busiest hour {curve.index(max(curve))}:00",
        x=Axis(0.0, float(len(curve)), tuple(float(h) for h in range(0, len(curve) + 1, 6)), lambda h: f"{h:.0f}:00"),
        y=linear(0.0, max(*curve, 1e-9), number, steps=2),
        series=(Series("requests", [(float(h), v) for h, v in enumerate(curve)], "old", "bars"),),
        height=150,
    )


def cdf(ordered: Sequence[float]) -> list[Point]:
    """Share of requests at or under each value; the values are sorted and evenly thinned, both ends kept."""
    n = len(ordered)
    return [(value, (k + 1) / n) for k, value in enumerate(sorted(ordered))]


def percentile_points(found: Percentiles) -> list[tuple[str, Point]]:
    """The percentiles that are known, as points of the distribution. The unknown are left out."""
    known = [(name, (value, rank)) for name, key, rank in _RANKS if (value := getattr(found, key)) is not None]
    return [*known, ("slowest", (found.max_ms, 1.0))] if found.max_ms is not None else known


def moment_of(unix_seconds: float) -> str:
    from datetime import UTC, datetime

    return moment(datetime.fromtimestamp(unix_seconds, UTC))


# --- helpers ----------------------------------------------------------------------------------------------------------


def _shares() -> Axis:
    return Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), lambda v: f"{v * 100:.0f}{NARROW}%")


def _said(found: Percentiles) -> str:
    return f"P50 {milliseconds(found.p50_ms)}, P95 {milliseconds(found.p95_ms)} of {number(found.n)}"
