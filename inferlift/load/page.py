"""The load test as one HTML file that needs nothing beside it: the table, latency CDFs, and the run over time."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from inferlift.artifacts import Verdict
from inferlift.load import comparison
from inferlift.load.comparison import Found
from inferlift.load.figures import thin
from inferlift.load.samples import read_samples
from inferlift.load.selfcheck import Drive

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parents[2] / "templates" / "load"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 252, 56, 34, 24


class Line(NamedTuple):
    """One series: its points in pixels, and the class that colours it."""

    name: str
    tone: str
    points: str


class Chart(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_name: str
    y_name: str


def write(path: Path, found: Sequence[Found], decided: Verdict, drive: Drive | None) -> None:
    page = _template().render(
        found=found, decided=decided, drive=drive, charts=_charts(found), width=WIDTH, height=HEIGHT, left=LEFT,
        bottom=BOTTOM, figures=comparison.figures, changes=[(f, comparison.changes(found[0], f)) for f in found[1:]],
        notes=comparison.notes,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    ).get_template("page.html.j2")  # fmt: skip


def chart(
    title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], x_name: str, y_name: str
) -> Chart | None:
    """Both axes from 0. None where there is nothing to draw."""
    drawn = [(name, points) for name, points in series if len(points) > 1]
    if not drawn:
        return None
    most_x = max(x for _, points in drawn for x, _ in points) or 1.0
    most_y = max(y for _, points in drawn for _, y in points) or 1.0
    wide, high = WIDTH - LEFT - 12, HEIGHT - BOTTOM - TOP

    def place(x: float, y: float) -> str:
        return f"{LEFT + x / most_x * wide:.1f},{TOP + high - y / most_y * high:.1f}"

    lines = tuple(
        Line(name, f"tone{k % 5}", " ".join(place(x, y) for x, y in points)) for k, (name, points) in enumerate(drawn)
    )
    return Chart(
        title, lines, tuple((LEFT + t / most_x * wide, _label(t)) for t in _ticks(most_x)),
        tuple((TOP + high - t / most_y * high, _label(t)) for t in _ticks(most_y)), x_name, y_name,
    )  # fmt: skip


def _charts(found: Sequence[Found]) -> list[Chart]:
    tried = [
        chart("Time to the first token", [(f.url, _cdf(f, "ttft_ms")) for f in found], "ms", "share of answers, %"),
        chart("Whole answer", [(f.url, _cdf(f, "total_ms")) for f in found], "ms", "share of answers, %"),
        chart("In flight", [(f.url, f.run.in_flight) for f in found], "s", "requests"),
    ]
    over = {f.url: _over_time(f) for f in found}
    tried += [
        chart("Answers a second", [(url, rows[0]) for url, rows in over.items()], "s", "answers/s"),
        chart("Slowest of each slice", [(url, rows[1]) for url, rows in over.items()], "s", "ms"),
    ]
    return [one for one in tried if one is not None]


def _cdf(f: Found, name: str) -> list[tuple[float, float]]:
    values = thin(comparison.values(f.run, name), 400)
    return [(v, 100 * (k + 1) / len(values)) for k, v in enumerate(values)]


def _over_time(f: Found) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(answers a second, longest whole answer in ms) by when requests ended, in at most 120 slices."""
    path = Path(f.run.samples)
    if not path.is_file() or f.run.seconds <= 0:
        return [], []
    width = max(f.run.seconds / 120, 0.25)
    ended: Counter[int] = Counter()
    longest: dict[int, float] = {}
    for sample in read_samples(path):
        if "error" in sample or "total_ms" not in sample:
            continue
        k = int((sample["at_s"] + sample["total_ms"] / 1000) / width)
        ended[k] += 1
        longest[k] = max(longest.get(k, 0.0), sample["total_ms"])
    last = max(ended, default=-1)
    rate = [((k + 0.5) * width, ended[k] / width) for k in range(last + 1)]
    return rate, [((k + 0.5) * width, longest[k]) for k in sorted(longest)]


def _ticks(most: float) -> list[float]:
    step = 10 ** math.floor(math.log10(most))
    for part in (0.2, 0.5, 1.0, 2.0):
        if most / (step * part) <= 6:
            step *= part
            break
    return [k * step for k in range(int(most / step + 1e-9) + 1)]


def _label(value: float) -> str:
    return f"{value:,.10g}" if value >= 1 or value == 0 else f"{value:.2g}"
