"""The fleet read back from moto: found, verified, its power cut; and which work folder is handed on to AWS."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inferlift.artifacts import Fleet
from inferlift.errors import CheckFailed, Refusal
from inferlift.provision import targets
from inferlift.provision.aws import naming, notes, power, reading
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.session import Session
from inferlift.provision.models import Tools

from .aws_documents import document, resolved

pytestmark = pytest.mark.programs

if TYPE_CHECKING:
    from tests.standin_aws.cloud import Cloud

REGION = "eu-central-1"
DESIRED = resolved(document("llm-13b", floors={"poc": 1}))
TOOLS = Tools(pulumi_bin=Path("/nowhere"), python_plugin=None, host_image="")


@pytest.fixture(scope="module")
def _server() -> Iterator[Cloud]:
    from tests.standin_aws import cloud as standin  # moto's seconds are for the worker that runs these

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with standin.cloud() as made:
        yield made


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


@pytest.fixture
def folder(_server: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from tests.standin_aws import cloud as standin

    for key, value in {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": _server.url}.items():
        monkeypatch.setenv(key, value)
    standin.reset()
    notes.remember(tmp_path, DESIRED)
    return tmp_path


def make(session: Session, name: str, role: str, type_: str = "c7i.large", label: str = DESIRED.label) -> str:
    tags = naming.tags(label, name, role=role, name=name, site=REGION)
    rows = [{"Key": k, "Value": v} for k, v in tags.items()]
    made = session.client("ec2", REGION).run_instances(
        ImageId="ami-0a0a0a0a0a0a0a0a0", InstanceType=type_, MinCount=1, MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": rows}],
    )  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def fleet(session: Session, folder: Path) -> Fleet:
    make(session, "gateway-1", "gateway")
    make(session, "model-1", "model", "g5.xlarge")
    make(session, "monitor-1", "monitor")
    make(session, "bastion", "bastion", "t3.micro")
    make(session, "model-9", "model", label="someone/else")
    found = reading.read(DESIRED.label, folder, session)
    assert found is not None
    return found


def test_the_fleet_is_what_carries_the_tag(session: Session, folder: Path) -> None:
    found = fleet(session, folder)
    assert [(h.name, h.role) for h in found.hosts] == [
        ("gateway-1", "gateway"), ("model-1", "model"), ("monitor-1", "monitor"),
    ]  # fmt: skip
    model = found.by_role("model")[0]
    assert (model.gpu, model.cpus, model.user) == ("1 x A10G", 4, "root")
    assert model.host_key.startswith("ssh-ed25519 ")
    assert model.jump is not None
    assert model.jump.host_key.startswith("ssh-ed25519 ")
    assert model.jump.host_key != model.host_key, "the bastion's own"
    assert found.aws == planning.of(DESIRED), "the images and zones for the lock file"
    assert reading.read("someone/else", folder, session) is None
    assert all(c.ok for c in reading.verify(found, session))


def test_the_generation_moves_with_a_host(session: Session, folder: Path) -> None:
    first = fleet(session, folder)
    make(session, "model-2", "model")
    second = reading.read(DESIRED.label, folder, session)
    assert second is not None
    assert second.generation != first.generation


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("terminate_instances", "deleted: AWS knows no instance of model-1"),
        ("stop_instances", "stopped: its instance is stopped"),
    ],
)
def test_what_became_of_a_host_is_said(session: Session, folder: Path, change: str, words: str) -> None:
    found = fleet(session, folder)
    model = found.by_role("model")[0]
    getattr(session.client("ec2", REGION), change)(InstanceIds=[model.container])
    bad = [c for c in reading.verify(found, session) if not c.ok]
    assert [(c.name, c.detail) for c in bad] == [("host model-1", words)]


def test_another_instance_of_the_name_and_one_too_many_are_found(session: Session, folder: Path) -> None:
    found = fleet(session, folder)
    model = found.by_role("model")[0]
    session.client("ec2", REGION).terminate_instances(InstanceIds=[model.container])
    make(session, "model-1", "model")
    make(session, "model-2", "model")
    details = {c.name: c.detail for c in reading.verify(found, session) if not c.ok}
    assert "another instance has taken its place" in details["host model-1"]
    assert "not part of what was made" in details["host model-2"]


def test_power_is_cut_and_given_back(session: Session, folder: Path) -> None:
    model = fleet(session, folder).by_role("model")[0]
    ec2 = session.client("ec2", REGION)

    def state() -> Any:
        return ec2.describe_instances(InstanceIds=[model.container])["Reservations"][0]["Instances"][0]["State"]["Name"]

    power.off(model, session)
    assert state() == "stopped"
    power.on(model, session, sleep=lambda s: None)
    power.on(model, session, sleep=lambda s: None)
    assert state() == "running"
    ec2.terminate_instances(InstanceIds=[model.container])
    with pytest.raises(CheckFailed, match="does not run again"):
        power.on(model, session, sleep=lambda s: None)


def test_hosts_that_somebody_stopped_are_booted_and_no_other(session: Session, folder: Path) -> None:
    whole = fleet(session, folder)
    gateway = whole.by_role("gateway")[0]
    said: list[str] = []
    power.boot_stopped(DESIRED.label, REGION, session, said.append)
    assert said == []
    power.off(gateway, session)
    power.boot_stopped("somebody/else", REGION, session, said.append)
    assert said == []
    power.boot_stopped(DESIRED.label, REGION, session, said.append, sleep=lambda s: None)
    assert said == [f"booting {gateway.name}, which was stopped"]
    again = reading.read(DESIRED.label, folder, session)
    assert again is not None
    assert again.generation == whole.generation, "the same hosts"


def test_a_host_of_the_lab_is_no_instance(session: Session, folder: Path) -> None:
    host = fleet(session, folder).hosts[0].model_copy(update={"container": "3fa2c1"})
    with pytest.raises(Refusal, match="no instance on AWS"):
        power.off(host, session)


def test_what_expires_is_asked_of_aws(session: Session, folder: Path) -> None:
    groups = session.client("autoscaling", REGION)
    subnet = session.client("ec2", REGION).describe_subnets()["Subnets"][0]["SubnetId"]
    template = session.client("ec2", REGION).create_launch_template(
        LaunchTemplateName="it", LaunchTemplateData={"ImageId": "ami-0a0a0a0a0a0a0a0a0", "InstanceType": "c7i.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    for name in (naming.named(DESIRED.label, "model-1"), "somebody-elses"):
        groups.create_auto_scaling_group(
            AutoScalingGroupName=name, MinSize=0, MaxSize=1, VPCZoneIdentifier=subnet,
            LaunchTemplate={"LaunchTemplateId": template},
        )  # fmt: skip
        groups.put_scheduled_update_group_action(
            AutoScalingGroupName=name, ScheduledActionName=f"{name}-expiry", StartTime="2036-12-01T12:00:00Z", MinSize=0
        )
    assert list(reading.expiring(DESIRED.label, folder, session)) == [naming.named(DESIRED.label, "model-1")]


def test_a_work_folder_with_a_fleet_on_aws_is_handed_on(session: Session, folder: Path, tmp_path: Path) -> None:
    fleet(session, folder)
    found = targets.read_fleet(DESIRED.label, folder, TOOLS)
    assert found is not None
    assert found.aws is not None
    assert targets.verify_fleet(found, folder, TOOLS)
    assert notes.regions(folder) == [REGION]
    other = tmp_path / "other"
    assert not notes.is_here(DESIRED.label, other)
    assert notes.regions(other) == []


def test_regions_that_were_used_are_never_forgotten(tmp_path: Path) -> None:
    notes.remember(tmp_path, DESIRED)
    notes.remember(tmp_path, resolved(document("llm-70b")))
    assert notes.regions(tmp_path) == [REGION, "eu-north-1"]
