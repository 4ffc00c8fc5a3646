"""Route 53's health checks: get-or-create by a reference that is made of what they check."""

from __future__ import annotations

import hashlib
from typing import Any

from inferlift.dns.route53 import module
from inferlift.errors import Refusal

FAILURES = 3


def health_check(
    client: Any, owner: str, name: str, address: str, *, path: str, port: int = 443, interval_s: int = 30
) -> str:
    """The id of the HTTPS check of `path` at `address`, asked with the users' name (SNI on). Made once: a check with
    this reference is found, and Route 53 makes no second one of it. `interval_s`: 10 or 30. Raises Refusal."""
    errors = module("botocore.exceptions")
    config = {
        "Type": "HTTPS",
        "IPAddress": address,
        "Port": port,
        "ResourcePath": path,
        "FullyQualifiedDomainName": name.rstrip("."),
        "RequestInterval": interval_s,
        "FailureThreshold": FAILURES,
        "EnableSNI": True,
    }
    made_of = repr((owner, sorted(config.items()))).encode()
    reference = f"inferlift-{hashlib.sha256(made_of).hexdigest()[:40]}"
    for page in client.get_paginator("list_health_checks").paginate():
        for check in page["HealthChecks"]:
            if check["CallerReference"] == reference:
                return str(check["Id"])
    try:
        made = client.create_health_check(CallerReference=reference, HealthCheckConfig=config)["HealthCheck"]["Id"]
        tags = [{"Key": "Name", "Value": f"{name.rstrip('.')} {address}"}, {"Key": "inferlift:owner", "Value": owner}]
        client.change_tags_for_resource(ResourceType="healthcheck", ResourceId=made, AddTags=tags)
    except errors.ClientError as error:
        said = error.response["Error"]
        raise Refusal(f"Route 53 makes no health check of {address} ({said['Code']})", why=said["Message"]) from None
    return str(made)


def remove_health_checks(client: Any, owner: str) -> list[str]:
    """Delete the checks that carry this owner's tag, and no other; their ids. A check in use stays (Refusal)."""
    errors = module("botocore.exceptions")
    gone = []
    for page in client.get_paginator("list_health_checks").paginate():
        for check in page["HealthChecks"]:
            found = client.list_tags_for_resource(ResourceType="healthcheck", ResourceId=check["Id"])
            tags = {t["Key"]: t["Value"] for t in found["ResourceTagSet"]["Tags"]}
            if tags.get("inferlift:owner") != owner:
                continue
            try:
                client.delete_health_check(HealthCheckId=check["Id"])
            except errors.ClientError as error:
                said = error.response["Error"]
                raise Refusal(f"the health check {check['Id']} stays ({said['Code']})", why=said["Message"]) from None
            gone.append(str(check["Id"]))
    return gone
