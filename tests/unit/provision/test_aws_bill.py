"""What a plan costs while nobody uses it, and what its operator must be allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferlift.provision.aws import bill as billing
from inferlift.provision.aws import rights
from inferlift.provision.aws.policies import Asked
from inferlift.provision.aws.tables import rows


def template(name: str, type_: str, gb: int, market: str = "") -> Asked:
    more: dict[str, Any] = {"instanceMarketOptions": {"marketType": market}} if market else {}
    disks = [{"ebs": {"volumeSize": gb}}]
    inputs = {"instanceType": type_, "blockDeviceMappings": disks, **more}
    return Asked("aws:ec2/launchTemplate:LaunchTemplate", f"{name}-template", inputs)


def group(name: str) -> Asked:
    return Asked("aws:autoscaling/group:Group", name, {})


def endpoint(kind: str, zones: int) -> Asked:
    inputs = {"vpcEndpointType": kind, "subnetIds": ["s"] * zones}
    return Asked("aws:ec2/vpcEndpoint:VpcEndpoint", f"{kind}-{zones}", inputs)


def test_what_is_billed_and_what_is_not() -> None:
    asked = [
        template("model-1", "g5.xlarge", 100), group("model-1"), template("model-2", "g5.xlarge", 100, "spot"),
        group("model-2"), endpoint("Gateway", 0), endpoint("Interface", 2), endpoint("Interface", 1),
        Asked("aws:ec2/vpc:Vpc", "vpc", {}), Asked("aws:ec2/natGateway:NatGateway", "nat", {}),
        Asked("aws:s3/bucket:Bucket", "store", {}),
    ]  # fmt: skip
    found = {b.item: b for b in billing.bill(asked, "us-east-1")}
    assert {name: b.count for name, b in found.items()} == {
        "g5.xlarge on-demand": 1, "g5.xlarge spot": 1, "disk gp3, GB": 200, "interface endpoint": 3, "NAT gateway": 1,
        "object storage": 1,
    }  # fmt: skip
    assert found["NAT gateway"].usd_per_hour == pytest.approx(0.045)
    assert found["interface endpoint"].usd_per_hour == pytest.approx(0.03)
    assert found["g5.xlarge on-demand"].usd is None, "unknown here is None, never 0"
    assert found["object storage"].usd_per_hour is None, "costs by use alone"


def test_a_price_of_another_region_says_so() -> None:
    (one,) = billing.bill([Asked("aws:ec2/natGateway:NatGateway", "nat", {})], "eu-central-1")
    assert (one.usd, one.region) == (0.045, "us-east-1")


def test_every_type_that_costs_names_what() -> None:
    for row in rows("resource_types.csv"):
        assert row["billed"] in ("no", "hourly", "monthly", "usage", "instances"), row
        assert bool(row["item"]) == (row["billed"] != "no"), row
        assert row["source"].startswith("https://")


def test_the_operators_policies_fit_and_are_limited() -> None:
    documents = rights.operator_policies("123456789012")
    for document in documents:
        assert len(json.dumps(document, separators=(",", ":"))) <= rights.MANAGED_LIMIT
        for statement in document["Statement"]:
            assert not any("*" in action for action in statement["Action"])
            changes = [
                a
                for a in statement["Action"]
                if not a.partition(":")[2].startswith(("Describe", "Get", "List", "View"))
            ]
            if statement["Resource"] == "*" and changes != ["route53:CreateHealthCheck"] and changes:
                assert "managed-by" in json.dumps(statement["Condition"]), (
                    "what changes something is limited by our tag"
                )
    actions = {a for d in documents for s in d["Statement"] for a in s["Action"]}
    assert {row["action"] for row in rows("operator_rights.csv")} == actions
    assert "iam:PassRole" in actions
