"""A fleet at two regions through all nine stages: Pulumi's engine, a stand-in provider, a lab host for each instance,
users near either region, and Route 53's latency records with health checks.

The smallest that has all of it: at each site a gateway, a monitor, one model host and its spare. Whom Route 53 takes
for near, and how soon its checkers agree, is the stand-in's (tests/standin_aws/names.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab, approved, migration_of, tools, users

from inferlift import provision
from inferlift.artifacts import Cutover, Host, Scaled, Watch, World
from inferlift.dns.answers import resolver_answers, wait_visible
from inferlift.load import probe
from inferlift.load.target import from_contract
from inferlift.load.users import summarise
from inferlift.provision.aws import listing
from inferlift.provision.aws.session import Session
from tests.standin_aws import account as standin
from tests.standin_aws.names import server_of

pytestmark = [pytest.mark.lab, pytest.mark.long]
NETWORKS = {"eu-central-1": "10.246.0.0/16", "eu-north-1": "10.247.0.0/16"}  # as aws.edge lays them side by side
NEAR, FAR = NETWORKS
SERVERS = {region: server_of(n) for n, region in enumerate(NETWORKS)}
NAME = "ai.demo.test."


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with standin.account("t-aws-edge", NETWORKS, tmp_path_factory.mktemp("bin")) as env:
        yield env


@pytest.fixture(scope="module")
def lab(account: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in account.items():
            patch.setenv(key, value)
        zone = route53().create_hosted_zone(Name="demo.test", CallerReference="t-edge")["HostedZone"]["Id"]
    dns = {"kind": "route53", "zone": "demo.test", "zone_id": zone, "authority": [*SERVERS.values()]}
    profile = tmp_path_factory.mktemp("profile") / "t-edge.yaml"
    profile.write_text(
        standin.declared(
            "t-edge", NETWORKS[NEAR],
            aws={"edge": [FAR], "admin_ranges": []},  # reached as over a VPN: no bastions
            requests={"in_flight_peak": 20, "growth_months": 0}, load={"requests": 40, "origin_requests": 5},
            switch={"dns": {**dns, "resolver": SERVERS[NEAR]}, "steps": [50, 100]},
            watch={"seconds": 120},  # as long as what is looked at beside it, and requests enough at each site
            lab={"users": 0, "traffic_requests": 40},  # they are played here, near either region
        )
    )  # fmt: skip
    with migration_of("edge", str(profile), account) as made:
        yield made


def route53() -> Any:
    return Session().client("route53", NEAR)


def records(lab: Lab) -> list[dict[str, Any]]:
    zone = lab.place.profile.switch.dns
    assert zone is not None
    return list(route53().list_resource_record_sets(HostedZoneId=zone.zone_id)["ResourceRecordSets"])


def sites(lab: Lab) -> dict[str, str]:
    """Site -> where it answers."""
    return {e.site: e.address for e in lab.artifact("scale", Scaled).service.fleet.endpoints}


@pytest.fixture(scope="module")
def found(lab: Lab) -> list[dict[str, Any]]:
    """The records as they were, with users on the old side."""
    approved(lab, "--to", "size")
    old, dns = lab.artifact("world", World).address, lab.place.profile.switch.dns
    assert dns is not None
    record = {"Name": NAME, "Type": "A", "TTL": 4, "ResourceRecords": [{"Value": old}]}
    change = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    route53().change_resource_record_sets(HostedZoneId=dns.zone_id, ChangeBatch=change)
    return records(lab)


def test_all_nine_stages_at_two_sites(lab: Lab, found: list[dict[str, Any]], tmp_path: Path) -> None:
    world = lab.artifact("world", World)
    with ExitStack() as played:
        for region, server in SERVERS.items():
            played.enter_context(users(world, server, tmp_path / f"{region}.jsonl"))
        approved(lab)
    assert set(lab.statuses().values()) == {"done"}
    where, cutover = sites(lab), lab.artifact("switch", Cutover)
    assert list(where) == [NEAR, FAR]
    assert [s.weight for s in cutover.steps] == [0, 50, 100] * 2
    latency = [r for r in records(lab) if r["Name"] == NAME]
    assert [(r["Region"], r["AliasTarget"]["EvaluateTargetHealth"]) for r in latency] == [(NEAR, True), (FAR, True)]
    checks = {c["Id"]: c["HealthCheckConfig"]["IPAddress"] for c in route53().list_health_checks()["HealthChecks"]}
    assert sorted(checks.values()) == sorted(where.values())
    for region, server in SERVERS.items():
        assert resolver_answers(server, NAME)[0] == (where[region],)
        resolving, kept = summarise(tmp_path / f"{region}.jsonl", cutover.old, where[region])
        assert (resolving.failed, resolving.old > 0, resolving.new > 0) == (0, True, True), region
        assert kept.failed == 0
    watched = lab.artifact("watch", Watch)
    assert {g.name.split(": ")[0] for g in watched.gates} == {NEAR, FAR}, "each by its own monitor"
    assert lab.invoke("deploy").stderr.count(" verified: ") == 10


def gateway(lab: Lab, site: str) -> Host:
    fleet = lab.artifact("scale", Scaled).service.fleet
    return next(h for h in fleet.by_role("gateway") if h.site == site)


def test_users_of_a_site_that_is_lost_are_answered_by_the_other(lab: Lab) -> None:
    where, world = sites(lab), lab.artifact("world", World)

    def led_to(site: str) -> None:
        took = wait_visible(lambda: resolver_answers(SERVERS[FAR], NAME)[0] == (where[site],), timeout_s=60)
        assert took is not None, f"users near {FAR} are not led to {site}"

    provision.power_off(gateway(lab, FAR), tools())
    led_to(NEAR)
    theirs = from_contract(world.contract, address=None, resolver=SERVERS[FAR], timeout_s=30.0)
    assert all(probe.once(theirs, timeout_s=30).ok for _ in range(3))
    noticed = lab.invoke("status", "--drift")
    assert f"gateway-1-{FAR}" in noticed.stdout + noticed.stderr
    approved(lab)  # it is booted again
    led_to(FAR)
    assert all(probe.once(theirs, timeout_s=30).ok for _ in range(3))


def test_back_and_nothing_is_left_in_either_region(lab: Lab, found: list[dict[str, Any]]) -> None:
    refused = lab.invoke("destroy")
    assert refused.returncode == 2
    assert "DNS points at the fleet" in refused.stderr
    assert lab.invoke("rollback").returncode == 0
    old = lab.artifact("world", World).address
    assert {resolver_answers(server, NAME)[0] for server in SERVERS.values()} == {(old,)}
    lab.destroyed("--delete-data")
    for region in NETWORKS:
        assert listing.left(f"{lab.place.owner}/fleet", region, Session()) == [], region
    assert route53().list_health_checks()["HealthChecks"] == []
    assert records(lab) == found
