"""The fleet document of a profile, by its target.

What differs between targets is decided here, so that no stage asks which target it is working for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from inferlift.artifacts import DesiredFleet, HostGroup, Sizing
from inferlift.profile import Profile

MIB = 2**20
SMALL_MIB = 384  # of the lab's gateway and monitor


def fleet_document(
    profile: Profile,
    sizing: Callable[[], Sizing],
    label: str,
    floors: Mapping[str, int],
    guard_rights: Callable[[str, bool], str] | None = None,
) -> DesiredFleet:
    """What the fleet is to consist of: one gateway, one monitor, as many model hosts as the highest floor.

    `sizing` is asked only where it decides what hosts are made of. `guard_rights`: the policy of a monitor whose guard
    writes DNS as the host that it is on (aws/plan.py). Raises DeclarationError for what cannot be.
    """
    if profile.target == "aws":
        from inferlift.provision.aws import plan as aws

        chosen = sizing()
        return aws.document(
            profile, profile.aws, choice=chosen.choice, region=chosen.region or aws.REGION, label=label, floors=floors,
            rights=guard_rights,
        )  # fmt: skip
    if profile.target == "static":
        from inferlift.provision.static import plan as own

        return own.document(profile, choice=sizing().choice, label=label, floors=floors)
    lab = profile.lab
    assert lab is not None  # noqa: S101 - place() lets nothing else through
    return DesiredFleet(
        label=label,
        groups=(
            HostGroup(role="gateway", count=1, cpus=1.0, memory_bytes=SMALL_MIB * MIB),
            HostGroup(
                role="model", count=max(floors.values(), default=1), cpus=lab.model_cpus,
                memory_bytes=lab.model_memory_mb * MIB,
            ),
            HostGroup(role="monitor", count=1, cpus=0.5, memory_bytes=SMALL_MIB * MIB),
        ),
        floors=dict(floors),
    )  # fmt: skip


def in_words(desired: DesiredFleet, workdir: Path) -> list[str]:
    """Its hosts, or its queue, in lines for people. Looks at nothing but what is noted in `workdir`."""
    if desired.static is not None:
        from inferlift.provision.static import target as own

        return own.preview(desired, workdir)
    if desired.aws is not None and (queue := desired.aws.batch) is not None:
        types = ", ".join(queue.instance_types)
        return [f"a queue on at most {queue.max_vcpus} {queue.market} vCPUs ({types}); hosts while there are jobs"]
    hours = desired.aws.settings.expires_hours if desired.aws is not None else None
    ends = [] if hours is None else [f"AWS itself takes them away after {hours} hours, until users are to be moved"]
    hosts = [
        f"{g.count} {g.role} host{'s' if g.count > 1 else ''}, "
        + (f"{g.instance_type} {g.market} in {g.site}" if g.instance_type else f"{g.cpus:g} CPU each")
        for g in desired.groups
    ]
    return hosts + ends
