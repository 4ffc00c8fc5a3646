"""What the chat app does to words before and after the model server: glossary, system prompt, documents, trimming."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

DOCUMENT_ID = re.compile(r"kb-\d{4}")
DOCUMENT_CHARACTERS = 400  # what fits the model's context beside the question


class Data:
    """The data folder. Files that change, or come later, are seen by the next request; a missing one is left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, str]] = {}
        self._glossary: tuple[str, re.Pattern[str] | None, dict[str, str]] = ("", None, {})

    def read(self, name: str) -> str:
        path = self.folder / name
        try:
            changed = path.stat().st_mtime_ns
            if self._seen.get(name, (-1, ""))[0] != changed:
                self._seen[name] = (changed, path.read_text("utf-8"))
        except FileNotFoundError:
            return ""
        return self._seen[name][1]

    def glossary(self) -> tuple[re.Pattern[str] | None, dict[str, str]]:
        text = self.read("glossary.json")
        if text != self._glossary[0]:
            terms: dict[str, str] = json.loads(text) if text else {}
            words = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
            self._glossary = (text, re.compile(rf"\b(?:{words})\b") if terms else None, terms)
        return self._glossary[1], self._glossary[2]

    def document(self, name: str) -> str:
        # Not cached: there are hundreds, and each is asked for rarely.
        with suppress(FileNotFoundError):
            return (self.folder / "documents" / f"{name}.md").read_text("utf-8")
        return ""


def prepare(body: object, data: Data) -> dict[str, object]:
    """The users' request as the model server gets it. Raises ValueError with what is wrong."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise ValueError("each message needs a role and a text as content")
        if message.get("role") not in ("system", "user", "assistant"):
            raise ValueError("role must be system, user or assistant")
    tokens = body.get("max_tokens", 64)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1024:
        raise ValueError("max_tokens must be a whole number from 1 to 1024")
    pattern, terms = data.glossary()
    messages = [dict(m, content=expand(m["content"], pattern, terms)) if m["role"] == "user" else m for m in messages]
    context = data.read("prompts/system.txt").strip() if messages[0]["role"] != "system" else ""
    if (name := body.get("document")) is not None:
        text = data.document(name) if isinstance(name, str) and DOCUMENT_ID.fullmatch(name) else ""
        if not text:
            raise ValueError("there is no such document")
        context = f"{context}\n{text[:DOCUMENT_CHARACTERS]}".strip()
    if context:
        messages.insert(0, {"role": "system", "content": context})
    ready = {k: v for k, v in body.items() if k != "document"} | {"messages": messages, "max_tokens": tokens}
    if body.get("stream"):
        ready["stream_options"] = {"include_usage": True}
    return ready


def expand(text: str, pattern: re.Pattern[str] | None, terms: dict[str, str]) -> str:
    """Each abbreviation of the glossary is explained where it first occurs."""
    explained: set[str] = set()

    def explain(match: re.Match[str]) -> str:
        term = match.group()
        if term in explained:
            return term
        explained.add(term)
        return f"{term} ({terms[term]})"

    return pattern.sub(explain, text) if pattern else text


def trim(answer: bytes) -> bytes:
    """White space around the reply is the model's habit, not the users'."""
    reply = json.loads(answer)
    for choice in reply.get("choices", ()):
        message = choice.get("message") or {}
        if isinstance(message.get("content"), str):
            message["content"] = message["content"].strip()
    return json.dumps(reply, ensure_ascii=False).encode()


class Trimmer:
    """The same for a stream: leading white space goes, every event passes at once."""

    def __init__(self) -> None:
        self.pending = b""
        self.text_seen = False
        self.done = False  # [DONE] was there: the stream is whole

    def feed(self, piece: bytes) -> bytes:
        *events, self.pending = (self.pending + piece).split(b"\n\n")
        return b"".join(self._event(event) + b"\n\n" for event in events)

    def _event(self, event: bytes) -> bytes:
        if event.startswith(b"data: [DONE]"):
            self.done = True
        elif not self.text_seen and event.startswith(b"data: {"):
            message = json.loads(event[6:])
            delta = (message.get("choices") or [{}])[0].get("delta") or {}
            if isinstance(delta.get("content"), str):
                delta["content"] = delta["content"].lstrip()
                self.text_seen = bool(delta["content"])
                return b"data: " + json.dumps(message, ensure_ascii=False).encode()
        return event
