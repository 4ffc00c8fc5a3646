"""Refreshing prices: what is taken, what is flagged, what a failure leaves behind."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions

from inferlift.errors import DeclarationError, Refusal, Retryable
from inferlift.prices import offers, refresh, snapshot
from inferlift.prices.refresh import Flag, held_against
from inferlift.prices.tables import Price

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
PRODUCT: dict[str, Any] = json.loads((Path(__file__).parent / "pricelist.json").read_text())
TYPE, REGION = "g5.xlarge", "eu-central-1"


def product(usd: str = "1.3", instance_type: str = TYPE, region: str = REGION, **attributes: str) -> dict[str, Any]:
    made = copy.deepcopy(PRODUCT)
    made["product"]["attributes"] |= {"instanceType": instance_type, "regionCode": region, **attributes}
    (term,) = made["terms"]["OnDemand"].values()
    (rate,) = term["priceDimensions"].values()
    rate["pricePerUnit"]["USD"] = usd
    return made


class StandInAws:
    """Answers the three calls from what it was given, in pages of one.

    It proves nothing about AWS: not that a filter's name is right, nor what prices are, nor which regions answer.
    """

    def __init__(
        self, products: list[dict[str, Any]], spots: dict[str, float] | None = None, zones: tuple[str, ...] = ()
    ) -> None:
        self.products, self.spots, self.zones = products, spots or {}, zones
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get_products(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(("get_products", asked))
        wanted = {row["Field"]: row["Value"] for row in asked["Filters"]}
        return self._page(
            "PriceList",
            [
                json.dumps(p)
                for p in self.products
                if p["product"]["attributes"]["instanceType"] == wanted["instanceType"]
            ],
            asked,
        )

    def describe_spot_price_history(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(("spot", asked))
        rows = [
            {"InstanceType": TYPE, "AvailabilityZone": zone, "SpotPrice": f"{usd:.6f}", "Timestamp": NOW}
            for zone, usd in self.spots.items()
        ]
        return self._page("SpotPriceHistory", rows, asked)

    def describe_instance_type_offerings(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(("offerings", asked))
        rows = [{"InstanceType": TYPE, "Location": zone, "LocationType": asked["LocationType"]} for zone in self.zones]
        return self._page("InstanceTypeOfferings", rows, asked)

    def _page(self, key: str, rows: list[Any], asked: dict[str, Any]) -> dict[str, Any]:
        at = int(asked.get("NextToken", 0))
        more = {"NextToken": str(at + 1)} if at + 1 < len(rows) else {}
        return {key: rows[at : at + 1], **more}


class StandInFailing(StandInAws):
    """Fails at one call with the error it was given; it proves nothing about when AWS does."""

    def __init__(self, at: str, error: Exception) -> None:
        super().__init__([product()], {"eu-central-1a": 0.5}, ("euc1-az1",))
        self.at, self.error = at, error

    def _page(self, key: str, rows: list[Any], asked: dict[str, Any]) -> dict[str, Any]:
        if key == self.at:
            raise self.error
        return super()._page(key, rows, asked)


def run(aws: StandInAws, types: tuple[str, ...] = (TYPE,), regions: tuple[str, ...] = (REGION,)) -> Any:
    return refresh(regions, types, now=NOW, pricing=aws, ec2=lambda _: aws)


def written(state: Path) -> list[Path]:
    return sorted((state / "inferlift" / "prices").glob("*")) if state.exists() else []


def offer(name: str = TYPE, region: str = REGION) -> Any:
    return next(offer for offer in offers("aws", region) if offer.name == name)


def test_a_refresh_lays_todays_prices_over_the_shipped_ones(state: Path) -> None:
    assert offer().usd_per_hour == 1.258
    spots = {"eu-central-1a": 0.40, "eu-central-1b": 0.50, "eu-central-1c": 0.60, "eu-central-1-ham-1a": 0.01}
    found = run(StandInAws([product()], spots, ("euc1-az2", "euc1-az1", "euc1-ham1-az1")))
    assert [path.name for path in written(state)] == ["prices-2026-11-30.json"]
    now = offer()
    assert (now.usd_per_hour, now.date) == (1.3, "2026-11-30")
    assert now.usd_spot_per_hour == pytest.approx(0.5)  # median of the zones, no local zone
    assert now.usd_reserved_per_hour == pytest.approx(0.819)  # one year, standard, nothing ahead
    assert now.zones == ("euc1-az1", "euc1-az2")
    assert found.flags == ()
    assert "g5.xlarge eu-central-1 on-demand: 1.258 -> 1.3 USD/h" in found.moved
    assert str(found.path) in found.lines()[0]


def test_a_dedicated_instance_has_a_rate_of_its_own() -> None:
    found = run(StandInAws([product(), product("1.385", tenancy="Dedicated"), product("9", tenancy="Host")]))
    assert (offer().usd_per_hour, offer().usd_dedicated_per_hour, offer().dedicated_date) == (1.3, 1.385, "2026-11-30")
    assert "dedicated tenancy" in offer().dedicated_source
    assert "shared tenancy" in offer().source
    assert found.flags == ()


def test_it_asks_for_plain_linux_hosts_by_the_hour() -> None:
    aws = StandInAws([product()])
    run(aws)
    asked = next(asked for name, asked in aws.asked if name == "get_products")
    assert asked["ServiceCode"] == "AmazonEC2"
    assert {row["Field"]: row["Value"] for row in asked["Filters"]} == {
        "instanceType": TYPE,
        "regionCode": REGION,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
    }
    assert {row["Type"] for row in asked["Filters"]} == {"TERM_MATCH"}
    spot = next(asked for name, asked in aws.asked if name == "spot")
    assert (spot["ProductDescriptions"], spot["StartTime"]) == (["Linux/UNIX"], NOW)


@pytest.mark.parametrize(
    ("usd", "said"),
    [
        ("0.0000000000", "no price"),
        ("-1", "no price"),
        ("0.0029", "outside"),
        ("200.01", "outside"),
        ("3.775", "factor"),  # just over 3 * 1.258
        ("0.419", "factor"),
    ],
)
def test_a_wrong_looking_price_is_flagged_and_the_old_one_kept(usd: str, said: str) -> None:
    found = run(StandInAws([product(usd)]))
    assert offer().usd_per_hour == 1.258
    (flag,) = [flag for flag in found.flags if flag.kind == "on-demand"]
    assert said in flag.why
    assert "1.258 USD/h is kept" in str(flag)


@pytest.mark.parametrize("usd", ["3.77", "0.42"])
def test_a_move_within_the_factor_is_taken(usd: str) -> None:
    assert run(StandInAws([product(usd)])).flags == ()
    assert offer().usd_per_hour == float(usd)


@pytest.mark.parametrize("edge", [0.003, 200.0])
def test_the_bounds_themselves_are_prices(edge: float) -> None:
    new = Price(TYPE, REGION, "on-demand", edge, "AWS", "2026-11-30")
    assert held_against(new, None) is new


def test_a_price_that_is_no_longer_listed_is_flagged() -> None:
    found = run(StandInAws([]))
    assert [flag.why for flag in found.flags] == ["no price is listed"]
    assert offer().usd_per_hour == 1.258


def test_several_prices_are_not_chosen_from() -> None:
    found = run(StandInAws([product("1.3"), product("1.4")]))
    assert [flag.why for flag in found.flags] == ["several prices are listed: 1.3, 1.4"]
    assert offer().usd_per_hour == 1.258


@pytest.mark.parametrize(
    "other",
    [
        {"tenancy": "Dedicated"},
        {"operatingSystem": "Windows"},
        {"marketoption": "CapacityBlock"},
        {"preInstalledSw": "SQL"},
    ],
)
def test_another_products_price_is_not_taken(other: dict[str, str]) -> None:
    run(StandInAws([product("1.3"), product("2.9", **other)]))
    assert offer().usd_per_hour == 1.3


def test_a_spot_price_above_the_hourly_one_is_flagged() -> None:
    found = run(StandInAws([product()], {"eu-central-1a": 1.9}))
    assert [flag.kind for flag in found.flags] == ["spot"]
    assert offer().usd_spot_per_hour is None


def test_spot_is_held_against_todays_hourly_price() -> None:
    assert run(StandInAws([product("2.5")], {"eu-central-1a": 1.9})).flags == ()
    assert offer().usd_spot_per_hour == 1.9


def test_a_type_that_a_region_lost_is_no_longer_offered() -> None:
    assert offer().offered is True
    run(StandInAws([product()]))
    assert offer().offered is False


def test_a_second_refresh_keeps_what_it_did_not_ask_for(state: Path) -> None:
    run(StandInAws([product()], {"eu-central-1a": 0.5}))
    run(StandInAws([product("0.9", "g4dn.xlarge")]), ("g4dn.xlarge",))
    assert (offer().usd_per_hour, offer("g4dn.xlarge").usd_per_hour) == (1.3, 0.9)
    assert offer().usd_spot_per_hour == 0.5


def _client_error(code: str) -> Exception:
    made: Exception = exceptions.ClientError({"Error": {"Code": code, "Message": "no"}}, "GetProducts")
    return made


@pytest.mark.parametrize(
    ("error", "raised", "next_command"),
    [
        (lambda: exceptions.NoCredentialsError(), DeclarationError, "aws configure sso"),
        (lambda: exceptions.ProfileNotFound(profile="p"), DeclarationError, "AWS_PROFILE"),
        (lambda: _client_error("AccessDeniedException"), Refusal, "get-caller-identity"),
        (lambda: _client_error("ExpiredToken"), Refusal, "prices --refresh"),
        (lambda: _client_error("ThrottlingException"), Retryable, "prices --refresh"),
        (lambda: exceptions.EndpointConnectionError(endpoint_url="https://x"), Retryable, "prices --refresh"),
    ],
)
@pytest.mark.parametrize("at", ["PriceList", "SpotPriceHistory", "InstanceTypeOfferings"])
def test_a_failed_call_says_what_to_do_and_writes_nothing(
    state: Path, at: str, error: Callable[[], Exception], raised: type[Exception], next_command: str
) -> None:
    with pytest.raises(raised) as told:
        run(StandInFailing(at, error()))
    assert next_command in told.value.next_command  # type: ignore[attr-defined]
    assert "no price was changed" in told.value.what  # type: ignore[attr-defined]
    assert written(state) == []


def test_a_mistake_of_our_own_is_not_blamed_on_aws(state: Path) -> None:
    with pytest.raises(KeyError):
        run(StandInFailing("PriceList", KeyError("product")))
    assert written(state) == []


def test_names_are_checked_before_anything_is_asked() -> None:
    aws = StandInAws([])
    with pytest.raises(DeclarationError, match="region"):
        run(aws, regions=("mars-north-1",))
    with pytest.raises(DeclarationError, match="no such instance types"):
        run(aws, ("g5.huge",))
    assert aws.asked == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("")
    with pytest.raises(DeclarationError, match="cannot be written"):
        snapshot.write([], [], "2026-11-30", file / "below")


def test_a_flag_reads_well_without_an_old_price() -> None:
    flag = Flag(TYPE, REGION, "spot", None, 0.0, "0 USD/h is no price")
    assert str(flag) == "g5.xlarge eu-central-1 spot: 0 USD/h is no price; unknown stays unknown"


def test_the_calls_are_ones_that_boto3_knows(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    """boto3's own clients check every parameter and answer against AWS' service model; nothing is sent."""
    import boto3
    from botocore.stub import Stubber

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    pricing = boto3.client("pricing", region_name="us-east-1")
    ec2 = boto3.client("ec2", region_name=REGION)
    spot = {"InstanceType": TYPE, "AvailabilityZone": "eu-central-1a", "SpotPrice": "0.5", "Timestamp": NOW}
    place = {"InstanceType": TYPE, "Location": "euc1-az1", "LocationType": "availability-zone-id"}
    with Stubber(pricing) as listed, Stubber(ec2) as asked:
        listed.add_response("get_products", {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product())]})
        listed.add_response("get_products", {"FormatVersion": "aws_v1", "PriceList": []})  # none is dedicated
        asked.add_response("describe_instance_type_offerings", {"InstanceTypeOfferings": [place]})
        asked.add_response("describe_spot_price_history", {"SpotPriceHistory": [spot]})
        refresh((REGION,), (TYPE,), now=NOW, pricing=pricing, ec2=lambda _: ec2)
        listed.assert_no_pending_responses()
        asked.assert_no_pending_responses()
    assert (offer().usd_per_hour, offer().usd_spot_per_hour, offer().zones) == (1.3, 0.5, ("euc1-az1",))


def test_without_credentials_the_real_client_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(DeclarationError, match="no AWS credentials") as told:
        refresh((REGION,), (TYPE,), now=NOW)
    assert "aws configure sso" in told.value.next_command
