"""The load client against a stand-in server with planned timing and faults."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mock_server import DONE, USAGE, Mock, event

from inferlift.artifacts import LoadRun
from inferlift.errors import DeclarationError, Interrupted, Refusal
from inferlift.load import client, timed_server, worker
from inferlift.load.client import LoadPlan, run
from inferlift.load.gates import gates
from inferlift.load.samples import read_samples
from inferlift.load.target import Target
from inferlift.profile import Targets


@pytest.fixture
def go(tmp_path: Path) -> Any:
    def _go(server: Mock | int, requests: int, **more: Any) -> LoadRun:
        say, stop = more.pop("say", None), more.pop("stop", None)
        port = server if isinstance(server, int) else server.port
        target = more.pop("target", Target("127.0.0.1", port=port, tls=False))
        if "schedule_s" not in more:
            more.setdefault("users", 4)
        plan = LoadPlan(target, requests, more.pop("prompts", ["hello"]), tmp_path / "samples.jsonl", **more)
        return run(plan, say, stop)

    return _go


def test_exactly_n_with_fewer_and_with_more_users(go: Any, tmp_path: Path) -> None:
    for users in (1, 30, 200):
        with Mock() as server:
            result = go(server, 50, users=users)
        assert server.requests == 50
        assert (result.counts.planned, result.counts.sent, result.counts.ok) == (50, 50, 50)
        assert sorted(s["i"] for s in read_samples(tmp_path / "samples.jsonl")) == list(range(50))
        assert result.tokens_out == 200


def test_all_asked_users_are_in_flight_and_the_figure_is_measured(go: Any) -> None:
    with Mock(first_s=0.7) as server:
        result = go(server, 128, users=128)
        assert server.peak == 128
        assert result.in_flight_peak == 128
        assert server.accepted == 128
    with Mock(first_s=0.01) as server:  # more users than the server ever lets wait: the true peak is smaller
        result = go(server, 100, users=2)
        assert result.in_flight_peak == server.peak == 2


def test_connections_are_kept(go: Any) -> None:
    with Mock() as server:
        result = go(server, 200, users=8)
    assert server.accepted <= 8
    assert result.connections == server.accepted


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("500", "http_5xx"),
        ("503", "http_5xx"),
        ("429", "http_4xx"),
        ("302", "content"),
        ("error_event", "error_event"),
        ("truncated", "truncated"),
        ("reset", "reset"),
        ("empty", "content"),
        ("wrong_type", "content"),
        ("hang", "timeout"),
    ],
)
def test_every_fault_has_its_class(go: Any, fault: str, kind: str) -> None:
    with Mock(fault=lambda i: fault if i % 3 == 0 else None) as server:
        result = go(server, 30, request_timeout_s=0.3)
    assert result.counts.errors == {kind: 10}
    assert result.counts.ok == 20
    assert result.counts.balanced
    assert result.total.n == 20  # a failed request has no latency to be proud of


def test_nobody_listens(go: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = go(port, 5)
    assert result.counts.errors == {"connect": 5}
    assert result.rate_rps == 0
    assert result.total.p50_ms is None


def test_a_server_that_fails_always_is_not_a_success(go: Any) -> None:
    with Mock(fault=lambda i: "500") as server:
        result = go(server, 25)
    assert result.counts.ok == 0
    assert result.counts.errors == {"http_5xx": 25}
    assert result.tokens_out is None


def test_a_kept_connection_closed_before_the_first_byte_is_tried_once_more(go: Any, tmp_path: Path) -> None:
    with Mock(fault=lambda i: "close_kept" if i % 2 else None) as server:
        result = go(server, 20, users=1)
    assert result.counts.ok == 20
    assert result.counts.retried > 0
    assert server.requests == 20 + result.counts.retried
    assert sum(bool(s.get("retried")) for s in read_samples(tmp_path / "samples.jsonl")) == result.counts.retried


def test_a_reset_after_the_first_byte_is_never_tried_again(go: Any) -> None:
    with Mock(fault=lambda i: "reset") as server:
        result = go(server, 6)
    assert server.requests == 6
    assert result.counts.retried == 0


def test_latency_counts_from_the_schedule(go: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 sends planned 10 ms apart, the client blocked for 0.5 s at number 50: the backlog is in the p99."""
    sent = worker.Worker._begin

    def block(self: worker.Worker, i: int, now: float) -> None:
        if i == 50:
            time.sleep(0.5)  # the whole client stands still
            now = time.monotonic()
        sent(self, i, now)

    monkeypatch.setattr(worker.Worker, "_begin", block)
    with Mock() as server:
        result = go(server, 100, schedule_s=tuple(k * 0.01 for k in range(100)))
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


