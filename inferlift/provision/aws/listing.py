"""What of a fleet exists in AWS, asked of each service by owner tag or, where a service has none, by our names.

Apart from Pulumi's state on purpose: who changes something does not judge whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from inferlift.provision.aws import naming
from inferlift.provision.aws.session import Session, calling, code_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Thing:
    """One resource. `data`: it holds something that a destroy must not take by itself."""

    kind: str  # as the `removal` table calls it
    id: str  # what the service's own calls want
    name: str  # for people
    region: str
    data: bool = False
    tags: dict[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def left(label: str, region: str, session: Session) -> list[Thing]:
    """All of this owner's in a region, and its global ones, in the order in which they can be removed."""
    found: list[Thing] = []
    for kind, look in _LOOKS.items():
        with calling(f"list {kind}s", region):
            found += look(label, region, session)
    return found


def instances(label: str, region: str, session: Session) -> list[Json]:
    """Instances that exist, as EC2 describes them."""
    states = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
    with calling("list instances", region):
        pages = session.pages("ec2", region, "describe_instances", "Reservations", Filters=[_owned(label), states])
    return [one for page in pages for one in page["Instances"]]


def tags_of(rows: Iterable[Json] | None) -> dict[str, str]:
    """Tags as AWS' services spell them: Key and Value, key and value."""
    return {str(r.get("Key", r.get("key"))): str(r.get("Value", r.get("value"))) for r in rows or ()}


# --- helpers ---------------------------------------------------------------------------------------------------


def _owned(label: str) -> Json:
    return {"Name": f"tag:{naming.OWNER}", "Values": [label]}


def _ec2(
    kind: str, operation: str, key: str, id_key: str, keep: Callable[[Json], bool] = lambda row: True
) -> Callable[[str, str, Session], list[Thing]]:
    """What EC2 lists by tag."""

    def look(label: str, region: str, session: Session) -> list[Thing]:
        rows = session.pages("ec2", region, operation, key, Filters=[_owned(label)])
        return [_thing(kind, str(r[id_key]), region, tags_of(r.get("Tags"))) for r in rows if keep(r)]

    return look


def _thing(kind: str, identity: str, region: str, tags: dict[str, str], *, data: bool | None = None) -> Thing:
    held = tags.get(naming.DATA) == "keep" if data is None else data
    return Thing(kind, identity, tags.get(naming.RESOURCE, identity), region, held, tags)


def _instances(label: str, region: str, session: Session) -> list[Thing]:
    return [
        _thing("instance", i["InstanceId"], region, tags_of(i.get("Tags"))) for i in instances(label, region, session)
    ]


def _groups(label: str, region: str, session: Session) -> list[Thing]:
    rows = session.pages(
        "autoscaling", region, "describe_auto_scaling_groups", "AutoScalingGroups", Filters=[_owned(label)]
    )
    return [
        _thing("group", r["AutoScalingGroupName"], region, tags_of(r.get("Tags")))
        for r in rows
        if tags_of(r.get("Tags")).get(naming.OWNER) == label and r.get("Status") is None
    ]


def _balancing(kind: str, operation: str, key: str, arn: str) -> Callable[[str, str, Session], list[Thing]]:
    """Load balancers and target groups: listed whole, then their tags, twenty at a time."""

    def look(label: str, region: str, session: Session) -> list[Thing]:
        arns = [r[arn] for r in session.pages("elbv2", region, operation, key)]
        client, found = session.client("elbv2", region), []
        for start in range(0, len(arns), 20):
            for row in client.describe_tags(ResourceArns=arns[start : start + 20])["TagDescriptions"]:
                tags = tags_of(row.get("Tags"))
                if tags.get(naming.OWNER) == label:
                    found.append(_thing(kind, row["ResourceArn"], region, tags))
        return found

    return look


def _batch(
    kind: str, operation: str, key: str, identity: str, **more: Any
) -> Callable[[str, str, Session], list[Thing]]:
    def look(label: str, region: str, session: Session) -> list[Thing]:
        rows = session.pages("batch", region, operation, key, **more)
        mine = [r for r in rows if (r.get("tags") or {}).get(naming.OWNER) == label]
        return [
            _thing(kind, r[identity], region, r["tags"]) for r in mine if r.get("status") not in ("DELETED", "INACTIVE")
        ]

    return look


def _schedules(label: str, region: str, session: Session) -> list[Thing]:
    prefix = naming.short(label) + "-"
    rows = session.pages("scheduler", region, "list_schedules", "Schedules", NamePrefix=prefix)
    return [Thing("schedule", r["Name"], r["Name"], region) for r in rows if r["Name"].startswith(prefix)]


def _lustre(label: str, region: str, session: Session) -> list[Thing]:
    rows = session.pages("fsx", region, "describe_file_systems", "FileSystems")
    mine = [r for r in rows if tags_of(r.get("Tags")).get(naming.OWNER) == label and r.get("Lifecycle") != "DELETING"]
    return [_thing("file system", r["FileSystemId"], region, tags_of(r["Tags"]), data=True) for r in mine]


def _roles(label: str, region: str, session: Session) -> list[Thing]:
    prefix = naming.short(label) + "-"
    rows = session.pages("iam", region, "list_roles", "Roles", PathPrefix=naming.IAM_PATH)
    return [Thing("role", r["RoleName"], r["RoleName"], region) for r in rows if r["RoleName"].startswith(prefix)]


