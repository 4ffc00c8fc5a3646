"""Before any money is spent: identity, quotas, offerings, images, rights, spot, what exists already. Reads only.

A check that cannot be answered is no pass: `skipped` says why, and what it would take.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

from inferlift.artifacts import Check
from inferlift.artifacts.fleet import AwsPlan, AwsSettings, AwsSite, DesiredFleet, HostGroup
from inferlift.errors import DeclarationError, InferliftError
from inferlift.provision.aws import listing
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.resolve import resolve
from inferlift.provision.aws.session import Session, calling, code_of
from inferlift.provision.aws.tables import Market, instance_type, quota

Say = Callable[[str], None]
EXAMPLES = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
LOW_SCORE = 3  # of 10: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/how-sps-works.html


def before_spending(desired: DesiredFleet, session: Session, say: Say) -> list[Check]:
    """All checks of a document, the cheapest first. Raises Refusal where nobody is signed in."""
    plan = planning.of(desired)
    account, who = session.account(plan.sites[0].region)
    found = [Check(name="identity", ok=True, detail=f"account {account}, {who}"), *_ranges(plan)]
    try:
        settled = resolve(desired, session, lambda line: None)
        found += _places(settled)
    except InferliftError as error:
        settled = desired
        found.append(Check(name="zones and images", ok=False, detail=_words(error)))
    found += quotas(desired, session)
    for site in planning.of(settled).sites:
        found += [
            *_rights(settled, site, session),
            *_spot(settled, site, session),
            Check(
                name=f"capacity in {site.name}", ok=True, skipped=True,
                detail="not known until it is asked for: deploy holds it zone by zone before anything else is made",
            ),
            _exists(desired.label, site.region, session),
        ]  # fmt: skip
    if plan.budget_usd is not None and plan.settings.budget_email:
        detail = "costs are counted by tag once inferlift:owner is activated under Billing, Cost allocation tags"
        found.append(Check(name="budget", ok=True, skipped=True, detail=detail))
    return found


def refuse_examples(settings: AwsSettings, *, queue: bool = False) -> None:
    """Ranges kept for documentation (RFC 5737) are nobody's: no user would get through. A queue has no users.

    Raises DeclarationError.
    """
    nobody = [r for r in settings.user_ranges if any(IPv4Network(r).subnet_of(IPv4Network(e)) for e in EXAMPLES)]
    if nobody and not queue:
        raise DeclarationError(
            f"{', '.join(nobody)} is an example that nobody has",
            next_command="put in aws.user_ranges who may call port 443, this machine among them",
        )


def quotas(desired: DesiredFleet, session: Session) -> list[Check]:
    """vCPUs needed against the account's quota, by family and market, on-demand and spot apart."""
    return [_quota(region, need, session) for region, need in _needs(desired).items()]


def vcpus_needed(desired: DesiredFleet) -> dict[tuple[str, str, str], int]:
    """(region, quota code or name, market) -> vCPUs of all hosts of the document."""
    return {(region, code, market): n for (region, code, market, _), n in _needs(desired).items()}


# --- helpers ---------------------------------------------------------------------------------------------------


def _needs(desired: DesiredFleet) -> dict[tuple[str, str, str, str], int]:
    plan = planning.of(desired)
    regions = {site.name: site.region for site in plan.sites}
    needs: dict[tuple[str, str, str, str], int] = {}

    def add(region: str, type_: str, market: Market, vcpus: int) -> None:
        found = quota(instance_type(type_), market)
        key = (region, found.code or "", market, found.name)
        needs[key] = needs.get(key, 0) + vcpus

    for group in desired.groups:
        if group.instance_type and group.count:
            add(regions[group.site], group.instance_type, group.market, _vcpus(group))
    if plan.batch:
        add(plan.sites[0].region, plan.batch.instance_types[0], plan.batch.market, plan.batch.max_vcpus)
    elif plan.settings.admin_ranges:
        for site in plan.sites:
            add(site.region, "t3.micro", "on-demand", 2)
    return needs


def _vcpus(group: HostGroup) -> int:
    return instance_type(group.instance_type or "").vcpus * group.count


def _quota(key: tuple[str, str, str, str], need: int, session: Session) -> Check:
    region, code, _, name = key
    label = f"quota in {region}: {name}"
    if not code:
        return Check(name=label, ok=True, skipped=True, detail=f"{need} vCPUs are needed; {name}")
    try:
        with calling(f"the quota {name}", region):
            answer = session.client("service-quotas", region).get_service_quota(ServiceCode="ec2", QuotaCode=code)
        have = float(answer["Quota"]["Value"])
    except InferliftError as error:
        return Check(name=label, ok=False, detail=f"{need} vCPUs are needed; {_words(error)}")
    if have >= need:
        return Check(name=label, ok=True, detail=f"{need} vCPUs of {have:g}; what runs already counts too")
    ask = (
        f"aws service-quotas request-service-quota-increase --region {region} --service-code ec2"
        f" --quota-code {code} --desired-value {need}"
    )
    return Check(name=label, ok=False, detail=f"{need} vCPUs are needed and {have:g} allowed; ask: {ask}")


