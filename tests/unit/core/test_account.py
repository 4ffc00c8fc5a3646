"""The account's answers as people read them: what is unknown is told and never summed as nothing."""

from __future__ import annotations

import pytest

from inferlift.artifacts import Check
from inferlift.declaration import load
from inferlift.migration import ORDER, looking, stages
from inferlift.movable import deployable
from inferlift.place import place
from inferlift.profile import ROOT
from inferlift.provision.aws.bill import Billed
from inferlift.stages import _account

GATEWAY = Billed("NAT gateway", 1, "hour", 0.045, "us-east-1", "a table", "eu-central-1")
KEY = Billed("encryption key", 1, "month", None, None, "no price is known here", "eu-central-1")
STORE = Billed("object storage", 1, "usage", None, None, "no price is known here", "eu-central-1")


def host(type_: str, market: str = "on-demand", place: str = "eu-central-1") -> Billed:
    return Billed(f"{type_} {market}", 2, "hour", None, None, "no price is known here", place)


def test_hosts_and_disks_get_the_price_tables_prices() -> None:
    disks = Billed("disk gp3, GB", 730, "month", None, None, "", "eu-central-1")
    priced = _account._priced([host("g5.xlarge"), host("g5.xlarge", "spot"), disks, GATEWAY])
    on_demand, spot, disk, gateway = priced
    assert on_demand.usd == pytest.approx(1.258, abs=0.05)
    assert spot.usd is None or spot.usd < (on_demand.usd or 0)
    assert disk.usd_per_hour == pytest.approx(0.0952)
    assert gateway is GATEWAY


def test_a_type_that_no_table_prices_stays_unknown() -> None:
    (one,) = _account._priced([host("c7i.48xlarge")])
    assert one.usd is None


def test_the_sum_names_what_it_leaves_out() -> None:
    account = _account.Account((), (GATEWAY, KEY, STORE))
    assert account.usd_per_hour == pytest.approx(0.045)
    told = _account.lines(account)
    assert told[-1] == "  0.04 USD/hour in all, beside encryption key, object storage"
    assert "0.0450 USD/hour  1 x NAT gateway (eu-central-1, price of us-east-1)" in told[0]
    assert any("price unknown  1 x encryption key" in line for line in told)
    assert any("by use  1 x object storage" in line for line in told)


def test_nothing_known_is_unknown_and_not_free() -> None:
    account = _account.Account((), (KEY,))
    assert account.usd_per_hour is None
    assert _account.lines(account)[-1].startswith("  unknown in all")


def test_a_check_that_was_not_answered_is_no_pass() -> None:
    checks = tuple(Check(name=n, ok=ok, skipped=s) for n, ok, s in (("a", True, False), ("b", True, True)))
    assert [line[:5] for line in _account.lines(_account.Account(checks, None))] == ["  ok ", "  -- "]
    assert not _account.Account((*checks, Check(name="c", ok=False)), None).ok


@pytest.mark.parametrize("name", ["demo-aws", "batch"])
def test_what_can_be_deployed_to_aws(name: str) -> None:
    deployable(load(name, ROOT).profile, name)


def test_stages_that_make_no_sense_for_a_queue_say_why() -> None:
    where = place("batch")
    with looking(where, "test") as ctx:
        reasons = {name: stage.applicable(ctx) for name, stage in stages().items()}
    assert [name for name in ORDER if reasons[name] is None] == ["size", "poc"]
    for name in ("load", "migrate", "scale", "switch", "watch"):
        assert "jobs wait in a queue" in (reasons[name] or "")


def test_all_of_them_make_sense_for_hosts() -> None:
    with looking(place("demo-aws"), "test") as ctx:
        assert {stage.applicable(ctx) for stage in stages().values()} == {None}
