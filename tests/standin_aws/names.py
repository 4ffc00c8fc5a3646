"""Stand-in: Route 53's batches as strict as its documentation says, and name servers that answer from its records.

Moto takes batches that Route 53 refuses, and loses track of records that were deleted and made again: its change call
is replaced. The servers answer on loopback: one address for each region, whose users are nearest to it. They leave out
what has failed its health check three times; this process asks each check every second.

What this does not prove: whom Route 53 takes for near, when its checkers around the world agree, how long a change
takes.
"""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import AF_INET, SOCK_DGRAM, create_connection, socket
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from moto.route53.exceptions import Route53ClientError
from moto.route53.models import RecordSet, Route53Backend, route53_backends

ACCOUNT = "123456789012"
CHECK_S, FAILURES = 1.0, 3


class Refused(Route53ClientError):
    code = 400

    def __init__(self, message: str) -> None:
        super().__init__("InvalidChangeBatch", message)


def server_of(index: int) -> str:
    """The loopback address of the name server that users of the index-th region are near to."""
    return f"127.53.0.{index + 1}"


def change(self: Route53Backend, zoneid: str, change_list: list[dict[str, Any]]) -> None:
    """Whole or not at all: a DELETE names exactly what is there, a CREATE nothing that is; one name is simple, weighted
    or by latency, never two of these; an alias has a target."""
    zone = self.get_hosted_zone(zoneid)
    sets = {_key(r): r for r in zone.rrsets}
    for one in change_list:
        wanted = dict(one["ResourceRecordSet"])
        wanted["Name"] = wanted["Name"].rstrip(".") + "."
        wanted["ResourceRecords"] = [r["Value"] for r in wanted.get("ResourceRecords") or []]
        made = RecordSet(wanted)
        key, action = _key(made), one["Action"]
        if action == "DELETE":
            if key not in sets or _values(sets[key]) != _values(made):
                raise Refused(f"{key}: not found, or its values are not those provided")
            del sets[key]
            continue
        beside = [r for k, r in sets.items() if k[:2] == key[:2] and k != key]
        if action == "CREATE" and key in sets:
            raise Refused(f"{key} exists already")
        if any(_policy(r) != _policy(made) for r in beside):
            raise Refused(f"{key}: another kind of record set with this name and type exists")
        if made.alias_target and not any(k[0] == made.alias_target["DNSName"] for k in sets):
            raise Refused(f"{key}: the alias target was not found")
        sets[key] = made
    zone.rrsets = list(sets.values())


def _key(record: RecordSet) -> tuple[str, str, str]:
    return str(record.name), str(record.type), str(record.set_identifier or "")


def _policy(record: RecordSet) -> str:
    return "latency" if record.region else "weighted" if record.weight is not None else "simple"


def _values(record: RecordSet) -> Any:
    alias = {k: str(v) for k, v in (record.alias_target or {}).items()}
    plain = (record.ttl, record.weight, record.region, record.health_check_id)
    return [None if v is None else str(v) for v in plain], sorted(record.records), sorted(alias.items())


class Names:
    """What the zones answer now, to somebody near a region."""

    def __init__(self, regions: Sequence[str]) -> None:
        self.regions = tuple(regions)
        self._failed: dict[str, int] = {}

    def addresses(self, name: str, near: str) -> tuple[list[str], int]:
        """(addresses, TTL) of one pick."""
        records = self._of(name, "A")
        if any(r.region for r in records):
            order = [near, *(r for r in self.regions if r != near)]
            found = sorted(records, key=lambda r: order.index(str(r.region)))
            targets = [str(r.alias_target["DNSName"]) for r in found if r.alias_target]
            healthy = [t for t in targets if self._healthy(t)]
            return self.addresses((healthy or targets)[0], near)
        if not any(r.weight is not None for r in records):
            return [a for r in records for a in r.records], min((int(r.ttl or 0) for r in records), default=0)
        well = [r for r in records if int(r.weight or 0) > 0 and self._well(r)]
        well = well or [r for r in records if int(r.weight or 0) > 0]  # all unhealthy: as if all were healthy
        if not well:
            return [], 0
        (one,) = random.choices(well, [int(r.weight or 0) for r in well])
        return list(one.records), int(one.ttl or 0)

    def texts(self, name: str) -> tuple[list[str], int]:
        records = self._of(name, "TXT")
        return [t for r in records for t in r.records], min((int(r.ttl or 0) for r in records), default=0)

    def check(self) -> None:
        """Ask every health check once, as Route 53's checkers do: the name is told (SNI), no certificate verified."""
        for one in list(_backend().health_checks.values()):
            well = False
            with suppress(OSError):
                well = _status(str(one.ip_address), int(one.port), str(one.fqdn), str(one.resource_path)) < 400
            self._failed[one.id] = 0 if well else self._failed.get(one.id, 0) + 1

    def _healthy(self, name: str) -> bool:
        return any(self._well(r) for r in self._of(name, "A") if r.weight is None or int(r.weight) > 0)

    def _well(self, record: RecordSet) -> bool:
        return self._failed.get(str(record.health_check_id), 0) < FAILURES

    def _of(self, name: str, kind: str) -> list[RecordSet]:
        at = name.rstrip(".").lower() + "."
        return [r for z in list(_backend().zones.values()) for r in list(z.rrsets) if (r.name, r.type) == (at, kind)]


def _status(address: str, port: int, name: str, path: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with create_connection((address, port), 4) as plain, context.wrap_socket(plain, server_hostname=name) as tls:
        tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        words = tls.recv(200).split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 599


def answer(wire: bytes, names: Names, near: str) -> bytes:
    query = dns.message.from_wire(wire)
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA
    asked = query.question[0]
    kind = dns.rdatatype.to_text(asked.rdtype)
    name = asked.name.to_text()
    found, ttl = names.addresses(name, near) if kind == "A" else names.texts(name) if kind == "TXT" else ([], 0)
    if found:
        response.answer.append(dns.rrset.from_text(asked.name, ttl, "IN", kind, *found))
    return response.to_wire()


@contextmanager
def servers(regions: Sequence[str]) -> Iterator[Names]:
    """A name server for the users of each region, and the health checks, until the block ends."""
    names, over = Names(regions), threading.Event()
    threads: list[Callable[[], None]] = []

    def listen(udp: socket, near: str) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                wire, client = udp.recvfrom(4096)
                udp.sendto(answer(wire, names, near), client)

    def checking() -> None:
        while not over.wait(CHECK_S):
            names.check()

    opened = []
    for index, region in enumerate(regions):
        udp = socket(AF_INET, SOCK_DGRAM)
        udp.settimeout(0.5)
        udp.bind((server_of(index), 53))
        opened.append(udp)
        threads.append(lambda udp=udp, region=region: listen(udp, region))  # type: ignore[misc]
    running = [threading.Thread(target=t, daemon=True) for t in (*threads, checking)]
    for thread in running:
        thread.start()
    try:
        yield names
    finally:
        over.set()
        for thread in running:
            thread.join(timeout=10)
        for udp in opened:
            udp.close()


def _backend() -> Route53Backend:
    return route53_backends[ACCOUNT]["aws"]
