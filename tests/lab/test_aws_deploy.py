"""All nine stages with `target: aws`: Pulumi's engine, a stand-in provider, and a lab host for each instance.

The fleet stands behind a bastion, so that all SSH (commands, rsync, Ansible, the monitor's API) goes through another
host with both keys pinned. That a firewall of AWS' leaves no other way is not shown; what else the stand-in does not
prove is in tests/standin_aws/__init__.py.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import Lab, approved, migration_of

from inferlift import process, ssh
from inferlift.artifacts import Cutover, Host, Scaled, Service, Watch
from inferlift.errors import Retryable
from inferlift.ledger import reading
from inferlift.observe import Prometheus
from inferlift.profile import ROOT
from inferlift.provision.aws import listing
from inferlift.provision.aws.session import Session
from tests.standin_aws import account as standin
from tests.standin_aws.cloud import AMI

pytestmark = pytest.mark.lab
REGION, NETWORK = "eu-central-1", "10.243.0.0/16"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with standin.account("t-aws-deploy", {REGION: NETWORK}, tmp_path_factory.mktemp("bin")) as env:
        yield env


@pytest.fixture(scope="module")
def lab(account: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    profile = tmp_path_factory.mktemp("profile") / "t-aws.yaml"
    profile.write_text(standin.declared("t-aws", NETWORK))
    with migration_of("aws", str(profile), account) as made:
        yield made


def test_the_account_is_asked_first(lab: Lab) -> None:
    """What a newcomer types first: nothing is made by it."""
    told = json.loads(lab.invoke("plan", "--json").stdout)
    checks = {c["name"]: c for c in told["plan"]["account"]}
    assert all(c["ok"] for c in checks.values()), checks
    assert {"identity", "who may call", "residency", "rules of safety", "zones of eu-central-1"} <= set(checks)
    assert told["plan"]["usd_per_hour"] > 0.3
    doctor = lab.invoke("doctor", "--target", "aws").stdout  # its exit code tells of this machine's tools too
    assert "ok quota in eu-central-1: Running On-Demand Standard" in doctor
    assert not lab.state.exists()


def test_all_nine_stages(lab: Lab) -> None:
    approved(lab)
    assert set(lab.statuses().values()) == {"done"}
    service = lab.artifact("poc", Service)
    assert all(h.container and h.container.startswith("i-") for h in service.fleet.hosts)
    assert lab.artifact("switch", Cutover).rolled_back is False
    assert lab.artifact("watch", Watch).gates
    logs = (lab.place.folder / "runs").glob("*/run.log")
    assert any("nothing of the fleet expires any more" in log.read_text() for log in logs)
    lock = json.loads((lab.place.folder / "lock.json").read_text())
    assert lock["resolved"]["image/eu-central-1/model"] == AMI["x86_64"]


def behind(lab: Lab, role: str = "monitor") -> Host:
    return lab.artifact("scale", Scaled).service.fleet.by_role(role)[0]


def test_every_way_to_a_host_leads_through_the_bastion(lab: Lab, tmp_path: Path) -> None:
    host = behind(lab, "model")
    assert host.jump is not None
    assert ssh.run(host, "echo $SSH_CONNECTION").stdout.split()[0] == host.jump.address
    (tmp_path / "weights").write_text("1 2 3")
    shell = shlex.join(["ssh", *ssh.options(host)])
    process.run(["rsync", "-e", shell, str(tmp_path / "weights"), f"root@{host.address}:/srv/weights"], timeout_s=30)
    argv = [
        str(ROOT / ".venv/bin/ansible"), "all", "-i", f"{host.address},", "-u", "root", "-m", "raw", "-a",
        "echo $SSH_CONNECTION $(cat /srv/weights)", "--ssh-common-args", shell.removeprefix("ssh "),
    ]  # fmt: skip
    told = process.run(argv, timeout_s=60).stdout
    assert f"\n{host.jump.address} " in told
    assert "1 2 3" in told


def test_the_monitor_is_asked_over_ssh_and_no_other_way(lab: Lab) -> None:
    """As the gates and the watch just did."""
    service = lab.artifact("scale", Scaled).service
    assert Prometheus.of(service).scalar("count(up == 1)", datetime.now(UTC))
    with pytest.raises(TimeoutError), socket.create_connection((behind(lab).address, 9090), timeout=1):
        pass


@pytest.mark.parametrize("whose", ["jump", "host"])
def test_a_key_that_is_not_the_pinned_one_is_refused(lab: Lab, whose: str) -> None:
    host = behind(lab)
    assert host.jump is not None
    other = {"host_key": host.host_key if whose == "jump" else host.jump.host_key}
    wrong = host.model_copy(update={"jump": host.jump.model_copy(update=other)} if whose == "jump" else other)
    with pytest.raises(Retryable, match="does not answer over SSH"):
        ssh.run(wrong, "true")
    service = lab.artifact("scale", Scaled).service
    hosts = tuple(wrong if h.name == wrong.name else h for h in service.fleet.hosts)
    moved = service.model_copy(update={"fleet": service.fleet.model_copy(update={"hosts": hosts})})
    with pytest.raises(Retryable, match=r"Prometheus .* does not answer"):
        Prometheus.of(moved).query("up", datetime.now(UTC))


def test_again_changes_nothing(lab: Lab) -> None:
    before = {h.container for h in lab.artifact("scale", Scaled).service.fleet.hosts}
    done = lab.invoke("deploy")
    assert done.returncode == 0
    assert done.stderr.count(" verified: ") == 10
    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        assert {h["container"] for h in ledger.document("service")["fleet"]["hosts"]} == before


def test_back_and_gone(lab: Lab) -> None:
    refused = lab.invoke("destroy")
    assert refused.returncode == 2
    assert "DNS points at the fleet" in refused.stderr
    assert lab.invoke("rollback").returncode == 0
    done = lab.destroyed()
    assert "nothing is left" in done.stdout + done.stderr
    assert "kept, since it holds data: registry images" in done.stderr
    ec2 = Session().client("ec2", REGION)
    foreign = ec2.create_vpc(CidrBlock="10.80.0.0/16")["Vpc"]["VpcId"]
    assert {t.kind for t in ours(lab)} == {"bucket", "registry", "encryption key"}
    done = lab.invoke("destroy", "--delete-data")
    assert done.returncode == 0
    assert "kept" not in done.stderr
    assert ours(lab) == [], "AWS was asked by tag, not the command"
    assert foreign in [v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]]


def ours(lab: Lab) -> list[listing.Thing]:
    return listing.left(f"{lab.place.owner}/fleet", REGION, Session())


@pytest.mark.long
def test_a_queue_is_made_and_what_makes_no_sense_for_it_is_said(account: dict[str, str]) -> None:
    with migration_of("aws-batch", "batch", account) as lab:
        plan = lab.invoke("plan")
        assert plan.returncode == 0
        assert "switch   not applicable: jobs wait in a queue" in plan.stdout
        approved(lab)
        done = [name for name, status in lab.statuses().items() if status == "done"]
        assert done == ["size", "poc"]
        assert set(lab.statuses().values()) == {"done", "not applicable"}
        service = lab.artifact("poc", Service)
        assert (service.fleet.hosts, service.contract) == ((), None)
        assert [c.detail for c in service.checks] == ["takes jobs"]
        again = lab.invoke("deploy")
        assert again.returncode == 0
        assert again.stderr.count(" verified: ") == 2
        assert lab.invoke("destroy", "--delete-data").returncode == 0
