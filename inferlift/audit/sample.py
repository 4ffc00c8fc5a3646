"""A sample of recorded requests for the parity replay, from logs that hold bodies.

Bodies are users' own words: the file is readable by its owner only, and nothing of it goes into the evidence.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from inferlift.audit import blocks
from inferlift.audit.block import Block
from inferlift.audit.formats import Format, named
from inferlift.audit.parse import capture
from inferlift.audit.recognise import by_header, choose, resolved
from inferlift.errors import DeclarationError

SIZE = 50
_A_BLOCK = 2000  # lines that are looked at in each block
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})")
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S+)(?: HTTP/\d(?:\.\d)?)?")


@dataclass(frozen=True)
class Recorded:
    method: str
    path: str  # with its query
    body: str


def recorded(
    logs: Sequence[Path], *, routes: Sequence[str] | None = None, size: int = SIZE, format_name: str | None = None
) -> tuple[Recorded, ...]:
    """At most `size` different requests with a body, spread over the logs; the same ones every time.

    Raises DeclarationError where no line holds a body.
    """
    wanted = named(format_name) if format_name and format_name != "auto" else None
    chosen: list[tuple[int, str, str, str]] = []
    seen: set[int] = set()
    files, _ = blocks.ordered(logs, wanted)
    for path in files:
        for block in _blocks(path, wanted):
            if block.format is None:
                continue
            for line in block.lines.gather_every(max(1, len(block.lines) // _A_BLOCK)):
                found = capture(line, block.format)
                told = {f.means: v for f, v in zip(found.fields, found.values, strict=True) if v} if found else {}
                request = _request(told)
                if request is None or not _fits(request.path, routes):
                    continue
                key = int.from_bytes(hashlib.sha256(f"{request}".encode()).digest()[:8])
                if key in seen:
                    continue
                seen.add(key)
                entry = (-key, request.method, request.path, request.body)
                (heapq.heappush if len(chosen) < size else heapq.heappushpop)(chosen, entry)
    if not chosen:
        raise DeclarationError(
            "no line holds the body of a request",
            why="the replay needs what users sent",
            next_command="log $request_body (escape=json) to a file of its own for a day",
        )
    return tuple(Recorded(*entry[1:]) for entry in sorted(chosen, reverse=True))


def _blocks(path: Path, wanted: Format | None) -> Iterator[Block]:
    """Each with its format; None where there is none."""
    chosen: Format | None = None
    for block in blocks.blocks(path, lambda _: None):
        head = block.lines.head(200).to_list()
        chosen = chosen or (resolved(wanted, head) if wanted else choose(head))
        if chosen is not None:
            yield from (replace(part, format=part.format or chosen) for part in by_header([block], chosen))


def write(path: Path, requests: Sequence[Recorded]) -> None:
    """JSON lines, readable by the owner only."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.writelines(json.dumps(asdict(request)) + "\n" for request in requests)


def _request(told: dict[str, str]) -> Recorded | None:
    body = told.get("body", "-")
    if body == "-":
        return None
    method, path = told.get("method", ""), told.get("path", "")
    if match := _REQUEST.fullmatch(told.get("request", "")):
        method, path = match[1], match[2]
    return Recorded(method or "POST", path, _unescaped(body)) if path else None


def _unescaped(body: str) -> str:
    r"""nginx writes bytes as \xHH by default; with escape=json (read as JSON) nothing is left to do."""
    if "\\x" not in body:
        return body.replace('\\"', '"')
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), body)
    return raw.encode("latin-1", "replace").decode("utf-8", "replace") if raw.isascii() is False else raw


def _fits(path: str, routes: Sequence[str] | None) -> bool:
    bare = path.split("?", 1)[0]
    return routes is None or any(bare == r.rstrip("/") or bare.startswith(r.rstrip("/") + "/") for r in routes)
