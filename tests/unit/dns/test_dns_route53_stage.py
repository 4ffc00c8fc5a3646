"""Route 53 as what decides the answers in a migration (`switch.dns`), over the strict stand-in before moto.

What name servers answer is a stand-in too: it says what the API has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, Clock, StandInDns
from route53_standin import AT, SIMPLE, Strict, backend, put, records

from inferlift import migration, teardown
from inferlift.dns.answers import Answers
from inferlift.dns.eyes import Net
from inferlift.dns.record import shares
from inferlift.dns.route53 import Route53
from inferlift.profile.dns import Dns
from inferlift.provision.aws import rights
from inferlift.stages import _answers
from inferlift.stages import switch as stage
from inferlift.stages.switch import SwitchStage
from tests import moving

pytestmark = pytest.mark.programs


class Mirror:
    def __init__(self, made: Route53) -> None:
        self.made = made

    @property
    def state(self) -> Any:
        return self.made.read(NAME)


class StageClock(Clock):
    """The stage's own, so that answers age with it."""

    now = property(lambda self: stage.time.time(), lambda self, value: None)  # type: ignore[assignment]


def test_route_53_in_a_migration(client: Strict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Route53, "api", lambda self: client)
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


REGIONS = {"eu-central-1": NEW, "us-east-1": "192.0.2.30"}


class RegionsMirror:
    """A resolver near each region in turn, and an authority asked from everywhere."""

    def __init__(self, made: Route53) -> None:
        self.made = made
        self.names = (NAME, *(f"{region}.{AT}" for region in REGIONS))

    def weights(self, name: str) -> dict[str, float]:
        state = self.made.read(name)
        if state.kind != "foreign" or name not in self.names:
            return shares(state.weights)
        each = [shares(self.made.read(f"{region}.{AT}").weights) for region in REGIONS]
        return {a: sum(e.get(a, 0.0) for e in each) / len(each) for e in each for a in e}

    def shares(self, authority: str, name: str, n: int) -> Answers:
        hits = {a: round(n * share) for a, share in self.weights(name).items()}
        return Answers(n, hits, n - sum(hits.values()), 2)

    def net(self) -> Net:
        def resolver(address: str, name: str) -> tuple[tuple[str, ...], int]:
            return tuple(self.weights(name))[-1:], 1

        return Net(self.shares, resolver, lambda authority, name: self.made.read(name).journal)


def test_an_edge_in_a_migration(quick: Strict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions are made, each is switched to its own site with a health check, taken back, moved again, given back."""
    monkeypatch.setattr(Route53, "api", lambda self: quick)
    put(quick, {**SIMPLE, "TTL": 2})
    before = records(quick)
    calls = {f"route53:{c}" for c in ("ListResourceRecordSets", "ChangeResourceRecordSets", "GetChange")}  # in memory
    quick.meta.events.register("before-call.route53.*", lambda model, **_: calls.add(f"route53:{model.name}"))
    named = {"names": [NAME, *(f"{r}.{AT}" for r in REGIONS)], "addresses": [OLD, *REGIONS.values()]}
    mirror = RegionsMirror(backend(quick, **named))
    monkeypatch.setattr(_answers, "net", lambda ctx, world, made: mirror.net())
    dns = Dns(kind="route53", zone_id=quick.zone, zone="demo.test", authority=("192.0.2.53",), resolver="192.0.2.53")

    def somebody_else() -> None:
        theirs = [r for r in records(quick) if r["Name"] == f"us-east-1.{AT}" and r["Type"] == "A"]
        put(quick, *[{**r, "TTL": 300} for r in theirs])

    with moving.migration_on(dns, tmp_path, NAME, OLD, REGIONS, monkeypatch, speed=1000) as where:
        cutover = moving.moved_killed_changed_and_back(where, monkeypatch, somebody_else)
        assert [s.weight for s in cutover.steps] == [0, 10, 50, 100] * 2
        latency = [r for r in records(quick) if r["Name"] == AT]
        assert [(r["Region"], r["AliasTarget"]["EvaluateTargetHealth"]) for r in latency] == [
            (region, True) for region in REGIONS
        ]
        checks = {c["Id"]: c["HealthCheckConfig"] for c in quick.list_health_checks()["HealthChecks"]}
        assert {c["IPAddress"] for c in checks.values()} == set(REGIONS.values())
        assert {(c["Type"], c["ResourcePath"]) for c in checks.values()} == {("HTTPS", "/inferlift-health")}
        for region, address in REGIONS.items():
            (only,) = [r for r in records(quick) if r["Name"] == f"{region}.{AT}" and r["Type"] == "A"]
            assert (only["ResourceRecords"], only["Weight"]) == ([{"Value": address}], 100)
            assert checks[only["HealthCheckId"]]["IPAddress"] == address
        with migration.session(where, "rollback") as ctx:
            teardown.rollback(ctx)
            assert set(SwitchStage().users_at(ctx) or ()) == {OLD}
            SwitchStage().give_back(ctx)  # as `destroy` does
    assert quick.list_health_checks()["HealthChecks"] == []
    assert records(quick) == before
    assert calls - {"route53:ListHostedZones"} <= rights.known_calls(), "the operator's policy allows every call"
    assert len(calls) == 8
