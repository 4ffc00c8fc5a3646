"""aiohttp sessions to a target: pinned to its address, or resolved by the DNS server it names."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import aiohttp
import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
from aiohttp.abc import AbstractResolver, ResolveResult

from inferlift.load.target import Target

DNS_TIMEOUT_S = 2.0


class Lookup(AbstractResolver):
    """Asks one DNS server for A records at every call, keeping nothing; `last` is the address given out last."""

    def __init__(self, server: str) -> None:
        self._host, _, port = server.partition(":")
        self._port = int(port or 53)
        self.last: str | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.last = await lookup(self._host, self._port, host)
        return [_result(host, self.last, port)]

    async def close(self) -> None:
        return None


class Pinned(AbstractResolver):
    """Always the given address, whatever the name."""

    def __init__(self, address: str) -> None:
        self.last = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [_result(host, self.last, port)]

    async def close(self) -> None:
        return None


async def lookup(server: str, port: int, name: str) -> str:
    """The first A record in the answer. Raises OSError where there is none in time (one repeat on silence)."""
    query = dns.message.make_query(name, dns.rdatatype.A)
    for last in (False, True):
        try:
            answer, _ = await dns.asyncquery.udp_with_fallback(query, server, timeout=DNS_TIMEOUT_S, port=port)
            break
        except (dns.exception.DNSException, EOFError) as error:
            if last:
                raise OSError(
                    errno.EHOSTUNREACH, f"the resolver {server} does not answer for {name}: {error}"
                ) from None
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.A:
            return str(rrset[0].address)
    raise OSError(
        errno.EHOSTUNREACH, f"the resolver {server} has no address for {name}: {dns.rcode.to_text(answer.rcode())}"
    )


def session(
    target: Target,
    *,
    keep: bool = True,
    limit: int = 0,
    traces: list[aiohttp.TraceConfig] | None = None,
    resolver: Lookup | Pinned | None = None,
) -> aiohttp.ClientSession:
    """A session without limits of its own (limit 0: as many connections as asked) and without a cookie jar.

    `keep` False opens a connection for each request. No time limit here: the caller sets one around each request.
    """
    context = target.ssl_context()
    resolver = resolver or resolver_of(target)
    common = {"limit": limit, "limit_per_host": 0, "use_dns_cache": False, "resolver": resolver}
    tls: ssl.SSLContext | bool = context if context is not None else True
    connector = (
        aiohttp.TCPConnector(ssl=tls, keepalive_timeout=3600, **common)  # type: ignore[arg-type]
        if keep
        else aiohttp.TCPConnector(ssl=tls, force_close=True, **common)  # type: ignore[arg-type]
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=target.headers(),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        trace_configs=traces or [],
    )


def resolver_of(target: Target) -> Lookup | Pinned | None:
    if target.address is not None:
        return Pinned(target.address)
    return Lookup(target.resolver) if target.resolver else None


def error_class(error: BaseException) -> tuple[str, str]:
    """(class, detail) of a failed exchange. Raises what is no failure of the wire."""
    text = f"{type(error).__name__}: {error}"[:200]
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return "timeout", "no whole answer in time"
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError, ssl.SSLError)):
        return "tls", text
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect", text
    if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        return "reset", text
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.InvalidURL)):
        return "content", text  # not HTTP at all
    if isinstance(error, OSError):
        return "connect", text
    raise error


def stale(error: BaseException) -> bool:
    """A kept connection that the server had closed: nothing of an answer was seen."""
    return isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)) and not isinstance(
        error, aiohttp.ClientConnectorError
    )


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
