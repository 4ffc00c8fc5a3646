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

from inferlift.errors import DeclarationError, Interrupted, Refusal
from inferlift.load import client, worker
from inferlift.load.client import LoadPlan
from inferlift.load.gates import gates
from inferlift.load.samples import read_samples
from inferlift.load.target import Target
from inferlift.profile import Targets

pytestmark = pytest.mark.programs


def test_exactly_n_with_fewer_and_with_more_users(sent: Any, tmp_path: Path) -> None:
    for users in (1, 30, 200):
        with Mock() as server:
            result = sent(server, 50, users=users)
        assert server.requests == 50
        assert (result.counts.planned, result.counts.sent, result.counts.ok) == (50, 50, 50)
        assert sorted(s["i"] for s in read_samples(tmp_path / "samples.jsonl")) == list(range(50))
        assert result.tokens_out == 200


def test_all_asked_users_are_in_flight_and_the_figure_is_measured(sent: Any) -> None:
    with Mock(first_s=0.7) as server:
        result = sent(server, 128, users=128)
        assert server.peak == 128
        assert result.in_flight_peak == 128
        assert server.accepted == 128
    with Mock(first_s=0.01) as server:  # more users than the server ever lets wait: the true peak is smaller
        result = sent(server, 100, users=2)
        assert result.in_flight_peak == server.peak == 2


def test_connections_are_kept(sent: Any) -> None:
    with Mock() as server:
        result = sent(server, 200, users=8)
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
def test_every_fault_has_its_class(sent: Any, fault: str, kind: str) -> None:
    with Mock(fault=lambda i: fault if i % 3 == 0 else None) as server:
        result = sent(server, 30, request_timeout_s=0.3)
    assert result.counts.errors == {kind: 10}
    assert result.counts.ok == 20
    assert result.counts.balanced
    assert result.total.n == 20  # a failed request has no latency to be proud of


