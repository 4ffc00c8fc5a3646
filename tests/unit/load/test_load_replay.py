from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import TrafficShape
from inferlift.errors import CheckFailed
from inferlift.load.replay import replay_schedule


def shape(*gaps: float) -> TrafficShape:
    return TrafficShape(gaps_s=gaps, request_bytes=(), routes={}, per_minute_peak=1, in_flight_peak=1)


@given(
    gaps=st.lists(st.floats(0, 100), min_size=1, max_size=50).filter(lambda g: sum(g) > 1e-3),
    requests=st.integers(2, 300),
    rate=st.floats(0.1, 500),
    seed=st.integers(0, 5),
)
def test_exact_number_rising_and_the_asked_mean(gaps: list[float], requests: int, rate: float, seed: int) -> None:
    times = replay_schedule(shape(*gaps), requests, rate, seed=seed)
    assert len(times) == requests
    assert times[0] == 0
    assert list(times) == sorted(times)
    if requests > len(gaps):
        assert (requests - 1) / times[-1] == pytest.approx(rate)
    assert times == replay_schedule(shape(*gaps), requests, rate, seed=seed)


def test_bursts_stay_bursts() -> None:
    times = replay_schedule(shape(0.0, 0.0, 9.0), 31, 10.0)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert sum(g == 0 for g in gaps) == 20
    assert max(gaps) == pytest.approx(0.3)


def test_a_short_run_inside_a_burst_stays_one() -> None:
    assert replay_schedule(shape(1e-309, 1e-309, 1e-309, 9.0), 2, 1.0, seed=1)[-1] < 1e-6


def test_without_a_rate_the_recorded_one_sped_up() -> None:
    assert replay_schedule(shape(1.0), 5, speedup=4)[-1] == 1.0


@pytest.mark.parametrize("gaps", [(), (0.0, 0.0), (1.0, -2.0)])
def test_what_cannot_be_replayed_is_refused(gaps: tuple[float, ...]) -> None:
    with pytest.raises(CheckFailed, match="cannot be replayed"):
        replay_schedule(shape(*gaps), 10, 1.0)
