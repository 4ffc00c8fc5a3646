"""One request on one fresh connection, from the standard library alone: for probes, quality and parity.

No aiohttp here: a verification has half a second in all, and importing that takes half of it.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from dataclasses import dataclass, field

from inferlift.load.answer import Answer
from inferlift.load.hidden import hider
from inferlift.load.sse import SseParser
from inferlift.load.target import Target

READ_BYTES = 65536


@dataclass(frozen=True)
class Reply:
    """What came back. `error` is one of the load run's classes; None: a whole answer with text."""

    status: int | None
    content_type: str
    seconds: float
    error: str | None
    detail: str = ""
    text: str = ""
    finish_reason: str | None = None
    keys: frozenset[str] = field(default_factory=frozenset)
    tokens: int | None = None


def ask(
    target: Target,
    body: bytes,
    *,
    timeout_s: float | None = None,
    key: str | None = None,
    answer: Answer | None = None,
) -> Reply:
    """Send one request and read its whole answer. Failures of the wire are in the reply, never raised.

    `key` overrides the target's key (an empty text: none is sent), which a contract check needs. `answer` reads it;
    by default as OpenAI's.
    """
    deadline = time.monotonic() + (target.timeout_s if timeout_s is None else timeout_s)
    began = time.monotonic()
    answer = Answer(keep=True) if answer is None else answer
    hide = hider(target)
    status: int | None = None
    content_type = ""
    error: tuple[str, str] | None
    connection: http.client.HTTPConnection | None = None
    try:
        connection = _connect(target, deadline)
        headers = target.headers() | {"Connection": "close"}
        if key is not None and target.key_header:
            headers.pop(target.key_header, None)
            if key:
                headers[target.key_header] = key
        connection.request("POST", target.route, body=body, headers=headers)
        response = connection.getresponse()
        status = response.status
        content_type = (response.getheader("Content-Type") or "").split(";")[0].strip().lower()
        if status != 200:
            text = response.read(300).decode(errors="replace")
            kind = "http_4xx" if 400 <= status < 500 else "http_5xx" if status >= 500 else "content"
            error = kind, f"status {status}: {text[:120]}"
        else:
            _read(connection, response, answer, content_type, deadline)
            error = answer.problem()
    except (ssl.SSLError, ssl.CertificateError) as problem:
        error = "tls", str(problem)[:200]
    except TimeoutError:
        error = "timeout", "no whole answer in time"
    except (
        ConnectionResetError,
        BrokenPipeError,
        http.client.RemoteDisconnected,
        http.client.IncompleteRead,
    ) as problem:
        error = "reset", f"{type(problem).__name__}: {problem}"[:200]
    except (http.client.HTTPException, ValueError) as problem:
        error = "content", f"{type(problem).__name__}: {problem}"[:200]
    except OSError as problem:
        error = "connect", str(problem)[:200]
    finally:
        if connection is not None:
            connection.close()
    return Reply(
        status=status,
        content_type=content_type,
        seconds=time.monotonic() - began,
        error=error[0] if error else None,
        detail=hide(error[1]) if error else "",
        text=answer.text,
        finish_reason=answer.finish_reason,
        keys=frozenset(answer.keys),
        tokens=answer.tokens,
    )


def _connect(target: Target, deadline: float) -> http.client.HTTPConnection:
    """A connection whose socket goes to the target's address while Host and SNI name the target."""
    left = max(0.05, deadline - time.monotonic())
    raw = socket.create_connection((target.address or _resolve(target), target.port), timeout=left)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = target.ssl_context()
        connection = http.client.HTTPConnection(target.name, target.port, timeout=left)
        connection.sock = raw if context is None else context.wrap_socket(raw, server_hostname=target.name)
    except BaseException:
        raw.close()
        raise
    if target.port == (443 if target.tls else 80):
        connection.port = connection.default_port  # no port in the Host header, as with any client
    return connection


def _resolve(target: Target) -> str:
    if target.resolver is None:
        return target.name
    import dns.exception
    import dns.resolver

    host, _, port = target.resolver.partition(":")
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [host], int(port or 53), 4.0
    try:
        return str(next(iter(resolver.resolve(target.name, "A"))).address)
    except dns.exception.DNSException as error:
        raise OSError(f"the resolver {host} has no address for {target.name}: {error}") from None


def _read(
    connection: http.client.HTTPConnection,
    response: http.client.HTTPResponse,
    answer: Answer,
    content_type: str,
    deadline: float,
) -> None:
    parser = SseParser()
    whole = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        # with "Connection: close" the response owns the socket once the headers are read
        if connection.sock is not None:
            connection.sock.settimeout(left)
        chunk = response.read1(READ_BYTES)
        now = time.monotonic()
        if content_type != "text/event-stream":
            whole += chunk
        for event in parser.feed(chunk) if content_type == "text/event-stream" else ():
            answer.event(event, now)
        if not chunk or answer.done:
            break
    if content_type == "text/event-stream":
        for event in parser.finish():
            answer.event(event, time.monotonic())
    else:
        answer.body(bytes(whole), time.monotonic())
    with contextlib.suppress(OSError):
        response.close()
