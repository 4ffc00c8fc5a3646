"""OpenAI's routes: chat and completions (streaming or not), embeddings."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from inferlift.load.answer import Answer
from inferlift.load.protocols.base import Checked, Protocol
from inferlift.load.target import Message, request_body

FRESH = "[{}] "  # before a text whose beginning no cache shall know


class Chat(Protocol):
    """Request i asks prompt i modulo their number. `fresh` puts the run's name (see `apart`) and the number before
    each prompt, so that a server's prefix cache cannot answer for it; without it the cache's part is in the figures,
    which the report declares."""

    name: ClassVar[str] = "chat"
    default_route: ClassVar[str] = "/v1/chat/completions"

    def __init__(
        self,
        prompts: Sequence[str | Sequence[Message]],
        max_tokens: int = 16,
        *,
        stream: bool = True,
        model: str | None = None,
        fresh: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.prompts, self.max_tokens, self.streams, self.model = tuple(prompts), max_tokens, stream, model
        self.fresh, self.run = fresh, ""
        self.extra = dict(extra or {})
        self._bodies = () if fresh else tuple(self._make(prompt) for prompt in self.prompts)

    def body(self, i: int) -> bytes:
        if not self.fresh:
            return self._bodies[i % len(self._bodies)]
        return self._make(_numbered(self.prompts[i % len(self.prompts)], f"{self.run}{i}"))

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return Answer(keep=gaps is None, gaps=gaps)  # who counts no gaps reads the text

    def apart(self, run: str) -> Protocol:
        found = copy.copy(self)
        found.run = f"{run}-"
        return found

    @property
    def prefix_cache(self) -> str:
        if self.fresh:
            return "avoided: each prompt begins with its run's name and its request's number"
        return f"possible: the same {len(self.prompts)} prompts are asked again and again"

    def _make(self, prompt: str | Sequence[Message]) -> bytes:
        return request_body(prompt, self.max_tokens, stream=self.streams, model=self.model, **self.extra)


class Completions(Chat):
    """The older route: `prompt` in, `choices[].text` out."""

    name: ClassVar[str] = "completions"
    default_route: ClassVar[str] = "/v1/completions"

    def _make(self, prompt: str | Sequence[Message]) -> bytes:
        text = prompt if isinstance(prompt, str) else "\n".join(str(m.get("content", "")) for m in prompt)
        body: dict[str, Any] = json.loads(
            request_body("", self.max_tokens, stream=self.streams, model=self.model, **self.extra)
        )
        del body["messages"]
        return json.dumps({"prompt": text, **body}, ensure_ascii=False, separators=(",", ":")).encode()


class Embeddings(Protocol):
    """One text a request; good where the answer holds one vector of numbers, floats or base64."""

    name: ClassVar[str] = "embeddings"
    default_route: ClassVar[str] = "/v1/embeddings"

    def __init__(
        self, texts: Sequence[str], *, model: str | None = None, dimensions: int | None = None, fresh: bool = False
    ) -> None:
        self.texts, self.dimensions, self.fresh, self.run = tuple(texts), dimensions, fresh, ""
        self._more = {} if model is None else {"model": model}

    def body(self, i: int) -> bytes:
        text = self.texts[i % len(self.texts)]
        if self.fresh:
            text = FRESH.format(f"{self.run}{i}") + text
        return json.dumps({"input": text, **self._more}, ensure_ascii=False).encode()

    def apart(self, run: str) -> Protocol:
        found = copy.copy(self)
        found.run = f"{run}-"
        return found

    @property
    def prefix_cache(self) -> str:
        if self.fresh:
            return "avoided: each text begins with its run's name and its request's number"
        return f"possible: the same {len(self.texts)} texts are sent again and again"

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return _Vector(self)


class _Vector(Checked):
    __slots__ = ()

    def __init__(self, asked: Embeddings) -> None:
        super().__init__(lambda data: self._look(data, asked.dimensions))

    def _look(self, data: bytes, dimensions: int | None) -> str | None:
        try:
            document = json.loads(data)
            vector = embedding(document)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return f"no embedding: {type(error).__name__} in {data[:60]!r}"
        if dimensions is not None and len(vector) != dimensions:
            return f"{len(vector)} dimensions, {dimensions} were expected"
        usage = document.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
            self.prompt_tokens = usage["prompt_tokens"]
        return None


def embedding(document: Any) -> list[float]:
    """The first vector of an answer. Raises ValueError, KeyError, IndexError or TypeError where there is none."""
    vector = document["data"][0]["embedding"]
    if isinstance(vector, str):
        raw = base64.b64decode(vector, validate=True)
        import struct

        vector = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    if not isinstance(vector, list) or not vector or not all(isinstance(x, int | float) for x in vector):
        raise ValueError("the embedding is no list of numbers")
    return [float(x) for x in vector]


def _numbered(prompt: str | Sequence[Message], name: str) -> str | list[Message]:
    if isinstance(prompt, str):
        return FRESH.format(name) + prompt
    first, *rest = prompt
    return [{**first, "content": FRESH.format(name) + str(first.get("content", ""))}, *rest]
