"""Real capacity, asked for before Pulumi starts: reserved zone by zone, so that the provider never sits retrying.

A dry run checks permission only. A capacity reservation is granted or refused at once; it is ended an hour later by
itself, and by us once the hosts run in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from inferlift.errors import InferliftError, NoCapacity
from inferlift.provision.aws import naming
from inferlift.provision.aws.session import Session, calling
from inferlift.provision.aws.tables import InstanceType

HOLD = timedelta(hours=1)


@dataclass(frozen=True)
class Held:
    """What was granted: hosts in these zones, in this order."""

    zones: tuple[str, ...]
    reservations: dict[str, str]  # zone -> reservation
    tried: tuple[str, ...]  # zone: answer


def hold(
    session: Session,
    region: str,
    kind: InstanceType,
    zones: Sequence[str],
    counts: Sequence[int],
    label: str,
    say: Callable[[str], None],
    *,
    forever: bool = False,
    tenancy: str = "default",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Held:
    """Capacity for `counts[0]` hosts in one zone, `counts[1]` in another: the first zones that grant it.

    Only "no capacity" moves on to the next zone; every other refusal ends it, since another zone would not help.
    Raises NoCapacity naming how many zones were tried; Refusal, Retryable, DeclarationError or CheckFailed else.
    What was granted before a failure is given back.
    """
    granted: dict[str, str] = {}
    tried: list[str] = []
    wanted = [n for n in counts if n > 0]
    try:
        for zone in zones:
            if len(granted) == len(wanted):
                break
            try:
                count = wanted[len(granted)]
                granted[zone] = _reserve(session, region, kind, zone, count, label, forever, tenancy, clock())
                tried.append(f"{zone}: {count} held")
            except NoCapacity as error:
                tried.append(f"{zone}: {error.why.partition(':')[0]}")
            say(f"{kind.name} in {tried[-1]} (tried {len(tried)} of {len(zones)})")
        if len(granted) < len(wanted):
            raise NoCapacity(
                f"{kind.name} cannot be had in {region} now: tried {len(tried)} of {len(zones)} zones",
                why="; ".join(tried),
                next_command="try later, another region (aws.region), or a capacity block (operations.reservation)",
            )
    except InferliftError:
        release(session, region, granted.values())
        raise
    rest = [z for z in zones if z not in granted]
    return Held((*granted, *rest), granted, tuple(tried))


def release(session: Session, region: str, reservations: Any) -> None:
    """End reservations. One that is gone already is no error."""
    from botocore.exceptions import ClientError

    for reservation in reservations:
        try:
            session.client("ec2", region).cancel_capacity_reservation(CapacityReservationId=reservation)
        except ClientError as error:
            if "NotFound" not in str(error) and "IncorrectState" not in str(error):
                with calling("end a capacity reservation", region):
                    raise


def _reserve(
    session: Session,
    region: str,
    kind: InstanceType,
    zone: str,
    count: int,
    label: str,
    forever: bool,
    tenancy: str,
    now: datetime,
) -> str:
    """Repeatable within the hour: the token is the same for the same label, zone, type, count and hour."""
    token = hashlib.sha256(f"{label} {zone} {kind.name} {count} {now:%Y-%m-%dT%H}".encode()).hexdigest()[:32]
    tags = naming.tags(label, f"capacity-{zone}")
    end: dict[str, Any] = {"EndDateType": "unlimited"} if forever else {
        "EndDateType": "limited",
        # to the hour, so that a repeated request is the same request
        "EndDate": (now + HOLD).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1),
    }  # fmt: skip
    with calling(f"hold {count} {kind.name}", zone):
        answer = session.client("ec2", region).create_capacity_reservation(
            ClientToken=token,
            InstanceType=kind.name,
            InstancePlatform="Linux/UNIX",
            AvailabilityZone=zone,
            InstanceCount=count,
            # kept: hosts name it; for the hour of the making: whatever host of ours comes first takes it
            InstanceMatchCriteria="targeted" if forever else "open",
            Tenancy=tenancy,
            TagSpecifications=[
                {
                    "ResourceType": "capacity-reservation",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
            **end,
        )
    return str(answer["CapacityReservation"]["CapacityReservationId"])
