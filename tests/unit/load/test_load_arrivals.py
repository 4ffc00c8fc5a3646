"""Send times: exactly as many as asked, at the rate asked, the same for the same seed; and the search for the knee."""

from __future__ import annotations

import itertools
import statistics
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.artifacts import Counts, LoadRun, Percentiles, Verdict
from inferlift.errors import DeclarationError
from inferlift.load.arrivals import KINDS, ramp, schedule
from inferlift.load.knee import find


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 400), st.floats(0.01, 5000), st.integers(0, 9))
def test_every_kind_is_sorted_starts_at_zero_and_is_the_same_again(kind: str, n: int, rate: float, seed: int) -> None:
    times = schedule(kind, n, rate, seed=seed)
    assert len(times) == n
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert times == schedule(kind, n, rate, seed=seed)


@pytest.mark.parametrize(("kind", "variation"), [("constant", 0.0), ("poisson", 1.0), ("bursty", 4.0)])
def test_the_rate_and_the_burstiness(kind: str, variation: float) -> None:
    times = schedule(kind, 20_001, 50.0, seed=5)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.02, rel=0.05)
    assert statistics.pvariance(gaps) / statistics.mean(gaps) ** 2 == pytest.approx(variation, rel=0.12, abs=1e-9)


def test_seeds_differ() -> None:
    assert schedule("poisson", 10, 1.0, seed=1) != schedule("poisson", 10, 1.0, seed=2)


@given(st.integers(2, 300), st.floats(0.5, 100), st.floats(0.5, 100))
def test_a_ramp_goes_from_one_rate_to_the_other(n: int, first: float, last: float) -> None:
    times = ramp(n, first, last)
    assert len(times) == n
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(2 * (n - 1) / (first + last), rel=1e-6)


def test_a_ramp_is_slow_first() -> None:
    times = ramp(101, 1.0, 9.0)
    assert times[1] - times[0] > 4 * (times[-1] - times[-2])


@pytest.mark.parametrize(
    "wrong", [("constant", 0, 1.0), ("poisson", 5, 0.0), ("poisson", 5, float("nan")), ("x", 5, 1.0)]
)
def test_impossible_arrivals(wrong: tuple[str, int, float]) -> None:
    with pytest.raises(DeclarationError):
        schedule(*wrong)


def test_burstiness_is_above_zero() -> None:
    with pytest.raises(DeclarationError):
        schedule("bursty", 5, 1.0, burstiness=0)


# --- the knee


def measured(rate: float, n: int) -> LoadRun:
    empty = Percentiles(n=0, p50_ms=None, p90_ms=None, p95_ms=None, p99_ms=None, max_ms=None, clock="total")
    return LoadRun(
        label="x",
        started=datetime.now(UTC),
        seconds=1.0,
        counts=Counts(planned=n, sent=n, ok=n, errors={}),
        total=empty,
        ttft=None,
        tokens_out=None,
        rate_rps=rate,
        in_flight_peak=1,
        send_delay_p95_ms=None,
        client_limited=False,
        samples="",
        offered_rps=rate,
    )


def search(knee: float, low: float, high: float, undecided: float = 1e9) -> tuple[float | None, bool, list[float]]:
    tried: list[float] = []

    def measure(times: tuple[float, ...], label: str) -> LoadRun:
        rate = (len(times) - 1) / times[-1]
        tried.append(rate)
        return measured(rate, len(times))

    def judge(run: LoadRun) -> tuple[Verdict, str]:
        rate = run.offered_rps or 0
        return ("inconclusive" if rate >= undecided else "pass" if rate <= knee else "fail"), "because"

    found = find(measure, judge, low=low, high=high, seconds=100, kind="constant")
    return found.rate, found.bounded, tried


@pytest.mark.parametrize("knee", [3.3, 17.0, 63.0])
def test_the_knee_is_found_from_below(knee: float) -> None:
    rate, bounded, tried = search(knee, 2.0, 100.0)
    assert bounded
    assert rate is not None
    assert knee * 0.93 <= rate <= knee * 1.01
    assert len(tried) <= 12


def test_nothing_good_and_nothing_bad() -> None:
    assert search(1.0, 2.0, 100.0)[:2] == (None, True)
    rate, bounded, _ = search(1000.0, 2.0, 100.0)
    assert rate == pytest.approx(100.0)
    assert not bounded


def test_what_could_not_be_decided_is_not_claimed() -> None:
    rate, bounded, _ = search(1000.0, 2.0, 100.0, undecided=20.0)
    assert bounded
    assert rate is not None
    assert 17 < rate < 20


def test_rates_that_cannot_be() -> None:
    with pytest.raises(DeclarationError):
        search(1.0, 5.0, 2.0)
