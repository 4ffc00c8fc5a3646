"""The measurement of `invoke bench switch`, with fewer kills: each of the 28 boundaries once."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.lab


def test_bench_switch_counts_kills_and_what_users_saw() -> None:
    from inferlift.bench import switch as bench_switch

    figures = bench_switch.measure(kills=28, rollbacks=1, say=print)
    print(figures)
    assert figures["boundaries_hit"] == figures["boundaries"] == 28
    assert figures["empty_answers"] == figures["failed_requests"] == figures["hand_work"] == 0
    assert figures["requests_old"] > 0
    assert figures["requests_new"] > 0
