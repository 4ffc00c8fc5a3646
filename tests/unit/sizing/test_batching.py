"""The batching delay: latency bounds are respected, the device keeps up, and what cannot be is said."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.sizing.batching import COMFORTABLE, FULL, choose, for_llm

RATES = st.floats(0.1, 20_000)
FIXED = st.floats(0.05, 50)
EACH = st.floats(0.01, 20)
TARGETS = st.floats(1, 5000)


@given(RATES, FIXED, EACH, TARGETS, st.integers(1, 128))
def test_a_met_target_bounds_every_part(rate: float, fixed: float, each: float, target: float, most: int) -> None:
    found = choose(rate, lambda b: fixed + each * b, target, max_batch=most)
    assert 1 <= found.preferred_batch_size <= most
    assert found.max_queue_delay_us >= 0
    if found.meets_target:
        assert found.latency_ms is not None
        assert found.latency_ms <= target
        assert found.max_queue_delay_us / 1000 + fixed + each * found.preferred_batch_size <= target + 0.001
        assert found.utilisation is not None
        assert found.utilisation <= FULL
    if found.preferred_batch_size == 1:
        assert found.max_queue_delay_us == 0


@given(RATES, FIXED, EACH, TARGETS, st.floats(1, 10))
def test_a_looser_target_is_met_too(rate: float, fixed: float, each: float, target: float, looser: float) -> None:
    tight = choose(rate, lambda b: fixed + each * b, target)
    loose = choose(rate, lambda b: fixed + each * b, target * looser)
    if tight.meets_target:
        assert loose.meets_target


@given(RATES, FIXED, EACH, TARGETS, st.floats(0.05, 1))
def test_a_faster_device_is_never_busier(rate: float, fixed: float, each: float, target: float, faster: float) -> None:
    slow = choose(rate, lambda b: fixed + each * b)
    fast = choose(rate, lambda b: (fixed + each * b) * faster)
    assert slow.utilisation is not None
    assert fast.utilisation is not None
    # either it is as comfortable as it has to be, or it is no busier than the slow one
    assert fast.utilisation <= max(COMFORTABLE, slow.utilisation) + 1e-9


@given(FIXED, EACH)
def test_too_much_is_said_with_the_number_of_devices(fixed: float, each: float) -> None:
    service = lambda b: fixed + each * b  # noqa: E731
    found = choose(3 * 64 / service(64) * 1000, service, 200)
    assert found.meets_target is False
    assert found.latency_ms is None
    assert any("one device cannot carry this" in line for line in found.explain)


def test_a_quiet_service_does_not_wait() -> None:
    found = choose(10, lambda b: 3 + b, 200)
    assert (found.preferred_batch_size, found.max_queue_delay_us, found.meets_target) == (1, 0, True)


def test_a_busy_one_waits_for_the_smallest_batch_that_is_enough() -> None:
    """500/s of 3 + 1 ms: alone 200 % busy; 2: 125 %, 4: 87.5 %, 8: 68.75 %."""
    found = choose(500, lambda b: 3 + b, 200)
    assert found.preferred_batch_size == 8
    assert found.max_queue_delay_us == 14_000  # 7 more at 500/s
    assert found.utilisation == pytest.approx(0.6875)
    assert found.settings == {"max_batch_size": 64, "preferred_batch_size": 8, "max_queue_delay_microseconds": 14_000}


def test_a_target_below_one_batch_is_missed_and_said() -> None:
    found = choose(10, lambda b: 300.0 * b, 200)
    assert found.meets_target is False
    assert found.preferred_batch_size == 1


def test_without_a_target_nobody_waits_longer_than_a_second() -> None:
    found = choose(0.5, lambda b: 1500.0 + 10 * b, max_batch=64)
    assert found.meets_target is None
    assert found.max_queue_delay_us <= 1_000_000


@pytest.mark.parametrize("rate", [100, 200, 500, 700, 850])
@pytest.mark.parametrize("each", [0.1, 1.0])
def test_the_predicted_p95_holds_in_a_simulation(rate: float, each: float) -> None:
    """Poisson arrivals into Triton's rule (a batch starts when it is full or its oldest has waited the delay)."""
    found = choose(rate, lambda b: 3 + each * b, 200)
    waited = simulated(rate, lambda b: 3 + each * b, found.preferred_batch_size, found.max_queue_delay_us / 1000)
    p95 = sorted(waited)[int(0.95 * len(waited))]
    assert found.latency_ms is not None
    assert 0.6 <= p95 / found.latency_ms <= 1.1


def simulated(
    rate: float, service: Callable[[int], float], batch: int, delay_ms: float, count: int = 20_000
) -> list[float]:
    chance = random.Random(7)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += chance.expovariate(rate) * 1000
        arrivals.append(now)
    free, waited, at = 0.0, [], 0
    while at < count:
        full = arrivals[at + batch - 1] if at + batch - 1 < count else arrivals[-1]
        start = max(free, min(full, arrivals[at] + delay_ms))
        taken = sum(1 for moment in arrivals[at : at + batch] if moment <= start)
        free = start + service(taken)
        waited += [free - moment for moment in arrivals[at : at + taken]]
        at += taken
    return waited


@pytest.mark.parametrize(("rate", "target", "most"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nonsense_is_refused(rate: float, target: float, most: int) -> None:
    with pytest.raises(ValueError, match="above 0"):
        choose(rate, lambda b: 1.0, target, max_batch=most)
    with pytest.raises(ValueError, match="service time"):
        choose(1, lambda b: 0.0)


def test_llm_takes_what_memory_and_the_gap_allow() -> None:
    """A step of n: 10 + 0.2 n ms; within 25 ms at most 75 sequences; 5 ms left for prompts at 0.05 ms a token."""
    found = for_llm("vllm", fits=200, needed=60, step_ms=lambda n: 10 + 0.2 * n, prefill_ms_per_token=0.005, tpot_ms=25)
    assert found.max_sequences == 60
    assert found.max_batched_tokens == 600  # (25 - 22) / 0.005
    assert found.settings == {"max_num_seqs": 60, "max_num_batched_tokens": 600}
    assert found.meets_target
    assert found.max_queue_delay_us == 0
    short = for_llm("vllm", fits=200, needed=100, step_ms=lambda n: 10 + 0.2 * n, tpot_ms=25)
    assert short.max_sequences == 75
    assert not short.meets_target
    assert any("25 of 100" in line for line in short.explain)


def test_llamacpp_is_told_slots() -> None:
    assert for_llm("llamacpp", fits=4, needed=9).settings == {"slots": 4, "batch_size": 2048}
    assert for_llm("triton", fits=4, needed=9).settings == {}
    with pytest.raises(ValueError, match="at least 1"):
        for_llm("vllm", fits=0, needed=1)


@given(
    st.integers(1, 4096), st.integers(1, 4096), st.floats(0.1, 100), st.floats(0.001, 5), st.floats(1, 500),
    st.floats(0.0001, 1),
)  # fmt: skip
def test_llm_never_exceeds_memory_nor_the_gap(
    fits: int, needed: int, fixed: float, each: float, gap: float, prefill: float
) -> None:
    found = for_llm(
        "vllm", fits=fits, needed=needed, step_ms=lambda n: fixed + each * n, prefill_ms_per_token=prefill, tpot_ms=gap
    )
    assert found.max_sequences is not None
    assert found.max_batched_tokens is not None
    assert 1 <= found.max_sequences <= min(fits, needed)
    assert found.max_batched_tokens >= found.max_sequences  # each decoding sequence takes one
    if found.meets_target:
        assert fixed + each * found.max_sequences <= gap
