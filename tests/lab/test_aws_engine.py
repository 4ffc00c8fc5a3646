"""Pulumi's real engine runs the real AWS program against stand-ins: moto's server and a small `pulumi-resource-aws`.

Afterwards AWS' API (moto's) is asked what exists. What that does not prove is in tests/standin_aws/__init__.py.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferlift import provision, toolchain
from inferlift.artifacts.fleet import DesiredFleet
from inferlift.errors import CheckFailed, NoCapacity, Refusal, Uncertain
from inferlift.profile import ROOT
from inferlift.provision import Tools, targets
from inferlift.provision.aws import bill, listing, naming, notes, reading, removal, rights, target
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.session import Session
from tests.standin_aws import cloud as standin
from tests.standin_aws import kind, provider
from tests.unit.provision.aws_documents import PROFILES, document

pytestmark = [pytest.mark.lab, pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws")]
SMALL = "multimodal"  # one region, four hosts, no file system


class Account:
    """A work folder and an empty account."""

    def __init__(self, cloud: standin.Cloud, folder: Path) -> None:
        self.cloud, self.folder, self.session = cloud, folder, Session()
        self.said: list[str] = []
        self.tools = Tools(pulumi_bin=toolchain.pulumi_bin() / "pulumi", python_plugin=None, host_image="")

    def say(self, line: str) -> None:
        print(line)
        self.said.append(line)

    def up(self, desired: DesiredFleet) -> Any:
        self.said.clear()
        return provision.apply_fleet(desired, self.folder, self.tools, self.say)

    def changed(self) -> list[str]:
        return [s for s in self.said if s.startswith(("made", "removed"))]

    def destroy(self, desired: DesiredFleet, **more: bool) -> list[str]:
        self.said.clear()
        return provision.destroy_fleet(desired.label, self.folder, self.tools, self.say, **more)

    def things(self, desired: DesiredFleet) -> list[listing.Thing]:
        places = {site.region for site in planning.of(desired).sites}
        return [t for place in sorted(places) for t in listing.left(desired.label, place, self.session)]

    def ec2(self, desired: DesiredFleet) -> Any:
        return self.session.client("ec2", planning.of(desired).sites[0].region)


@pytest.fixture(scope="module")
def _cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standin.Cloud]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    toolchain.ensure(["pulumi"], print)
    folder = provider.install(tmp_path_factory.mktemp("bin")).parent
    with standin.cloud() as made, pytest.MonkeyPatch.context() as patch:
        for key, value in {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": made.url}.items():
            patch.setenv(key, value)
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield made


CALLS: set[str] = set()  # that this process made, as service:Operation; the provider's are in a file


@pytest.fixture(scope="module", autouse=True)
def provider_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("calls") / "calls"
    path.touch()

    def note(self: Session, model: Any, **_: Any) -> None:
        CALLS.add(f"{model.service_model.service_name}:{model.name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kind.CALLS, str(path))
        patch.setattr(Session, "_note", note)
        yield path


@pytest.fixture
def account(_cloud: standin.Cloud, tmp_path: Path) -> Account:
    standin.reset()
    return Account(_cloud, tmp_path)


def small(**more: Any) -> DesiredFleet:
    return document(SMALL, **{"floors": {"poc": 1}, **more})


@pytest.mark.parametrize("name", PROFILES)  # demo-aws: test_aws_deploy.py
def test_each_profile_is_made_found_and_gone(account: Account, name: str) -> None:
    # the offerings that moto knows have no Local Zone
    desired = document(name, settings={"edge": ("eu-north-1",)} if name == "image-edge" else {})
    fleet = account.up(desired)
    plan = planning.of(desired)
    wanted = {host: group for host, group, _ in planning.hosts(desired)}
    assert {h.name for h in fleet.hosts} == set(wanted)
    assert {(h.name, h.site) for h in fleet.hosts} == {(n, g.site) for n, g in wanted.items()}
    found = Counter(t.kind for t in account.things(desired))
    assert found["network"] == len(plan.sites)
    assert found["bucket"] == found["registry"] == found["encryption key"] == len(plan.sites)
    if plan.batch:
        assert "job queue" in fleet.stores
        assert found["compute environment"] == found["job definition"] == 1
    else:
        assert {e.site for e in fleet.endpoints} == {s.name for s in plan.sites}
    for region in {site.region for site in plan.sites}:
        _disks_are_encrypted(account, region)
        _no_firewall_is_open(account, region)
    assert not [t for t in account.things(desired) if t.kind == "capacity reservation"], "ended once the hosts run"
    if name == SMALL:
        _nothing_to_do_for_plain_pulumi(account)
    assert account.destroy(desired, delete_data=True) == []
    assert account.things(desired) == []


def _nothing_to_do_for_plain_pulumi(account: Account) -> None:
    """`pulumi` in stacks/aws, an ordinary project, on the state that `deploy` wrote."""
    toolchain.ensure(["pulumi-python"], print)
    root = notes.root(account.folder)
    script = f"""
        set -e
        . {root}/env
        PATH="{toolchain.pulumi_bin()}:$PATH"
        cd {ROOT}/stacks/aws
        pulumi up --stack fleet --expect-no-changes --yes --skip-preview --non-interactive \\
          --config-file {account.folder}/plain.yaml -c document={root}/aws-fleet.json \\
          -c public_key_file={account.folder}/ssh/id_ed25519.pub
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def _disks_are_encrypted(account: Account, region: str) -> None:
    """Moto forgets what a template says of its instances' disks: the templates are asked."""
    ec2 = account.session.client("ec2", region)
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        versions = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
        data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        assert all(d["Ebs"]["Encrypted"] for d in data["BlockDeviceMappings"])
        assert data["MetadataOptions"]["HttpTokens"] == "required"


