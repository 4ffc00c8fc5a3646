"""A create that was killed: whatever came of it is found by its tag, or by what it hangs on, and taken back.

The engine notes a create before it is asked for, with all inputs resolved. What was made and never answered would be
made a second time, or refused as a duplicate: it is removed first. What holds data is left, to be adopted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from inferlift.provision.aws import listing, naming, removal
from inferlift.provision.aws.session import Session, calling, code_of

Say = Callable[[str], None]
Json = dict[str, Any]
LOOK_AGAIN_S = (2.0, 5.0)  # pauses before a list is asked again


def undo_creates(
    resources: Iterable[Json],
    label: str,
    regions: Iterable[str],
    session: Session,
    say: Say,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """All of them. What is not listed may not be there, or not yet: AWS' lists lag behind what was made, so that they
    are asked again before it is taken for absent. What shows even later is found by the next run's own look.
    """
    places, waiting = list(regions), list(resources)
    for pause in (0.0, *LOOK_AGAIN_S):
        if not waiting:
            return
        sleep(pause)
        waiting = [r for r in waiting if not undo_create(r, label, places, session, say)]


def undo_create(resource: Json, label: str, regions: Iterable[str], session: Session, say: Say) -> bool:
    """`resource`: a pending operation's resource, as the engine's state holds it. Returns whether it was found, or
    need not be: what has no tag is looked for where it hangs, and those lists do not lag.
    """
    name = str(resource["urn"]).rpartition("::")[2]
    inputs = dict(resource.get("inputs") or {})
    found = False
    for region in regions:
        if way := _UNTAGGED.get(str(resource["type"])):
            with calling(f"take back {name}", region):
                way(inputs, session, region, say)
            found = True
            continue
        own = [t for t in listing.left(label, region, session) if _is(t, name, inputs)]
        removal.remove(own, session, say)
        found = found or bool(own)
    return found


def _is(thing: listing.Thing, name: str, inputs: Json) -> bool:
    """By our tag; schedules, roles and budgets are listed by name alone."""
    if thing.tags:
        return thing.tags.get(naming.RESOURCE) == name
    return thing.name == inputs.get("name")


def _route(inputs: Json, session: Session, region: str, say: Say) -> None:
    client = session.client("ec2", region)
    for table in _found(client.describe_route_tables, "RouteTables", RouteTableIds=[inputs["routeTableId"]]):
        for route in table.get("Routes", []):
            if route.get("DestinationCidrBlock") == inputs["destinationCidrBlock"]:
                client.delete_route(
                    RouteTableId=inputs["routeTableId"], DestinationCidrBlock=inputs["destinationCidrBlock"]
                )
                say(f"removed a route of {inputs['routeTableId']}")


def _association(inputs: Json, session: Session, region: str, say: Say) -> None:
    client = session.client("ec2", region)
    for table in _found(client.describe_route_tables, "RouteTables", RouteTableIds=[inputs["routeTableId"]]):
        for one in table.get("Associations", []):
            if one.get("SubnetId") == inputs["subnetId"]:
                client.disassociate_route_table(AssociationId=one["RouteTableAssociationId"])
                say(f"removed an association of {inputs['routeTableId']}")


def _listener(inputs: Json, session: Session, region: str, say: Say) -> None:
    client = session.client("elbv2", region)
    for one in _found(client.describe_listeners, "Listeners", LoadBalancerArn=inputs["loadBalancerArn"]):
        if one.get("Port") == inputs["port"]:
            client.delete_listener(ListenerArn=one["ListenerArn"])
            say("removed a listener")


def _bucket(inputs: Json, session: Session, region: str, say: Say) -> None:
    """A bucket gets its tags a moment after it is made. One with our name, without tags and empty, goes; with tags
    it is adopted."""
    from botocore.exceptions import ClientError

    client, name = session.client("s3", region), inputs["bucket"]
    try:
        client.get_bucket_tagging(Bucket=name)
    except ClientError as error:
        if code_of(error) != "NoSuchTagSet":
            return  # there is none, or it is not ours
        try:
            client.delete_bucket(Bucket=name)
        except ClientError as refused:
            if code_of(refused) != "BucketNotEmpty":
                raise
            return
        say(f"removed the bucket {name}, which was not finished")


def _nothing(inputs: Json, session: Session, region: str, say: Say) -> None:
    """Making these again changes nothing: AWS overwrites what is there."""


def _found(call: Callable[..., Json], key: str, **arguments: Any) -> list[Json]:
    from botocore.exceptions import ClientError

    try:
        return list(call(**arguments)[key])
    except ClientError as error:
        if "NotFound" in code_of(error):
            return []
        raise


# Types without a tag of their own, or not from the first moment on. Those that AWS overwrites need nothing.
_UNTAGGED: dict[str, Callable[[Json, Session, str, Say], None]] = {
    "aws:ec2/route:Route": _route,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _association,
    "aws:lb/listener:Listener": _listener,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:iam/rolePolicy:RolePolicy": _nothing,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _nothing,
    "aws:autoscaling/schedule:Schedule": _nothing,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _nothing,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _nothing,
    "aws:s3/bucketVersioning:BucketVersioning": _nothing,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _nothing,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _nothing,
    "aws:s3/bucketPolicy:BucketPolicy": _nothing,
}
