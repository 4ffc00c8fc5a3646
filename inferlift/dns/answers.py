"""What DNS really answers: each authoritative server asked directly, and caching resolvers as users have them.

A resolver makes one pick a TTL, so shares are judged at the authority; the resolver shows what is cached.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype

from inferlift.dns.record import Journal, decode, fqdn, journal_name
from inferlift.errors import Retryable

CONFIDENCE = 0.999
WINDOW = 64  # queries in flight at once
TRIES = 3
PATIENCE = (0.25, 1.0, 1.0)  # of the time-out, try by try


@dataclass(frozen=True)
class Answers:
    """What `asked` direct queries got. `hits` counts the first address of each answer, `sets` whole answers, sorted.
    `empty`: answered without an address (SERVFAIL, NXDOMAIN, no data)."""

    asked: int
    hits: dict[str, int]
    empty: int
    ttl_s: int | None
    sets: dict[tuple[str, ...], int] = field(default_factory=dict)

    def share(self, address: str) -> float | None:
        answered = sum(self.hits.values())
        return self.hits.get(address, 0) / answered if answered else None


def authority_share(address: str, name: str, n: int, *, port: int = 53, timeout_s: float = 1.0) -> Answers:
    """Ask an authoritative server `n` times for A over UDP, many at once. Raises Retryable when queries stay
    unanswered after three tries, or when the answers are not authoritative."""
    query = dns.message.make_query(fqdn(name), "A", use_edns=False)
    query.flags &= ~dns.flags.RD
    wire = query.to_wire()[2:]
    hits: Counter[str] = Counter()
    sets: Counter[tuple[str, ...]] = Counter()
    empty, ttls = 0, []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((address, port))
        for message in _exchange(udp, wire, n, timeout_s):
            answer = dns.message.from_wire(message)
            found = [(r.address, s.ttl) for s in answer.answer if s.rdtype == dns.rdatatype.A for r in s]
            if answer.rcode() == dns.rcode.NOERROR and not answer.flags & dns.flags.AA:
                raise Retryable(f"{address} is not an authority for {name}")
            if not found:
                empty += 1
            else:
                sets[tuple(sorted(ip for ip, _ in found))] += 1
            for ip, ttl in found[:1]:  # the first is what clients take
                hits[ip] += 1
                ttls.append(ttl)
    return Answers(asked=n, hits=dict(hits), empty=empty, ttl_s=max(ttls, default=None), sets=dict(sets))


def resolver_answers(
    address: str, name: str, *, port: int = 53, timeout_s: float = 2.0
) -> tuple[tuple[str, ...], int | None]:
    """What a resolver answers now, and the seconds it will go on doing so. Raises Retryable when it does not."""
    answer = _ask(address, dns.message.make_query(fqdn(name), "A"), port, timeout_s)
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise Retryable(f"the resolver {address} answers {dns.rcode.to_text(answer.rcode())} for {name}")
    sets = [s for s in answer.answer if s.rdtype == dns.rdatatype.A]
    return tuple(sorted(r.address for s in sets for r in s)), min((s.ttl for s in sets), default=None)


def journal_at(address: str, name: str, *, port: int = 53, timeout_s: float = 2.0) -> Journal | None:
    """The journal as an authoritative server answers it: shows which write it has. None when there is none."""
    found = texts_at(address, journal_name(name), port=port, timeout_s=timeout_s)
    try:
        return decode(found) if found else None
    except ValueError:
        return None


def texts_at(address: str, name: str, *, port: int = 53, timeout_s: float = 2.0) -> tuple[str, ...]:
    """TXT values as an authoritative server answers them. Raises Retryable."""
    query = dns.message.make_query(fqdn(name), "TXT", use_edns=0, payload=1232)
    query.flags &= ~dns.flags.RD
    answer = _ask(address, query, port, timeout_s)
    return tuple(b"".join(r.strings).decode() for s in answer.answer if s.rdtype == dns.rdatatype.TXT for r in s)


def serial(address: str, zone: str, *, port: int = 53, timeout_s: float = 2.0) -> int:
    """The SOA serial an authoritative server has. Raises Retryable when it has none."""
    query = dns.message.make_query(fqdn(zone), "SOA")
    query.flags &= ~dns.flags.RD
    for rrset in _ask(address, query, port, timeout_s).answer:
        if rrset.rdtype == dns.rdatatype.SOA:
            return int(rrset[0].serial)
    raise Retryable(f"{address} has no SOA for {zone}")


def wait_visible(
    seen: Callable[[], bool],
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    every_s: float = 0.02,
) -> float | None:
    """Seconds until `seen`, asked again and again; None when it was not within `timeout_s`. The pause doubles up to
    a fifth of a second. An unanswered question (Retryable) counts as not seen."""
    start, pause = clock(), every_s
    while True:
        try:
            if seen():
                return clock() - start
        except Retryable:
            pass
        if clock() - start >= timeout_s:
            return None
        sleep(min(pause, max(0.0, start + timeout_s - clock())))
        pause = min(pause * 2, max(every_s, 0.2))


def share_ok(weight: float, asked: int, hits: int) -> bool:
    """Can `hits` of `asked` answers stem from `weight` percent? Exact binomial band, two-sided, 99.9 %.

    Weight 0 allows no hit and 100 no miss.
    """
    p = weight / 100
    if p <= 0:
        return hits == 0
    if p >= 1:
        return hits == asked
    tail = (1 - CONFIDENCE) / 2
    low = math.fsum(_binomial(k, asked, p) for k in range(hits + 1))
    high = math.fsum(_binomial(k, asked, p) for k in range(hits, asked + 1))
    return low >= tail and high >= tail


def _binomial(k: int, n: int, p: float) -> float:
    """Probability of exactly k of n, by logarithms so that large n do not overflow."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


def _exchange(udp: socket.socket, wire: bytes, n: int, timeout_s: float) -> list[bytes]:
    """Send the query n times with ids 0..n-1, WINDOW at once, lost ones again; the answers."""
    got: dict[int, bytes] = {}
    for patience in (share * timeout_s for share in PATIENCE):
        missing = [i for i in range(n) if i not in got]
        for first in range(0, len(missing), WINDOW):
            window = set(missing[first : first + WINDOW])
            for i in window:
                with contextlib.suppress(ConnectionRefusedError):  # an ICMP answer to an earlier one
                    udp.send(struct.pack("!H", i) + wire)
            deadline = time.monotonic() + patience
            while window and (left := deadline - time.monotonic()) > 0:
                if not select.select([udp], [], [], left)[0]:
                    break
                try:
                    message = udp.recv(4096)
                except ConnectionRefusedError:
                    time.sleep(0.01)  # nothing listens there; the ICMP answer came at once
                    continue
                (i,) = struct.unpack("!H", message[:2])
                window.discard(i)
                got.setdefault(i, message)
            if window and first == 0 and not got:
                break  # nobody there: the next try, not the next window
        if len(got) == n:
            return list(got.values())
    raise Retryable(
        f"{udp.getpeername()[0]} left {n - len(got)} of {n} DNS queries unanswered", why=f"asked {len(PATIENCE)} times"
    )


def _ask(address: str, query: dns.message.Message, port: int, timeout_s: float) -> dns.message.Message:
    for attempt in range(TRIES):
        try:
            return dns.query.udp_with_fallback(query, address, port=port, timeout=timeout_s)[0]
        except (dns.exception.DNSException, OSError) as error:
            if attempt == TRIES - 1:
                raise Retryable(f"{address} does not answer DNS", why=type(error).__name__) from None
    raise AssertionError("unreachable")
