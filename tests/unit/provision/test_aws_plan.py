"""Documents, tables and names for AWS: what is refused, what stays put when the order of zones changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts.fleet import AwsSettings
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.provision.aws import naming, tables
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.checks import vcpus_needed

from .aws_documents import PROFILES, document, profile, resolved


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(DeclarationError) as caught:
        yield
    assert words in f"{caught.value.what} {caught.value.why}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"user_ranges": ()}, "nobody may call port 443"),
        ({"admin_ranges": ("0.0.0.0/0",)}, "SSH would be open to everybody"),
        ({"cidr": "10.80.0.0/24"}, "too small"),
        ({"front": "alb"}, "certificate_arn"),
        ({"vpc_id": "vpc-0123456789abcdef0"}, "which subnets"),
        ({"region": "us-east-1"}, "outside of operations.residency"),
        ({"edge": ("us-west-2",)}, "outside of operations.residency"),
        ({"edge": ("Frankfurt",)}, "neither a region"),
        ({"gateway_type": "m5.large"}, "not one of the EC2 types"),
    ],
)
def test_what_is_refused_before_anything_is_made(settings: dict[str, object], words: str) -> None:
    with refused(words):
        document("llm-13b", settings=settings)


def with_operations(name: str, **more: object) -> Profile:
    known = profile(name)
    return known.model_copy(update={"operations": known.operations.model_copy(update=more)})


@pytest.mark.parametrize(
    ("choice", "reservation", "settings", "nodes", "words"),
    [
        ("g5.xlarge", "capacity-block", {}, 1, "not sold in capacity blocks"),
        ("p5.48xlarge", "capacity-block", {}, 1, "which capacity block"),
        ("g5.xlarge", "none", {}, 2, "has no EFA"),
    ],
)
def test_what_a_type_cannot_do_is_refused(
    choice: str, reservation: str, settings: dict[str, object], nodes: int, words: str
) -> None:
    with refused(words):
        planning.document(
            with_operations("llm-70b", reservation=reservation),
            AwsSettings.model_validate({"user_ranges": ("0.0.0.0/0",), **settings}),
            choice=choice, region="eu-north-1", label="x/y/fleet", floors={"poc": 1}, nodes_per_replica=nodes,
        )  # fmt: skip


def test_hosts_are_numbered_so_that_less_drops_the_highest() -> None:
    few = [name for name, _, _ in planning.hosts(document("llm-13b", floors={"poc": 1}))]
    many = [name for name, _, _ in planning.hosts(document("llm-13b", floors={"poc": 1, "scale": 3}))]
    assert few == ["gateway-1", "model-1", "monitor-1"]
    assert sorted(set(many) - set(few)) == ["model-2", "model-3"]


def test_an_edge_has_a_gateway_and_model_hosts_at_every_site() -> None:
    names = [name for name, _, _ in planning.hosts(document("image-edge"))]
    assert [n for n in names if n.startswith("gateway")] == [
        "gateway-1", "gateway-1-eu-north-1", "gateway-1-eu-central-1-ham-1a",
    ]  # fmt: skip
    sites = planning.of(document("image-edge")).sites
    assert [s.region for s in sites] == ["eu-central-1", "eu-north-1", "eu-central-1"]
    ranges = [IPv4Network(s.cidr) for s in sites]
    assert not any(a.overlaps(b) for n, a in enumerate(ranges) for b in ranges[n + 1 :])


def test_a_queue_has_no_hosts() -> None:
    desired = document("batch")
    plan = planning.of(desired)
    assert desired.groups == ()
    assert plan.batch is not None
    assert plan.batch.market == "spot"
    assert plan.batch.max_vcpus == 48, "three hosts of sixteen vCPUs, as sized"
    assert set(plan.batch.instance_types) == {"c7i.4xlarge", "c7i.8xlarge", "c7i.12xlarge", "c7i.16xlarge"}


@given(st.permutations(["eu-central-1a", "eu-central-1b", "eu-central-1c"]))
def test_a_new_order_of_zones_moves_no_subnet(zones: list[str]) -> None:
    found = {zone: planning.subnets("10.80.0.0/16", zone) for zone in zones}
    assert found["eu-central-1a"] == ("10.80.0.0/20", "10.80.128.0/20")
    assert found["eu-central-1c"] == ("10.80.32.0/20", "10.80.160.0/20")


@given(st.integers(16, 20), st.sampled_from("abcdef"))
def test_subnets_lie_inside_and_apart(prefix: int, letter: str) -> None:
    cidr = f"10.80.0.0/{prefix}"
    mine = [IPv4Network(s) for s in planning.subnets(cidr, f"us-east-1{letter}")]
    others = [IPv4Network(s) for o in set("abcdef") - {letter} for s in planning.subnets(cidr, f"us-east-1{o}")]
    assert all(s.subnet_of(IPv4Network(cidr)) for s in mine)
    assert not any(a.overlaps(b) for a in mine for b in [*others, *(m for m in mine if m is not a)])


def test_model_hosts_spread_over_two_zones_where_more_than_one_host_is_promised() -> None:
    desired = resolved(document("llm-13b", floors={"scale": 4}))
    plan = planning.of(desired)
    zones = [planning.zone_of(plan, plan.sites[0], "model", n) for n in (1, 2, 3, 4)]
    assert zones == ["eu-central-1b", "eu-central-1a", "eu-central-1b", "eu-central-1a"]
    assert planning.zone_of(plan, plan.sites[0], "gateway", 1) == "eu-central-1b"


@pytest.mark.parametrize("name", PROFILES)
def test_vcpus_are_counted_by_quota(name: str) -> None:
    needs = vcpus_needed(document(name))
    expected = {
        "llm-13b": {("eu-central-1", "L-1216C47A", "on-demand"): 6, ("eu-central-1", "L-DB2E81BA", "on-demand"): 8},
        "llm-70b": {("eu-north-1", "L-1216C47A", "on-demand"): 4, ("eu-north-1", "L-417A185B", "on-demand"): 384},
        "image-edge": {
            ("eu-central-1", "L-1216C47A", "on-demand"): 8, ("eu-central-1", "L-DB2E81BA", "on-demand"): 8,
            ("eu-north-1", "L-1216C47A", "on-demand"): 4, ("eu-north-1", "L-DB2E81BA", "on-demand"): 4,
        },
        "batch": {("eu-central-1", "L-34B43A08", "spot"): 48},
        "multimodal": {("eu-north-1", "L-1216C47A", "on-demand"): 4, ("eu-north-1", "L-417A185B", "on-demand"): 32},
    }  # fmt: skip
    assert needs == expected[name]


@pytest.mark.parametrize(
    ("name", "market", "code"),
    [
        ("g4dn.xlarge", "spot", "L-3819A6DF"), ("p4d.24xlarge", "spot", "L-7212CCBC"),
        ("p5en.48xlarge", "spot", "L-C4BD4855"), ("p6-b200.48xlarge", "on-demand", "L-417A185B"),
        ("p6-b200.48xlarge", "spot", None), ("c8g.large", "on-demand", "L-1216C47A"),
    ],
)  # fmt: skip
def test_quota_of_a_type(name: str, market: tables.Market, code: str | None) -> None:
    """Where public tables contradict each other the quota is unknown, not a guess."""
    assert tables.quota(tables.instance_type(name), market).code == code


FAMILIES = ("c7i", "c8g", "g4dn", "g5", "g6", "g6e", "g7e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_asked_for_is_in_the_table(family: str) -> None:
    kinds = [t for t in tables.instance_types() if t.family == family]
    assert kinds
    assert all(t.vcpus > 0 and t.memory_mib > 0 for t in kinds)
    assert all(bool(t.gpus) == (family[0] in "gp") for t in kinds)


def test_names_are_ours_alone_and_short_enough() -> None:
    one, other = "3fa2c1/llm-13b-aws/fleet", "3fa2c2/llm-13b-aws/fleet"
    assert naming.named(one, "front") != naming.named(other, "front")
    assert len(naming.named(one, "s12-gateways")) <= 32, "a load balancer's limit"
    assert naming.bucket_name(one, "1" * 12) != naming.bucket_name(one, "2" * 12)
    with pytest.raises(ValueError, match="too long"):
        naming.named(one, "x" * 60)


def test_no_error_code_is_listed_twice() -> None:
    codes = [row["code"] for row in tables.rows("errors.csv")]
    assert sorted(set(codes)) == sorted(codes)
    assert {row["kind"] for row in tables.rows("errors.csv")} == {
        "no capacity", "quota", "credentials", "permission", "bad request", "throttled",
    }  # fmt: skip
    assert tables.error_kind("SomethingNew") == "unknown"
