"""Inline SVG charts that keep their text size at any width: lines are stretched, labels and dots are not.

A chart is as wide as its column. Lines live in an inner SVG that stretches with it; texts, dots and grid use
percentages across and pixels down, so that 11 px stay 11 px on a phone and on paper. No script is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from markupsafe import Markup, escape

Point = tuple[float, float]
Kind = Literal["line", "step", "dots", "guide", "bars", "area"]

LEFT, WIDTH = 1.5, 97.0  # percent: where the plot begins and how much of the chart it takes
TOP, BOTTOM = 20, 24  # pixels above and below the plot: y labels stand on their grid lines, x labels below
MOST_POINTS = 600


@dataclass(frozen=True)
class Axis:
    """`write` turns a value into its label. A logarithmic axis needs low > 0."""

    low: float
    high: float
    ticks: tuple[float, ...]
    write: Callable[[float], str]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value stands, 0 to 1; outside values stand at the edge."""
        if self.log:
            value, low, high = (math.log10(max(v, 1e-12)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


@dataclass(frozen=True)
class Series:
    """`tone` is a CSS class that gives the colour: old, new, third, plain. `notes` are tooltips of dots."""

    label: str
    points: Sequence[Point]
    tone: str
    kind: Kind = "line"
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Mark:
    """A line across the plot at a value of the x axis: a target, a deadline."""

    value: float
    label: str


@dataclass(frozen=True)
class Chart:
    """`says` is what the picture shows in words, for those who do not see it."""

    title: str
    says: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    height: int = 200
    note: str = ""
    x_title: str = ""
    legend: bool = field(default=True)

    @property
    def keys(self) -> tuple[Series, ...]:
        """What the legend names."""
        return tuple(s for s in self.series if s.label)

    def svg(self) -> Markup:
        return draw(self)


def linear(low: float, high: float, write: Callable[[float], str], *, steps: int = 4, whole: bool = False) -> Axis:
    """An axis from `low` to the next round value over `high`, with about `steps` ticks at 1, 2 or 5 times 10^n."""
    span = (high - low) or abs(high) or 1.0
    step = _nice(span / steps)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step), math.ceil(low / step + span / step - 1e-9)
    ticks = tuple(round(k * step, 12) for k in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, write)


def logarithmic(low: float, high: float, write: Callable[[float], str]) -> Axis:
    """Bounds on a 1-2-5 ladder; ticks on it too, or at decades alone where the ladder would be crowded."""
    low, high = max(low, 1e-9), max(high, low * 2, 2e-9)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ladder = [m * 10.0**e for e in exponents for m in (1, 2, 5)]
    begin = max((t for t in ladder if t <= low), default=ladder[0])
    end = min((t for t in ladder if t >= high), default=ladder[-1])
    ticks = [t for t in ladder if begin <= t <= end]
    if len(ticks) > 6:
        decades = [10.0**e for e in exponents]
        ticks = [t for t in ticks if t in decades]
    return Axis(begin, end, tuple(ticks), write, log=True)


def timeline(high: float, write: Callable[[float], str], *, steps: int = 4) -> Axis:
    """Seconds from 0, with ticks where clocks have them: 10 s, 30 s, 1 min, 6 h."""
    step = clock_step(max(high, 1e-3) / steps)
    last = max(1, math.ceil(high / step - 1e-9))
    return Axis(
        0.0, max(high, step * 0.5), tuple(k * step for k in range(last + 1) if k * step <= high * 1.0001), write
    )


def clock_step(seconds: float) -> float:
    """The next round length of time, in seconds; whole days beyond half a day."""
    ladder = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
    return next((float(s) for s in ladder if s >= seconds), math.ceil(seconds / 86400) * 86400.0)


def spread(low: float, high: float, write: Callable[[float], str]) -> Axis:
    """For latencies: linear from 0, or logarithmic where the slowest is over 40 times the fastest shown."""
    return logarithmic(low, high, write) if low > 0 and high / low > 40 else linear(0.0, high, write)


def draw(chart: Chart) -> Markup:
    """The SVG alone; title, legend and note are the page's."""
    inner = chart.height - TOP - BOTTOM
    parts = [_grid(chart, inner)]  # lines below, their labels above whatever is drawn
    lines = [s for s in chart.series if s.kind != "dots"]
    if lines:
        parts.append(
            Markup(
                '<svg x="{}%" y="{}" width="{}%" height="{}" viewBox="0 0 1000 {}" preserveAspectRatio="none">'
            ).format(LEFT, TOP, WIDTH, inner, inner)
        )
        parts += [_shape(chart, s, inner) for s in lines]
        parts.append(Markup("</svg>"))
    parts.append(_labels(chart, inner))
    parts += [_mark(chart, m, inner, k) for k, m in enumerate(chart.marks)]
    parts += [_dots(chart, s, inner) for s in chart.series if s.kind == "dots"]
    return Markup('<svg class="chart" role="img" aria-label="{}" width="100%" height="{}">{}</svg>').format(
        chart.says, chart.height, Markup("").join(parts)
    )


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Every n-th point, and the highest of those left out, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    width = math.ceil(len(points) / most)
    return [max(points[k : k + width], key=lambda p: p[1]) for k in range(0, len(points), width)]


def across(axis: Axis, value: float) -> str:
    """Where a value stands across the chart, in percent."""
    return f"{LEFT + WIDTH * axis.at(value):.2f}%"


def readable(axis: Axis) -> tuple[float, ...]:
    """Ticks that stand at least 15 % of the width apart, so that labels do not touch on a phone."""
    kept: list[float] = []
    for tick in axis.ticks:
        if not kept or axis.at(tick) - axis.at(kept[-1]) >= 0.15:
            kept.append(tick)
    return tuple(kept)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _nice(step: float) -> float:
    base = 10.0 ** math.floor(math.log10(step))
    return next((m * base for m in (1, 2, 5) if m * base >= step - 1e-12), 10 * base)


def _down(chart: Chart, y: float, inner: int) -> float:
    return round(TOP + inner * (1 - chart.y.at(y)), 1)


def _grid(chart: Chart, inner: int) -> Markup:
    rule = Markup('<line class="grid" x1="{}%" x2="{}%" y1="{}" y2="{}"/>')
    heights = [_down(chart, tick, inner) for tick in chart.y.ticks]
    return Markup("").join(rule.format(LEFT, LEFT + WIDTH, y, y) for y in heights)


def _labels(chart: Chart, inner: int) -> Markup:
    text = Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>')
    parts = [text.format(f"{LEFT}%", _down(chart, t, inner) - 4, "start", chart.y.write(t)) for t in chart.y.ticks]
    for tick in readable(chart.x):
        place = chart.x.at(tick)
        anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
        parts.append(text.format(across(chart.x, tick), chart.height - 7, anchor, chart.x.write(tick)))
    return Markup("").join(parts)


def _shape(chart: Chart, series: Series, inner: int) -> Markup:
    points = [(1000 * chart.x.at(x), inner * (1 - chart.y.at(y))) for x, y in thin(series.points)]
    if not points:
        return Markup("")
    if series.kind == "bars":
        return _bars(points, series, inner)
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for x, y in points[1:]:
        path += f"H{x:.1f}V{y:.1f}" if series.kind in ("step", "area") else f"L{x:.1f} {y:.1f}"
    if len(points) == 1:
        path += f"h{1000 if series.kind == 'step' else 4}"
    line = Markup('<path class="line {} {}" d="{}"/>').format(series.tone, series.kind, path)
    if series.kind != "area":
        return line
    fill = f"{path}V{inner}H{points[0][0]:.1f}Z"
    return Markup('<path class="fill {}" d="{}"/>{}').format(series.tone, fill, line)


def _bars(points: list[Point], series: Series, inner: int) -> Markup:
    gaps = [b[0] - a[0] for a, b in pairwise(points) if b[0] > a[0]]
    wide = max(1.0, min(gaps or [1000 / 12]) * 0.8)
    return Markup("").join(
        Markup('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"/>').format(
            series.tone, f"{x:.1f}", f"{y:.1f}", f"{wide:.1f}", f"{inner - y:.1f}"
        )
        for x, y in points
    )


def _dots(chart: Chart, series: Series, inner: int) -> Markup:
    parts = []
    for k, (x, y) in enumerate(series.points):
        note = series.notes[k] if k < len(series.notes) else ""
        parts.append(
            Markup('<circle class="dot {}" cx="{}" cy="{}" r="4.5"><title>{}</title></circle>').format(
                series.tone, across(chart.x, x), _down(chart, y, inner), note or series.label
            )
        )
    return Markup("").join(parts)


def _mark(chart: Chart, mark: Mark, inner: int, nth: int) -> Markup:
    place = chart.x.at(mark.value)
    anchor, shift = ("end", -5) if place > 0.5 else ("start", 5)
    return Markup(
        '<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
        '<text class="mark-text" x="{0}" dx="{3}" y="{4}" text-anchor="{5}">{6}</text>'
    ).format(
        across(chart.x, mark.value), TOP, TOP + inner, shift, TOP + inner - 8 - 15 * nth, anchor, escape(mark.label)
    )
