"""What a run tells of time: latencies from the plan, the tokens' pace, stalls of the client itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mock_server import DONE, USAGE, Mock, event

from inferlift.load import timed_server, worker
from inferlift.load.client import LoadPlan, run
from inferlift.load.samples import read_samples
from inferlift.load.target import Target

pytestmark = pytest.mark.programs


def test_latency_counts_from_the_schedule(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 sends planned 10 ms apart, the client blocked for 0.5 s at number 50: the backlog is in the p99."""
    begin = worker.Worker._begin

    def block(self: worker.Worker, i: int, now: float) -> None:
        if i == 50:
            time.sleep(0.5)  # the whole client stands still
            now = time.monotonic()
        begin(self, i, now)

    monkeypatch.setattr(worker.Worker, "_begin", block)
    with Mock() as server:
        result = sent(server, 100, schedule_s=tuple(k * 0.01 for k in range(100)))
    assert result.counts.ok == 100
    assert result.total.n == 100  # nothing is filled in
    assert result.total.p99_ms is not None
    assert 350 < result.total.p99_ms < 900
    assert result.total.p50_ms is not None
    assert result.total.p50_ms < result.total.p99_ms / 2
    assert result.send_delay_p95_ms is not None
    assert result.send_delay_p95_ms > 200
    assert result.client_limited
    assert "the client may have added" in result.client_limit


def test_an_open_loop_does_not_wait_for_answers(sent: Any) -> None:
    with Mock(first_s=0.4) as server:
        result = sent(server, 20, schedule_s=tuple(k * 0.005 for k in range(20)))
    assert server.peak == 20
    assert result.seconds < 1.5


def test_a_stall_is_told_once_and_nothing_is_filled_in(
    sent: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sends 10 ms apart, a stall of 0.6 s: 600, 590, 580 ... ms for those it held up, and no sample besides."""
    begin = worker.Worker._begin

    def block(self: worker.Worker, i: int, now: float) -> None:
        if i == 20:
            time.sleep(0.6)
            now = time.monotonic()
        begin(self, i, now)

    monkeypatch.setattr(worker.Worker, "_begin", block)
    with Mock(tokens=1) as server:
        result = sent(server, 100, schedule_s=tuple(k * 0.01 for k in range(100)))
        assert server.requests == 100
    rows = {s["i"]: s["total_ms"] for s in read_samples(tmp_path / "samples.jsonl")}
    assert len(rows) == result.total.n == result.counts.sent == 100
    held = [rows[k] - (600 - (k - 20) * 10) for k in range(20, 80)]
    assert min(held) > -1  # none is told as if it had been sent on the spot
    assert sorted(held)[30] < 250  # ... and none of them waited twice, which would be 300 more


def test_known_timing_is_told_as_it_is(tmp_path: Path) -> None:
    """64 streams against the echo server in a process of its own: p95 within 5 % (after 5 ms) of its record."""
    child = subprocess.Popen(
        [sys.executable, timed_server.__file__, "0", "0.05", "0.01", "12"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    port = int(child.stdout.readline())
    result = run(LoadPlan(Target("127.0.0.1", port=port, tls=False), 192, ["x"], tmp_path / "s", users=64))
    truth = json.loads(child.communicate()[0])
    assert truth["peak"] == result.in_flight_peak == 64
    assert result.kernel_times
    for name, told in (("ttfts", result.ttft), ("totals", result.total)):
        p95 = truth[name][-(-len(truth[name]) * 95 // 100) - 1] * 1000
        assert told is not None
        assert told.p95_ms == pytest.approx(p95, abs=5 + 0.05 * p95), name


def test_ttft_total_and_tokens_are_the_servers(sent: Any, tmp_path: Path) -> None:
    with Mock(first_s=0.05, gap_s=0.02, tokens=5, usage_tokens=16) as server:
        result = sent(server, 9, users=1)
    assert result.ttft is not None
    assert result.ttft.p50_ms == pytest.approx(sorted(server.ttfts_s)[4] * 1000, abs=25)
    assert result.total.p50_ms == pytest.approx(sorted(server.totals_s)[4] * 1000, abs=25)
    assert result.tokens_out == 9 * 16  # five chunks are not five tokens
    sample = next(read_samples(tmp_path / "samples.jsonl"))
    assert sample["chunks"] == 5
    assert sample["connect_ms"] > 0


def test_time_per_token_is_by_usage_and_by_the_last_text(sent: Any) -> None:
    """4 texts in 0.15 s, 16 tokens, the usage record 0.2 s later: 10 ms a token."""
    script = [(0.05, event({"content": "w"})) for _ in range(4)] + [(0.2, USAGE % (1, 16) + DONE)]
    with Mock(script=script) as server:
        result = sent(server, 3, users=1)
    assert result.per_token is not None
    assert result.per_token.p50_ms == pytest.approx(10, abs=3)


def test_goodput_has_the_errors_in_its_denominator(sent: Any) -> None:
    with Mock(fault=lambda i: "500" if i % 2 else None) as server:
        result = sent(server, 20, slo_total_ms=60_000)
    assert result.goodput_share == 0.5
    with Mock(first_s=0.02) as server:
        assert sent(server, 4, slo_ttft_ms=1).goodput_share == 0
        assert sent(server, 4).goodput_share is None


def test_without_streaming(sent: Any) -> None:
    with Mock() as server:
        result = sent(server, 10, stream=False)
    assert (result.counts.ok, result.ttft, result.tokens_out) == (10, None, 40)