def test_nobody_listens(sent: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = sent(port, 5)
    assert result.counts.errors == {"connect": 5}
    assert result.rate_rps == 0
    assert result.total.p50_ms is None


def test_a_server_that_fails_always_is_not_a_success(sent: Any) -> None:
    with Mock(fault=lambda i: "500") as server:
        result = sent(server, 25)
    assert result.counts.ok == 0
    assert result.counts.errors == {"http_5xx": 25}
    assert result.tokens_out is None


def test_a_kept_connection_closed_before_the_first_byte_is_tried_once_more(sent: Any, tmp_path: Path) -> None:
    with Mock(fault=lambda i: "close_kept" if i % 2 else None) as server:
        result = sent(server, 20, users=1)
    assert result.counts.ok == 20
    assert result.counts.retried > 0
    assert server.requests == 20 + result.counts.retried
    assert sum(bool(s.get("retried")) for s in read_samples(tmp_path / "samples.jsonl")) == result.counts.retried


def test_a_reset_after_the_first_byte_is_never_tried_again(sent: Any) -> None:
    with Mock(fault=lambda i: "reset") as server:
        result = sent(server, 6)
    assert server.requests == 6
    assert result.counts.retried == 0


def test_odd_streams(sent: Any) -> None:
    body = event({"role": "assistant", "content": ""}) + event({"content": "中\u2028"}) + USAGE % (1, 2) + DONE
    script = [(0.0, b":\n\n: ping\r\n\r\n"), *((0.0, body[k : k + 1]) for k in range(len(body)))]
    with Mock(script=script) as server:
        result = sent(server, 3)
    assert result.counts.ok == 3
    assert result.tokens_out == 6


def test_texts_of_any_kind_are_counted_once_each(sent: Any, tmp_path: Path) -> None:
    """Through the quick way and the careful one, whatever stands in a text and however events are cut into chunks."""
    texts = ["a", 'with "quotes"', "back\\slash", "中", "\u2028", "data: x\n\ndata: y", "}", "z" * 5000, "", "end"]
    script = [(0.002, event({"content": text})) for text in texts]
    script += [
        (0.002, event({"content": "two"}) + event({"content": "more"})),
        (0.0, event(finish_reason="stop") + DONE),
    ]
    with Mock(script=script) as server:
        result = sent(server, 8)
    assert result.counts.ok == 8
    assert {s["chunks"] for s in read_samples(tmp_path / "samples.jsonl")} == {len(texts) - 1 + 2}
    assert result.gaps is not None
    assert result.gaps.n == 8 * (len(texts) - 1 + 1)


def test_a_server_that_closes_each_connection(sent: Any) -> None:
    with Mock(fault=lambda i: "close_after") as server:
        result = sent(server, 30, users=3)
    assert result.counts.ok == 30
    assert result.connections == server.accepted >= 30


def test_one_in_ten_never_answers(sent: Any) -> None:
    with Mock(fault=lambda i: "hang" if i % 10 == 9 else None) as server:
        result = sent(server, 100, users=10, request_timeout_s=0.2, deadline_s=30)
    assert result.counts.errors == {"timeout": 10}
    assert result.counts.ok == 90


def test_the_runs_deadline_leaves_a_partial_result(sent: Any) -> None:
    with Mock(first_s=0.2) as server:
        result = sent(server, 1000, users=5, deadline_s=0.7)
    assert result.seconds < 2
    assert 0 < result.counts.ok < 100
    assert result.counts.unsent > 800
    assert result.counts.balanced
    assert server.requests == result.counts.sent


def test_stop_sends_no_more_and_awaits_what_is_in_flight(sent: Any) -> None:
    stop = threading.Event()
    threading.Timer(0.4, stop.set).start()
    with Mock(first_s=0.1) as server:
        result = sent(server, 10_000, users=3, stop=stop)
    assert result.counts.errors == {}
    assert result.counts.ok == server.requests == result.counts.sent
    assert result.counts.unsent > 9000


def test_progress_is_said(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SECOND_S", 0.1)
    lines: list[str] = []
    with Mock(first_s=0.05) as server:
        sent(server, 30, users=2, say=lines.append, label="new")
    assert len(lines) > 2
    assert lines[0].startswith("new: ")
    assert "/30 answered" in lines[0]
    assert lines[-1].startswith("new: 30/30 answered in ")


def test_an_interrupt_in_the_callers_thread_passes_through(
    sent: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "SECOND_S", 0.2)

    def interrupted(_: str) -> None:
        raise Interrupted("stopped")

    began = time.monotonic()
    with Mock(first_s=0.05) as server, pytest.raises(Interrupted):
        sent(server, 10_000, users=2, say=interrupted)
    assert time.monotonic() - began < 60  # all of them would take 250 s
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


def test_tls_by_the_given_ca_and_the_given_name(sent: Any, tls_files: tuple[str, str]) -> None:
    certificate, key = tls_files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Mock(tls=context) as server:
        good = Target("ai.demo.test", "127.0.0.1", server.port, ca=certificate)
        assert sent(server, 8, target=good).counts.ok == 8
        assert b"Host: ai.demo.test" in server.heads[0]
        stranger = Target("ai.demo.test", "127.0.0.1", server.port)
        assert sent(server, 4, target=stranger).counts.errors == {"tls": 4}
        other = Target("other.demo.test", "127.0.0.1", server.port, ca=certificate)
        assert sent(server, 4, target=other).counts.errors == {"tls": 4}


def test_the_key_goes_out_and_stays_out_of_the_files(
    sent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711")
    with Mock(key="planted-4711") as server:
        target = Target("127.0.0.1", port=server.port, tls=False, key_header="X-Api-Key", key="env:USER_KEY")
        assert sent(server, 5, target=target).counts.ok == 5
        assert sent(server, 5, target=Target("127.0.0.1", port=server.port, tls=False)).counts.errors == {"http_4xx": 5}
    assert "planted-4711" not in (tmp_path / "samples.jsonl").read_text()
    assert "planted-4711" not in repr(target)


def test_the_effective_body_is_kept(sent: Any, tmp_path: Path) -> None:
    with Mock() as server:
        sent(server, 2, max_tokens=8, prompts=["grüß Gott"])
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
    sent: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(client.resource, "getrlimit", lambda _: (64, 512))
    monkeypatch.setattr(client.resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    with Mock() as server:
        assert sent(server, 900, schedule_s=tuple(k / 3000 for k in range(900))).counts.sent == 900
        assert limits == [(512, 512)]
        with pytest.raises(Refusal, match="open files"):
            sent(server, 900, users=900)


def test_a_machine_without_sockets_blames_nobody_else(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = worker.Pool.open
    calls: list[int] = []

    def short(self: Any, exchange: Any) -> None:
        calls.append(1)
        if exchange is not None and len(calls) % 3 == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        opened(self, exchange)

    monkeypatch.setattr(worker.Pool, "open", short)
    with Mock(first_s=0.2) as server:
        found = sent(server, 60, schedule_s=tuple(k / 1000 for k in range(60)))
    assert found.starved == found.counts.errors["connect"] == 20
    assert found.client_limit == "this machine had no socket left for 20 requests"
    judged = {g.name: g for g in gates(Targets(), found, None)}
    assert judged["error share"].verdict == "inconclusive"
    assert "this machine itself" in judged["error share"].why
