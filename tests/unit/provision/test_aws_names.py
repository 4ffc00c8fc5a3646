"""The stand-in's Route 53: it refuses what Route 53 refuses, and answers by nearness and health.

Source: https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeResourceRecordSets.html, and
https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/health-checks-how-route-53-chooses-records.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.standin_aws import cloud as standin
from tests.standin_aws.names import FAILURES, Names

pytestmark = pytest.mark.programs

NEAR, FAR = "eu-central-1", "eu-north-1"
AT = "ai.demo.test."


class Zone:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.id = client.create_hosted_zone(Name="demo.test", CallerReference="1")["HostedZone"]["Id"]

    def send(self, *changes: tuple[str, dict[str, Any]]) -> None:
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record} for action, record in changes]}
        self.client.change_resource_record_sets(HostedZoneId=self.id, ChangeBatch=batch)

    def alias(self, region: str) -> dict[str, Any]:
        zone = self.id.rpartition("/")[2]
        target = {"HostedZoneId": zone, "DNSName": f"{region}.{AT}", "EvaluateTargetHealth": True}
        return {"Name": AT, "Type": "A", "SetIdentifier": region, "Region": region, "AliasTarget": target}

    def names(self) -> list[str]:
        found = self.client.list_resource_record_sets(HostedZoneId=self.id)["ResourceRecordSets"]
        return sorted(r["Name"] for r in found if r["Type"] == "A")


def simple(value: str, name: str = AT) -> dict[str, Any]:
    return {"Name": name, "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": value}]}


def weighted(value: str, name: str, check: str, weight: int = 100) -> dict[str, Any]:
    return {**simple(value, name), "SetIdentifier": value, "Weight": weight, "HealthCheckId": check}


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zone]:
    with standin.cloud() as made:
        for key, value in {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": made.url}.items():
            monkeypatch.setenv(key, value)
        yield Zone(boto3.client("route53"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("CREATE", simple("192.0.2.1")), "exists already"),
        (("DELETE", simple("192.0.2.9")), "not those provided"),
        (("DELETE", {**simple("192.0.2.1"), "TTL": 5}), "not those provided"),
        (("UPSERT", weighted("192.0.2.2", AT, "hc")), "another kind of record set"),
    ],
)
def test_a_batch_that_route_53_refuses_changes_nothing(zone: Zone, change: Any, words: str) -> None:
    zone.send(("CREATE", simple("192.0.2.1")))
    with pytest.raises(ClientError, match=words):
        zone.send(("CREATE", simple("192.0.2.5", f"other.{AT}")), change)
    assert zone.names() == [AT]


def test_an_alias_needs_its_target_and_what_was_deleted_can_be_made_again(zone: Zone) -> None:
    with pytest.raises(ClientError, match="alias target was not found"):
        zone.send(("CREATE", zone.alias(NEAR)))
    zone.send(("CREATE", simple("192.0.2.1", f"{NEAR}.{AT}")), ("CREATE", zone.alias(NEAR)))
    for _ in range(2):
        zone.send(("DELETE", zone.alias(NEAR)), ("CREATE", zone.alias(NEAR)))
    assert zone.names() == [AT, f"{NEAR}.{AT}"]


def test_users_get_the_nearest_region_that_is_well(zone: Zone) -> None:
    sides = {NEAR: "192.0.2.20", FAR: "192.0.2.30"}
    for region, address in sides.items():
        zone.send(("CREATE", weighted(address, f"{region}.{AT}", f"hc-{region}")), ("CREATE", zone.alias(region)))
    names = Names(tuple(sides))

    def answered() -> dict[str, str]:
        return {near: names.addresses(AT, near)[0][0] for near in sides}

    assert answered() == sides
    names._failed[f"hc-{FAR}"] = FAILURES - 1
    assert answered() == sides, "not yet"
    names._failed[f"hc-{FAR}"] = FAILURES
    assert answered() == dict.fromkeys(sides, sides[NEAR])
    names._failed[f"hc-{NEAR}"] = FAILURES
    assert answered() == sides, "none is well: as if all were"
    assert names.addresses(f"none.{AT}", NEAR) == ([], 0)
