"""The audit's own pictures: the whole log over time and by hour. None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from inferlift.artifacts import Evidence
from inferlift.artifacts.evidence import HourFigures
from inferlift.report.figures import count, milliseconds, number, quantity, seconds, size
from inferlift.report.plots import Axis, Chart, Point, Series, linear, spread, timeline

_HOUR = 3600.0
_CLASSES: tuple[tuple[str, str, Callable[[int], bool]], ...] = (
    ("answered (2xx, 3xx)", "new", lambda code: 200 <= code < 400),
    ("refused (4xx)", "third", lambda code: 400 <= code < 500),
    ("failed (5xx, never answered)", "old", lambda code: code >= 500 or code == 0),
)


def rate(evidence: Evidence) -> Chart | None:
    """Inference requests a second over the whole log."""
    points = list(evidence.rate_curve)
    if len(points) < 2:
        return None
    high = max(v for _, v in points)
    return Chart(
        title="Inference requests a second",
        says=f"{number(evidence.inference_n)} requests; in the busiest slice {quantity(high, '').strip()} a second",
        x=timeline(points[-1][0], seconds),
        y=linear(0.0, high or 1.0, number, steps=3),
        series=(Series("requests a second", points, "old", "step"),),
        height=150,
        x_title="since the first request",
        legend=False,
    )


def in_flight(evidence: Evidence) -> Chart | None:
    """The most requests in flight in each slice of the log."""
    points: list[Point] = [(t, float(n)) for t, n in evidence.in_flight_curve]
    if len(points) < 2:
        return None
    bounds = evidence.in_flight_bounds
    note = (
        f"stamps are whole seconds: the true peak lies between {bounds[0]} and {bounds[1]}"
        if bounds is not None and bounds[0] != bounds[1]
        else ""
    )
    return Chart(
        title="Requests in flight at the old side",
        says=f"at most {evidence.in_flight_peak} at once",
        x=timeline(points[-1][0], seconds),
        y=linear(0.0, max(n for _, n in points), number, whole=True, steps=3),
        series=(Series("in flight", points, "old", "step"),),
        height=150,
        note=note,
        x_title="since the first request",
        legend=False,
    )


def latency_by_hour(evidence: Evidence) -> Chart | None:
    """P50 and P95 of each hour; an hour with too few requests has no P95."""
    ranks: tuple[tuple[str, str, Callable[[HourFigures], float | None]], ...] = (
        ("P50", "new", lambda hour: hour.latency.p50_ms),
        ("P95", "old", lambda hour: hour.latency.p95_ms),
    )
    drawn = [(name, tone, _points(evidence, value)) for name, tone, value in ranks]
    values = [v for _, _, points in drawn for _, v in points]
    axis = _axis(evidence)
    if axis is None or not values:
        return None
    return Chart(
        title="Latency by hour",
        says=f"whole answers of {count(len(evidence.hours), 'hour')}: from {milliseconds(min(values))} to "
        f"{milliseconds(max(values))}",
        x=axis,
        y=spread(max(min(values), 1e-3), max(values), milliseconds),
        series=tuple(
            Series(name, points, tone, "line" if len(points) > 1 else "dots") for name, tone, points in drawn if points
        ),
        height=170,
    )


def status_by_hour(evidence: Evidence) -> Chart | None:
    """Requests of each hour by how they were answered."""
    axis, hours = _axis(evidence), evidence.hours
    if axis is None or not any(hour.statuses for hour in hours):
        return None
    drawn = []
    for name, tone, inside in _CLASSES:
        points = [
            (at, float(sum(n for code, n in (hour.statuses or {}).items() if inside(int(code)))))
            for at, hour in zip(_at(evidence), hours, strict=True)
        ]
        if any(v for _, v in points):
            drawn.append((name, tone, points))
    if not drawn:
        return None
    totals = {name: int(sum(v for _, v in points)) for name, _, points in drawn}
    return Chart(
        title="Status by hour",
        says="; ".join(f"{name}: {number(total)}" for name, total in totals.items()),
        x=axis,
        y=linear(0.0, max(v for _, _, points in drawn for _, v in points), number, whole=True, steps=3),
        series=tuple(Series(f"{name}: {number(totals[name])}", points, tone, "step") for name, tone, points in drawn),
        height=170,
    )


def bytes_by_hour(evidence: Evidence) -> Chart | None:
    """Bytes sent to the callers of inference in each hour."""
    points = _points(evidence, lambda hour: None if hour.sent_bytes is None else float(hour.sent_bytes))
    axis = _axis(evidence)
    if axis is None or not points:
        return None
    return Chart(
        title="Bytes sent by hour",
        says=f"{size(sum(v for _, v in points))} in {count(len(points), 'hour')}",
        x=axis,
        y=linear(0.0, max(v for _, v in points) or 1.0, size, steps=2),
        series=(Series("bytes", points, "old", "bars"),),
        height=150,
        legend=False,
    )


def _points(evidence: Evidence, value: Callable[[HourFigures], float | None]) -> list[Point]:
    told = zip(_at(evidence), evidence.hours, strict=True)
    return [(at, found) for at, hour in told if (found := value(hour)) is not None]


def _of_day(evidence: Evidence) -> bool:
    """Hours of the day (a long log) instead of hours of the calendar."""
    return bool(evidence.hours) and "T" not in evidence.hours[0].hour


def _at(evidence: Evidence) -> list[float]:
    """Where each hour begins: hours of the day, or seconds since the first hour."""
    if _of_day(evidence):
        return [float(hour.hour) for hour in evidence.hours]
    begun = [datetime.fromisoformat(f"{hour.hour}:00:00") for hour in evidence.hours]
    return [(at - begun[0]).total_seconds() for at in begun]


def _axis(evidence: Evidence) -> Axis | None:
    """None for less than two hours: there is nothing to compare."""
    if len(evidence.hours) < 2:
        return None
    if _of_day(evidence):
        return Axis(0.0, 24.0, (0.0, 6.0, 12.0, 18.0, 24.0), lambda hour: f"{hour:.0f}:00")
    begun = datetime.fromisoformat(f"{evidence.hours[0].hour}:00:00")
    last = _at(evidence)[-1] + _HOUR
    step = max(1, round(last / _HOUR / 6))
    ticks = tuple(k * _HOUR for k in range(0, round(last / _HOUR) + 1, step))
    return Axis(0.0, last, ticks, lambda s: f"{(begun.hour + round(s / _HOUR)) % 24}:00")
