"""The audit's pictures: what they hold, and when there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import report_factory as made

from inferlift.artifacts import Evidence, Percentiles
from inferlift.artifacts.evidence import HourFigures
from inferlift.report import audit_charts
from inferlift.report.plots import Chart

CHARTS: dict[str, Callable[[Evidence], Chart | None]] = {
    "rate": audit_charts.rate, "in flight": audit_charts.in_flight, "latency": audit_charts.latency_by_hour,
    "status": audit_charts.status_by_hour, "bytes": audit_charts.bytes_by_hour,
}  # fmt: skip


def hour(name: str, p50: float | None, statuses: dict[str, int], sent: int | None) -> HourFigures:
    told = Percentiles(n=30, p50_ms=p50, p90_ms=p50, p95_ms=p50 and p50 * 3, p99_ms=None, max_ms=p50, clock="total")
    return HourFigures(hour=name, n=sum(statuses.values()), errors=0, latency=told, statuses=statuses, sent_bytes=sent)


def evidence(*hours: HourFigures) -> Evidence:
    return made.evidence().model_copy(
        update={
            "hours": hours, "rate_curve": ((0.0, 2.0), (60.0, 0.0), (120.0, 5.0)),
            "in_flight_curve": ((0.0, 3), (120.0, 6)), "in_flight_bounds": (4, 9),
        }
    )  # fmt: skip


DAY = evidence(
    hour("2026-11-30T22", 100.0, {"200": 28, "500": 2}, 4000),
    hour("2026-11-30T23", None, {"200": 30}, None),
    hour("2026-12-01T01", 200.0, {"200": 20, "404": 9, "0": 1}, 1000),
)


def test_what_they_hold() -> None:
    drawn = {name: chart(DAY) for name, chart in CHARTS.items()}
    points = {name: [list(s.points) for s in chart.series] for name, chart in drawn.items() if chart is not None}
    assert points["rate"] == [[(0.0, 2.0), (60.0, 0.0), (120.0, 5.0)]]
    assert points["in flight"] == [[(0.0, 3.0), (120.0, 6.0)]]
    assert points["latency"] == [[(0.0, 100.0), (10800.0, 200.0)], [(0.0, 300.0), (10800.0, 600.0)]]
    assert points["status"] == [
        [(0.0, 28.0), (3600.0, 30.0), (10800.0, 20.0)],
        [(0.0, 0.0), (3600.0, 0.0), (10800.0, 9.0)],
        [(0.0, 2.0), (3600.0, 0.0), (10800.0, 1.0)],
    ]
    assert points["bytes"] == [[(0.0, 4000.0), (10800.0, 1000.0)]]
    flights = drawn["in flight"]
    assert flights is not None
    assert "between 4 and 9" in flights.note
    for chart in drawn.values():
        assert chart is not None
        assert chart.svg()


def test_hours_of_the_day_stand_at_their_hour() -> None:
    chart = audit_charts.latency_by_hour(evidence(hour("07", 100.0, {}, None), hour("23", 90.0, {}, None)))
    assert chart is not None
    assert [x for x, _ in chart.series[0].points] == [7.0, 23.0]
    assert [chart.x.write(tick) for tick in chart.x.ticks] == ["0:00", "6:00", "12:00", "18:00", "24:00"]


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_to_draw(name: str) -> None:
    assert CHARTS[name](made.evidence()) is None
    one = evidence(hour("2026-11-30T22", None, {}, None)).model_copy(update={"rate_curve": (), "in_flight_curve": ()})
    assert CHARTS[name](one) is None
