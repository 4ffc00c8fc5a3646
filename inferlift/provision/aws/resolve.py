"""Fills a fleet document in from the account: who we are, which zones offer the type, which images. Makes nothing.

What was resolved once is pinned: the same zones and images until the document is resolved anew on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inferlift.artifacts.fleet import AwsPlan, AwsSite, DesiredFleet
from inferlift.errors import CheckFailed, DeclarationError, Refusal
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.session import Session, calling
from inferlift.provision.aws.tables import image_source, instance_type

Say = Callable[[str], None]
PLAIN = "debian"  # of hosts without a GPU: what the roles are written for


def resolve(
    desired: DesiredFleet,
    session: Session,
    say: Say,
    pinned: AwsPlan | None = None,
    locked: Mapping[str, Mapping[str, str]] | None = None,
) -> DesiredFleet:
    """The document with account, zones and images. `pinned`: an earlier answer, kept where it still fits; `locked`:
    images of a lock file, as site -> role -> id, taken where nothing stands yet.

    Raises Refusal where no zone offers the type or the account is another one, CheckFailed for a missing image.
    """
    plan = planning.of(desired)
    first = plan.sites[0].region
    account, who = session.account(first)
    if pinned is not None and pinned.account not in (None, account):
        raise Refusal(
            f"this fleet is in the account {pinned.account}, and the credentials are of {account}",
            why=f"signed in as {who}",
            next_command=f"use the credentials of {pinned.account} (AWS_PROFILE)",
        )
    say(f"AWS account {account}, {who}")
    known = {site.name: site for site in pinned.sites} if pinned else {}
    wanted = locked or {}
    sites = tuple(
        _site(desired, site, known.get(site.name), wanted.get(site.name, {}), session, say) for site in plan.sites
    )
    return desired.model_copy(update={"aws": plan.model_copy(update={"account": account, "sites": sites})})


def offering(session: Session, region: str, types: list[str], local_zone: str | None = None) -> list[str]:
    """Names of the zones that offer every one of `types`, by name."""
    kinds = {"Name": "instance-type", "Values": sorted(set(types))}
    with calling("which zones offer " + ", ".join(sorted(set(types))), region):
        rows = session.pages(
            "ec2", region, "describe_instance_type_offerings", "InstanceTypeOfferings",
            LocationType="availability-zone", Filters=[kinds],
        )  # fmt: skip
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["Location"], set()).add(row["InstanceType"])
    zones = sorted(zone for zone, offered in found.items() if offered >= set(types))
    return [z for z in zones if z == local_zone] if local_zone else [z for z in zones if z.startswith(region)][:8]


def image(session: Session, region: str, kind: str, arch: str) -> tuple[str, str]:
    """The image's id, from AWS' own parameter, and the name of its system disk."""
    source = image_source(kind, arch)
    with calling(f"which image is {kind} for {arch}", region):
        ami = str(session.client("ssm", region).get_parameter(Name=source.parameter)["Parameter"]["Value"])
    return ami, _root_device(session, region, ami, f"{source.parameter} names it")


# --- helpers ---------------------------------------------------------------------------------------------------


def _root_device(session: Session, region: str, ami: str, why: str) -> str:
    with calling(f"the image {ami}", region):
        found = session.client("ec2", region).describe_images(ImageIds=[ami])["Images"]
    if not found:
        raise CheckFailed(f"the image {ami} does not exist in {region}", why=why)
    return str(found[0].get("RootDeviceName") or "/dev/xvda")


def _site(
    desired: DesiredFleet,
    site: AwsSite,
    known: AwsSite | None,
    locked: Mapping[str, str],
    session: Session,
    say: Say,
) -> AwsSite:
    plan = planning.of(desired)
    types = _types(desired, site)
    settings = plan.settings
    local = site.name if planning.is_local_zone(site) else None
    zones = offering(session, site.region, types, local)
    public: dict[str, str] = {}
    private: dict[str, str] = {}
    if settings.vpc_id:
        public = _by_zone(session, site.region, settings.vpc_id, settings.public_subnets)
        private = _by_zone(session, site.region, settings.vpc_id, settings.private_subnets)
        zones = [z for z in zones if z in public and z in private]
    if not zones:
        raise Refusal(
            f"no zone of {site.name} offers {', '.join(types)}",
            why="AWS' own list of offerings says so",
            next_command="another region (aws.region), or see which have it: ./invoke prices --target aws",
        )
    kept = [z for z in (known.zones if known else ()) if z in zones]
    ordered = (*kept, *(z for z in zones if z not in kept))
    images, devices = dict(known.images) if known else {}, dict(known.root_devices) if known else {}
    for role, wanted in _images(desired, site).items():
        if role not in images:
            if role in locked:
                images[role] = locked[role]
                devices[role] = _root_device(session, site.region, locked[role], "the lock file names it")
            else:
                images[role], devices[role] = image(session, site.region, *wanted)
            say(f"{site.name}: {role} hosts boot {images[role]} ({wanted[0]}, {wanted[1]})")
    return site.model_copy(
        update={
            "zones": tuple(ordered),
            "images": images,
            "root_devices": devices,
            "reservations": dict(known.reservations) if known else {},
            "public": public,
            "private": private,
            "border_group": _border_group(session, site) if local else None,
        }
    )


def _types(desired: DesiredFleet, site: AwsSite) -> list[str]:
    plan = planning.of(desired)
    if plan.batch:
        return [plan.batch.instance_types[0]]
    return sorted({g.instance_type for g in desired.groups if g.site == site.name and g.instance_type})


def _images(desired: DesiredFleet, site: AwsSite) -> dict[str, tuple[str, str]]:
    """Role -> (kind, architecture). GPU hosts get what the profile says, all others plain Debian."""
    plan = planning.of(desired)
    wanted: dict[str, tuple[str, str]] = {}
    for group in desired.groups:
        if group.site == site.name and group.instance_type:
            kind = instance_type(group.instance_type)
            wanted[group.role] = (plan.settings.image if kind.gpus else PLAIN, kind.arch)
    if plan.settings.admin_ranges:
        wanted["bastion"] = (PLAIN, "x86_64")
    return wanted


def _by_zone(session: Session, region: str, network: str, subnets: tuple[str, ...]) -> dict[str, str]:
    with calling("where the subnets are", region):
        found = session.client("ec2", region).describe_subnets(SubnetIds=list(subnets))["Subnets"]
    if strange := [str(s["SubnetId"]) for s in found if s["VpcId"] != network]:
        raise DeclarationError(
            f"{', '.join(strange)} lies in another network than {network}",
            next_command="correct aws.vpc_id, aws.public_subnets or aws.private_subnets",
        )
    return {str(s["AvailabilityZone"]): str(s["SubnetId"]) for s in found}


def _border_group(session: Session, site: AwsSite) -> str | None:
    with calling(f"the Local Zone {site.name}", site.region):
        found = session.client("ec2", site.region).describe_availability_zones(
            ZoneNames=[site.name], AllAvailabilityZones=True
        )["AvailabilityZones"]
    if found and found[0].get("OptInStatus") == "not-opted-in":
        raise Refusal(
            f"the Local Zone {site.name} is not switched on for this account",
            next_command=f"aws ec2 modify-availability-zone-group --group-name {found[0]['GroupName']}"
            " --opt-in-status opted-in",
        )
    return str(found[0]["NetworkBorderGroup"]) if found else None
