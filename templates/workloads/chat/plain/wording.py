"""In place of ../wording.py where there is no app of the users' own: requests and answers pass as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path


class Data:
    """There is none."""

    def __init__(self, folder: Path) -> None:
        pass

    def glossary(self) -> tuple[re.Pattern[str] | None, dict[str, str]]:
        return None, {}


def prepare(body: object, data: Data) -> dict[str, object]:
    """Raises ValueError with what is wrong; what else may be wrong is the model server's to say."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    return body


def trim(answer: bytes) -> bytes:
    return answer


class Trimmer:
    """Looks at the events of a stream, and passes every byte on at once."""

    def __init__(self) -> None:
        self.pending = b""
        self.text_seen = False
        self.done = False  # [DONE] was there: the stream is whole

    def feed(self, piece: bytes) -> bytes:
        *events, self.pending = (self.pending + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            self._look(event)
        return piece

    def _look(self, event: bytes) -> None:
        if event.startswith(b"data: [DONE]"):
            self.done = True
        elif not self.text_seen and event.startswith(b"data: {"):
            delta = (json.loads(event[6:]).get("choices") or [{}])[0].get("delta") or {}
            self.text_seen = any(delta.get(key) for key in ("content", "reasoning_content", "tool_calls"))
