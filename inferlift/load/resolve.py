"""The addresses behind a target's name, asked once before a run."""

from __future__ import annotations

import socket

from inferlift.load.target import Target


def addresses(target: Target) -> tuple[str, ...]:
    """Pinned, from the DNS server the target names, or from the system. Raises OSError where there is none."""
    if target.address is not None:
        return (target.address,)
    if target.resolver is not None:
        return _asked(target.resolver, target.name)
    found = socket.getaddrinfo(target.name, target.port, type=socket.SOCK_STREAM)
    # one family: where both are offered, hosts often listen on one alone
    first = found[0][0]
    return tuple(dict.fromkeys(str(address[0]) for family, _, _, _, address in found if family == first))


def _asked(server: str, name: str) -> tuple[str, ...]:
    import dns.exception
    import dns.resolver

    host, _, port = server.partition(":")
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [host], int(port or 53), 4.0
    try:
        return tuple(str(record.address) for record in resolver.resolve(name, "A"))
    except dns.exception.DNSException as error:
        raise OSError(f"the resolver {host} has no address for {name}: {error}") from None
