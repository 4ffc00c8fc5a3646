"""Horizontal rows on one axis as inline SVG: costs side by side, a range against its target, steps along a time.

Each row has its label above its bar, so that a row reads the same on a phone and on paper. Places across are
percentages and heights are pixels, as in plots.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from inferlift.report.plots import LEFT, WIDTH, Axis, Mark, across, readable

PITCH, BAR_AT, BAR = 33, 16, 10  # pixels: from row to row, from a row's top to its bar, the bar
LINE, BOTTOM = 15, 22  # pixels: a mark's label, the labels of the axis
THIN = 0.004  # of the width: thinner bars get a line of their own, lest they vanish
MOST_LETTERS, MOST_STRONG = 46, 40  # of label and value together: what 290 px hold at 11.5 px, bold ones less


@dataclass(frozen=True)
class Key:
    """One entry of the legend."""

    label: str
    tone: str
    kind: str = "bars"


@dataclass(frozen=True)
class Span:
    """A piece of a row's bar. `tone` is a CSS class that gives the colour, `note` its tooltip."""

    low: float
    high: float
    tone: str
    note: str = ""


@dataclass(frozen=True)
class Row:
    """`whisker` is a thin line with ends (a range, a slack), `dot` one point."""

    label: str
    value: str
    spans: tuple[Span, ...] = ()
    whisker: tuple[float, float] | None = None
    dot: float | None = None
    tone: str = "third"  # of whisker and dot
    strong: bool = False


@dataclass(frozen=True)
class Rows:
    """`says` is what the picture shows in words. Marks are lines across all rows, their labels above them."""

    title: str
    says: str
    x: Axis
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...] = ()
    keys: tuple[Key, ...] = ()
    note: str = ""
    x_title: str = ""

    @property
    def legend(self) -> bool:
        return bool(self.keys)

    def svg(self) -> Markup:
        return draw(self)


def stacked(parts: list[tuple[float, str, str]]) -> tuple[Span, ...]:
    """(amount, tone, note) one after the other from 0."""
    spans, at = [], 0.0
    for amount, tone, note in parts:
        spans.append(Span(at, at + amount, tone, note))
        at += amount
    return tuple(spans)


def draw(chart: Rows) -> Markup:
    """The SVG alone; title, legend and note are the page's."""
    top = 4 + LINE * len(chart.marks)
    end = top + PITCH * len(chart.rows)
    parts = [_axis(chart, top, end)]
    parts += [_mark(chart, mark, nth, end) for nth, mark in enumerate(chart.marks)]
    parts += [_row(chart.x, row, top + PITCH * nth) for nth, row in enumerate(chart.rows)]
    return Markup('<svg class="chart rows" role="img" aria-label="{}" width="100%" height="{}">{}</svg>').format(
        chart.says, end + BOTTOM, Markup("").join(parts)
    )


# --- helpers ----------------------------------------------------------------------------------------------------------


def _axis(chart: Rows, top: int, end: int) -> Markup:
    line = Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    text = Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>')
    parts = []
    for tick in readable(chart.x):
        place, at = chart.x.at(tick), across(chart.x, tick)
        anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
        parts += [line.format(at, top, end), text.format(at, end + BOTTOM - 6, anchor, chart.x.write(tick))]
    return Markup("").join(parts)


def _mark(chart: Rows, mark: Mark, nth: int, end: int) -> Markup:
    anchor, shift = ("end", -5) if chart.x.at(mark.value) > 0.5 else ("start", 5)
    return Markup(
        '<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
        '<text class="mark-text" x="{0}" dx="{3}" y="{4}" text-anchor="{5}">{6}</text>'
    ).format(across(chart.x, mark.value), 2 + LINE * nth, end, shift, 12 + LINE * nth, anchor, mark.label)


def _row(axis: Axis, row: Row, top: int) -> Markup:
    strong, most = (" strong", MOST_STRONG) if row.strong else ("", MOST_LETTERS)
    parts = [
        Markup('<text class="row-text{}" x="{}%" y="{}"><title>{}</title>{}</text>').format(
            strong, LEFT, top + 12, row.label, _short(row.label, most - len(row.value))
        ),
        Markup('<text class="row-text value{}" x="{}%" y="{}" text-anchor="end">{}</text>').format(
            strong, LEFT + WIDTH, top + 12, _short(row.value, most)
        ),
    ]
    for span in row.spans:
        left, right = axis.at(span.low), axis.at(span.high)
        parts.append(
            Markup('<rect class="bar {}" x="{}%" y="{}" width="{}%" height="{}"><title>{}</title></rect>').format(
                span.tone, f"{LEFT + WIDTH * left:.2f}", top + BAR_AT, f"{WIDTH * (right - left):.2f}", BAR, span.note
            )
        )
        if right - left < THIN:
            line = Markup('<line class="thin {}" x1="{}" x2="{}" y1="{}" y2="{}"/>')
            at = across(axis, span.low)
            parts.append(line.format(span.tone, at, at, top + BAR_AT, top + BAR_AT + BAR))
    middle = top + BAR_AT + BAR / 2
    if row.whisker is not None:
        low, high = (across(axis, value) for value in row.whisker)
        line = Markup('<line class="whisker {}" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        parts.append(line.format(row.tone, low, high, middle, middle))
        parts += [line.format(row.tone, at, at, middle - 5, middle + 5) for at in (low, high)]
    if row.dot is not None:
        dot = Markup('<circle class="dot {}" cx="{}" cy="{}" r="4.5"><title>{}</title></circle>')
        parts.append(dot.format(row.tone, across(axis, row.dot), middle, f"{row.label}: {row.value}"))
    return Markup("").join(parts)


def _short(text: str, most: int) -> str:
    most = max(12, most)
    return text if len(text) <= most else f"{text[: most - 1]}…"
