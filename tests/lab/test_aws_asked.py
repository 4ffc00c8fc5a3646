"""What is asked of AWS before and after Pulumi, against moto: checks, capacity, listing, removal, host keys.

Moto takes what AWS might refuse: a green test here shows our requests and our reading, not AWS.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.errors import CheckFailed, DeclarationError, InferliftError, NoCapacity, Refusal, Retryable
from inferlift.provision.aws import capacity, hostkeys, listing, naming, removal, undo
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.checks import before_spending
from inferlift.provision.aws.resolve import image, resolve
from inferlift.provision.aws.session import Session
from inferlift.provision.aws.tables import instance_type
from tests.standin_aws import cloud as standin
from tests.unit.provision.aws_documents import document

pytestmark = pytest.mark.lab

REGION, LABEL = "eu-central-1", "3fa2c1/llm-13b-aws/fleet"
NOON = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)


def quiet(line: str) -> None:
    """Nobody reads along here."""


@pytest.fixture(scope="module")
def _server() -> Iterator[standin.Cloud]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with standin.cloud() as made:
        yield made


@pytest.fixture(scope="module")
def session() -> Session:
    """One for all: making a client costs a tenth of a second."""
    return Session()


@pytest.fixture
def cloud(_server: standin.Cloud, monkeypatch: pytest.MonkeyPatch) -> standin.Cloud:
    for key, value in {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": _server.url}.items():
        monkeypatch.setenv(key, value)
    standin.reset()
    return _server


def hold(session: Session, said: list[str] | None = None, counts: tuple[int, ...] = (2,)) -> capacity.Held:
    zones = [f"{REGION}{letter}" for letter in "abc"]
    say = quiet if said is None else said.append
    return capacity.hold(session, REGION, instance_type("g5.xlarge"), zones, counts, LABEL, say, clock=lambda: NOON)


def test_no_capacity_moves_on_to_the_next_zone(cloud: standin.Cloud, session: Session) -> None:
    cloud.faults = {("CreateCapacityReservation", f"{REGION}a"): "InsufficientInstanceCapacity"}
    said: list[str] = []
    held = hold(session, said)
    assert held.zones[0] == f"{REGION}b"
    assert said == [
        "g5.xlarge in eu-central-1a: InsufficientInstanceCapacity (tried 1 of 3)",
        "g5.xlarge in eu-central-1b: 2 held (tried 2 of 3)",
    ]
    assert [zone for _, zone in cloud.asked] == [f"{REGION}a", f"{REGION}b"], "the third zone is not asked"


def test_no_capacity_in_two_zones_moves_on_twice(cloud: standin.Cloud, session: Session) -> None:
    cloud.faults = {("CreateCapacityReservation", f"{REGION}{z}"): "InsufficientInstanceCapacity" for z in "ab"}
    said: list[str] = []
    assert hold(session, said).zones[0] == f"{REGION}c"
    assert said[-1] == "g5.xlarge in eu-central-1c: 2 held (tried 3 of 3)"


def test_no_capacity_anywhere_says_how_many_were_tried_and_holds_nothing(
    cloud: standin.Cloud, session: Session
) -> None:
    cloud.faults = {("CreateCapacityReservation", f"{REGION}{z}"): "InsufficientInstanceCapacity" for z in "bc"}
    with pytest.raises(NoCapacity, match="tried 3 of 3 zones"):
        hold(session, counts=(1, 1))
    assert {r.state for r in cloud.reservations.values()} == {"cancelled"}, "zone a's is given back"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("VcpuLimitExceeded", Refusal, "a quota of the account is used up in eu-central-1a"),
        ("UnauthorizedOperation", Refusal, "is not allowed"),
        ("RequestLimitExceeded", Retryable, "slow down"),
        ("InvalidParameterValue", DeclarationError, "does not take the request"),
        ("SomethingInvented", CheckFailed, "not known here"),
    ],
)
def test_any_other_answer_ends_it_at_the_first_zone(
    cloud: standin.Cloud, code: str, kind: type[InferliftError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferlift.provision.aws.session.TIMES", 1)
    cloud.faults = {("CreateCapacityReservation", "*"): code}
    with pytest.raises(kind) as caught:
        hold(Session())
    assert words in caught.value.what
    assert code in caught.value.why
    assert {zone for _, zone in cloud.asked} == {f"{REGION}a"}


def test_holding_can_be_repeated(cloud: standin.Cloud, session: Session) -> None:
    first, second = hold(session), hold(session)
    assert first.reservations == second.reservations
    assert len(cloud.reservations) == 1


def test_a_document_is_resolved_and_stays_as_it_was(cloud: standin.Cloud, session: Session) -> None:
    first = planning.of(resolve(document("llm-13b"), session, quiet))
    site = first.sites[0]
    assert first.account == standin.ACCOUNT
    assert site.zones == (f"{REGION}a", f"{REGION}b", f"{REGION}c")
    assert set(site.images) == {"gateway", "model", "monitor", "bastion"}
    turned = first.model_copy(
        update={"sites": (site.model_copy(update={"zones": site.zones[::-1], "images": {"model": "ami-old"}}),)}
    )
    again = planning.of(resolve(document("llm-13b"), session, quiet, pinned=turned)).sites[0]
    assert again.zones == site.zones[::-1], "the zones' order is kept"
    assert again.images["model"] == "ami-old", "the image is pinned"


def test_another_account_is_refused(cloud: standin.Cloud, session: Session) -> None:
    pinned = planning.of(resolve(document("llm-13b"), session, quiet)).model_copy(update={"account": "9" * 12})
    with pytest.raises(Refusal, match="this fleet is in the account 999999999999"):
        resolve(document("llm-13b"), session, quiet, pinned=pinned)


def test_a_region_without_the_type_is_refused(cloud: standin.Cloud, session: Session) -> None:
    with pytest.raises(Refusal, match="no zone of eu-central-1 offers"):
        resolve(document("llm-70b", settings={"region": REGION}), session, quiet)


def test_quotas_are_told_apart_and_the_request_to_file_is_named(cloud: standin.Cloud, session: Session) -> None:
    cloud.quotas = {"L-DB2E81BA": 4.0}
    checks = {c.name: c for c in before_spending(document("llm-13b"), session, quiet)}
    short = checks["quota in eu-central-1: Running On-Demand G and VT instances"]
    assert not short.ok
    assert "8 vCPUs are needed and 4 allowed" in short.detail
    assert "--quota-code L-DB2E81BA --desired-value 8" in short.detail
    assert checks["identity"].ok
    assert checks["capacity in eu-central-1"].skipped, "nobody knows it before it is asked for"
    assert checks["what exists in eu-central-1"].detail == "nothing of ours"


def test_without_credentials_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Refusal, match="there are no credentials for AWS"):
        before_spending(document("llm-13b"), Session(), quiet)


def test_an_example_range_lets_nobody_in(cloud: standin.Cloud, session: Session) -> None:
    checks = {c.name: c for c in before_spending(document("image-edge", settings={"edge": ()}), session, quiet)}
    assert not checks["who may call"].ok
    assert "203.0.113.0/24 is an example" in checks["who may call"].detail


def test_a_mistyped_region_is_no_wait(session: Session) -> None:
    with pytest.raises(DeclarationError, match="no region eu-cental-1; did you mean eu-central-1"):
        session.account("eu-cental-1")


def existing(session: Session) -> dict[str, Any]:
    """A network of the operator's own with a public and a private subnet in one zone."""
    client = session.client("ec2", REGION)
    network = client.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    made = [
        client.create_subnet(VpcId=network, CidrBlock=f"10.7.{n}.0/24", AvailabilityZone=f"{REGION}a")["Subnet"]
        for n in (0, 1)
    ]
    public, private = (str(s["SubnetId"]) for s in made)
    return {"vpc_id": network, "public_subnets": (public,), "private_subnets": (private,)}


