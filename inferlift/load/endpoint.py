"""One URL of the standalone load test as a target, and what is sent there as a protocol."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift.errors import DeclarationError
from inferlift.load.hidden import url_shown
from inferlift.load.protocols import NAMES, Chat, Check, Completions, Embeddings, Generic, Image, KServe, KServeGrpc
from inferlift.load.protocols.base import Protocol
from inferlift.load.target import Target

PROMPTS = (
    "Name three rivers of Europe.", "What is the capital of Portugal?", "Why is the sky blue?",
    "Write a sentence about the sea.", "How does a bicycle stay upright?", "What is a cache?",
    "Explain photosynthesis to a child.", "Which planet is the largest?",
)  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """What is sent. `texts`: prompts or texts, one a line. `body`: a Jinja template. `tensors`: JSON, a list of
    requests, each a list of tensors. `images`: files. `check`: `regex`, or `json.path=value`."""

    protocol: str = "chat"
    texts: Path | None = None
    max_tokens: int = 16
    stream: bool = True
    fresh: bool = True
    model: str | None = None
    extra: str | None = None  # JSON object, merged into an OpenAI body
    body: Path | None = None
    rows: Path | None = None  # JSON lines, the values of the template
    tensors: Path | None = None
    images: tuple[Path, ...] = ()
    field: str | None = None  # of an image's form
    check: str | None = None

    def make(self) -> Protocol:
        """Raises DeclarationError for what is missing or wrong."""
        name = self.protocol
        if name not in NAMES:
            raise DeclarationError(f"unknown protocol {name!r}", why=f"known: {', '.join(NAMES)}")
        if name in ("chat", "completions"):
            kind = Chat if name == "chat" else Completions
            extra = _json(self.extra, dict, "the extra body") if self.extra else None
            texts = self._texts()
            return kind(texts, self.max_tokens, stream=self.stream, model=self.model, fresh=self.fresh, extra=extra)
        if name == "embeddings":
            return Embeddings(self._texts(), model=self.model, fresh=self.fresh)
        if name == "image":
            return Image(self.images, field=self.field, check=self._check())
        if name == "http":
            if self.body is None:
                raise DeclarationError("the protocol http needs a body (a Jinja template)", next_command="--body FILE")
            rows = [_json(line, dict, str(self.rows)) for line in _lines(self.rows)] if self.rows else [{}]
            return Generic(_text(self.body), rows, check=self._check())
        if self.tensors is None or self.model is None:
            raise DeclarationError(
                f"the protocol {name} needs a model and tensors", next_command="--model M --body FILE"
            )
        requests = _json(_text(self.tensors), list, str(self.tensors))
        return (KServe if name == "kserve" else KServeGrpc)(self.model, requests)

    def _texts(self) -> Sequence[str]:
        return _lines(self.texts) if self.texts else PROMPTS

    def _check(self) -> Check:
        if self.check is None:
            return Check()
        path, equal, value = self.check.partition("=")
        if not equal or any(c in path for c in " []()\\^$*+?|"):
            return Check(matches=self.check)
        try:
            wanted: Any = json.loads(value)
        except ValueError:
            wanted = value
        return Check(path=path, equals=wanted)


def target(
    url: str,
    protocol: Protocol,
    *,
    key: str | None = None,
    key_header: str = "Authorization",
    ca: str | None = None,
    timeout_s: float = 120.0,
    model: str | None = None,
) -> Target:
    """Raises DeclarationError for what is no URL of an endpoint, or holds a secret."""
    parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
    known = ("grpc", "grpcs") if protocol.transport == "grpc" else ("http", "https")
    if protocol.transport == "grpc" and parts.scheme in ("http", "https"):
        parts = parts._replace(scheme="grpcs" if parts.scheme == "https" else "grpc")
    try:
        port = parts.port
    except ValueError as error:
        raise DeclarationError(f"{url_shown(url)} has no usable port", why=str(error)) from None
    if parts.scheme not in known or not parts.hostname:
        raise DeclarationError(
            f"{url_shown(url)} is no URL of an endpoint", why=f"expected {known[0]}://HOST[:PORT][/ROUTE]"
        )
    if parts.username is not None or parts.password is not None:
        raise DeclarationError("a key does not belong into a URL", next_command="--key env:NAME")
    tls = parts.scheme in ("https", "grpcs")
    own = getattr(protocol, "route", protocol.default_route)
    route = own if parts.path in ("", "/") or protocol.transport == "grpc" else parts.path
    if parts.query:
        route += f"?{parts.query}"
    name = parts.hostname
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            raise DeclarationError(f"{url_shown(url)} names no host") from None
    return Target(
        name=name, port=port or (443 if tls else 80), ca=ca, tls=tls, route=route, timeout_s=timeout_s,
        key=key, key_header=key_header if key else None, model=model,
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path} cannot be read", why=str(error)) from None


def _lines(path: Path) -> list[str]:
    found = [line for line in _text(path).splitlines() if line.strip()]
    if not found:
        raise DeclarationError(f"{path} is empty")
    return found


def _json(text: str, kind: type, what: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DeclarationError(f"{what} is no JSON", why=str(error)) from None
    if not isinstance(found, kind):
        raise DeclarationError(f"{what} is no JSON {'object' if kind is dict else 'list'}")
    return found