def _ranges(plan: AwsPlan) -> list[Check]:
    """Who may call: told in a plan, refused by a deploy."""
    if plan.batch:
        return []
    try:
        refuse_examples(plan.settings)
    except DeclarationError as error:
        return [Check(name="who may call", ok=False, detail=_words(error))]
    return [Check(name="who may call", ok=True, detail=f"port 443 from {', '.join(plan.settings.user_ranges)}")]


def _places(desired: DesiredFleet) -> list[Check]:
    return [
        Check(
            name=f"zones of {site.name}", ok=True,
            detail=f"{', '.join(site.zones)}; images {', '.join(f'{r} {a}' for r, a in sorted(site.images.items()))}",
        )
        for site in planning.of(desired).sites
    ]  # fmt: skip


def _rights(desired: DesiredFleet, site: AwsSite, session: Session) -> list[Check]:
    """Dry runs: AWS says DryRunOperation where the real call would be allowed. Permission only, never capacity."""
    kind = planning.model_type(desired)
    if kind is None or not site.images:
        return []
    ec2 = session.client("ec2", site.region)
    tries: dict[str, Callable[[], Any]] = {
        "ec2:RunInstances": lambda: ec2.run_instances(
            ImageId=site.images["model"], InstanceType=kind.name, MinCount=1, MaxCount=1, DryRun=True
        ),
        "ec2:CreateVpc": lambda: ec2.create_vpc(CidrBlock=site.cidr, DryRun=True),
        "ec2:CreateSecurityGroup": lambda: ec2.create_security_group(
            GroupName="inferlift-dry-run", Description="dry run", DryRun=True
        ),
    }
    return [_dry_run(name, call) for name, call in tries.items()]


def _dry_run(name: str, call: Callable[[], Any]) -> Check:
    from botocore.exceptions import BotoCoreError, ClientError

    label = f"right to {name}"
    try:
        call()
    except ClientError as error:
        code = code_of(error)
        if code == "DryRunOperation":
            return Check(name=label, ok=True, detail="allowed, says AWS to a dry run")
        return Check(name=label, ok=False, detail=f"{code}: {error.response['Error'].get('Message', '')}")
    except BotoCoreError as error:
        return Check(name=label, ok=False, detail=str(error))
    return Check(name=label, ok=True, skipped=True, detail="the dry run was answered as if it were none")


def _spot(desired: DesiredFleet, site: AwsSite, session: Session) -> list[Check]:
    """How likely spot hosts are to be had, 1 to 10, as AWS scores it now."""
    plan = planning.of(desired)
    wanted = [g for g in desired.groups if g.market == "spot" and g.site == site.name and g.count]
    types = list(plan.batch.instance_types) if plan.batch and plan.batch.market == "spot" else []
    types += [g.instance_type for g in wanted if g.instance_type]
    if not types:
        return []
    label = f"spot placement score in {site.name}"
    count = plan.batch.max_vcpus if plan.batch else sum(_vcpus(g) for g in wanted)
    try:
        with calling("the spot placement score", site.region):
            answer = session.client("ec2", site.region).get_spot_placement_scores(
                InstanceTypes=sorted(set(types)), TargetCapacity=count, TargetCapacityUnitType="vcpu",
                RegionNames=[site.region],
            )  # fmt: skip
    except InferliftError as error:
        return [Check(name=label, ok=True, skipped=True, detail=_words(error))]
    scores = [int(row["Score"]) for row in answer.get("SpotPlacementScores", [])]
    best = max(scores, default=None)
    if best is None:
        return [Check(name=label, ok=True, skipped=True, detail="AWS gave no score")]
    told = f"{best} of 10 for {count} vCPUs of {', '.join(sorted(set(types)))}"
    if best < LOW_SCORE:
        # a forecast forbids nothing: it is told, and no pass
        told += "; low: hosts may not be had, or be taken away often"
    return [Check(name=label, ok=True, skipped=best < LOW_SCORE, detail=told)]


def _exists(label: str, region: str, session: Session) -> Check:
    name = f"what exists in {region}"
    try:
        there = listing.left(label, region, session)
    except InferliftError as error:
        return Check(name=name, ok=False, detail=_words(error))
    detail = f"{len(there)} resources of this fleet: {', '.join(map(str, there[:6]))}" if there else "nothing of ours"
    return Check(name=name, ok=True, detail=detail)


def _words(error: InferliftError) -> str:
    return "; ".join(part for part in (error.what, error.why, error.next_command) if part)
