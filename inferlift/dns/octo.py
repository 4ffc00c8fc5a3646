"""octoDNS as the plan engine for one name: it is shown that name and its journal, and nothing else of the zone.

octoDNS is untyped and slow to import; both stay inside this module's functions.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from inferlift.dns.record import Journal, RRset, encode, fqdn, journal_name, script
from inferlift.errors import Uncertain


@dataclass(frozen=True)
class Api:
    """Where the PowerDNS API is. `key` is the secret itself: made at the last moment, never kept or shown."""

    url: str
    server: str
    ca: str | None
    timeout_s: float
    zone: str

    def provider(self, key: str, existing: list[dict[str, Any]]) -> Any:
        """octoDNS' PowerDnsProvider that believes the zone holds just `existing` (RRsets in the API's form)."""
        record = importlib.import_module("octodns.record").Record
        base: Any = importlib.import_module("octodns_powerdns").PowerDnsProvider
        logging.getLogger("PowerDnsProvider[inferlift]").setLevel(logging.CRITICAL)  # errors are raised, not logged
        if not record.validators.configured:
            record.enable_validators({"legacy"})

        class OneName(base):  # type: ignore[misc]
            def populate(self, zone: Any, target: bool = False, lenient: bool = False) -> bool:
                for rrset in existing:
                    data = getattr(self, f"_data_for_{rrset['type']}")(rrset)
                    at = zone.hostname_from_fqdn(rrset["name"])
                    zone.add_record(record.new(zone, at, data, source=self, lenient=True), lenient=True)
                return True

            def _post(self, path: str, data: Any = None) -> Any:
                raise Uncertain("the zone vanished during a write", why="a zone is never made here")

        parts = urlsplit(self.url)
        provider = OneName(
            "inferlift",
            host=parts.hostname,
            port=parts.port or (443 if parts.scheme == "https" else 80),
            scheme=parts.scheme,
            server_id=self.server,
            api_key=key,
            ssl_verify=True if self.ca is None else self.ca,
            timeout=self.timeout_s,
            mode_of_operation="native",
            enable_dynamic=False,
            root_ns_warnings=False,
        )
        provider._sess.trust_env = False
        return provider

    def desired(self, provider: Any, name: str, rrset: RRset, journal: Journal | None) -> Any:
        """octoDNS' zone that holds the address record and, beside it, the journal."""
        record = importlib.import_module("octodns.record").Record
        zone = importlib.import_module("octodns.zone").Zone(self.zone, [])
        if rrset.type == "LUA":
            values: list[Any] = [_lua(content) for content in rrset.contents]
            data = {"type": "PowerDnsProvider/LUA", "ttl": rrset.ttl_s, "values": values}
        else:
            data = {"type": "A", "ttl": rrset.ttl_s, "values": list(rrset.contents)}
        zone.add_record(record.new(zone, zone.hostname_from_fqdn(fqdn(name)), data, source=provider))
        if journal is not None:
            texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in encode(journal)]
            data = {"type": "TXT", "ttl": rrset.ttl_s, "values": texts}
            at = zone.hostname_from_fqdn(journal_name(name))
            zone.add_record(record.new(zone, at, data, source=provider))
        return zone


def target(kind: str, weights: dict[str, int], ttl_s: int) -> RRset:
    """The address RRset for these weights."""
    if kind == "weighted":
        return RRset(type="LUA", ttl_s=ttl_s, contents=(f'A "{script(weights)}"',))
    return RRset(type="A", ttl_s=ttl_s, contents=tuple(sorted(a for a, w in weights.items() if w > 0)))


def _lua(content: str) -> dict[str, str]:
    type_, quoted = content.split(" ", 1)
    return {"type": type_, "script": quoted[1:-1]}
