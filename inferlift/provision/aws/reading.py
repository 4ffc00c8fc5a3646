"""The fleet as AWS knows it by its tags: read, verified, and asked what expires. Apart from Pulumi on purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inferlift.artifacts import Check, Endpoint, Fleet, Host, Jump
from inferlift.artifacts.fleet import AwsPlan
from inferlift.errors import CheckFailed
from inferlift.provision.aws import hostkeys, listing, naming, notes
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.session import Session, calling
from inferlift.provision.aws.tables import instance_type

Say = Callable[[str], None]


def read(label: str, workdir: Path, session: Session | None = None, say: Say = lambda line: None) -> Fleet | None:
    """The fleet as AWS knows it by its tag; None when there is neither a host nor a queue."""
    session = session or Session()
    known = notes.remembered(workdir)
    if known is None or known.label != label:
        return None
    plan = planning.of(known)
    found = [(i, r) for r in notes.regions(workdir) for i in listing.instances(label, r, session)]
    running = [(i, r) for i, r in found if i["State"]["Name"] == "running"]
    fleet_hosts = [(i, r) for i, r in running if tag(i, naming.ROLE) in ("gateway", "model", "monitor")]
    stores = {
        t.kind: t.id for r in notes.regions(workdir) for t in listing.left(label, r, session)
        if t.data or t.kind == "job queue"
    }  # fmt: skip
    if not fleet_hosts and not (plan.batch and "job queue" in stores):
        return None
    bastions = {tag(i, naming.SITE): i for i, _ in running if tag(i, naming.ROLE) == "bastion"}
    asked = [(i["InstanceId"], r) for i, r in running if tag(i, naming.ROLE)]
    keys = hostkeys.host_keys(asked, session, notes.root(workdir) / "host_keys.json", say)

    def host(instance: dict[str, Any]) -> Host:
        bastion = bastions.get(tag(instance, naming.SITE))
        return _host(instance, keys[instance["InstanceId"]], _jump(bastion, keys), workdir)

    hosts = tuple(sorted((host(i) for i, _ in fleet_hosts), key=lambda h: h.name))
    vpcs = sorted({str(i["VpcId"]) for i, _ in fleet_hosts if i.get("VpcId")})
    return Fleet(
        label=label,
        network=vpcs[0] if vpcs else None,
        subnet=None,
        hosts=hosts,
        endpoints=tuple(e for site in plan.sites for e in _endpoints(label, plan, site.name, fleet_hosts, session)),
        registry=stores.get("registry"),
        generation=_generation(hosts),
        stores=stores,
        aws=plan,
    )


def verify(expected: Fleet, session: Session | None = None) -> list[Check]:
    """Is every host still the one it was, running and found healthy by AWS, and is there none too many?"""
    session = session or Session()
    if expected.aws is None:
        raise CheckFailed("this fleet is not one on AWS")
    places = sorted({site.region for site in expected.aws.sites})
    present: dict[str, tuple[dict[str, Any], str]] = {}
    for region in places:
        for one in listing.instances(expected.label, region, session):
            if tag(one, naming.ROLE) in ("gateway", "model", "monitor"):
                present[tag(one, naming.NAME)] = (one, region)
    checks = [_check_host(h, present.get(h.name), session) for h in expected.hosts]
    if expected.aws.batch is not None:
        checks.append(_check_queue(expected.stores.get("job queue", ""), places[0], session))
    names = {h.name for h in expected.hosts}
    checks += [
        Check(name=f"host {name}", ok=False, detail="exists, but is not part of what was made")
        for name in sorted(present)
        if name not in names
    ]
    return checks


def expiring(label: str, workdir: Path, session: Session | None = None) -> dict[str, str]:
    """Group or queue -> when AWS takes its hosts away; asked of AWS."""
    session = session or Session()
    found: dict[str, str] = {}
    for region in notes.regions(workdir):
        with calling("which hosts expire", region):
            for row in session.pages(
                "autoscaling", region, "describe_scheduled_actions", "ScheduledUpdateGroupActions"
            ):
                if row["AutoScalingGroupName"].startswith(naming.short(label) + "-"):
                    found[row["AutoScalingGroupName"]] = str(row["StartTime"])
        found |= {t.name: "see the schedule" for t in listing.left(label, region, session) if t.kind == "schedule"}
    return found


def tag(instance: dict[str, Any], key: str) -> str:
    return listing.tags_of(instance.get("Tags")).get(key, "")


def _jump(bastion: dict[str, Any] | None, keys: Mapping[str, str]) -> Jump | None:
    if bastion is None:
        return None
    address = bastion.get("PublicIpAddress") or bastion["PrivateIpAddress"]
    return Jump(address=address, host_key=keys[bastion["InstanceId"]])


def _host(instance: dict[str, Any], host_key: str, jump: Jump | None, workdir: Path) -> Host:
    kind = instance_type(instance["InstanceType"])
    return Host.model_validate(
        {
            "name": tag(instance, naming.NAME),
            "role": tag(instance, naming.ROLE),
            "address": instance["PrivateIpAddress"],
            "ssh_key": str(workdir.resolve() / "ssh" / "id_ed25519"),
            "host_key": host_key,
            "jump": jump,
            "site": tag(instance, naming.SITE),
            "cpus": kind.vcpus,
            "memory_bytes": kind.memory_mib * 2**20,
            "gpu": f"{kind.gpus} x {kind.gpu}" if kind.gpus else None,
            "container": instance["InstanceId"],
        }
    )


def _endpoints(
    label: str, plan: AwsPlan, site: str, found: list[tuple[dict[str, Any], str]], session: Session
) -> list[Endpoint]:
    """Where users reach a site: the front's fixed addresses, its name where it has none, or the gateway itself."""
    place = next(s for s in plan.sites if s.name == site)
    own = {"Name": f"tag:{naming.OWNER}", "Values": [label]}
    at = {"Name": f"tag:{naming.SITE}", "Values": [site]}
    with calling("which addresses users reach", place.region):
        rows = session.client("ec2", place.region).describe_addresses(Filters=[own, at])["Addresses"]
    fixed = sorted(
        r["PublicIp"] for r in rows
        if "front-address" in listing.tags_of(r.get("Tags")).get(naming.RESOURCE, "")
    )  # fmt: skip
    if fixed:
        return [Endpoint(site=site, address=address) for address in fixed]
    if plan.settings.front == "alb" and not planning.is_local_zone(place):
        with calling("the load balancer's name", place.region):
            balancers = session.pages("elbv2", place.region, "describe_load_balancers", "LoadBalancers")
        return [
            Endpoint(site=site, address=b["DNSName"])
            for b in balancers
            if b["LoadBalancerName"].startswith(naming.short(label))
        ]
    gateways = [i for i, _ in found if tag(i, naming.ROLE) == "gateway" and tag(i, naming.SITE) == site]
    return [Endpoint(site=site, address=i.get("PublicIpAddress") or i["PrivateIpAddress"]) for i in gateways]


