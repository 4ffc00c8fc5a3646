"""Real requests with the users' own name: pinned to one side's address, or wherever DNS sends a client.

Pinned ones judge the new side before it has users, and at 1 % when hardly any come.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from inferlift.artifacts import Gate
from inferlift.dns import answers
from inferlift.dns.gating import error_gate, no_data, quantile, value_gate
from inferlift.errors import DeclarationError, Retryable

SLOWER = 1.5  # times the old side's P95 that the new one's may be
MARGIN_MS = 50.0  # or this much more: below it, differences are the path's own


@dataclass(frozen=True)
class Probe:
    """What is asked: `url` as users type it. `ca`: the CA that vouches for its name (None: the system's). `headers`:
    functions, so that a key is resolved at the last moment. A status below 400 is an answer."""

    url: str
    ca: str | None = None
    timeout_s: float = 10.0
    headers: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        host = urlsplit(self.url).hostname
        if not host:
            raise DeclarationError(f"{self.url!r} is no URL with a host name")
        return host


@dataclass(frozen=True)
class Outcome:
    """`why` is empty when it was answered well; `seconds` from before the connection to the last byte."""

    seconds: float
    status: int | None
    why: str

    @property
    def ok(self) -> bool:
        return not self.why


def ask(probe: Probe, address: str) -> Outcome:
    """One GET on a connection of its own to `address`, TLS for the users' name. Raises nothing."""
    parts = urlsplit(probe.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    start = time.monotonic()
    connection: http.client.HTTPConnection | None = None
    try:
        raw = socket.create_connection((address, port), timeout=probe.timeout_s)
        connection = http.client.HTTPConnection(probe.name, port, timeout=probe.timeout_s)
        connection.sock = raw
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=probe.ca)
            connection.sock = context.wrap_socket(raw, server_hostname=probe.name)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={n: make() for n, make in probe.headers.items()})
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException) as error:  # ssl.SSLError is an OSError
        return Outcome(time.monotonic() - start, None, type(error).__name__)
    finally:
        if connection is not None:
            connection.close()
    why = "" if response.status < 400 else f"status {response.status}"
    return Outcome(time.monotonic() - start, response.status, why)


def sent(probe: Probe, address: str) -> None:
    """One request, whatever comes of it: so that a gateway has something to count."""
    ask(probe, address)


def side_gates(
    probe: Probe, address: str, side: str, *, n: int, error_share: float = 0.0, p95_ms: float | None = None
) -> tuple[Gate, ...]:
    """`n` pinned requests to one side. `side` heads the gates' names: "old side" or "new side"."""
    return _judged(probe, address, side, [ask(probe, address) for _ in range(n)], error_share, p95_ms)


def both_gates(
    probe: Probe, old: str, new: str, *, n: int, error_share: float = 0.0, p95_ms: float | None = None
) -> tuple[Gate, ...]:
    """`n` pinned requests to each side in turn, so that both meet the same moment, and the new side's P95 against the
    old one's: at most SLOWER times it, or MARGIN_MS more. So the first switch is judged too, before any history."""
    pairs = [(ask(probe, old), ask(probe, new)) for _ in range(n)]
    was, now = [o for o, _ in pairs], [o for _, o in pairs]
    before, after = (quantile([1000 * o.seconds for o in seen if o.ok], 0.95) for seen in (was, now))
    source = f"{n} requests for {probe.name} to each side"
    if before is None:
        against = no_data("new side P95 against the old side", source, "the old side answered none of them well")
    else:
        against = value_gate(
            "new side P95 against the old side", after, sum(o.ok for o in now), minimum=max(1, n // 2), unit="ms",
            target=max(SLOWER * before, before + MARGIN_MS), source=source,
        )  # fmt: skip
    return (
        *_judged(probe, new, "new side", now, error_share, p95_ms),
        against,
        *_judged(probe, old, "old side", was, error_share, None),
    )


def client_gate(probe: Probe, resolver: str, *, n: int = 3, port: int = 53) -> Gate:
    """A client that resolves the name as users do and asks by it, `n` times, each time anew."""
    source = f"a client by name, resolver {resolver}"
    failed, why = 0, ""
    for _ in range(n):
        try:
            addresses, _ttl = answers.resolver_answers(resolver, probe.name, port=port)
        except Retryable as error:
            return no_data("client by name", source, error.what)
        outcome = ask(probe, addresses[0]) if addresses else Outcome(0.0, None, "no address")
        failed, why = failed + (not outcome.ok), outcome.why or why
    return error_gate("client by name", failed, n, target=0.0, minimum=n, source=source, detail=why)


def _judged(
    probe: Probe, address: str, side: str, seen: list[Outcome], error_share: float, p95_ms: float | None
) -> tuple[Gate, ...]:
    n = len(seen)
    source = f"{n} requests for {probe.name} to {address}"
    bad = Counter(o.why for o in seen if not o.ok)
    detail = ", ".join(f"{count} {why}" for why, count in bad.most_common(3))
    found = [
        error_gate(f"{side} errors", sum(bad.values()), n, target=error_share, minimum=n, source=source, detail=detail)
    ]
    if p95_ms is not None:
        good = [1000 * o.seconds for o in seen if o.ok]
        value = quantile(good, 0.95)
        found.append(
            value_gate(f"{side} P95", value, len(good), target=p95_ms, minimum=max(1, n // 2), unit="ms", source=source)
        )
    return tuple(found)
