"""An empty Route 53 of moto's behind `Strict`, with one zone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from route53_standin import SIMPLE, Memory, Strict, put, records


@pytest.fixture(scope="module")
def aws() -> Iterator[Any]:
    import boto3
    import moto

    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        with moto.mock_aws():
            yield boto3.client("route53", region_name="us-east-1")


@pytest.fixture
def client(aws: Any) -> Iterator[Strict]:
    made = aws.create_hosted_zone(Name="demo.test.", CallerReference=str(id(object())))["HostedZone"]["Id"]
    strict = Strict(aws)
    strict.zone = made.removeprefix("/hostedzone/")
    put(strict, SIMPLE, {"Name": "www.demo.test.", "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": "192.0.2.9"}]})
    yield strict
    left = [r for r in records(strict) if r["Type"] not in ("NS", "SOA")]
    changes = [{"Action": "DELETE", "ResourceRecordSet": r} for r in left]
    aws.change_resource_record_sets(HostedZoneId=strict.zone, ChangeBatch={"Changes": changes})
    aws.delete_hosted_zone(Id=strict.zone)


@pytest.fixture
def quick(aws: Any) -> Strict:
    """The same with its records in memory; moto keeps the health checks."""
    strict = Strict(Memory(aws))
    strict.zone = "Z1"
    put(strict, SIMPLE)
    return strict
