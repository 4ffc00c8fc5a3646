"""Every request's own record, written as it ends, so that even a killed run leaves its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

ERRORS = (
    "connect", "tls", "timeout", "reset", "http_4xx", "http_5xx", "error_event", "truncated", "content",
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


class SampleWriter:
    """JSON lines: a head with the plan, then one line a request. `flush` is the caller's to call in time."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._file.write(json.dumps({"run": head}, ensure_ascii=False) + "\n")
        self._file.flush()

    def write(self, sample: Sample) -> None:
        record = {k: _short(v) for k, v in asdict(sample).items() if v is not None and v != "" and v is not False}
        self._file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """The samples of a run, finished or killed: a last line cut in the middle is left out."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "i" in record:
                yield record


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
