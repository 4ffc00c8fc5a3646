"""The bench's own arithmetic, and one small run of it. The peers are run by `invoke bench load` alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlift.bench import load as bench
from inferlift.profile import ROOT


def test_errors_are_relative_after_what_no_clock_can_tell() -> None:
    assert bench._off(54.0, 50.0) == 0
    assert bench._off(60.0, 50.0) == pytest.approx(0.1)
    assert bench._off(40.0, 50.0) == pytest.approx(0.1)


def test_bounds_judge_what_was_measured_and_nothing_else() -> None:
    held = bench._bounds({"in_flight_peak": 999, "post_to_locust": 1.5, "stream_to_aiperf": None, "limited_at": None})
    assert held == {"in_flight_peak": False, "post_to_locust": True}
    assert bench._bounds({"limited_at": 256}) == {"limited_at": False}
    assert bench._bounds({"limited_at": 512}) == {"limited_at": True}


def test_one_run_of_ours_against_the_server_of_the_bench() -> None:
    found, truth = bench._ours(ROOT, 0.02, 0.005, 4, users=4, requests=24)
    assert found["sent"] == truth["requests"] == 24
    assert found["peak"] == truth["peak"] == 4
    assert bench._off(found["ttft_p95_ms"], bench._rank(truth["ttfts"], 95)) < 0.05
    assert found["limit"] == ""


def test_little_is_added_to_a_fresh_environment() -> None:
    assert 5 < bench._own_mb() < 30


def test_every_usual_peer_has_its_script() -> None:
    for name in bench.USUAL:
        assert (ROOT / "templates" / "load" / f"peer_{name}.py").is_file()
    assert (Path(bench.__file__).parents[1] / "load" / "timed_server.py").is_file()
