"""A key of the endpoint goes out with each request, and into no file, table or message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.errors import DeclarationError
from inferlift.load.endpoint import Sent, target
from inferlift.load.protocols import Chat
from inferlift.load.standalone import Asked, standalone

pytestmark = pytest.mark.programs


def test_a_key_is_sent_and_written_nowhere(tested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711")
    with Mock(key="planted-4711") as server:
        code, found = tested(server, key="env:USER_KEY", key_header="X-Api-Key", html=tmp_path / "p.html")
    assert code == 0
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert all(b"planted" not in text for text in [*written, json.dumps(found).encode()])


def test_a_key_in_the_query_is_sent_and_shown_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, junit = tmp_path / "p.html", tmp_path / "j.xml"
    with Mock(raw=lambda head, body: (403, "text/plain", b"no right for " + head.split(b" ")[1])) as server:
        urls = [f"http://127.0.0.1:{server.port}/v1/chat/completions?api_key=planted-{k}&n=1" for k in "ab"]
        wanted = Asked(tuple(urls), 24, users=2, folder=tmp_path / "s", warm_up=0, html=page, junit=junit,
                       check_self=False)  # fmt: skip
        standalone(wanted)
        assert any(b"api_key=planted-a" in head for head in server.heads)
    said = capsys.readouterr()
    texts = [said.out, said.err, *(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())]
    assert "planted" not in "".join(texts)
    assert "api_key=***" in said.out
    for wrong in ("http://u:planted-pw@h:1/", "http://h:99999/?key=planted-k", "ftp://h/?key=planted-k"):
        with pytest.raises(DeclarationError) as error:
            target(wrong, Chat(["a"]))
        assert "planted" not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        (401, "application/json", b'{"error":{"message":"Incorrect API key provided: planted-4711-secret"}}'),
        (500, "text/plain", b"x" * 100 + b" planted-4711-secret"),  # cut in the middle of the key
        (200, "application/json", b'{"error": "planted-4711-secret"}'),
        (200, "text/event-stream", b'data: {"error":{"message":"key planted-4711-secret"}}\n\n'),
        (200, "text/event-stream", b"data: planted-4711-secret\n\n"),
    ],
)
def test_a_key_that_the_server_echoes_lands_nowhere(
    tested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, bytes]
) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711-secret")
    with Mock(raw=lambda head, body: answer) as server:
        for k, stream in enumerate((True, False)):
            _, found = tested(
                server, key="env:USER_KEY", html=tmp_path / f"{k}.html", junit=tmp_path / f"{k}.xml", warm_up=0,
                folder=tmp_path / str(k), sent=Sent(stream=stream),
            )  # fmt: skip
            assert found["endpoints"][0]["run"]["counts"]["ok"] == 0
            assert "planted" not in json.dumps(found)
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"planted" not in written
    assert b"***" in written


def test_a_key_in_the_body_is_not_shown(tested: Any, tmp_path: Path) -> None:
    body = tmp_path / "b.j2"
    body.write_text('{"api_key": "planted-1", "max_tokens": 4, "inner": [{"Password": "planted-2"}], "i": {{ i }}}')
    with Mock(raw=lambda head, body: (200, "text/plain", b"ok")) as server:
        _, found = tested(server, sent=Sent("http", body=body))
        assert b"planted-1" in server.bodies[0]
    shown = found["endpoints"][0]["run"]["body"]
    assert shown == {"api_key": "***", "max_tokens": 4, "inner": [{"Password": "***"}], "i": 0}
    assert "planted" not in (tmp_path / "out" / "1.jsonl").read_text()


@pytest.mark.parametrize("key", ["a\nb", "schlüssel€"])
def test_what_no_header_can_carry_is_told_without_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("USER_KEY", key)
    with pytest.raises(DeclarationError) as error:
        standalone(Asked(("http://h",), key="env:USER_KEY", folder=tmp_path / "x"), say=lambda _: None)
    assert key not in str(error.value)
    with pytest.raises(DeclarationError, match="a space"):
        standalone(Asked(("http://h/a b",), folder=tmp_path / "x"), say=lambda _: None)
