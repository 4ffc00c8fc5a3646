"""The sample of recorded requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferlift.audit.sample import recorded, write
from inferlift.errors import DeclarationError

HEAD = '10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "POST {} HTTP/1.1" 200 1 "-" "-" rt=0.1'


def test_bodies_of_nginx_are_unescaped(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    body = r'body="{\x22q\x22: \x22caf\xC3\xA9\x22}"'
    log.write_text(
        f"{HEAD.format('/api/chat?x=1')} {body}\n{HEAD.format('/other')} {body}\n{HEAD.format('/api/chat')}\n"
    )
    (only,) = recorded([log], routes=["/api/chat"])
    assert (only.method, only.path, json.loads(only.body)) == ("POST", "/api/chat?x=1", {"q": "café"})


def test_a_sample_is_small_spread_and_the_same_every_time(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    rows = [
        json.dumps({"time_iso8601": "2026-10-10T13:55:36Z", "request_method": "POST", "request_uri": "/api/chat",
                    "status": "200", "request_time": "0.1", "request_body": f'{{"n": {n // 2}}}'})
        for n in range(1000)
    ]  # fmt: skip
    log.write_text("\n".join(rows) + "\n")
    first = recorded([log])
    assert recorded([log]) == first
    numbers = {json.loads(request.body)["n"] for request in first}
    assert len(numbers) == len(first) == 50
    assert max(numbers) > 400 > 100 > min(numbers)
    write(tmp_path / "out.jsonl", first)
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 50


def test_no_bodies(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(HEAD.format("/api/chat") + "\n")
    with pytest.raises(DeclarationError, match="no line holds the body"):
        recorded([tmp_path / "a.log"])
