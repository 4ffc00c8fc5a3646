"""Removes what carries our tag without Pulumi: what a killed create left, and data when that is asked for.

Nothing is removed by name alone: every Thing comes from `listing`, which reads the owner tag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from inferlift.errors import InferliftError, Retryable
from inferlift.provision.aws.listing import Thing
from inferlift.provision.aws.session import Session, calling, code_of

Say = Callable[[str], None]
_IN_USE = (
    "DependencyViolation", "ResourceInUse", "ResourceInUseException", "DeleteConflict", "InvalidIPAddress.InUse",
    "ResourceInUseFault", "OperationAborted", "ClientException", "InvalidPlacementGroup.InUse", "VolumeInUse",
)  # fmt: skip
KEY_DAYS = 30  # a key can be asked back for so long: what was encrypted with it is lost after that


def remove(
    things: Iterable[Thing],
    session: Session,
    say: Say,
    *,
    data: bool = False,
    limit_s: float = 600,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Thing]:
    """Remove them in the order given; what still hangs on another is tried again until `limit_s`.

    What holds data stays unless `data`. Returns what could not be removed.
    """
    waiting = [t for t in things if data or not t.data]
    deadline = time.monotonic() + limit_s
    while waiting:
        said: dict[Thing, InferliftError] = {}
        for thing in waiting:
            try:
                _one(thing, session)
                say(f"removed {thing}")
            except InferliftError as error:
                said[thing] = error
        if len(said) == len(waiting) and time.monotonic() > deadline:
            for thing, why in said.items():
                say(f"{thing} stays: {why.why or why.what}")
            return list(said)
        waiting = list(said)
        if waiting:
            sleep(2)
    return []


def _one(thing: Thing, session: Session) -> None:
    from botocore.exceptions import ClientError

    try:
        _WAYS[thing.kind](thing, session)
    except ClientError as error:
        code = code_of(error)
        if any(word in code for word in ("NotFound", "NoSuch", "AlreadyDeleted", "NotExist")):
            return  # somebody was faster
        if code in _IN_USE:
            raise Retryable(
                f"{thing} is still in use", why=f"{code}: {error.response['Error'].get('Message')}"
            ) from None
        with calling(f"remove {thing}", thing.region):
            raise


def _ec2(operation: str, argument: str, **more: Any) -> Callable[[Thing, Session], None]:
    def way(thing: Thing, session: Session) -> None:
        getattr(session.client("ec2", thing.region), operation)(**{argument: thing.id}, **more)

    return way


def _group(thing: Thing, session: Session) -> None:
    session.client("autoscaling", thing.region).delete_auto_scaling_group(
        AutoScalingGroupName=thing.id, ForceDelete=True
    )


def _instance(thing: Thing, session: Session) -> None:
    session.client("ec2", thing.region).terminate_instances(InstanceIds=[thing.id])


def _queue(thing: Thing, session: Session) -> None:
    client = session.client("batch", thing.region)
    client.update_job_queue(jobQueue=thing.id, state="DISABLED")
    client.delete_job_queue(jobQueue=thing.id)


def _environment(thing: Thing, session: Session) -> None:
    client = session.client("batch", thing.region)
    client.update_compute_environment(computeEnvironment=thing.id, state="DISABLED")
    client.delete_compute_environment(computeEnvironment=thing.id)


def _internet(thing: Thing, session: Session) -> None:
    client = session.client("ec2", thing.region)
    about = client.describe_internet_gateways(InternetGatewayIds=[thing.id])["InternetGateways"]
    for attachment in about[0].get("Attachments", []) if about else []:
        client.detach_internet_gateway(InternetGatewayId=thing.id, VpcId=attachment["VpcId"])
    client.delete_internet_gateway(InternetGatewayId=thing.id)


def _routes(thing: Thing, session: Session) -> None:
    client = session.client("ec2", thing.region)
    about = client.describe_route_tables(RouteTableIds=[thing.id])["RouteTables"]
    for association in about[0].get("Associations", []) if about else []:
        if not association.get("Main"):
            client.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
    client.delete_route_table(RouteTableId=thing.id)


def _role(thing: Thing, session: Session) -> None:
    client = session.client("iam", thing.region)
    for name in client.list_role_policies(RoleName=thing.id)["PolicyNames"]:
        client.delete_role_policy(RoleName=thing.id, PolicyName=name)
    for policy in client.list_attached_role_policies(RoleName=thing.id)["AttachedPolicies"]:
        client.detach_role_policy(RoleName=thing.id, PolicyArn=policy["PolicyArn"])
    client.delete_role(RoleName=thing.id)


def _profile(thing: Thing, session: Session) -> None:
    client = session.client("iam", thing.region)
    for role in client.get_instance_profile(InstanceProfileName=thing.id)["InstanceProfile"]["Roles"]:
        client.remove_role_from_instance_profile(InstanceProfileName=thing.id, RoleName=role["RoleName"])
    client.delete_instance_profile(InstanceProfileName=thing.id)


def _bucket(thing: Thing, session: Session) -> None:
    """Every version of every object, then the bucket."""
    client = session.client("s3", thing.region)
    while True:
        page = client.list_object_versions(Bucket=thing.id, MaxKeys=1000)
        rows = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if not rows:
            break
        objects = [{"Key": r["Key"], "VersionId": r["VersionId"]} for r in rows]
        client.delete_objects(Bucket=thing.id, Delete={"Objects": objects, "Quiet": True})
    client.delete_bucket(Bucket=thing.id)


def _budget(thing: Thing, session: Session) -> None:
    account, _, name = thing.id.partition("/")
    session.client("budgets", thing.region).delete_budget(AccountId=account, BudgetName=name)


def _elb(operation: str, argument: str) -> Callable[[Thing, Session], None]:
    return lambda thing, session: getattr(session.client("elbv2", thing.region), operation)(**{argument: thing.id})


_WAYS: dict[str, Callable[[Thing, Session], None]] = {
    "schedule": lambda t, s: s.client("scheduler", t.region).delete_schedule(Name=t.id),
    "group": _group,
    "instance": _instance,
    "job queue": _queue,
    "compute environment": _environment,
    "job definition": lambda t, s: s.client("batch", t.region).deregister_job_definition(jobDefinition=t.id),
    "load balancer": _elb("delete_load_balancer", "LoadBalancerArn"),
    "target group": _elb("delete_target_group", "TargetGroupArn"),
    "capacity reservation": _ec2("cancel_capacity_reservation", "CapacityReservationId"),
    "launch template": _ec2("delete_launch_template", "LaunchTemplateId"),
    "NAT gateway": _ec2("delete_nat_gateway", "NatGatewayId"),
    "endpoint": lambda t, s: s.client("ec2", t.region).delete_vpc_endpoints(VpcEndpointIds=[t.id]),
    "address": _ec2("release_address", "AllocationId"),
    "file system": lambda t, s: s.client("fsx", t.region).delete_file_system(FileSystemId=t.id),
    "firewall": _ec2("delete_security_group", "GroupId"),
    "subnet": _ec2("delete_subnet", "SubnetId"),
    "route table": _routes,
    "internet gateway": _internet,
    "network": _ec2("delete_vpc", "VpcId"),
    "placement group": _ec2("delete_placement_group", "GroupName"),
    "volume": _ec2("delete_volume", "VolumeId"),
    "instance profile": _profile,
    "role": _role,
    "budget": _budget,
    "registry": lambda t, s: s.client("ecr", t.region).delete_repository(repositoryName=t.id, force=True),
    "bucket": _bucket,
    "encryption key": lambda t, s: s.client("kms", t.region).schedule_key_deletion(
        KeyId=t.id, PendingWindowInDays=KEY_DAYS
    ),
}
