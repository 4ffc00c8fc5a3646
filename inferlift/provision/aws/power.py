"""An instance's power: cut and given back, for the test that loses a replica on purpose.

A stopped instance loses what is on its local drives, and, where capacity is short, may not start again at once: the
fleet must carry the loss, which is what the test shows. The group behind it does not replace it (hosts.SUSPENDED).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from inferlift.artifacts import Host
from inferlift.errors import CheckFailed, Refusal
from inferlift.provision.aws import listing, naming
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.session import Session, calling


def is_instance(host: Host) -> bool:
    return bool(host.container and host.container.startswith("i-"))


def off(host: Host, session: Session | None = None) -> None:
    """As if the plug were pulled: no shutdown of the system, no drain."""
    ec2, place = _ec2(host, session)
    with calling(f"cut the power of {host.name}", place):
        ec2.stop_instances(InstanceIds=[host.container], Force=True)


def on(
    host: Host,
    session: Session | None = None,
    *,
    limit_s: float = 600,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Boot it again, same disks, same address. Nothing happens when it runs already.

    Raises NoCapacity when AWS has no room for it now, CheckFailed when it does not run within `limit_s`.
    """
    ec2, place = _ec2(host, session)
    _boot(ec2, str(host.container), host.name, place, limit_s, sleep)


def boot_stopped(
    label: str,
    region: str,
    session: Session,
    say: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Hosts of the fleet that somebody stopped run again: their groups leave them as they are (hosts.SUSPENDED), and so
    does the engine. Raises as `on`."""
    for one in listing.instances(label, region, session):
        if one["State"]["Name"] in ("stopping", "stopped"):
            name = str(listing.tags_of(one.get("Tags")).get(naming.NAME, one["InstanceId"]))
            say(f"booting {name}, which was stopped")
            _boot(session.client("ec2", region), one["InstanceId"], name, region, 600, sleep)


def _boot(ec2: Any, instance: str, name: str, place: str, limit_s: float, sleep: Callable[[float], None]) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        with calling(f"power on {name}", place):
            row = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
            state = row["State"]["Name"]
            if state == "running":
                return
            if state == "stopped":
                ec2.start_instances(InstanceIds=[instance])
        if state in ("terminated", "shutting-down") or time.monotonic() > deadline:
            raise CheckFailed(f"{name} does not run again", why=f"its instance is {state}")
        sleep(2)


def _ec2(host: Host, session: Session | None) -> tuple[Any, str]:
    if not is_instance(host):
        raise Refusal(f"{host.name} is no instance on AWS", why="its power is not ours to switch")
    place = planning.parent_region(host.site)
    return (session or Session()).client("ec2", place), place