def test_an_open_loop_does_not_wait_for_answers(go: Any) -> None:
    with Mock(first_s=0.4) as server:
        result = go(server, 20, schedule_s=tuple(k * 0.005 for k in range(20)))
    assert server.peak == 20
    assert result.seconds < 1.5


def test_ttft_total_and_tokens_are_the_servers(go: Any, tmp_path: Path) -> None:
    with Mock(first_s=0.05, gap_s=0.02, tokens=5, usage_tokens=16) as server:
        result = go(server, 9, users=1)
    assert result.ttft is not None
    assert result.ttft.p50_ms == pytest.approx(sorted(server.ttfts_s)[4] * 1000, abs=25)
    assert result.total.p50_ms == pytest.approx(sorted(server.totals_s)[4] * 1000, abs=25)
    assert result.tokens_out == 9 * 16  # five chunks are not five tokens
    sample = next(read_samples(tmp_path / "samples.jsonl"))
    assert sample["chunks"] == 5
    assert sample["connect_ms"] > 0


def test_odd_streams(go: Any) -> None:
    body = event({"role": "assistant", "content": ""}) + event({"content": "中\u2028"}) + USAGE % (1, 2) + DONE
    script = [(0.0, b":\n\n: ping\r\n\r\n"), *((0.0, body[k : k + 1]) for k in range(len(body)))]
    with Mock(script=script) as server:
        result = go(server, 3)
    assert result.counts.ok == 3
    assert result.tokens_out == 6


def test_texts_of_any_kind_are_counted_once_each(go: Any, tmp_path: Path) -> None:
    """Through the quick way and the careful one, whatever stands in a text and however events are cut into chunks."""
    texts = ["a", 'with "quotes"', "back\\slash", "中", "\u2028", "data: x\n\ndata: y", "}", "z" * 5000, "", "end"]
    script = [(0.002, event({"content": text})) for text in texts]
    script += [
        (0.002, event({"content": "two"}) + event({"content": "more"})),
        (0.0, event(finish_reason="stop") + DONE),
    ]
    with Mock(script=script) as server:
        result = go(server, 8)
    assert result.counts.ok == 8
    assert {s["chunks"] for s in read_samples(tmp_path / "samples.jsonl")} == {len(texts) - 1 + 2}
    assert result.gaps is not None
    assert result.gaps.n == 8 * (len(texts) - 1 + 1)


def test_time_per_token_is_by_usage_and_by_the_last_text(go: Any) -> None:
    """4 texts in 0.15 s, 16 tokens, the usage record 0.2 s later: 10 ms a token."""
    script = [(0.05, event({"content": "w"})) for _ in range(4)] + [(0.2, USAGE % (1, 16) + DONE)]
    with Mock(script=script) as server:
        result = go(server, 3, users=1)
    assert result.per_token is not None
    assert result.per_token.p50_ms == pytest.approx(10, abs=3)


