"""Gates from counts, requests pinned to a side, and what the old side's log and the shadow log say."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.dns import notice, pinned, shadow
from inferlift.dns.gating import MetricGate, error_gate, metric_gates, quantile, value_gate
from inferlift.dns.stubborn import quiet
from inferlift.errors import DeclarationError, Retryable

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("failed", "n", "target", "minimum", "verdict"),
    [
        (0, 0, 0.0, 30, "inconclusive"),  # nothing seen
        (0, 29, 0.0, 30, "inconclusive"),  # too few for a pass
        (0, 30, 0.0, 30, "pass"),
        (1, 5, 0.0, 30, "fail"),  # one is too many, whatever comes
        (1, 5, 0.1, 30, "inconclusive"),  # may still be within a tenth of 30
        (4, 5, 0.1, 30, "fail"),  # more than a tenth of 30 already
        (3, 30, 0.1, 30, "pass"),
        (4, 30, 0.1, 30, "fail"),
    ],
)
def test_errors(failed: int, n: int, target: float, minimum: int, verdict: str) -> None:
    assert error_gate("x", failed, n, target=target, minimum=minimum, source="t").verdict == verdict


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0, 0.5), st.integers(1, 100))
def test_never_a_pass_without_enough_samples_and_more_good_ones_never_fail(
    failed: int, good: int, target: float, minimum: int
) -> None:
    n = failed + good
    gate = error_gate("x", failed, n, target=target, minimum=minimum, source="t")
    assert gate.verdict != "pass" or (n >= minimum and failed <= target * n)
    if gate.verdict == "pass":
        assert error_gate("x", failed, n + 10, target=target, minimum=minimum, source="t").verdict == "pass"
    if n == 0:
        assert gate.figure.value is None


@pytest.mark.parametrize(
    ("value", "n", "verdict"),
    [(None, 50, "inconclusive"), (5.0, 3, "inconclusive"), (5.0, 30, "pass"), (11.0, 30, "fail"), (11.0, None, "fail")],
)
def test_values(value: float | None, n: int | None, verdict: str) -> None:
    assert value_gate("x", value, n, target=10, minimum=30, unit="ms", source="t").verdict == verdict


def test_quantile_is_a_sample() -> None:
    assert quantile([], 0.95) is None
    assert quantile([3.0], 0.95) == 3.0
    assert quantile([float(i) for i in range(1, 101)], 0.95) == 95.0


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"errors": 0.0, "n": 100.0}, "pass"), ({"errors": 0.5, "n": 100.0}, "fail"),
        ({"errors": 0.0, "n": 5.0}, "inconclusive"), ({"errors": 0.0}, "inconclusive"), ({"n": 100.0}, "inconclusive"),
        (None, "inconclusive"),
    ],
)  # fmt: skip
def test_metrics(values: dict[str, float] | None, verdict: str) -> None:
    def ask(query: str) -> float | None:
        if values is None:
            raise Retryable("Prometheus does not answer")
        return values.get(query)

    wanted = [MetricGate("errors", "errors", 0.05, count="n", side="old side")]
    (found,) = metric_gates(ask, wanted)
    assert (found.name, found.verdict) == ("old side errors", verdict)


class Side(http.server.BaseHTTPRequestHandler):
    status = 200
    hosts: list[str] = []  # noqa: RUF012 (a test's own)

    def do_GET(self) -> None:
        self.hosts.append(str(self.headers["Host"]))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def side() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Side)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_pinned_requests_carry_the_users_name(side: int) -> None:
    probe = pinned.Probe(f"http://ai.demo.test:{side}/health")
    (errors, latency) = pinned.side_gates(probe, "127.0.0.1", "new side", n=5, p95_ms=5000)
    assert (errors.name, errors.verdict, latency.verdict) == ("new side errors", "pass", "pass")
    assert set(Side.hosts) == {f"ai.demo.test:{side}"}


def test_a_side_that_answers_badly_or_not_at_all_fails(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = pinned.Probe(f"http://ai.demo.test:{side}/", timeout_s=1)
    monkeypatch.setattr(Side, "status", 503)
    (errors,) = pinned.side_gates(probe, "127.0.0.1", "new side", n=3)
    assert errors.verdict == "fail"
    assert "3 status 503" in errors.why
    (gone, slow) = pinned.side_gates(probe, "127.0.0.9", "new side", n=2, p95_ms=10)
    assert (gone.verdict, slow.verdict) == ("fail", "inconclusive")
    assert slow.figure.value is None


def test_the_very_first_target_is_judged_against_the_old_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """No history and no declared target: a slow model is found before it has a user."""
    seconds = {"old": 0.1, "new": 0.1}
    asked: list[str] = []

    def ask(probe: pinned.Probe, address: str) -> pinned.Outcome:
        asked.append(address)
        return pinned.Outcome(seconds[address], 200, "")

    monkeypatch.setattr(pinned, "ask", ask)
    probe = pinned.Probe("http://ai.demo.test/")

    def verdicts() -> dict[str, str]:
        return {g.name: g.verdict for g in pinned.both_gates(probe, "old", "new", n=10)}

    assert set(verdicts().values()) == {"pass"}
    assert asked[:4] == ["old", "new", "old", "new"]  # in turn: both meet the same moment
    seconds["new"] = 0.149
    assert set(verdicts().values()) == {"pass"}
    seconds["new"] = 0.4
    assert verdicts() == {
        "new side errors": "pass", "new side P95 against the old side": "fail", "old side errors": "pass",
    }  # fmt: skip
    monkeypatch.setattr(
        pinned, "ask", lambda probe, a: pinned.Outcome(0.1, 500 if a == "old" else 200, "bad" * (a == "old"))
    )
    assert verdicts()["new side P95 against the old side"] == "inconclusive"


def test_a_url_without_a_name_is_no_probe() -> None:
    with pytest.raises(DeclarationError):
        _ = pinned.Probe("/health").name


def line(address: str, at: datetime, agent: str = "curl/8", path: str = "/v1/chat") -> str:
    when = at.strftime("%d/%b/%Y:%H:%M:%S %z")
    return f'{address} - - [{when}] "POST {path} HTTP/1.1" 200 12 "-" "{agent}" rt=0.1 urt="0.1"'


def test_a_keep_alive_client_keeps_the_old_side_from_going() -> None:
    """TTL over, clients still there: they are listed by address and agent."""
    lines = [
        line("10.0.0.9", NOW - timedelta(hours=1)),  # before the switch
        *(line("10.0.0.7", NOW - timedelta(minutes=m), "java-http/17") for m in (1, 5, 9)),
        line("10.0.0.8", NOW - timedelta(minutes=20), "python-requests/2"),
        line("10.0.0.5", NOW - timedelta(minutes=1), "inferlift/1"),
        line("10.0.0.5", NOW - timedelta(minutes=1), "scanner", "/favicon.ico"),
    ]
    named: dict[str, Any] = {"since": NOW - timedelta(minutes=30), "now": NOW, "ours": ("inferlift",)}
    found = quiet(lines, window_s=600, paths=("/v1/chat",), **named)
    assert found.quiet is False
    assert [(c.address, c.agent, c.requests) for c in found.clients] == [
        ("10.0.0.7", "java-http/17", 3), ("10.0.0.8", "python-requests/2", 1),
    ]  # fmt: skip
    assert found.last == NOW - timedelta(minutes=1)
    later = quiet(lines, window_s=600, paths=("/v1/chat",), **{**named, "now": NOW + timedelta(minutes=10)})
    assert later.quiet is True
    assert len(later.clients) == 2  # still named


def test_what_cannot_be_read_or_is_too_soon_is_not_quiet() -> None:
    since = NOW - timedelta(hours=1)
    assert quiet([], since=since, now=NOW, window_s=600).quiet is True
    assert quiet(["{json}"], since=since, now=NOW, window_s=600).quiet is None
    assert quiet([], since=NOW - timedelta(minutes=1), now=NOW, window_s=600).quiet is None
    scanner = '10.0.0.9 - - [30/Nov/2026:11:59:00 +0000] "\\x16\\x03\\x01" 400 157 "-" "-"'
    assert quiet([scanner], since=since, now=NOW, window_s=600).quiet is True  # a public host gets these all day
    bad = line("10.0.0.7", NOW).replace("[", "[x")
    assert quiet([bad], since=since, now=NOW, window_s=600).unread == 1


def entry(key: str, side: str, status: int, seconds: float = 0.1) -> str:
    return json.dumps({"id": key, "side": side, "uri": "/v1/x?k=1", "status": str(status), "seconds": str(seconds)})


def test_shadow_answers_are_paired_and_compared() -> None:
    lines = [entry(str(i), side, 200) for i in range(30) for side in ("old", "new")]
    lines += [entry("a", "old", 200), entry("a", "new", 500)]
    lines += [entry("b", "old", 500), entry("b", "new", 200)]  # better is no fault
    lines += [entry("c", "old", 200), entry("c", "new", shadow.DROPPED), "rubbish", '{"id": 3}']
    found = shadow.compare(lines)
    assert (found.pairs, found.alone, found.worse) == (32, 1, 1)
    assert shadow.shadow_gates(found, minimum=30)[0].verdict == "fail"
    assert [g.verdict for g in shadow.shadow_gates(shadow.compare(lines[:60]), minimum=30)] == ["pass", "pass"]
    assert [g.verdict for g in shadow.shadow_gates(shadow.compare(lines[:20]), minimum=30)] == ["inconclusive"] * 2
    assert [g.verdict for g in shadow.shadow_gates(shadow.compare([]), minimum=30)] == ["inconclusive"] * 2
    own = {"id": "k", "side": "old", "uri": "/", "status": "200", "seconds": "-", "whole": "0.5"}
    twice = {**own, "side": "new", "seconds": "1.0, 0.5"}
    only = shadow.compare([json.dumps(own), json.dumps(twice)])
    assert (only.old_p95_s, only.new_p95_s) == (0.5, 1.5)
    slow = [entry(str(i), "old", 200) for i in range(30)] + [entry(str(i), "new", 200, 9.0) for i in range(30)]
    assert shadow.shadow_gates(shadow.compare(slow), minimum=30)[1].verdict == "fail"


def test_the_snippet_says_what_it_does_and_refuses_what_nginx_would_misread() -> None:
    made = shadow.snippet("ai.demo.test", "10.0.0.2", share=5, ca="/etc/ca.pem")
    assert "5% 10.0.0.2:443;" in made.http
    assert "proxy_ssl_verify on;" in made.server
    assert "Requests that change something happen twice" in made.explanation
    for wrong in (
        {"name": "a;b"}, {"new": "10.0.0.2;"}, {"ca": "/a b"}, {"log": "x"}, {"share": 0}, {"share": 101},
        {"own_logs": ("/a; include /etc/passwd",)},
    ):  # fmt: skip
        good: dict[str, Any] = {"name": "ai.demo.test", "new": "10.0.0.2", "share": 5.0, "ca": "/etc/ca.pem"}
        with pytest.raises(DeclarationError):
            shadow.snippet(**{**good, **wrong})


class Hook(http.server.BaseHTTPRequestHandler):
    got: list[dict[str, Any]] = []  # noqa: RUF012 (a test's own)
    status = 204

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


def test_a_webhook_is_told_and_its_silence_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/secret-token")
    said: list[str] = []
    assert notice.post("env:HOOK", "rolled back", "ai.demo.test", "errors", by="run-1")
    assert (Hook.got[0]["event"], Hook.got[0]["why"], Hook.got[0]["by"]) == ("rolled back", "errors", "run-1")
    monkeypatch.setattr(Hook, "status", 500)
    assert not notice.post("env:HOOK", "held", "ai.demo.test", "no data", by="run-1", say=said.append)
    server.shutdown()
    server.server_close()
    assert not notice.post("env:HOOK", "held", "ai.demo.test", "no data", by="run-1", say=said.append)
    assert not notice.post("env:NONE", "held", "ai.demo.test", "no data", by="run-1", say=said.append)
    assert len(said) == 3
    assert "secret-token" not in " ".join(said)
