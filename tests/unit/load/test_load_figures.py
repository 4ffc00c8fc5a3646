"""Percentiles by nearest rank, thinning, and the question whether the client moved a figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.load.figures import LoopLag, client_limit, nearest_rank, percentiles, thin


def test_ten_samples_have_a_rank_but_no_tail() -> None:
    assert nearest_rank([float(k) for k in range(1, 11)], 95) == 10
    found = percentiles([float(k) for k in range(10, 0, -1)], "total")
    assert (found.n, found.p50_ms, found.p90_ms, found.p95_ms, found.p99_ms, found.max_ms) == (10, 5, 9, None, None, 10)


@pytest.mark.parametrize(("n", "p95", "p99"), [(19, None, None), (20, 19.0, None), (99, 95.0, None), (100, 95.0, 99.0)])
def test_too_few_samples_are_no_percentile(n: int, p95: float | None, p99: float | None) -> None:
    found = percentiles([float(k) for k in range(1, n + 1)], "total")
    assert (found.p95_ms, found.p99_ms) == (p95, p99)


def test_no_sample_is_unknown() -> None:
    found = percentiles([], "total")
    assert (found.n, found.p50_ms, found.max_ms) == (0, None, None)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([1.0, 50.0, 95.0, 99.0, 100.0]))
def test_nearest_rank_by_its_definition(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = nearest_rank(ordered, percent)
    assert sum(v <= found for v in ordered) >= len(ordered) * percent / 100 - 1e-9
    assert sum(v < found for v in ordered) < len(ordered) * percent / 100 + 1e-9


@given(st.lists(st.floats(0, 1e6), max_size=1000))
def test_thinning_keeps_order_and_ends(values: list[float]) -> None:
    found = thin(values)
    assert len(found) == min(len(values), 200)
    assert list(found) == sorted(found)
    if values:
        assert (found[0], found[-1]) == (min(values), max(values))


def test_lag_at_a_moment_is_that_of_the_tick_which_waited() -> None:
    lag = LoopLag()
    for now, late in ((1.0, 0.001), (1.5, 0.4), (1.6, 0.0)):
        lag.tick(now, late)
    assert lag.at(1.2) == 0.4
    assert lag.at(1.55) == 0.0
    assert lag.at(9.0) == 0.0
    assert lag.within(0.9, 1.55) == pytest.approx(0.401)


@pytest.mark.parametrize(
    ("latency", "shift", "busy", "limited"),
    [
        (1000.0, 10.0, 0.2, False),  # 1 %
        (1000.0, 80.0, 0.2, True),  # 8 %
        (50.0, 4.0, 0.2, False),  # 8 %, but within the 5 ms no clock here can tell apart
        (1000.0, 0.0, 0.97, True),  # the core is full: the rate is the client's own
    ],
)
def test_client_limited(latency: float, shift: float, busy: float, limited: bool) -> None:
    totals = [latency] * 100
    assert bool(client_limit(totals, [shift] * 100, [], [], busy)) == limited


def test_a_few_late_samples_do_not_move_the_p95() -> None:
    totals, shifts = [100.0] * 98 + [900.0] * 2, [0.0] * 98 + [800.0] * 2
    assert client_limit(totals, shifts, [], [], 0.1) == ""
