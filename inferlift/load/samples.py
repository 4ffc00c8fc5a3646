"""Every request's own record, written as it ends, so that even a killed run leaves its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ERRORS = (
    "connect", "tls", "timeout", "reset", "http_4xx", "http_5xx", "error_event", "truncated", "content", "interrupted",
)  # fmt: skip


@dataclass(slots=True)
class Sample:
    """One request. `at_s` is the scheduled time since the start of the run; all latencies count from there.

    `delay_ms` is how much later it was really sent. `ttft_ms` is the first content, reasoning or tool call,
    `first_content_ms` the first answer text, `last_token_ms` the last of them, `total_ms` the end of the answer.
    """

    i: int
    at_s: float
    delay_ms: float = 0.0
    connect_ms: float | None = None  # None: a kept connection was used
    tls_ms: float | None = None
    ttft_ms: float | None = None
    first_content_ms: float | None = None
    last_token_ms: float | None = None
    total_ms: float | None = None
    status: int | None = None
    error: str | None = None
    detail: str = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    chunks: int = 0
    retried: bool = False
    blur_ms: float = 0.0  # by how much the end, and the first token, may have been seen too late by ourselves
    blur_first_ms: float = 0.0


class SampleWriter:
    """JSON lines: a head with the plan, then one line a request. `flush` is the caller's to call in time."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._file.write(json.dumps({"run": head}, ensure_ascii=False) + "\n")
        self._file.flush()

    def write(self, sample: Sample) -> None:
        self._file.write(line(sample))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def line(sample: Sample) -> str:
    """One JSON line; what is unknown is left out. By hand: json takes five times as long, a million times."""
    parts = [f'{{"i":{sample.i},"at_s":{sample.at_s:.6f},"delay_ms":{sample.delay_ms:.3f}']
    for name in _FLOATS:
        value = getattr(sample, name)
        if value is not None:
            parts.append(f'"{name}":{value:.3f}')
    for name in _INTS:
        value = getattr(sample, name)
        if value is not None:
            parts.append(f'"{name}":{value}')
    if sample.error is not None:
        parts.append(f'"error":"{sample.error}","detail":{json.dumps(sample.detail, ensure_ascii=False)}')
    if sample.retried:
        parts.append('"retried":true')
    if sample.blur_ms or sample.blur_first_ms:
        parts.append(f'"blur_ms":{sample.blur_ms:.3f},"blur_first_ms":{sample.blur_first_ms:.3f}')
    return ",".join(parts) + "}\n"


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """The samples of a run, finished or killed: a last line cut in the middle is left out."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for text in lines:
            try:
                record = json.loads(text)
            except ValueError:
                continue
            if isinstance(record, dict) and "i" in record:
                yield record


_FLOATS = ("connect_ms", "tls_ms", "ttft_ms", "first_content_ms", "last_token_ms", "total_ms")
_INTS = ("status", "tokens", "prompt_tokens", "chunks")
