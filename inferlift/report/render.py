"""ReportData to one HTML page that needs nothing but itself: no script, no font, no network."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from inferlift.artifacts import Check, Figure, Percentiles, RouteFigures
from inferlift.report import audit_charts, charts, figures, plan_charts, plan_view, view
from inferlift.report.data import ReportData

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "report"


def render(data: ReportData) -> str:
    """The whole page. Raises nothing for a partial run: what is missing is written as unknown or not run."""
    sizing = view.latest_sizing(data)
    page = _environment().get_template("page.html.j2")
    return page.render(
        data=data,
        profile=data.profile,
        rows=data.rows(),
        longest_s=max((r.seconds or 0.0 for r in data.stages), default=0.0),
        headline=view.headline(data),
        tiles=view.tiles(data),
        costs=view.costs(data),
        skipped=view.skipped(data),
        sizing=sizing,
        offers=plan_view.offers(sizing) if sizing is not None else None,
        charts=charts,
        audit=audit_charts,
        plan=plan_view,
        pictures=plan_charts,
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=figures.number,
        ms=figures.milliseconds,
        seconds=figures.seconds,
        size=figures.size,
        memory=figures.memory,
        share=figures.share,
        when=figures.moment,
        figure=_figure,
        known=_known,
        flat=_flat,
        checks=_sorted_checks,
        by_host=_by_host,
        words=_words,
        route_latencies=_route_latencies,
        label=figures.words,
    )
    environment.globals.update(quantity=figures.quantity, count=figures.count)
    return environment


def _known(text: str) -> Markup:
    """Unknown looks unknown."""
    return Markup('<span class="unknown">unknown</span>') if text == figures.UNKNOWN else Markup("{}").format(text)


def _figure(figure: Figure) -> Markup:
    return _known(figures.quantity(figure.value, figure.unit))


def _flat(value: Any) -> str:
    """One entry of the lock file or of a plan as text."""
    if value is None:
        return figures.UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(_flat(v) for v in value) or "none"
    if isinstance(value, float):
        return figures.number(value)
    text = str(value)
    return f"{text[:16]}…" if len(text) >= 40 and set(text) <= set("0123456789abcdef") else text


def _sorted_checks(checks: tuple[Check, ...]) -> dict[str, list[Check]]:
    """failed, skipped, ok: a skipped check is never counted as proof."""
    return {
        "failed": [c for c in checks if not c.ok and not c.skipped],
        "skipped": [c for c in checks if c.skipped],
        "ok": [c for c in checks if c.ok and not c.skipped],
    }


def _by_host(checks: list[Check]) -> list[tuple[str, list[tuple[str, str]]]]:
    """("gateway-1", [("port 443", "listening"), ...]) in the order given; "" for checks of no host."""
    split = [
        (host, name, c.detail) if name else ("", host, c.detail)
        for c in checks
        for host, _, name in [c.name.partition(": ")]
    ]
    return [(host, [(name, detail) for _, name, detail in group]) for host, group in groupby(split, key=lambda c: c[0])]


def _words(count_by_kind: dict[str, int]) -> str:
    """{"timeout": 2} as "2 timeout"; nothing is "none"."""
    return (
        ", ".join(f"{figures.number(n)} {kind.replace('_', ' ')}" for kind, n in count_by_kind.items() if n) or "none"
    )


def _route_latencies(routes: tuple[RouteFigures, ...]) -> list[tuple[str, Percentiles]]:
    """Each route's own row; a single route is all there is and needs none."""
    return [(r.route, r.latency) for r in routes] if len(routes) > 1 else []