def _profiles(label: str, region: str, session: Session) -> list[Thing]:
    prefix = naming.short(label) + "-"
    rows = session.pages("iam", region, "list_instance_profiles", "InstanceProfiles", PathPrefix=naming.IAM_PATH)
    names = [r["InstanceProfileName"] for r in rows]
    return [Thing("instance profile", n, n, region) for n in names if n.startswith(prefix)]


def _budgets(label: str, region: str, session: Session) -> list[Thing]:
    account, _ = session.account(region)
    rows = session.pages("budgets", region, "describe_budgets", "Budgets", AccountId=account)
    wanted = naming.named(label, "budget")
    return [Thing("budget", f"{account}/{r['BudgetName']}", r["BudgetName"], region) for r in rows
            if r["BudgetName"] == wanted]  # fmt: skip


def _registries(label: str, region: str, session: Session) -> list[Thing]:
    prefix, client, found = naming.short(label) + "-", session.client("ecr", region), []
    for row in session.pages("ecr", region, "describe_repositories", "repositories"):
        if row["repositoryName"].startswith(prefix):
            tags = tags_of(client.list_tags_for_resource(resourceArn=row["repositoryArn"])["tags"])
            if tags.get(naming.OWNER) == label:
                found.append(_thing("registry", row["repositoryName"], region, tags, data=True))
    return found


def _buckets(label: str, region: str, session: Session) -> list[Thing]:
    """By tag. Only buckets with our prefix are asked for theirs: nobody else's is looked into."""
    from botocore.exceptions import ClientError

    client, found = session.client("s3", region), []
    for row in client.list_buckets()["Buckets"]:
        name = row["Name"]
        if not name.startswith("inferlift-"):
            continue
        try:
            tags = tags_of(client.get_bucket_tagging(Bucket=name)["TagSet"])
        except ClientError as error:
            if code_of(error) in ("NoSuchTagSet", "NoSuchBucket", "AccessDenied", "PermanentRedirect"):
                continue  # not one that we made, or it went meanwhile
            raise
        if tags.get(naming.OWNER) == label:
            place = client.get_bucket_location(Bucket=name).get("LocationConstraint") or "us-east-1"
            if place == region:
                found.append(_thing("bucket", name, region, tags, data=True))
    return found


def _keys(label: str, region: str, session: Session) -> list[Thing]:
    client, found = session.client("kms", region), []
    for row in session.pages("kms", region, "list_keys", "Keys"):
        about = client.describe_key(KeyId=row["KeyId"])["KeyMetadata"]
        if about.get("KeyManager") != "CUSTOMER" or about["KeyState"] in ("PendingDeletion", "PendingReplicaDeletion"):
            continue
        rows = client.list_resource_tags(KeyId=row["KeyId"]).get("Tags", [])
        tags = {t["TagKey"]: t["TagValue"] for t in rows}
        if tags.get(naming.OWNER) == label:
            found.append(_thing("encryption key", row["KeyId"], region, tags, data=True))
    return found


def _volumes(label: str, region: str, session: Session) -> list[Thing]:
    rows = session.pages("ec2", region, "describe_volumes", "Volumes", Filters=[_owned(label)])
    loose = [r for r in rows if r["State"] == "available"]  # others go with their instance
    return [_thing("volume", r["VolumeId"], region, tags_of(r.get("Tags")), data=True) for r in loose]


def _alive(row: Json) -> bool:
    return str(row.get("State", "")).lower() not in ("deleted", "deleting", "cancelled", "expired", "failed")


# In the order of removal: what uses something comes before what it uses.
_LOOKS: dict[str, Callable[[str, str, Session], list[Thing]]] = {
    "schedule": _schedules,
    "group": _groups,
    "instance": _instances,
    "job queue": _batch("job queue", "describe_job_queues", "jobQueues", "jobQueueArn"),
    "compute environment": _batch(
        "compute environment", "describe_compute_environments", "computeEnvironments", "computeEnvironmentArn"
    ),
    "job definition": _batch(
        "job definition", "describe_job_definitions", "jobDefinitions", "jobDefinitionArn", status="ACTIVE"
    ),
    "load balancer": _balancing("load balancer", "describe_load_balancers", "LoadBalancers", "LoadBalancerArn"),
    "target group": _balancing("target group", "describe_target_groups", "TargetGroups", "TargetGroupArn"),
    "capacity reservation": _ec2(
        "capacity reservation",
        "describe_capacity_reservations",
        "CapacityReservations",
        "CapacityReservationId",
        _alive,
    ),
    "launch template": _ec2("launch template", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    "NAT gateway": _ec2("NAT gateway", "describe_nat_gateways", "NatGateways", "NatGatewayId", _alive),
    "endpoint": _ec2("endpoint", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId", _alive),
    "address": _ec2("address", "describe_addresses", "Addresses", "AllocationId"),
    "file system": _lustre,
    "firewall": _ec2(
        "firewall", "describe_security_groups", "SecurityGroups", "GroupId", lambda r: r["GroupName"] != "default"
    ),
    "subnet": _ec2("subnet", "describe_subnets", "Subnets", "SubnetId"),
    "route table": _ec2("route table", "describe_route_tables", "RouteTables", "RouteTableId"),
    "internet gateway": _ec2("internet gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "network": _ec2("network", "describe_vpcs", "Vpcs", "VpcId"),
    "placement group": _ec2("placement group", "describe_placement_groups", "PlacementGroups", "GroupName", _alive),
    "volume": _volumes,
    "instance profile": _profiles,
    "role": _roles,
    "budget": _budgets,
    "registry": _registries,
    "bucket": _buckets,
    "encryption key": _keys,
}