def test_an_existing_network_is_used_where_it_has_subnets(cloud: standin.Cloud, session: Session) -> None:
    site = planning.of(resolve(document("llm-13b", settings=existing(session)), session, quiet)).sites[0]
    assert site.zones == (f"{REGION}a",)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"vpc_id": "vpc-0000000000000000a"}, "lies in another network than vpc-0000000000000000a"),
        ({"private_subnets": ("subnet-0000000000000000a",)}, "AWS does not take the request"),
    ],
)
def test_an_existing_network_that_is_not_there_is_said(
    cloud: standin.Cloud, session: Session, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(DeclarationError, match=words):
        resolve(document("llm-13b", settings={**existing(session), **wrong}), session, quiet)


def test_images_of_a_lock_file_are_taken(cloud: standin.Cloud, session: Session) -> None:
    other, _ = image(session, REGION, "debian", "arm64")  # the stand-in registers what is asked for
    locked = {REGION: {"model": other}}
    site = planning.of(resolve(document("llm-13b"), session, quiet, locked=locked)).sites[0]
    assert site.images["model"] == other
    assert site.images["gateway"] == standin.AMI["x86_64"]
    with pytest.raises(InferliftError, match="the image ami-00000000000000000"):
        resolve(document("llm-13b"), session, quiet, locked={REGION: {"model": "ami-00000000000000000"}})


def tagged(session: Session, label: str = LABEL, name: str = "vpc") -> str:
    client = session.client("ec2", REGION)
    tags = [{"Key": k, "Value": v} for k, v in naming.tags(label, name).items()]
    made = client.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])
    return str(made["Vpc"]["VpcId"])


