"""The AWS program under Pulumi's mocks: what each shipped profile asks for, and that it passes every policy.

Mocks show what the program asks for. That AWS takes it, only a real account shows (docs/aws.md).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from inferlift.artifacts.fleet import DesiredFleet
from inferlift.profile import Origin
from inferlift.profile.dns import Dns
from inferlift.provision.aws import naming
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.policies import Asked, findings
from inferlift.provision.aws.program import fleet_program
from inferlift.stages import _edge

from .aws_documents import KEY, PROFILES, document, profile, resolved

CASES = Path(__file__).parent / "aws_cases"
# pulumi-aws warns of classes that nobody here uses
pytestmark = [pytest.mark.programs, pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws")]


class Recorder(pulumi.runtime.Mocks):
    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.asked.append(Asked(args.typ, args.name, dict(args.inputs)))
        made = {"arn": f"arn:aws:made:::{args.name}", "latestVersion": 1, "repositoryUrl": f"registry/{args.name}"}
        return f"{args.name}-id", {**args.inputs, **made}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program looks nothing up: {args.token}")


def asked_for(desired: DesiredFleet) -> list[Asked]:
    recorder = Recorder()

    def run() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        pulumi.runtime.set_mocks(recorder, preview=False)
        pulumi.runtime.test(lambda: fleet_program(desired, KEY)())()

    # Pulumi notes each resource's whole stack: in a thread of its own the test runner's forty frames are not in it.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()
    return [a for a in recorder.asked if a.type.startswith("aws:")]


@pytest.fixture(scope="module")
def asked() -> dict[str, list[Asked]]:
    return {name: asked_for(resolved(document(name))) for name in PROFILES}


def summary(asked: list[Asked]) -> dict[str, Any]:
    """What matters of a plan, short enough to be read."""
    groups = {a.name: a.inputs for a in asked if a.type == "aws:autoscaling/group:Group"}
    templates = {a.name: a.inputs for a in asked if a.type == "aws:ec2/launchTemplate:LaunchTemplate"}
    hosts = {}
    for name, group in groups.items():
        template = templates[f"{name}-template"]
        market = (template.get("instanceMarketOptions") or {}).get("marketType", "on-demand")
        hosts[name] = (
            f"{template['instanceType']} {market} in {group['vpcZoneIdentifiers'][0].removesuffix('-id')}"
            f", {len(template['networkInterfaces'])} interfaces, {len(template['blockDeviceMappings'])} disks"
        )
    return {
        "resources": dict(sorted(Counter(a.type.split(":")[-1] for a in asked).items())),
        "hosts": dict(sorted(hosts.items())),
        "open": sorted(
            f"{a.name}: {int(r['fromPort'])} from "
            + ", ".join(r.get("cidrBlocks") or r.get("securityGroups") or ["itself"])
            for a in asked
            if a.type == "aws:ec2/securityGroup:SecurityGroup"
            for r in a.inputs.get("ingress") or []
        ),
        "expires": sum("expiry" in a.name and a.type.endswith(":Schedule") for a in asked),
    }


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_profile_asks_for(name: str, asked: dict[str, list[Asked]]) -> None:
    """A change of the program shows here as a change of a short file: aws_cases/PROFILE.yaml."""
    expected = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    assert summary(asked[name]) == expected


@pytest.mark.parametrize("name", PROFILES)
def test_every_policy_passes(name: str, asked: dict[str, list[Asked]]) -> None:
    assert findings(asked[name]) == []


def test_the_same_document_asks_for_the_same_names(asked: dict[str, list[Asked]]) -> None:
    again = {a.name: a.inputs.get("name") for a in asked_for(resolved(document("multimodal")))}
    assert again == {a.name: a.inputs.get("name") for a in asked["multimodal"]}


@pytest.mark.parametrize("name", PROFILES)
def test_names_are_unique_and_short_enough(name: str, asked: dict[str, list[Asked]]) -> None:
    assert len({a.name for a in asked[name]}) == len(asked[name])
    for one in asked[name]:
        limit = 32 if one.type.startswith("aws:lb/") else 64
        assert len(str(one.inputs.get("name", ""))) <= limit, one.name


@pytest.mark.parametrize("name", PROFILES)
def test_everything_carries_its_own_resource_tag(name: str, asked: dict[str, list[Asked]]) -> None:
    """A killed create is found again by this tag: no two resources of a type may share it."""
    seen = Counter((a.type, a.inputs["tags"][naming.RESOURCE]) for a in asked[name] if _is_map(a.inputs.get("tags")))
    assert set(seen.values()) == {1}


def _is_map(tags: Any) -> bool:
    return isinstance(tags, dict)


def test_user_data_has_our_key_and_no_secret(asked: dict[str, list[Asked]]) -> None:
    for one in asked["llm-13b"]:
        if one.type == "aws:ec2/launchTemplate:LaunchTemplate":
            text = base64.b64decode(one.inputs["userData"]).decode()
            body = yaml.safe_load(text)
            assert body["users"][0]["ssh_authorized_keys"] == [KEY]
            assert "$target" in text, "the script's own variables are kept"
            assert "PRIVATE" not in text


def test_a_replica_over_two_hosts_gets_efa_in_one_cluster() -> None:
    desired = resolved(document("llm-70b", nodes_per_replica=2))
    asked = asked_for(desired)
    template = next(a for a in asked if a.name == "model-1-template").inputs
    kinds = Counter(i.get("interfaceType") for i in template["networkInterfaces"])
    assert kinds == {None: 1, "efa-only": 32}
    assert template["placement"]["groupName"] == naming.named(desired.label, "cluster")
    model = next(a for a in asked if a.name == "model-firewall").inputs
    assert [r["protocol"] for r in model["ingress"] if r.get("self") and r["protocol"] == "-1"] == ["-1"]
    zones = {a.inputs["vpcZoneIdentifiers"][0] for a in asked if a.name.startswith("model-") and _group(a)}
    assert len(zones) == 1, "a cluster lies in one zone"
    assert findings(asked) == []


def _group(one: Asked) -> bool:
    return one.type == "aws:autoscaling/group:Group"


def test_what_expires_and_what_was_lifted() -> None:
    def expiries(desired: DesiredFleet) -> list[Asked]:
        return [a for a in asked_for(resolved(desired)) if a.type == "aws:autoscaling/schedule:Schedule"]

    made = expiries(document("llm-13b"))
    assert {(a.inputs["minSize"], a.inputs["maxSize"], a.inputs["desiredCapacity"]) for a in made} == {(0, 0, 0)}
    assert {a.inputs["startTime"] for a in made} == {"2026-12-01T12:00:00Z"}
    assert {a.name for a in made} == {"bastion-expiry", "gateway-1-expiry", "model-1-expiry", "model-2-expiry",
                                      "monitor-1-expiry"}  # fmt: skip
    assert expiries(document("llm-13b", expires_at=None)) == []


def test_what_holds_data_is_kept_by_a_destroy() -> None:
    """That a destroy leaves it is shown with the engine (tests/lab): here, that it is marked as such."""
    asked = asked_for(resolved(document("llm-70b")))
    keeping = {a.name for a in asked if _is_map(a.inputs.get("tags")) and a.inputs["tags"].get(naming.DATA) == "keep"}
    assert keeping == {"key", "store", "images", "lustre"}


def test_an_existing_network_is_used_and_nothing_is_made_in_it_but_firewalls() -> None:
    settings = {
        "vpc_id": "vpc-0123456789abcdef0",
        "public_subnets": ("subnet-0123456789abcdef1",),
        "private_subnets": ("subnet-0123456789abcdef2",),
    }
    desired = resolved(document("llm-13b", settings=settings))
    plan = planning.of(desired)
    subnets = {
        "zones": ("eu-central-1a",),
        "public": {"eu-central-1a": "subnet-0123456789abcdef1"},
        "private": {"eu-central-1a": "subnet-0123456789abcdef2"},
    }
    sites = (plan.sites[0].model_copy(update=subnets),)
    asked = asked_for(desired.model_copy(update={"aws": plan.model_copy(update={"sites": sites})}))
    assert {a.inputs["vpcZoneIdentifiers"][0] for a in asked if _group(a)} == {
        "subnet-0123456789abcdef1",
        "subnet-0123456789abcdef2",
    }
    types = {a.type for a in asked}
    assert not types & {"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway"}
    assert {a.inputs["vpcId"] for a in asked if a.type == "aws:ec2/securityGroup:SecurityGroup"} == {
        "vpc-0123456789abcdef0"
    }


def test_a_job_is_tried_again_when_its_host_was_taken_away(asked: dict[str, list[Asked]]) -> None:
    job = next(a for a in asked["batch"] if a.name == "job").inputs
    assert job["retryStrategy"]["attempts"] == 5
    assert [e["action"] for e in job["retryStrategy"]["evaluateOnExits"]] == ["retry", "exit"]
    container = json.loads(job["containerProperties"])
    assert container["image"] == "registry/images:current"
    assert {r["type"] for r in container["resourceRequirements"]} == {"VCPU", "MEMORY"}
    expiry = next(a for a in asked["batch"] if a.name == "expiry").inputs
    assert expiry["scheduleExpression"] == "at(2026-12-01T12:00:00)"
    assert json.loads(expiry["target"]["input"])["State"] == "DISABLED"


def guarding(**dns: Any) -> DesiredFleet:
    """image-edge with users' name on Route 53, as a stage describes it."""
    given = {"kind": "route53", "zone_id": "Z1", "zone": "example.org", **dns}
    whole = profile("image-edge")
    origin = Origin(name="ai.example.org", logs="/var/log/nginx/access.log*")
    moved = whole.model_copy(
        update={"origin": origin, "switch": whole.switch.model_copy(update={"dns": Dns.model_validate(given)})}
    )
    return resolved(document("image-edge", settings={"edge": ("eu-north-1",)}, rights=_edge.guard_rights(moved)))


