"""Which /24 a lab network gets, and which address a host on it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network

POOL = "10.64.0.0/10"
POOL_VARIABLE = "INFERLIFT_LAB_SUBNETS"  # another pool, where 10.64.0.0/10 is in use


def pool() -> IPv4Network:
    """The range that lab networks are cut from."""
    return IPv4Network(os.environ.get(POOL_VARIABLE) or POOL)


def choices(owner: str, taken: Iterable[IPv4Network], within: IPv4Network) -> Iterator[IPv4Network]:
    """Free /24 networks, the owner's own first choice first, each at most once.

    The first choice depends on the label alone, so that a network made anew usually gets its old subnet.
    """
    busy = [network for network in taken if network.prefixlen > 0]
    count = max(1, 1 << (24 - within.prefixlen)) if within.prefixlen <= 24 else 0
    first = int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8]) % count if count else 0
    base = int(within.network_address)
    for step in range(count):
        candidate = IPv4Network((base + ((first + step) % count) * 256, 24))
        if not any(candidate.overlaps(network) for network in busy):
            yield candidate


def gateway(subnet: IPv4Network) -> IPv4Address:
    return subnet[1]


def mac(address: IPv4Address) -> str:
    """A hardware address that goes with the IP address: a host made anew at its address is reached at once.

    With another one, its neighbours would send to the old one until their ARP entry expires.
    """
    return "02:69:" + ":".join(f"{byte:02x}" for byte in address.packed)


_FIRST = {"gateway": 10, "monitor": 20, "origin": 30, "authority": 40, "resolver": 50, "model": 100}


def addresses(subnet: IPv4Network, role: str, name: str) -> Iterator[IPv4Address]:
    """The host's own address first, then others for when a killed run left that one allocated.

    Own addresses of different hosts differ (at most 9 of a role, 100 model hosts); the spares lie above them.
    """
    number = int(name.rpartition("-")[2]) - 1 if name.rpartition("-")[2].isdigit() else 0
    own = _FIRST[role] + number
    limit = 100 if role == "model" else 10
    if not 0 <= number < limit:
        raise ValueError(f"a lab network has room for {limit} hosts of role {role}, not for {name}")
    yield subnet[own]
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % 50
    for step in range(50):
        yield subnet[200 + (start + step) % 50]
