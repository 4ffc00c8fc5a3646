"""The bench's own arithmetic, and one small run of it. The peers are run by `invoke bench load` alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlift.bench import load as bench
from inferlift.profile import ROOT

pytestmark = pytest.mark.programs


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


def test_the_soak_counts_and_its_bounds_judge_it() -> None:
    assert bench.COUNTED == 1_000_001
    found = {"counted": 1_000_001, "counted_lost": 0, "soak_lost": 0, "soak_rate_last_to_first": 0.97,
             "soak_bytes_a_request": 41.0}  # fmt: skip
    assert all(bench._bounds(found).values())
    wrong = {"counted": 1_000_000, "counted_lost": 1, "soak_lost": 2, "soak_rate_last_to_first": 0.5,
             "soak_bytes_a_request": 400.0}  # fmt: skip
    assert not any(bench._bounds(wrong).values())


def test_a_peer_that_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(bench.LARGE_MB, "guidellm", 10**12)
    with pytest.raises(OSError, match="free disk are needed"):
        bench._environment("guidellm")


def test_the_peers_without_a_command_of_their_own_have_a_script() -> None:
    for name in ("aiohttp", "locust"):
        assert (ROOT / "templates" / "load" / f"peer_{name}.py").is_file()
    assert (Path(bench.__file__).parents[1] / "load" / "timed_server.py").is_file()