def test_a_monitor_that_guards_the_name_may_change_that_name_and_no_other_host_may() -> None:
    plan = asked_for(guarding())
    policies = {a.name: json.loads(a.inputs["policy"]) for a in plan if a.type == "aws:iam/rolePolicy:RolePolicy"}
    writing = {
        name: statement
        for name, policy in policies.items()
        for statement in policy["Statement"]
        if "route53:ChangeResourceRecordSets" in statement["Action"]
    }
    assert set(writing) == {"monitor-rights", "s1-monitor-rights"}
    for name, region in (("monitor-rights", "eu-central-1"), ("s1-monitor-rights", "eu-north-1")):
        at = f"{region}.ai.example.org"
        assert writing[name]["Resource"] == "arn:aws:route53:::hostedzone/Z1"
        assert writing[name]["Condition"] == {
            "ForAllValues:StringEquals": {
                "route53:ChangeResourceRecordSetsNormalizedRecordNames": [at, f"_inferlift.{at}"],
                "route53:ChangeResourceRecordSetsRecordTypes": ["A", "TXT"],
                "route53:ChangeResourceRecordSetsActions": ["CREATE", "DELETE"],
            }
        }
    templates = {a.name: a.inputs for a in plan if a.type.endswith(":LaunchTemplate")}
    own = {name for name, t in templates.items() if "monitor-profile" in t["iamInstanceProfile"]["arn"]}
    assert own == {name for name in templates if "monitor-1" in name}
    assert len(own) == 2
    assert findings(plan) == []


def test_a_guard_with_another_back_end_or_none_has_no_rights_in_the_account() -> None:
    others = {"kind": "rfc2136", "zone_id": None, "server": "192.0.2.1", "key_name": "k", "key": "env:K"}
    for desired in (guarding(**others), resolved(document("image-edge"))):
        assert planning.of(desired).guard_rights == {}
        assert not [a for a in asked_for(desired) if "monitor-role" in a.name]
