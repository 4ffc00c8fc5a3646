"""A profile and a choice of instance type as a fleet document for AWS. Pure: nothing is looked up, nothing made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network

from inferlift.artifacts.fleet import AwsPlan, AwsSettings, AwsSite, BatchQueue, DesiredFleet, HostGroup
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.provision.aws.tables import InstanceType, Market, instance_type, instance_types

ONE_INSTANCE = 0.995  # what AWS promises of one instance: https://aws.amazon.com/compute/sla/
MIB = 2**20
REGION = "eu-central-1"  # where neither the profile nor the sizing names one
_LOCAL_ZONE = re.compile(r"^([a-z]{2}(?:-[a-z]+)+-\d)-[a-z]{3}-\d[a-z]$")
Rights = Callable[[str, bool], str]
_REGION = re.compile(r"^[a-z]{2}(?:-[a-z]+)+-\d$")


def document(
    profile: Profile,
    settings: AwsSettings,
    *,
    choice: str,
    region: str,
    label: str,
    floors: Mapping[str, int],
    expires_at: str | None = None,
    nodes_per_replica: int = 1,
    rights: Rights | None = None,
) -> DesiredFleet:
    """The fleet of a profile on hosts of the type `choice`, with as many model hosts as the highest floor asks.

    `region` is where the offer was priced; `settings.region` is stronger. `rights(region, several)`: the policy of the
    monitor that guards a region's name, one of several or the only one. Raises DeclarationError for what cannot be.
    """
    kind = instance_type(choice)
    market: Market = "spot" if profile.interruptible else "on-demand"
    operations = profile.operations
    budget = profile.budget.monthly
    replicas = max(floors.values(), default=1)
    sites = _sites(settings, settings.region or region)
    queue = _queue(profile, kind, market, replicas) if profile.task == "batch" else None
    plan = AwsPlan(
        settings=settings,
        sites=sites,
        nodes_per_replica=nodes_per_replica,
        spread_zones=nodes_per_replica == 1
        and (operations.failure_domain == "zone" or (operations.availability or 0) > ONE_INSTANCE),
        tenancy=operations.tenancy,
        reservation=operations.reservation,
        batch=queue,
        guard_rights={site.name: rights(site.region, len(sites) > 1) for site in sites} if rights else {},
        expires_at=expires_at,
        budget_usd=None
        if budget is None
        else round(budget * profile.budget.usd_rate, 2)
        if profile.budget.currency != "USD"
        else budget,
    )
    groups = (
        () if queue else tuple(g for site in sites for g in _groups(settings, site.name, kind, market, replicas, plan))
    )
    made = DesiredFleet(label=label, groups=groups, floors=dict(floors), aws=plan)
    refuse_impossible(made, operations.resides)
    return made


def refuse_impossible(desired: DesiredFleet, resides: object = None) -> None:
    """Raises DeclarationError for a document that AWS would refuse, or that would be unsafe."""
    plan = of(desired)
    settings = plan.settings
    if not plan.batch and not settings.user_ranges:
        raise _wrong("nobody may call port 443", "aws.user_ranges is empty; state who may, 0.0.0.0/0 for everybody")
    if any(IPv4Network(r).prefixlen == 0 for r in settings.admin_ranges):
        raise _wrong("SSH would be open to everybody", "aws.admin_ranges holds 0.0.0.0/0; state your own ranges")
    if IPv4Network(settings.cidr).prefixlen > 20:
        raise _wrong(f"{settings.cidr} is too small for subnets in every zone", "expected at least a /20")
    if settings.front == "alb" and not settings.certificate_arn:
        raise _wrong("the front alb ends TLS itself", "it needs aws.certificate_arn")
    if settings.vpc_id and not (settings.public_subnets and settings.private_subnets):
        raise _wrong(f"which subnets of {settings.vpc_id}?", "aws.public_subnets and aws.private_subnets are needed")
    if settings.vpc_id and len(plan.sites) > 1:
        raise _wrong(f"{settings.vpc_id} cannot carry several sites", "aws.edge makes a network of its own for each")
    if callable(resides):
        for site in plan.sites:
            if not resides(site.region):
                raise _wrong(f"{site.name} lies outside of operations.residency", "data may not be there")
    for group in desired.groups:
        _refuse_group(plan, group)


def of(desired: DesiredFleet) -> AwsPlan:
    if desired.aws is None:
        raise DeclarationError("this fleet document is not one for AWS")
    return desired.aws


def model_type(desired: DesiredFleet) -> InstanceType | None:
    """The type of the model hosts; None for a queue."""
    for group in desired.groups:
        if group.role == "model" and group.instance_type:
            return instance_type(group.instance_type)
    return None


def hosts(desired: DesiredFleet) -> list[tuple[str, HostGroup, int]]:
    """(name, group, number within its role and site): numbered so that a smaller count drops the highest numbers."""
    counted: dict[tuple[str, str], int] = {}
    found = []
    first = of(desired).sites[0].name
    for group in desired.groups:
        for _ in range(group.count):
            key = (group.site, group.role)
            counted[key] = counted.get(key, 0) + 1
            suffix = "" if group.site == first else f"-{group.site}"
            found.append((f"{group.role}-{counted[key]}{suffix}", group, counted[key]))
    return found


def zone_of(plan: AwsPlan, site: AwsSite, role: str, number: int) -> str:
    """In which zone a host is made: model hosts over two where that is promised, all else in the first."""
    if not site.zones:
        raise DeclarationError(f"the zones of {site.name} are not known yet")
    width = min(2, len(site.zones)) if plan.spread_zones and role == "model" else 1
    return site.zones[(number - 1) % width]


def zone_index(zone: str) -> int:
    """Which of a network's subnets a zone gets: by its letter, so that a new order of zones moves nothing."""
    return ord(zone[-1]) - ord("a") if not _LOCAL_ZONE.match(zone) else 6


