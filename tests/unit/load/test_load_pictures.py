"""Pictures in JSON: what goes out, how an answer is read, and what is wrong with a list of them."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.errors import DeclarationError
from inferlift.load.client import LoadPlan, run
from inferlift.load.parity import parity, parse_recorded
from inferlift.load.pictures import Pictures, Read, Sights, load_pictures, load_sights
from inferlift.load.probe import complete, once
from inferlift.load.quality import assess
from inferlift.load.target import Target
from inferlift.load.users import follow
from inferlift.profile import ROOT

pytestmark = pytest.mark.programs

SHIPPED = ROOT / "profiles" / "demo-image" / "lines.jsonl"


def test_the_shipped_pictures_have_their_text_and_fit_the_old_contract() -> None:
    cases = load_pictures(SHIPPED)
    assert len(cases) == 40
    assert {case.check for case in cases} == {"exact"}
    bodies = [Pictures([Path(case.prompt)]).body(0) for case in cases]
    assert max(map(len, bodies)) < 65536
    assert all(base64.b64decode(json.loads(body)["image"]).startswith(b"\x89PNG") for body in bodies)


def test_a_run_sends_them_in_turn(tmp_path: Path) -> None:
    files = [Path(case.prompt) for case in load_pictures(SHIPPED)[:3]]
    plan = LoadPlan(Target("t"), 5, [], tmp_path / "s", users=1, protocol=Pictures(files))
    assert [plan.sends.body(i) == plan.sends.body(i + 3) for i in range(3)] == [True] * 3
    assert plan.sends.body(0) != plan.sends.body(1)


@pytest.mark.parametrize(
    ("data", "problem", "text"),
    [
        (b'{"text": "EUR 5", "confidence": 0.9}', None, "EUR 5"),
        (b'{"text": ""}', None, ""),
        (b'{"text": null}', "content", ""),
        (b'{"error": {"message": "no"}}', "content", ""),
        (b"[]", "content", ""),
        (b"<html>", "content", ""),
        (b"", "content", ""),
    ],
)
def test_an_answer_is_its_text(data: bytes, problem: str | None, text: str) -> None:
    answer = Read()
    answer.body(data, 0.0)
    found = answer.problem()
    assert (found[0] if found else None, answer.text) == (problem, text)


@given(st.binary(max_size=200))
def test_no_answer_breaks_the_reader(data: bytes) -> None:
    answer = Read()
    answer.body(data, 0.0)
    assert answer.done


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "expected an object with image and answer"),
        ("[1]", "expected an object"),
        ('{"answer": "x"}', "expected an object"),
        ('{"image": "absent.png", "answer": "x"}', "there is no picture absent.png"),
        ('{"image": "one.png"}', "a case needs a prompt and an answer"),
        ('{"image": "one.png", "answer": "x", "unknown": 1}', "unknown key"),
        ("", "names no picture"),
    ],
)
def test_a_wrong_list_is_told_by_its_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "one.png").write_bytes(b"\x89PNG")
    (tmp_path / "lines.jsonl").write_text(line + "\n")
    with pytest.raises(DeclarationError, match=words):
        load_pictures(tmp_path / "lines.jsonl")


def test_a_list_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_pictures(tmp_path / "absent.jsonl")


# --- against a service on loopback: a stand-in that knows each picture by its bytes ---------------------------------


@pytest.fixture
def service() -> Iterator[tuple[Target, dict[str, Any]]]:
    known = {json.loads(Pictures([Path(c.prompt)]).body(0))["image"]: c.answer for c in load_pictures(SHIPPED)}
    state: dict[str, Any] = {"wrong": "", "asked": 0, "numbered": False}

    class StandIn(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            image = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["image"]
            state["asked"] += 1
            body = json.dumps(
                {"text": str(state["asked"]) if state["numbered"] else state["wrong"] or known[image], "kind": None}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Target("127.0.0.1", "127.0.0.1", server.server_port, tls=False, route="/api/ocr", timeout_s=10), state
    finally:
        server.shutdown()


def shipped() -> Pictures:
    return Pictures([Path(case.prompt) for case in load_pictures(SHIPPED)])


def test_a_load_run_counts_every_picture(service: tuple[Target, dict[str, Any]], tmp_path: Path) -> None:
    target, state = service
    found = run(LoadPlan(target, 50, [], tmp_path / "s.jsonl", users=4, protocol=shipped(), deadline_s=30))
    assert (found.counts.ok, found.counts.errors, state["asked"]) == (50, {}, 50)
    assert found.total.n == 50


def test_quality_is_the_exact_text(service: tuple[Target, dict[str, Any]]) -> None:
    target, state = service
    cases = load_pictures(SHIPPED)
    assert assess(target, cases, protocol=shipped()).share == 1
    state["wrong"] = "Invoice 2026-923 "
    seen = assess(target, cases, protocol=shipped())
    assert (seen.n, seen.correct) == (40, 1)  # white space around an answer is no part of it


def test_a_probe_sends_pictures(service: tuple[Target, dict[str, Any]]) -> None:
    target, state = service
    assert all(check.ok for check in complete(target, 3, print, protocol=shipped()))
    assert once(target, protocol=shipped()).ok
    assert state["asked"] == 4


def test_the_replay_compares_texts(service: tuple[Target, dict[str, Any]]) -> None:
    target, state = service
    log = "\n".join(
        json.dumps({"uri": "/api/ocr", "status": 200, "body": shipped().body(i).decode()}) for i in range(5)
    )
    recorded = parse_recorded(log, known_by=Pictures.recorded)
    assert len(recorded) == 5
    assert parse_recorded(log) == ()
    assert all(case.same for case in parity(target, target, recorded, print, reads=Read))
    state["asked"], state["numbered"] = 0, True
    assert not parity(target, target, recorded, print, reads=Read)[-1].same  # no two answers are alike


async def test_the_labs_users_send_pictures(service: tuple[Target, dict[str, Any]]) -> None:
    target, _ = service
    files = [case.prompt for case in load_pictures(SHIPPED)]
    config = {
        "name": "127.0.0.1", "port": target.port, "tls": False, "route": "/api/ocr", "pictures": files,
        "rate": 40, "limit_s": 30,
    }  # fmt: skip
    out = io.StringIO()
    end = asyncio.Event()
    users = asyncio.create_task(follow(config, out, end))
    while out.getvalue().count("\n") < 6 and not users.done():
        await asyncio.sleep(0.01)
    end.set()
    await users
    seen = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(seen) >= 6
    assert all(record["ok"] for record in seen)


def test_a_question_goes_with_its_picture_and_is_answered_as_a_stream(tmp_path: Path) -> None:
    """The server is a stand-in that sees nothing: it answers with the size of the picture it got, and the question."""
    for name in ("a.png", "b.jpg"):
        (tmp_path / name).write_bytes(name.encode() * 9)
    lines = [
        {"image": "a.png", "prompt": "how large?", "answer": "45"},
        {"image": "b.jpg", "prompt": "?", "answer": "0"},
    ]
    (tmp_path / "seen.jsonl").write_text("\n".join(map(json.dumps, lines)))
    cases = load_sights(tmp_path / "seen.jsonl")
    assert [Path(c.picture).name for c in cases] == ["a.png", "b.jpg"]
    sent = Sights(cases, 20)
    parts = json.loads(sent.body(1))["messages"][0]["content"]
    assert parts[0]["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert parts[1] == {"type": "text", "text": "?"}

    class Seeing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            picture, question = asked["messages"][0]["content"]
            size = len(base64.b64decode(picture["image_url"]["url"].partition(",")[2]))
            delta = {"choices": [{"delta": {"content": f"{size} {question['text']}"}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Seeing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        target = Target("127.0.0.1", "127.0.0.1", server.server_port, tls=False, route="/v1/chat/completions")
        quality = assess(target, cases, protocol=sent)
        line = json.dumps({"uri": target.route, "status": 200, "body": sent.body(0).decode()})
        recorded = parse_recorded(line, known_by=sent.recorded)
        same = parity(target, target, recorded, print, reads=sent.answer)
        counted = run(LoadPlan(target, 6, [], tmp_path / "s", users=2, protocol=sent))
    finally:
        server.shutdown()
        server.server_close()
    assert (quality.n, quality.correct) == (2, 1), quality
    assert all(case.same for case in same)
    assert counted.counts.ok == 6


def test_a_question_without_a_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seen.jsonl").write_text('{"prompt": "what is it?", "answer": "a cat"}')
    with pytest.raises(DeclarationError, match="expected an object with image and answer"):
        load_sights(tmp_path / "seen.jsonl")
