"""Which servers answer for a zone: found by NS, or given."""

from __future__ import annotations

from pathlib import Path

from inferlift.dns.record import fqdn
from inferlift.errors import Refusal, Retryable


def system_resolver(path: Path = Path("/etc/resolv.conf")) -> str:
    """The first name server of this machine. Raises Refusal when it has none."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] == ["nameserver"] and len(words) > 1:
                return words[1]
    raise Refusal("this machine has no resolver", why=f"{path} names none", next_command="give one by its address")


def discover(name: str, *, resolver: str, port: int = 53, timeout_s: float = 3.0) -> tuple[str, tuple[str, ...]]:
    """The zone a name is in, and the IPv4 addresses of all its authoritative servers, as a resolver finds them.

    Raises Retryable when the resolver does not answer, Refusal when the zone or a server has no address: a server that
    cannot be asked would be one whose users nobody sees.
    """
    labels = fqdn(name).split(".")
    for first in range(1, len(labels) - 1):
        zone = ".".join(labels[first:])
        if servers := _ask(resolver, zone, "NS", port, timeout_s):
            break
    else:
        raise Refusal(
            f"{resolver} knows no zone that {name} is in",
            why="it was asked for the name servers (NS) of each domain above the name",
            next_command="give them by address: --authority with --name, switch.dns.authority in a profile",
        )
    found: list[str] = []
    for server in servers:
        addresses = _ask(resolver, server, "A", port, timeout_s)
        if not addresses:
            raise Refusal(f"the name server {server} of {zone} has no IPv4 address", why=f"asked {resolver}")
        found += addresses
    return zone, tuple(sorted(set(found)))


def _ask(resolver: str, name: str, type_: str, port: int, timeout_s: float) -> list[str]:
    import dns.exception
    import dns.message
    import dns.query
    import dns.rcode
    import dns.rdatatype

    query = dns.message.make_query(name, type_)
    try:
        answer = dns.query.udp_with_fallback(query, resolver, port=port, timeout=timeout_s)[0]
    except (dns.exception.DNSException, OSError) as error:
        raise Retryable(f"the resolver {resolver} does not answer", why=type(error).__name__) from None
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise Retryable(f"the resolver {resolver} answers {dns.rcode.to_text(answer.rcode())} for {name}")
    wanted = dns.rdatatype.from_text(type_)
    return sorted(r.to_text().lower() for s in answer.answer if s.rdtype == wanted for r in s)
