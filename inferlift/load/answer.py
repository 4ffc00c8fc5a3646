"""What an OpenAI-style answer says, event by event or as one JSON document."""

from __future__ import annotations

import json
import re
from typing import Any

from inferlift.load.sse import Event

GAP_S = 1e-5
_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_OTHER_TEXT = (b'"reasoning', b'"tool_calls"')


class Answer:
    """One answer as it comes in. Times are whatever clock the caller passes, in seconds.

    Only events that carry text move the clock: role-only openers, usage records, comments and [DONE] do not.
    `first` is the first content, reasoning or tool call (TTFT); `first_content` the first answer text.
    Tokens come from the server's usage record alone, a chunk is never a token. `gaps` counts the times between
    two texts, in steps of GAP_S.
    """

    __slots__ = (
        "_plain", "bad_json", "chunks", "done", "error", "finish_reason", "first", "first_content", "framed", "gaps",
        "keep", "keys", "last", "prompt_tokens", "texts", "tokens",
    )  # fmt: skip

    def __init__(self, *, keep: bool = False, gaps: dict[int, int] | None = None) -> None:
        self.keep = keep  # keep the text and the set of keys, which a load run does not need
        self.gaps = gaps
        self._plain: tuple[bytes, bytes] | None = None  # what stands around the text of an event seen before
        self.framed: tuple[bytes, bytes] | None = None  # the same with the marks of its event and its chunk
        self.first: float | None = None
        self.first_content: float | None = None
        self.last: float | None = None
        self.chunks = 0
        self.tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.bad_json: str | None = None
        self.done = False
        self.texts: list[str] = []
        self.keys: set[str] = set()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def event(self, event: Event, now: float) -> None:
        data = event.data
        if data == b"[DONE]":
            self.done = True
            return
        if self._plain is not None and _between(data, self._plain):
            self.text_came(now)
            return
        if not data.strip():
            return
        try:
            document = json.loads(data)
        except ValueError:
            if event.name == b"error":
                self.error = data[:200].decode(errors="replace")
            elif self.bad_json is None:
                self.bad_json = data[:80].decode(errors="replace")
            return
        if not isinstance(document, dict):
            self.bad_json = self.bad_json or str(document)[:80]
            return
        if event.name == b"error" or document.get("error"):
            self.error = json.dumps(document.get("error") or document, ensure_ascii=False)[:200]
            return
        self._document(document, "delta", now)
        if not self.keep and self.last == now and self.first_content is not None:
            self._learn(data, document)

    def body(self, data: bytes, now: float) -> None:
        """A whole JSON answer (no streaming)."""
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            self.bad_json = data[:80].decode(errors="replace")
            return
        if document.get("error"):
            self.error = json.dumps(document["error"], ensure_ascii=False)[:200]
            return
        self._document(document, "message", now)
        self.first = self.first_content = None  # one document has no first token apart from its end
        self.done = True

    def problem(self) -> tuple[str, str] | None:
        """(error class, detail) of a finished answer with status 200; None when it is whole."""
        if self.error is not None:
            return "error_event", self.error
        if self.bad_json is not None:
            return "content", f"not JSON: {self.bad_json}"
        if not self.done:
            return "truncated", "the stream ended without [DONE]"
        if self.chunks == 0:
            return "content", "an answer without any text"
        return None

    def text_came(self, now: float, tokens: int = 1) -> None:
        self.chunks += 1
        if self.gaps is not None and self.last is not None:
            tokens = max(1, tokens)
            step = int((now - self.last) / tokens / GAP_S)
            self.gaps[step] = self.gaps.get(step, 0) + tokens
        self.last = now

    def _learn(self, data: bytes, document: dict[str, Any]) -> None:
        """Keep what stands around this event's text, where it holds nothing else that could tell of an end."""
        self._plain = self.framed = None
        if document.get("usage") or len(document.get("choices") or ()) != 1:
            return
        choice = document["choices"][0]
        if choice.get("finish_reason") is not None:
            return
        found = _TEXT.findall(data)
        if len(found) != 1 or any(word in data for word in _OTHER_TEXT):
            return
        match = _TEXT.search(data)
        if match is None or match.end(1) == match.start(1):
            return
        before, after = data[: match.start(1)], data[match.end(1) :]
        self._plain, self.framed = (before, after), (b"data: " + before, after + b"\n\n\r\n")

    def _document(self, document: dict[str, Any], part: str, now: float) -> None:
        if self.keep:
            keys_of(document, "", self.keys)
        usage = document.get("usage")
        before = self.tokens
        if isinstance(usage, dict):
            self.tokens = _count(usage.get("completion_tokens"), before)
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
        choices = document.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            if isinstance(choice.get("finish_reason"), str):
                self.finish_reason = choice["finish_reason"]
            delta = choice.get(part)
            piece = delta if isinstance(delta, dict) else {"content": choice.get("text")}
            content = piece.get("content")
            has_content = isinstance(content, str) and content != ""
            other = piece.get("reasoning_content") or piece.get("reasoning") or piece.get("tool_calls")
            if not has_content and not other:
                continue
            # where the server counts as it goes, the gap is spread over the tokens that came in it
            self.text_came(now, (self.tokens or 0) - (before or 0) if isinstance(usage, dict) else 1)
            if self.first is None:
                self.first = now
            if has_content:
                if self.first_content is None:
                    self.first_content = now
                if self.keep:
                    self.texts.append(str(content))


def _between(data: bytes, around: tuple[bytes, bytes]) -> bool:
    """Whether only the text differs: a quotation mark in it could be its end, and is left to the parser."""
    before, after = around
    return (
        data.startswith(before)
        and data.endswith(after)
        and len(data) > len(before) + len(after)
        and data.find(b'"', len(before), -len(after)) < 0
    )


def _count(value: object, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else before


def keys_of(value: object, path: str, into: set[str]) -> None:
    """Paths of keys with the kind of value: what a client's parser relies on. Lists count by their items."""
    if isinstance(value, dict):
        for key, inner in value.items():
            keys_of(inner, f"{path}.{key}" if path else str(key), into)
    elif isinstance(value, list):
        for inner in value:
            keys_of(inner, f"{path}[]", into)
    else:
        into.add(path)