def test_goodput_has_the_errors_in_its_denominator(go: Any) -> None:
    with Mock(fault=lambda i: "500" if i % 2 else None) as server:
        result = go(server, 20, slo_total_ms=60_000)
    assert result.goodput_share == 0.5
    with Mock(first_s=0.02) as server:
        assert go(server, 4, slo_ttft_ms=1).goodput_share == 0
        assert go(server, 4).goodput_share is None


def test_a_stall_is_told_once_and_nothing_is_filled_in(
    go: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sends 10 ms apart, a stall of 0.6 s: 600, 590, 580 ... ms for those it held up, and no sample besides."""
    sent = worker.Worker._begin

    def block(self: worker.Worker, i: int, now: float) -> None:
        if i == 20:
            time.sleep(0.6)
            now = time.monotonic()
        sent(self, i, now)

    monkeypatch.setattr(worker.Worker, "_begin", block)
    with Mock(tokens=1) as server:
        result = go(server, 100, schedule_s=tuple(k * 0.01 for k in range(100)))
        assert server.requests == 100
    rows = {s["i"]: s["total_ms"] for s in read_samples(tmp_path / "samples.jsonl")}
    assert len(rows) == result.total.n == result.counts.sent == 100
    held = [rows[k] - (600 - (k - 20) * 10) for k in range(20, 80)]
    assert min(held) > -1  # none is told as if it had been sent on the spot
    assert sorted(held)[30] < 250  # ... and none of them waited twice, which would be 300 more


def test_a_server_that_closes_each_connection(go: Any) -> None:
    with Mock(fault=lambda i: "close_after") as server:
        result = go(server, 30, users=3)
    assert result.counts.ok == 30
    assert result.connections == server.accepted >= 30


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


def test_without_streaming(go: Any) -> None:
    with Mock() as server:
        result = go(server, 10, stream=False)
    assert (result.counts.ok, result.ttft, result.tokens_out) == (10, None, 40)


def test_one_in_ten_never_answers(go: Any) -> None:
    with Mock(fault=lambda i: "hang" if i % 10 == 9 else None) as server:
        result = go(server, 100, users=10, request_timeout_s=0.2, deadline_s=30)
    assert result.counts.errors == {"timeout": 10}
    assert result.counts.ok == 90


def test_the_runs_deadline_leaves_a_partial_result(go: Any) -> None:
    with Mock(first_s=0.2) as server:
        result = go(server, 1000, users=5, deadline_s=0.7)
    assert result.seconds < 2
    assert 0 < result.counts.ok < 100
    assert result.counts.unsent > 800
    assert result.counts.balanced
    assert server.requests == result.counts.sent


def test_stop_sends_no_more_and_awaits_what_is_in_flight(go: Any) -> None:
    stop = threading.Event()
    threading.Timer(0.4, stop.set).start()
    with Mock(first_s=0.1) as server:
        result = go(server, 10_000, users=3, stop=stop)
    assert result.counts.errors == {}
    assert result.counts.ok == server.requests == result.counts.sent
    assert result.counts.unsent > 9000


def test_progress_is_said(go: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SECOND_S", 0.1)
    lines: list[str] = []
    with Mock(first_s=0.05) as server:
        go(server, 30, users=2, say=lines.append, label="new")
    assert len(lines) > 2
    assert lines[0].startswith("new: ")
    assert "/30 answered" in lines[0]
    assert lines[-1].startswith("new: 30/30 answered in ")


def test_an_interrupt_in_the_callers_thread_passes_through(
    go: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "SECOND_S", 0.2)

    def interrupted(_: str) -> None:
        raise Interrupted("stopped")

    began = time.monotonic()
    with Mock(first_s=0.05) as server, pytest.raises(Interrupted):
        go(server, 10_000, users=2, say=interrupted)
    assert time.monotonic() - began < 3
    assert len(list(read_samples(tmp_path / "samples.jsonl"))) >= 2


def test_a_kill_leaves_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    code = (
        "import sys; from pathlib import Path\n"
        "from inferlift.load.client import LoadPlan, run\nfrom inferlift.load.target import Target\n"
        f"run(LoadPlan(Target('127.0.0.1', port=int(sys.argv[1]), tls=False), 10**6, ['x'],"
        f" Path({str(path)!r}), users=2))"
    )
    with Mock(first_s=0.02) as server:
        child = subprocess.Popen([sys.executable, "-c", code, str(server.port)])
        give_up = time.monotonic() + 15
        while time.monotonic() < give_up and not (path.exists() and path.read_bytes().count(b"\n") > 10):
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert len(list(read_samples(path))) >= 10


def test_tls_by_the_given_ca_and_the_given_name(go: Any, tls_files: tuple[str, str]) -> None:
    certificate, key = tls_files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Mock(tls=context) as server:
        good = Target("ai.demo.test", "127.0.0.1", server.port, ca=certificate)
        assert go(server, 8, target=good).counts.ok == 8
        assert b"Host: ai.demo.test" in server.heads[0]
        stranger = Target("ai.demo.test", "127.0.0.1", server.port)
        assert go(server, 4, target=stranger).counts.errors == {"tls": 4}
        other = Target("other.demo.test", "127.0.0.1", server.port, ca=certificate)
        assert go(server, 4, target=other).counts.errors == {"tls": 4}


def test_the_key_goes_out_and_stays_out_of_the_files(go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711")
    with Mock(key="planted-4711") as server:
        target = Target("127.0.0.1", port=server.port, tls=False, key_header="X-Api-Key", key="env:USER_KEY")
        assert go(server, 5, target=target).counts.ok == 5
        assert go(server, 5, target=Target("127.0.0.1", port=server.port, tls=False)).counts.errors == {"http_4xx": 5}
    assert "planted-4711" not in (tmp_path / "samples.jsonl").read_text()
    assert "planted-4711" not in repr(target)


def test_the_effective_body_is_kept(go: Any, tmp_path: Path) -> None:
    with Mock() as server:
        go(server, 2, max_tokens=8, prompts=["grüß Gott"])
    head = json.loads((tmp_path / "samples.jsonl").read_text().splitlines()[0])["run"]
    assert head["body"] == json.loads(server.bodies[0])
    assert head["body"]["max_tokens"] == 8
    assert head["body"]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0, "users": 1},
        {"requests": 5},
        {"requests": 5, "users": 1, "schedule_s": (0.0,) * 5},
        {"requests": 5, "schedule_s": (0.0,) * 4},
        {"requests": 5, "users": 0},
    ],
)
def test_impossible_plans_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DeclarationError):
        LoadPlan(target=Target("x"), prompts=["a"], samples=tmp_path / "s", **wrong)


def test_an_open_loop_is_as_long_as_it_likes_and_users_need_their_files(
    go: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(client.resource, "getrlimit", lambda _: (64, 512))
    monkeypatch.setattr(client.resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    with Mock() as server:
        assert go(server, 900, schedule_s=tuple(k / 3000 for k in range(900))).counts.sent == 900
        assert limits == [(512, 512)]
        with pytest.raises(Refusal, match="open files"):
            go(server, 900, users=900)


def test_a_machine_without_sockets_blames_nobody_else(go: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = worker.Pool.open
    calls: list[int] = []

    def short(self: Any, exchange: Any) -> None:
        calls.append(1)
        if exchange is not None and len(calls) % 3 == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        opened(self, exchange)

    monkeypatch.setattr(worker.Pool, "open", short)
    with Mock(first_s=0.2) as server:
        found = go(server, 60, schedule_s=tuple(k / 1000 for k in range(60)))
    assert found.starved == found.counts.errors["connect"] == 20
    assert found.client_limit == "this machine had no socket left for 20 requests"
    judged = {g.name: g for g in gates(Targets(), found, None)}
    assert judged["error share"].verdict == "inconclusive"
    assert "this machine itself" in judged["error share"].why