def _no_firewall_is_open(account: Account, region: str) -> None:
    for group in account.session.client("ec2", region).describe_security_groups()["SecurityGroups"]:
        for rule in group["IpPermissions"]:
            if any(r["CidrIp"] == "0.0.0.0/0" for r in rule["IpRanges"]):
                assert (rule["FromPort"], rule["ToPort"]) == (443, 443), group["GroupName"]


@pytest.mark.long
def test_again_in_place_anew_and_behind_its_back(account: Account) -> None:
    """One fleet through its life; foreign resources stand beside it and stay."""
    foreign = account.session.client("ec2", "eu-north-1").create_vpc(CidrBlock="10.80.0.0/16")["Vpc"]["VpcId"]
    desired = small()
    key = targets.ssh_key(account.folder).with_suffix(".pub").read_text().strip()
    plan = target.resources(desired, account.folder, account.tools, key, account.say)
    assert {b.item for b in bill.bill(plan, "eu-north-1")} >= {"p5.4xlarge on-demand", "NAT gateway", "load balancer"}
    assert account.things(desired) == [], "a plan makes nothing"
    first = account.up(desired)
    assert account.up(desired).generation == first.generation
    assert account.changed() == [], "a second run changes nothing"
    assert provision.drift_fleet(desired, account.folder, account.tools) == []
    assert all(c.ok for c in provision.verify_fleet(first, account.folder, account.tools))
    asked = {c.name: c for c in provision.check_before_spending(desired, account.say)}
    assert all(c.ok for c in asked.values()), asked
    assert "resources of this fleet" in asked["what exists in eu-north-1"].detail

    # a replica is lost on purpose, and comes back
    victim = first.by_role("model")[0]
    provision.power_off(victim, account.tools)
    lost = [c.detail for c in provision.verify_fleet(first, account.folder, account.tools) if not c.ok]
    assert lost == ["stopped: its instance is stopped"]
    provision.power_on(victim, account.tools)
    assert all(c.ok for c in provision.verify_fleet(first, account.folder, account.tools))

    # one that somebody stopped is booted again, and is the same
    provision.power_off(victim, account.tools)
    assert account.up(desired).generation == first.generation
    assert f"booting {victim.name}, which was stopped" in account.said
    assert account.changed() == []

    # in place: the expiry is lifted, and AWS says so
    assert set(reading.expiring(desired.label, account.folder)) == {
        naming.named(desired.label, n) for n in ("gateway-1", "model-1", "monitor-1")
    }
    provision.lift_expiry(desired, account.folder, account.tools, account.say)
    assert reading.expiring(desired.label, account.folder) == {}

    # more hosts: only they are made
    more = small(floors={"poc": 1, "scale": 2}, expires_at=None)
    grown = account.up(more)
    assert {h.name for h in grown.by_role("model")} == {"model-1", "model-2"}
    assert {h.name: h.container for h in first.hosts}.items() <= {h.name: h.container for h in grown.hosts}.items()

    # another type: the gateway is made anew, and only it
    other = small(floors={"poc": 1, "scale": 2}, expires_at=None, settings={"gateway_type": "c7i.xlarge"})
    moved = account.up(other)
    before, after = ({h.name: h.container for h in f.hosts} for f in (grown, moved))
    assert {name for name in after if after[name] != before[name]} == {"gateway-1"}
    assert moved.endpoints == first.endpoints, "users' addresses outlive the gateway"

    # behind its back: a rule opened, a host gone
    ec2 = account.ec2(desired)
    group = next(t for t in account.things(desired) if t.name == "model-firewall")
    ec2.authorize_security_group_ingress(GroupId=group.id, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0")
    name = naming.named(desired.label, "model-2")
    account.session.client("autoscaling", "eu-north-1").delete_auto_scaling_group(
        AutoScalingGroupName=name, ForceDelete=True
    )
    drift = {d.resource: d.change for d in provision.drift_fleet(other, account.folder, account.tools)}
    assert drift == {"securitygroup model-firewall": "changed", "group model-2": "gone"}
    bad = [c for c in provision.verify_fleet(moved, account.folder, account.tools) if not c.ok]
    assert [c.name for c in bad] == ["host model-2"]
    account.up(other)
    _no_firewall_is_open(account, "eu-north-1")
    assert provision.drift_fleet(other, account.folder, account.tools) == []

    # gone, but what holds data is kept and named, adopted later, and removed when that is asked for
    store = next(t.id for t in account.things(desired) if t.kind == "bucket")
    assert account.destroy(desired) == []
    assert {t.kind for t in account.things(desired)} == {"bucket", "registry", "encryption key"}
    assert any(store in line and "--delete-data" in line for line in account.said)
    again = account.up(desired)
    assert again.stores["bucket"] == store
    assert Counter(t.kind for t in account.things(desired))["encryption key"] == 1, "adopted, not made again"
    assert account.destroy(desired, delete_data=True) == []
    assert account.things(desired) == []
    vpcs = account.session.client("ec2", "eu-north-1").describe_vpcs()["Vpcs"]
    assert foreign in [v["VpcId"] for v in vpcs]


@pytest.mark.long
def test_killed_right_after_a_create_again_and_again(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provider or engine (!) die when a thing is made and before it is noted: in the end there is one of each."""
    desired = small()
    waiting = account.folder / "killed-after"
    waiting.write_text("vpc! key to-nat! routes-public-eu-north-1a model-1! listener")
    monkeypatch.setenv(provider.KILL, str(waiting))
    deaths = 0
    while left := waiting.read_text():
        try:
            account.up(desired)
        except (CheckFailed, Uncertain) as error:
            if waiting.read_text() == left:
                raise AssertionError("nobody died, and yet it failed") from error
            deaths += 1
            time.sleep(0.5)  # a second provider of a dead engine sees that within a tenth of a second
            provision.settle(account.folder, account.tools, account.say)
        else:
            break  # what waits was made beside another one's death
    assert deaths >= 4
    fleet = account.up(desired)
    found = Counter((t.kind, t.name) for t in account.things(desired))
    assert max(found.values()) == 1, [k for k, n in found.items() if n > 1]
    assert {h.name for h in fleet.hosts} == {"gateway-1", "model-1", "monitor-1"}
    assert provision.drift_fleet(desired, account.folder, account.tools) == []
    # the state lost, everything is still found and removed by its tag alone
    removal.remove(account.things(desired), account.session, account.say, data=True)
    assert account.things(desired) == []


@pytest.mark.long
def test_no_capacity_in_the_first_zone_makes_the_hosts_in_the_second(account: Account) -> None:
    account.cloud.faults = {("CreateCapacityReservation", "eu-north-1a"): "InsufficientInstanceCapacity"}
    fleet = account.up(small())
    assert any("eu-north-1a: InsufficientInstanceCapacity (tried 1 of" in line for line in account.said)
    model = next(h for h in fleet.hosts if h.role == "model")
    (instance,) = account.ec2(small()).describe_instances(InstanceIds=[model.container])["Reservations"][0]["Instances"]
    assert instance["Placement"]["AvailabilityZone"] != "eu-north-1a"


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("InsufficientInstanceCapacity", NoCapacity, "p5.4xlarge cannot be had in eu-north-1 now"),
        ("VcpuLimitExceeded", Refusal, "a quota of the account is used up"),
    ],
)
def test_what_cannot_be_had_ends_it_before_the_engine_starts(
    account: Account, code: str, kind: type[Exception], words: str
) -> None:
    account.cloud.faults = {("CreateCapacityReservation", "*"): code}
    with pytest.raises(kind, match=words):
        account.up(small())
    assert account.things(small()) == []
    assert account.changed() == []


@pytest.mark.long
def test_a_plan_that_breaks_a_rule_is_refused_before_anything_is_made(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inferlift.provision.aws import network

    monkeypatch.setattr(network, "_from_self", lambda port: network._from_ranges(22, ["0.0.0.0/0"], "everybody"))
    with pytest.raises(Refusal, match="breaks 1 rules of safety") as caught:
        account.up(small())
    assert "monitor-firewall: SSH is open to everybody" in caught.value.why
    assert account.things(small()) == []


@pytest.mark.long
def test_a_property_that_nobody_looked_up_is_refused(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    known = provider.check("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "enableNetworkAddressUsageMetrics": True})
    assert known == [
        (
            "enableNetworkAddressUsageMetrics",
            "aws:ec2/vpc:Vpc.enableNetworkAddressUsageMetrics is not in properties.csv",
        )
    ]


def test_the_operators_policy_allows_every_call_that_was_made(provider_calls: Path) -> None:
    """The last of this file: everything above was recorded. The stand-in's own needs are left out."""
    seen = CALLS | set(provider_calls.read_text().split())
    assert len(seen) > 60, "the tests above ran"
    assert seen - rights.known_calls() == set()
