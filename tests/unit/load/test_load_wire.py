"""Single requests (probe) and the same request on two sides (parity)."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from typing import Any

import pytest
from mock_server import DONE, Mock, event

from inferlift.load import probe
from inferlift.load.parity import parity, parse_recorded
from inferlift.load.target import Target, from_contract, request_body
from inferlift.load.wire import ask


def at(server: Mock, **more: Any) -> Target:
    return Target("127.0.0.1", port=server.port, tls=False, **more)


def quiet(_: str) -> None:
    return None


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(None, None), ("500", "http_5xx"), ("429", "http_4xx"), ("302", "content"), ("error_event", "error_event"),
     ("truncated", "truncated"), ("reset", "reset"), ("empty", "content"), ("wrong_type", "content"),
     ("hang", "timeout")],
)  # fmt: skip
def test_every_fault_has_its_class(fault: str | None, kind: str | None) -> None:
    with Mock(fault=lambda i: fault, gap_s=0.01) as server:
        reply = ask(at(server), request_body("hello", 4), timeout_s=0.5)
    assert reply.error == kind, reply


def test_a_whole_reply() -> None:
    with Mock(tokens=3) as server:
        reply = ask(at(server), request_body("hello", 4))
    assert (reply.text, reply.finish_reason, reply.tokens, reply.error) == ("w0 w1 w2 ", "stop", 3, None)
    assert "choices[].delta.content" in reply.keys
    assert b"Connection: close" in server.heads[0]


def test_a_stream_that_never_ends_is_cut_at_the_deadline() -> None:
    with Mock(script=[(0.05, event({"content": "x"}))] * 1000) as server:
        began = time.monotonic()
        reply = ask(at(server), request_body("hello", 4), timeout_s=0.4)
    assert reply.error == "timeout"
    assert time.monotonic() - began < 20  # the stream goes on for 50 s


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert ask(Target("127.0.0.1", port=port, tls=False), b"{}").error == "connect"


def test_tls_and_the_name_at_a_pinned_address(tls_files: tuple[str, str]) -> None:
    certificate, key = tls_files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Mock(tls=context) as server:
        target = Target("ai.demo.test", "127.0.0.1", server.port, ca=certificate)
        assert ask(target, request_body("x", 1)).error is None
        assert f"Host: ai.demo.test:{server.port}".encode() in server.heads[0]
        assert ask(Target("else.demo.test", "127.0.0.1", server.port, ca=certificate), b"{}").error == "tls"
        assert ask(Target("ai.demo.test", "127.0.0.1", server.port), b"{}").error == "tls"


def test_ready_is_a_row_of_completions() -> None:
    said: list[str] = []
    with Mock() as server:
        checks = probe.complete(at(server), 3, said.append)
    assert [c.ok for c in checks] == [True] * 3
    assert server.requests == 3
    assert len(said) == 3
    with Mock(fault=lambda i: "503" if i == 1 else None) as server:
        checks = probe.complete(at(server), 3, said.append)
        assert [c.ok for c in checks] == [True, False]
        assert "http_5xx" in checks[1].detail


def test_a_failure_starts_the_row_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PAUSE_S", 0.01)
    with Mock(fault=lambda i: "503" if i in (0, 2) else None) as server:
        checks = probe.complete(at(server), 2, quiet, wait_s=5)
    assert [c.ok for c in checks] == [True, True]
    assert server.requests == 5


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PAUSE_S", 0.02)
    with Mock(fault=lambda i: "503") as server:
        checks = probe.complete(at(server), 2, quiet, wait_s=0.2)
    assert [c.ok for c in checks] == [False]
    assert 2 <= server.requests <= 12


def test_the_probe_needs_no_heavy_import() -> None:
    code = (
        "import sys, inferlift.load.probe; print([m for m in ('aiohttp', 'dns', 'yarl', 'pulumi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- parity


LOG = [
    {"uri": "/api/chat", "status": 200, "body": json.dumps({"messages": [{"role": "user", "content": f"q{k}"}],
     "temperature": 0, "stream": True})} for k in range(6)
]  # fmt: skip


def texts(n: int = 6) -> tuple[dict[str, Any], ...]:
    return parse_recorded("\n".join(json.dumps(line) for line in LOG[:n]))


def echo(body: dict[str, Any]) -> str:
    return f"You asked {body['messages'][0]['content']}"


def test_only_answered_requests_with_a_body_are_replayed_once_each() -> None:
    lines = [*map(json.dumps, LOG), json.dumps(LOG[0]), '{"uri": "/api/ch', "", '{"status": 200, "body": "-"}',
             json.dumps(LOG[0] | {"status": 401, "body": LOG[0]["body"].replace("q0", "q9")}),
             '{"status": 200, "body": ""}', '{"status": 200, "body": "[1]"}', "[]", "7"]  # fmt: skip
    found = parse_recorded("\n".join(lines))
    assert [r["body"]["messages"][0]["content"] for r in found] == ["q1", "q2", "q3", "q4", "q5", "q0"]
    assert found[0]["uri"] == "/api/chat"
    assert len(parse_recorded("\n".join(lines), limit=2)) == 2


def test_alike() -> None:
    with Mock(reply=echo) as old, Mock(reply=echo) as new:
        cases = parity(at(old), at(new), texts(), quiet)
    assert all(c.same for c in cases), cases
    assert len(cases) == 7
    assert "6 of 6" in cases[-1].detail
    assert b"POST /api/chat " in new.heads[0]  # the recorded route, not the target's


def test_another_model_is_found_by_its_texts() -> None:
    with Mock(reply=echo) as old, Mock(reply=lambda body: "I am another model") as new:
        cases = parity(at(old), at(new), texts(), quiet)
    assert not cases[-1].same
    assert "0 of 6" in cases[-1].detail


def test_one_text_that_parts_is_told_and_allowed() -> None:
    with Mock(reply=echo) as old, Mock(reply=lambda b: echo(b).replace("q3", "x3")) as new:
        cases = parity(at(old), at(new), texts(), quiet)
    assert all(c.same for c in cases)
    assert "part after 10 characters" in cases[3].detail
    assert "5 of 6" in cases[-1].detail


@pytest.mark.parametrize("fault", ["500", "truncated", "error_event", "empty", "wrong_type"])
def test_a_new_side_that_answers_otherwise(fault: str) -> None:
    with Mock() as old, Mock(fault=lambda i: fault) as new:
        cases = parity(at(old), at(new), texts(2), quiet)
    assert [c.same for c in cases] == [False, False]


def test_a_missing_field_is_found_and_usage_details_are_not() -> None:
    def stream(**more: Any) -> list[tuple[float, bytes]]:
        return [(0.0, event({"content": "a"}, **more) + event(finish_reason="stop") + DONE)]

    with Mock(script=stream(id="x", usage={"completion_tokens": 1})) as old, Mock(script=stream()) as new:
        cases = parity(at(old), at(new), texts(1), quiet)
    assert not cases[0].same
    assert cases[0].detail == "the new answer lacks id"


def test_a_finish_reason_that_goes_missing() -> None:
    with Mock() as old, Mock(script=[(0.0, event({"content": "a"}) + DONE)]) as new:
        cases = parity(at(old), at(new), texts(1), quiet)
    assert not cases[0].same
    assert "finish reason stop against none" in cases[0].detail


def test_keys_are_refused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711")
    keyed = {"key_header": "X-Api-Key", "key": "env:USER_KEY"}
    with Mock(reply=echo, key="planted-4711") as old, Mock(reply=echo, key="planted-4711") as new:
        cases = parity(at(old, **keyed), at(new, **keyed), texts(1), quiet)
    assert [c.same for c in cases] == [True] * 4
    with Mock(reply=echo, key="planted-4711") as old, Mock(reply=echo) as new:  # the new side lets everyone in
        cases = parity(at(old, **keyed), at(new, **keyed), texts(1), quiet)
    assert [c.same for c in cases] == [True, True, False, False]
    assert "planted" not in str(cases)


def test_a_target_from_the_contract() -> None:
    from inferlift.artifacts import Contract, Route

    contract = Contract(name="ai.demo.test", certificate="c", certificate_key="file:k", ca="ca", key_header="X-Api-Key",
                        key="env:K", routes=(Route(path="/api/chat", upstream="/v1/chat/completions"),))  # fmt: skip
    target = from_contract(contract, address="10.0.0.1", timeout_s=30)
    assert target.url == "https://ai.demo.test/api/chat"
    assert (target.address, target.timeout_s, target.ca) == ("10.0.0.1", 30, "ca")


def test_a_bearer_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "abc")
    assert Target("x", key_header="Authorization", key="env:K").headers()["Authorization"] == "Bearer abc"
    assert Target("x", key_header="X-Api-Key", key="env:K").headers()["X-Api-Key"] == "abc"
