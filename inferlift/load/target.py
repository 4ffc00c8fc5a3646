"""Where requests go: one endpoint under the users' name, and the bodies sent to it."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferlift import secret
from inferlift.artifacts import Contract
from inferlift.errors import DeclarationError

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """An endpoint as users reach it. Host header and SNI are always `name`, whatever the address.

    `address` pins the connection; without it `resolver` (IP or IP:port of a DNS server) is asked, and without
    either the system. `key` is a secret reference, read when a request is built. `ca` None: the system's CAs.
    """

    name: str
    address: str | None = None
    port: int = 443
    ca: str | None = None
    key_header: str | None = None
    key: str | None = None
    route: str = "/v1/chat/completions"
    timeout_s: float = 120.0
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    resolver: str | None = None
    tls: bool = True
    model: str | None = None

    @property
    def url(self) -> str:
        default = 443 if self.tls else 80
        port = "" if self.port == default else f":{self.port}"
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"{'https' if self.tls else 'http'}://{host}{port}{self.route}"

    def headers(self) -> dict[str, str]:
        """Headers of one request, the key resolved now. Raises DeclarationError when the reference is unreadable."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # compression would hold events back
            "User-Agent": "inferlift-load",
            **self.extra_headers,
        }
        if self.key_header and self.key:
            value = secret.resolve(self.key)
            bearer = self.key_header.lower() == "authorization" and " " not in value
            headers[self.key_header] = f"Bearer {value}" if bearer else value
        return headers

    def ssl_context(self) -> ssl.SSLContext | None:
        return _context(self.ca) if self.tls else None


def from_contract(contract: Contract, *, address: str | None, port: int = 443, **more: Any) -> Target:
    """The target that a contract describes, pinned to `address`; its first route is the one called."""
    if not contract.routes:
        raise DeclarationError(f"the contract of {contract.name} names no route")
    return Target(
        name=contract.name,
        address=address,
        port=port,
        ca=contract.ca,
        key_header=contract.key_header,
        key=contract.key,
        route=contract.routes[0].path,
        **more,
    )


def request_body(
    prompt: str | Sequence[Message],
    max_tokens: int,
    *,
    stream: bool = True,
    model: str | None = None,
    temperature: float | None = 0.0,
    **extra: Any,
) -> bytes:
    """An OpenAI chat body, compact JSON. Greedy by default, so that answers can be compared; None: not sent."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    body: dict[str, Any] = {"messages": messages, "max_tokens": max_tokens, "stream": stream}
    if model is not None:
        body["model"] = model
    if temperature is not None:
        body["temperature"] = temperature
    if stream:
        body["stream_options"] = {"include_usage": True}
    body.update(extra)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@functools.lru_cache(maxsize=8)
def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise DeclarationError(f"the CA file {ca} cannot be read", why=str(error)) from None