def subnets(cidr: str, zone: str) -> tuple[str, str]:
    """The public and the private subnet of a zone: sixteenths of the network, eight of each."""
    parts = list(IPv4Network(cidr).subnets(prefixlen_diff=4))
    index = zone_index(zone)
    return str(parts[index]), str(parts[8 + index])


def parent_region(site: str) -> str:
    """The region of a site. Raises DeclarationError for what is neither a region nor a Local Zone."""
    if found := _LOCAL_ZONE.match(site):
        return found[1]
    if _REGION.match(site):
        return site
    raise DeclarationError(f"{site} is neither a region (eu-central-1) nor a Local Zone (eu-central-1-ham-1a)")


def is_local_zone(site: AwsSite) -> bool:
    return site.name != site.region


# --- helpers ---------------------------------------------------------------------------------------------------


def _sites(settings: AwsSettings, region: str) -> tuple[AwsSite, ...]:
    names = list(dict.fromkeys((region, *settings.edge)))
    base = IPv4Network(settings.cidr)
    size = base.num_addresses
    return tuple(
        AwsSite(name=name, region=parent_region(name), cidr=str(IPv4Network((int(base[0]) + n * size, base.prefixlen))))
        for n, name in enumerate(names)
    )


def _groups(
    settings: AwsSettings, site: str, kind: InstanceType, market: Market, replicas: int, plan: AwsPlan
) -> list[HostGroup]:
    wanted = [
        ("gateway", 1, instance_type(settings.gateway_type), "on-demand"),
        ("model", replicas * plan.nodes_per_replica, kind, market),
        ("monitor", 1, instance_type(settings.monitor_type), "on-demand"),
    ]
    return [
        HostGroup.model_validate(
            {
                "role": role, "count": count, "cpus": type_.vcpus, "memory_bytes": type_.memory_mib * MIB,
                "site": site, "instance_type": type_.name, "market": how,
            }
        )
        for role, count, type_, how in wanted
    ]  # fmt: skip


def _queue(profile: Profile, kind: InstanceType, market: Market, hosts_at_peak: int) -> BatchQueue:
    """Hosts of the chosen type and its larger sisters, as many vCPUs as the sizing's hosts have together."""
    family = [n for n in _sisters(kind) if instance_type(n).vcpus >= kind.vcpus][:4]
    return BatchQueue(
        instance_types=tuple(family),
        market=market,
        max_vcpus=kind.vcpus * max(1, hosts_at_peak),
        job_vcpus=kind.vcpus,
        job_memory_mib=int(kind.memory_mib * 0.9) - 256,  # the agent and the kernel take their part
        job_gpus=kind.gpus,
    )


def _sisters(kind: InstanceType) -> list[str]:
    return [t.name for t in instance_types() if t.family == kind.family and t.gpus in (0, kind.gpus)]


def _refuse_group(plan: AwsPlan, group: HostGroup) -> None:
    if group.instance_type is None:
        raise _wrong(f"which EC2 type are the {group.role} hosts?", "the fleet document does not say")
    kind = instance_type(group.instance_type)
    if group.role != "model":
        return
    if plan.reservation == "capacity-block":
        if "capacity-block" not in kind.sold_as:
            raise _wrong(f"{kind.name} is not sold in capacity blocks", "set operations.reservation to something else")
        if not plan.settings.capacity_block_id:
            raise _wrong("which capacity block?", "buy one, then set aws.capacity_block_id")
    if plan.nodes_per_replica > 1 and not (kind.efa_interfaces and kind.cluster):
        raise _wrong(f"{kind.name} has no EFA", "a replica over several hosts needs a type that has it")


def _wrong(what: str, why: str) -> DeclarationError:
    return DeclarationError(what, why=why, next_command="edit the profile's `aws:` and `operations:` sections")
