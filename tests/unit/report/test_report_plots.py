"""Axes, distributions and what a chart leaves out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.report import charts
from inferlift.report.figures import number
from inferlift.report.plots import Axis, Chart, Mark, Series, linear, logarithmic, spread, thin, timeline
from tests.unit.report import report_factory as made

positive = st.floats(min_value=1e-6, max_value=1e9)


@given(positive, positive)
def test_an_axis_holds_all_it_shows(a: float, b: float) -> None:
    low, high = sorted((a, b))
    for axis in (linear(0.0, high, number), logarithmic(low, high, number), timeline(high, number)):
        assert axis.low <= low * 1.0001
        assert axis.high >= high * 0.9999
        assert all(axis.low <= t <= axis.high * 1.0001 for t in axis.ticks)
        assert 1 <= len(axis.ticks) <= 16  # one a decade where 15 decades are shown
        assert 0 <= axis.at(low) <= axis.at(high) <= 1


@given(st.floats(min_value=-1e9, max_value=1e9))
def test_what_lies_outside_stands_at_the_edge(value: float) -> None:
    assert 0 <= Axis(10, 20, (10, 20), number).at(value) <= 1
    assert 0 <= Axis(10, 20, (10, 20), number, log=True).at(value) <= 1


def test_a_wide_range_is_logarithmic() -> None:
    assert spread(10, 9000, number).log
    assert not spread(1000, 9000, number).log


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=3000))
def test_thinning_keeps_the_peak(points: list[tuple[float, float]]) -> None:
    kept = thin(sorted(points), 50)
    assert len(kept) <= 50
    assert max(y for _, y in kept) == max(y for _, y in points)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_a_distribution_rises_to_all(values: list[float]) -> None:
    shares = [share for _, share in charts.cdf(sorted(values))]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_unknown_percentiles_are_left_out_not_drawn_at_zero() -> None:
    few = made.percentiles(62, 3600, 8200)
    assert few.p99_ms is None
    assert [name for name, _ in charts.percentile_points(few)] == ["P50", "P90", "P95", "slowest"]


def test_the_latency_chart_shows_both_sides_and_the_targets() -> None:
    data = made.full()
    assert data.measurement is not None
    chart = charts.latencies(data, data.measurement)
    assert chart is not None
    assert [s.tone for s in chart.series] == ["old", "old", "new", "third"]
    assert [m.label.replace("\u202f", " ") for m in chart.marks] == [
        "target P95 first token 4 s",
        "target P95 whole answer 5.5 s",
    ]
    assert "n=300" in chart.series[1].label


def test_a_target_far_off_is_said_not_drawn() -> None:
    data = made.full()
    far = data.model_copy(update={"profile": data.profile.model_copy(update={"p95_total_ms": 600_000})})
    assert far.measurement is not None
    chart = charts.latencies(far, far.measurement)
    assert chart is not None
    assert len(chart.marks) == 1
    assert "beyond the right edge" in chart.note


def test_weights_stand_beside_what_the_authority_answered() -> None:
    chart = charts.weights(made.cutover().steps)
    assert chart is not None
    assert [y for _, y in chart.series[0].points] == [0.01, 0.1, 0.5, 1.0, 1.0]
    assert [y for _, y in chart.series[1].points] == [0.013, 0.093, 0.517, 1.0]


def test_where_each_clients_answers_came_from_is_drawn_over_time() -> None:
    chart = charts.sides(made.cutover().sides)
    assert chart is not None
    assert [s.label for s in chart.series] == ["keep-alive", "resolving"]
    assert chart.series[0].points[0] == (0.0, 0.0)
    assert chart.series[0].points[-1] == (64.0, 1.0)
    assert charts.sides(()) is None


def test_an_unknown_share_is_no_dot() -> None:
    steps = made.cutover().steps
    chart = charts.weights((steps[0].model_copy(update={"authority_share": None}), *steps[1:]))
    assert chart is not None
    assert len(chart.series[1].points) == 3


def test_arrivals_add_up() -> None:
    evidence = made.evidence()
    chart = charts.arrivals(evidence)
    assert chart is not None
    assert sum(y for _, y in chart.series[0].points) == len(evidence.shape.gaps_s)


def test_nothing_to_draw_is_no_chart() -> None:
    bare = made.load_run("new", 10, 5, 100).model_copy(update={"in_flight": ()})
    assert charts.in_flight([(bare, "new")]) is None
    assert charts.rate(made.empty(), [(bare, "new")]) is None
    assert charts.weights(()) is None


@pytest.mark.parametrize("kind", ["line", "step", "dots", "guide", "bars", "area"])
def test_labels_are_escaped_and_numbers_finite(kind: str) -> None:
    series = Series("<b>old</b>", [(0, 0), (3, 5)], "old", kind, ("<i>",))  # type: ignore[arg-type]
    axis = linear(0, 5, lambda v: f"<{v}>")
    chart = Chart(title="t", says='"><script>', x=axis, y=axis, series=(series,), marks=(Mark(2, "<u>"),))
    svg = str(chart.svg())
    assert not re.search(r"<(b|i|u|script)\b", svg)
    assert "nan" not in svg
    assert "inf" not in svg


def test_one_point_is_drawn() -> None:
    watched = made.watch().series[0].model_copy(update={"points": ((1.0, 2.0),)})
    chart = charts.watched(watched)
    assert chart is not None
    assert "M0.0" in str(chart.svg())


def test_a_gap_in_a_series_is_left_out() -> None:
    watched = made.watch().series[0].model_copy(update={"points": ((1.0, float("nan")), (2.0, 3.0))})
    chart = charts.watched(watched)
    assert chart is not None
    assert len(chart.series[0].points) == 1