def _generation(hosts: tuple[Host, ...]) -> str:
    text = "\n".join(sorted(f"{h.name} {h.container}" for h in hosts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_queue(arn: str, region: str, session: Session) -> Check:
    """Does the queue take jobs, and do its hosts come? AWS itself says so of both."""
    client, name = session.client("batch", region), f"queue {arn.rpartition('/')[2] or 'of this fleet'}"
    with calling("the state of the queue", region):
        queues = client.describe_job_queues(jobQueues=[arn])["jobQueues"] if arn else []
        hosts = [o["computeEnvironment"] for q in queues for o in q["computeEnvironmentOrder"]]
        environments = (
            client.describe_compute_environments(computeEnvironments=hosts)["computeEnvironments"] if hosts else []
        )
    if not queues or not environments:
        return Check(name=name, ok=False, detail="deleted: AWS knows no such queue, or none of its hosts' environment")
    bad = [
        f"{what} is {one['state']} and {one.get('status')}: {one.get('statusReason', '')}".rstrip(": ")
        for what, one in (("the queue", queues[0]), ("its environment", environments[0]))
        if one["state"] != "ENABLED" or one.get("status") not in ("VALID", "CREATING", "UPDATING")
    ]
    return Check(name=name, ok=not bad, detail="; ".join(bad) or "takes jobs")


def _check_host(host: Host, found: tuple[dict[str, Any], str] | None, session: Session) -> Check:
    def no(detail: str) -> Check:
        return Check(name=f"host {host.name}", ok=False, detail=detail)

    if found is None:
        return no(f"deleted: AWS knows no instance of {host.name}")
    instance, region = found
    state = instance["State"]["Name"]
    if state != "running":
        return no(f"stopped: its instance is {state}")
    if instance["InstanceId"] != host.container:
        return no("replaced: another instance has taken its place, and is not configured")
    if instance["PrivateIpAddress"] != host.address:
        return no(f"moved from {host.address} to {instance['PrivateIpAddress']}")
    with calling("the status of an instance", region):
        rows = session.client("ec2", region).describe_instance_status(InstanceIds=[instance["InstanceId"]])
    for row in rows["InstanceStatuses"]:
        bad = [k for k in ("SystemStatus", "InstanceStatus") if row[k]["Status"] == "impaired"]
        if bad:
            return no(f"AWS finds it impaired ({', '.join(bad)})")
    return Check(name=f"host {host.name}", ok=True, detail=f"{host.address}, {instance['InstanceType']}, running")