def test_only_what_carries_our_tag_is_listed_and_removed(cloud: standin.Cloud, session: Session) -> None:
    ours, foreign = tagged(session), tagged(session, label="someone/else")
    session.client("s3", REGION).create_bucket(
        Bucket="inferlift-not-ours", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    found = listing.left(LABEL, REGION, session)
    assert [(t.kind, t.id) for t in found] == [("network", ours)]
    assert removal.remove(found, session, quiet) == []
    assert listing.left(LABEL, REGION, session) == []
    known = [v["VpcId"] for v in session.client("ec2", REGION).describe_vpcs()["Vpcs"]]
    assert foreign in known


def test_what_holds_data_stays_until_it_is_asked_for(cloud: standin.Cloud, session: Session) -> None:
    client = session.client("s3", REGION)
    client.create_bucket(Bucket="inferlift-it", CreateBucketConfiguration={"LocationConstraint": REGION})
    tags = naming.tags(LABEL, "store", data="keep")
    rows = [{"Key": k, "Value": v} for k, v in tags.items()]
    client.put_bucket_tagging(Bucket="inferlift-it", Tagging={"TagSet": rows})
    client.put_bucket_versioning(Bucket="inferlift-it", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"one", b"two"):
        client.put_object(Bucket="inferlift-it", Key="weights", Body=body)
    client.delete_object(Bucket="inferlift-it", Key="weights")
    found = listing.left(LABEL, REGION, session)
    assert [(t.kind, t.data) for t in found] == [("bucket", True)]
    removal.remove(found, session, quiet)
    assert listing.left(LABEL, REGION, session) == found
    removal.remove(found, session, quiet, data=True)
    assert listing.left(LABEL, REGION, session) == []


def test_what_something_hangs_on_is_tried_again_and_then_named(cloud: standin.Cloud, session: Session) -> None:
    said: list[str] = []
    client = session.client("ec2", REGION)
    client.create_subnet(VpcId=tagged(session), CidrBlock="10.9.0.0/24")  # somebody's, without our tag
    waits: list[float] = []
    left = removal.remove(listing.left(LABEL, REGION, session), session, said.append, limit_s=0, sleep=waits.append)
    assert [t.kind for t in left] == ["network"]
    assert any("network vpc stays" in line for line in said)


@pytest.mark.parametrize(
    ("kind", "name", "gone"),
    [("aws:ec2/vpc:Vpc", "vpc", True), ("aws:ec2/vpc:Vpc", "another", False), ("aws:kms/key:Key", "vpc", True)],
)
def test_a_killed_create_is_found_by_its_tag(
    cloud: standin.Cloud, session: Session, kind: str, name: str, gone: bool
) -> None:
    tagged(session)
    pending = {"urn": f"urn:pulumi:fleet::inferlift-aws::{kind}::{name}", "type": kind, "inputs": {}}
    undo.undo_create(pending, LABEL, [REGION], session, quiet)
    assert (listing.left(LABEL, REGION, session) == []) is gone


def test_a_killed_route_is_taken_back(cloud: standin.Cloud, session: Session) -> None:
    client = session.client("ec2", REGION)
    table = client.create_route_table(VpcId=tagged(session))["RouteTable"]["RouteTableId"]
    gateway = client.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    client.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    inputs = {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0"}
    kind = "aws:ec2/route:Route"
    undo.undo_create({"urn": f"u::p::{kind}::to-nat", "type": kind, "inputs": inputs}, LABEL, [REGION], session, quiet)
    routes = client.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert [r["DestinationCidrBlock"] for r in routes] == ["10.9.0.0/16"]


@pytest.mark.parametrize(("tags", "objects", "gone"), [(False, 0, True), (False, 1, False), (True, 0, False)])
def test_an_unfinished_bucket_goes_unless_it_has_tags_or_objects(
    cloud: standin.Cloud, session: Session, tags: bool, objects: int, gone: bool
) -> None:
    client = session.client("s3", REGION)
    client.create_bucket(Bucket="inferlift-it", CreateBucketConfiguration={"LocationConstraint": REGION})
    if tags:
        client.put_bucket_tagging(Bucket="inferlift-it", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    for number in range(objects):
        client.put_object(Bucket="inferlift-it", Key=str(number), Body=b"")
    kind = "aws:s3/bucket:Bucket"
    pending = {"urn": f"u::p::{kind}::store", "type": kind, "inputs": {"bucket": "inferlift-it"}}
    undo.undo_create(pending, LABEL, [REGION], session, quiet)
    names = [b["Name"] for b in client.list_buckets()["Buckets"]]
    assert (names == []) is gone


CONSOLE = (
    "[  12.1] cloud-init\r\n-----BEGIN SSH HOST KEY KEYS-----\r\necdsa-sha2-nistp256 AAAAE2V root@h\r\n"
    "ssh-ed25519 {} root@h\r\n-----END SSH HOST KEY KEYS-----\r\n"
)


@given(st.text(), st.from_regex(r"AAAA[A-Za-z0-9+/]{8,40}={0,2}", fullmatch=True), st.text())
def test_a_console_tells_the_last_boots_key(before: str, key: str, after: str) -> None:
    text = before + CONSOLE.format("AAAAold") + CONSOLE.format(key) + after.replace("-----", "")
    assert hostkeys.from_console(text) == f"ssh-ed25519 {key}"


@pytest.mark.parametrize("text", ["", "no keys", "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 AAAA"])
def test_half_a_console_tells_nothing(text: str) -> None:
    assert hostkeys.from_console(text) is None


class Consoles:
    """A session whose instances show their key on the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def client(self, service: str, region: str) -> Any:
        return self

    def get_console_output(self, **_: Any) -> dict[str, str]:
        self.looks += 1
        return {"Output": CONSOLE.format("AAAAkey")} if self.looks > 2 else {}


def test_a_console_is_waited_for_and_then_remembered(tmp_path: Path) -> None:
    session: Any = Consoles()
    waits: list[float] = []
    note = tmp_path / "keys.json"
    for _ in range(2):
        found = hostkeys.host_keys([("i-1", REGION)], session, note, quiet, sleep=waits.append)
        assert found == {"i-1": "ssh-ed25519 AAAAkey"}
    assert (session.looks, waits) == (3, [5, 5])


def test_a_console_that_stays_empty_names_the_instance(tmp_path: Path) -> None:
    session: Any = Consoles()
    session.looks = -10
    with pytest.raises(Retryable, match="no host key is known of i-1"):
        hostkeys.host_keys([("i-1", REGION)], session, tmp_path / "k", quiet, limit_s=0, sleep=lambda s: None)
