"""Route 53 as what decides the answers in a migration (`switch.dns`), over the strict stand-in before moto.

What name servers answer is a stand-in too: it says what the API has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, Clock, StandInDns
from test_dns_route53 import AT, SIMPLE, Strict, aws, backend, client, put, records  # noqa: F401  (aws, client: fixtures)

from inferlift.dns.route53 import Route53
from inferlift.profile.dns import Dns
from inferlift.stages import _answers
from inferlift.stages import switch as stage
from tests import moving


class Mirror:
    def __init__(self, made: Route53) -> None:
        self.made = made

    @property
    def state(self) -> Any:
        return self.made.read(NAME)


class StageClock(Clock):
    """The stage's own, so that answers age with it."""

    now = property(lambda self: stage.time.time(), lambda self, value: None)  # type: ignore[assignment]


def test_route_53_in_a_migration(client: Strict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(Route53, "_api", lambda self: client)
    put(client, {**SIMPLE, "TTL": 2})
    seen = StandInDns(Mirror(backend(client)), StageClock())  # type: ignore[arg-type]
    monkeypatch.setattr(_answers, "net", lambda ctx, world, made: seen.net())
    dns = Dns(kind="route53", zone_id=client.zone, zone="demo.test", authority=("192.0.2.53",), resolver="192.0.2.53")

    def somebody_else() -> None:
        put(client, *[{**r, "Weight": 50} for r in records(client) if r["Name"] == AT])

    with moving.migration_on(dns, tmp_path, NAME, OLD, NEW, monkeypatch, speed=200) as where:
        cutover = moving.moved_killed_changed_and_back(where, monkeypatch, somebody_else)
    assert cutover.backend == "route53"
    assert [s.weight for s in cutover.steps] == [0, 10, 50, 100]
    weights = {r["ResourceRecords"][0]["Value"]: r["Weight"] for r in records(client) if r["Name"] == AT}
    assert weights == {OLD: 0, NEW: 100}
    assert {c["Action"] for b in client.batches for c in b["Changes"]} == {"DELETE", "CREATE"}
    assert seen.empty == 0
