"""Percentiles by nearest rank, thinning, and the question whether the client moved a figure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.load.figures import (
    client_limit,
    from_counts,
    nearest_rank,
    p95_difference,
    p95_range,
    percentiles,
    rate_behind,
    share_range,
    thin,
)


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


@pytest.mark.parametrize(
    ("latency", "shift", "turn", "limited"),
    [
        (1000.0, 10.0, 0.0, False),  # 1 %
        (1000.0, 80.0, 0.0, True),  # 8 %
        (50.0, 4.0, 0.0, False),  # 8 %, but within the 5 ms no clock here can tell apart
        (1000.0, 0.0, 90.0, True),  # users waited for the client, which lowers the rate
        (1000.0, 0.0, 20.0, False),
        (1.0, 0.0, 4.0, False),
    ],
)
def test_client_limited(latency: float, shift: float, turn: float, limited: bool) -> None:
    totals = [latency] * 100
    assert bool(client_limit(totals, [shift] * 100, [], [], [turn] * 100)) == limited


def test_a_few_late_samples_do_not_move_the_p95() -> None:
    totals, shifts = [100.0] * 98 + [900.0] * 2, [0.0] * 98 + [800.0] * 2
    assert client_limit(totals, shifts, [], []) == ""


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=300))
def test_counts_tell_the_rank_within_a_step(steps: list[int]) -> None:
    counts: dict[int, int] = {}
    for k in steps:
        counts[k] = counts.get(k, 0) + 1
    found = from_counts(counts, 0.01)
    assert found is not None
    assert found.n == len(steps)
    assert found.p50_ms == pytest.approx((nearest_rank(sorted(steps), 50) + 0.5) * 0.01)
    assert found.max_ms == pytest.approx((max(steps) + 0.5) * 0.01)
    assert (found.p95_ms is None) == (len(steps) < 20)


def test_no_count_is_unknown() -> None:
    assert from_counts({}, 0.01) is None


@pytest.mark.parametrize(("n", "low", "high"), [(100, 90, 99), (1000, 936, 964)])
def test_the_range_of_a_p95_is_two_ranks(n: int, low: int, high: int) -> None:
    """Binomial ranks for n = 100 from the tables of Hahn and Meeker (their A.16): 90 and 99 give 95.2 %."""
    found = p95_range([float(k) for k in range(1, n + 1)])
    assert found is not None
    assert found[0] == pytest.approx(low, abs=1)
    assert found[1] == pytest.approx(high, abs=1)


def test_too_few_samples_have_no_upper_rank() -> None:
    assert p95_range([float(k) for k in range(20)]) is None


def test_the_range_covers_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(7)
    inside = 0
    for _ in range(400):
        found = p95_range(sorted(draw.random() for _ in range(300)))
        assert found is not None
        inside += found[0] <= 0.95 <= found[1]
    assert 0.92 < inside / 400 <= 1.0


def test_old_against_new() -> None:
    draw = random.Random(3)
    old = [draw.gauss(100, 10) for _ in range(400)]
    same = [draw.gauss(100, 10) for _ in range(400)]
    slower = [draw.gauss(150, 10) for _ in range(400)]
    alike, worse = p95_difference(old, same), p95_difference(old, slower)
    assert alike is not None
    assert not alike.sure
    assert worse is not None
    assert worse.sure
    assert worse.low < worse.value < worse.high
    assert worse.value == pytest.approx(50, abs=6)
    assert p95_difference(old[:19], same) is None


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"), [(10, 10, 0.722, 1.0), (0, 10, 0.0, 0.278), (5, 10, 0.237, 0.763)]
)
def test_the_range_of_a_share(correct: int, n: int, low: float, high: float) -> None:
    found = share_range(correct, n)
    assert found is not None
    assert found == pytest.approx((low, high), abs=0.001)


@pytest.mark.parametrize(
    ("share", "whose"), [(1.5, ""), (1.0, ""), (0.97, ""), (0.9, "server"), (0.5, "server"), (0.1, "server")]
)
@pytest.mark.parametrize("latency_s", [0.01, 5.0])
def test_a_server_with_a_share_of_the_rate_asked(share: float, latency_s: float, whose: str) -> None:
    """A queue by the book: one answer each 1/capacity seconds, asked at 100/s for 60 s."""
    rate, n = 100.0, 6000
    free, ends = 0.0, []
    for k in range(n):
        free = max(free, k / rate) + 1 / (rate * share)
        ends.append(free + latency_s)
    took = [1000 * (end - k / rate) for k, end in enumerate(ends)]
    last = (n - 1) / rate
    found = rate_behind(last, n, sum(end <= last for end in ends), took[: n // 4], took[-n // 4 :], 0.0)
    assert found[0] == whose
    assert bool(found[1]) == bool(whose)


def test_a_client_that_sends_late_is_told_from_a_server_that_answers_late() -> None:
    assert rate_behind(10, 1000, 990, [5.0], [5.0], 800)[0] == "client"
    assert rate_behind(10, 1000, 990, [5.0], [5.0], 400)[0] == ""
