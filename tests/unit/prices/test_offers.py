"""The price tables: known rows, unknown prices, offerings, sources."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from inferlift.errors import DeclarationError
from inferlift.prices import MAX_AGE_DAYS, extras, offers, regions, regions_offering, snapshot, tables
from inferlift.prices.age import _day

EVERY_REGION = [region.name for region in regions()]


def test_known_rows() -> None:
    table = {offer.name: offer for offer in offers("aws", "us-east-1")}
    small, large = table["p5.4xlarge"], table["p5.48xlarge"]
    assert (small.gpu, small.gpu_count, small.usd_per_hour) == ("H100", 1, 6.88)
    assert (large.gpu_count, large.usd_per_hour) == (8, 55.04)
    assert table["p4d.24xlarge"].usd_per_hour == pytest.approx(21.957642)  # not the old 32.77


def test_a_price_that_is_not_known_is_none() -> None:
    assert offers("static")[0].usd_per_hour is None
    assert {o.name: o.usd_per_hour for o in offers("aws")}["g6e.xlarge"] is None
    every = [o for target in ("lab", "aws", "static") for o in offers(target)]
    assert [o.name for o in every if o.usd_per_hour == 0 or o.usd_spot_per_hour == 0] == []


@pytest.mark.parametrize("region", ["eu-north-1", "us-east-1", "us-west-2"])
def test_capacity_blocks_alone_have_no_price_by_the_hour(region: str) -> None:
    table = {offer.name: offer for offer in offers("aws", region)}
    assert table["p5e.48xlarge"].reserve_only
    assert table["p5e.48xlarge"].usd_per_hour is None
    assert [name for name, offer in table.items() if offer.reserve_only] == ["p5e.48xlarge"]


def test_regions_differ() -> None:
    frankfurt = {offer.name: offer for offer in offers("aws")}
    stockholm = {offer.name: offer for offer in offers("aws", "eu-north-1")}
    assert frankfurt["g5.xlarge"].usd_per_hour == 1.258
    assert (frankfurt["p5.48xlarge"].offered, stockholm["p5.48xlarge"].offered) == (False, True)
    assert frankfurt["g5.xlarge"].zones == ("euc1-az1", "euc1-az2", "euc1-az3")
    assert (frankfurt["p4d.24xlarge"].usd_per_hour, stockholm["p4d.24xlarge"].usd_per_hour) == (27.43298, 23.71569)
    with pytest.raises(DeclarationError, match="region"):
        offers("aws", "mars-north-1")


def test_where_a_type_is_offered_within_the_union() -> None:
    assert regions_offering("p5.4xlarge", eu_only=True) == ("eu-north-1",)
    assert "eu-west-2" in regions_offering("p5.4xlarge")  # London
    assert regions_offering("p6-b300.48xlarge", eu_only=True) == ()
    outside = {region.name for region in regions() if region.name.startswith("eu-") and not region.eu}
    assert outside == {"eu-central-2", "eu-west-2"}


def test_cpu_hosts_for_batches_have_spot_prices() -> None:
    table = {offer.name: offer for offer in offers("aws")}
    host = table["c8g.4xlarge"]
    assert (host.gpu, host.vcpu, host.ram_gib, host.arch) == (None, 16, 32, "arm64")
    assert host.usd_per_hour == 0.7256
    assert host.usd_spot_per_hour == 0.2784
    assert host.spot_source
    # on-demand prices of a family are linear in the size; a row that was not read itself says so
    assert table["c7i.16xlarge"].usd_per_hour == pytest.approx(2 * 1.6296)
    assert "linear in size" in table["c7i.16xlarge"].source


@pytest.mark.parametrize("region", EVERY_REGION)
def test_spot_is_never_dearer_than_on_demand(region: str) -> None:
    both = [o for o in offers("aws", region) if o.usd_per_hour and o.usd_spot_per_hour]
    assert [o.name for o in both if o.usd_spot_per_hour > o.usd_per_hour] == []  # type: ignore[operator]


def test_the_lab_is_an_assumption_and_says_so() -> None:
    (host,) = offers("lab")
    assert host.source.startswith("assumption")


def test_every_price_has_a_source_and_a_real_date() -> None:
    every = [*offers("lab"), *offers("static"), *(o for region in EVERY_REGION for o in offers("aws", region))]
    assert [offer.name for offer in every if not offer.source] == []
    priced = [offer for offer in every if offer.usd_per_hour is not None]
    assert len(priced) > 100
    assert [o.name for o in priced if _day(o.date) is None or o.source == "no price in the table"] == []
    spots = [offer for offer in every if offer.usd_spot_per_hour is not None]
    assert [o.name for o in spots if _day(o.spot_date) is None or not o.spot_source] == []


def test_rows_name_known_types_regions_and_kinds_once() -> None:
    names = {row["instance_type"] for row in tables.rows("aws_instances.csv")}
    found = [price.key for price in tables.prices()]
    assert len(found) == len(set(found))
    assert [
        key for key in found if key[0] not in names or key[1] not in EVERY_REGION or key[2] not in tables.KINDS
    ] == []


def test_extras_of_a_region_are_whole_and_unknown_ones_stay_unknown() -> None:
    here, there = extras("us-east-1"), extras("eu-central-1")
    assert set(here) == set(there) == {
        "disk gp3", "object storage", "egress", "address", "load balancer", "dedicated fee",
    }  # fmt: skip
    assert [step.usd for step in there["dedicated fee"]] == [2.0]
    assert [step.usd for step in here["egress"]] == [0, 0.09, 0.085, 0.07, 0.05]
    assert here["egress"][-1].up_to_gb is None
    assert (there["disk gp3"][0].usd, there["address"][0].usd) == (0.0952, 0.005)
    assert [(step.usd, step.up_to_gb) for step in there["egress"]] == [(0, 100), (0.09, 10_000)]
    assert extras("eu-north-1")["egress"][0].usd is None
    assert extras("sa-east-1")["disk gp3"][0].usd is None
    for steps in here.values():
        for low, high in itertools.pairwise(steps):
            assert low.up_to_gb == high.from_gb
    with pytest.raises(DeclarationError, match="region"):
        extras("mars-north-1")


def test_unknown_target() -> None:
    with pytest.raises(DeclarationError, match="prices"):
        offers("azure")  # type: ignore[arg-type]


def test_a_users_snapshot_lies_over_the_table(state: Path) -> None:
    before = {offer.name: offer for offer in offers("aws")}
    newer = tables.Price("g5.xlarge", "eu-central-1", "on-demand", 1.3, "AWS", "2026-11-30")
    older = tables.Price("g4dn.xlarge", "eu-central-1", "on-demand", 9.9, "AWS", "2020-01-01")
    gone = tables.Offering("g6.xlarge", "eu-central-1", (), "AWS", "2026-11-30")
    snapshot.write([newer, older], [gone], "2026-11-30")
    after = {offer.name: offer for offer in offers("aws")}
    assert (after["g5.xlarge"].usd_per_hour, after["g5.xlarge"].date) == (1.3, "2026-11-30")
    assert after["g4dn.xlarge"] == before["g4dn.xlarge"]  # the shipped row is newer
    assert (before["g6.xlarge"].offered, after["g6.xlarge"].offered) == (True, False)
    assert after["g5.2xlarge"] == before["g5.2xlarge"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"prices": [{"usd": 1}], "offerings": []}', '{"prices": 3, "offerings": []}', "[" * 100_000],
)
def test_a_snapshot_that_is_none_is_named(state: Path, text: str) -> None:
    path = snapshot.write([], [], "2026-11-30")
    path.write_text(text)
    with pytest.raises(DeclarationError, match="not a price snapshot") as told:
        offers("aws")
    assert str(path) in told.value.next_command


@pytest.mark.parametrize("usd", [0, -1, "1.3", True])
def test_a_snapshot_holds_prices_alone(state: Path, usd: object) -> None:
    price = tables.Price("g5.xlarge", "eu-central-1", "on-demand", 1.3, "AWS", "2026-11-30")
    path = snapshot.write([price], [], "2026-11-30")
    body = json.loads(path.read_text())
    body["prices"][0]["usd_per_hour"] = usd
    path.write_text(json.dumps(body))
    with pytest.raises(DeclarationError, match="not a price snapshot"):
        offers("aws")


def test_all_offers_are_there() -> None:
    assert len(offers("aws", "eu-west-1")) == 70
    assert MAX_AGE_DAYS == 90


@pytest.mark.parametrize("table", sorted(path.name for path in tables.HERE.glob("*.csv")))
def test_rows_are_whole_and_their_sources_can_be_followed(table: str) -> None:
    """An address, a package or a repository with its file, or a plain word that there is none."""
    told = ("https://", "http://", "PyPI", "github.com/", "moto ", "skypilot-org/", "assumption", "told by others",
            "none found", "none exists", "not sold", "unknown", "quotation")  # fmt: skip
    for row in tables.rows(table):
        assert None not in row, row
        for name, text in row.items():
            if name.endswith("source") and text:
                assert text.startswith(told), (table, text)
                assert "record " not in text
