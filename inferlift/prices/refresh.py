"""Fetches today's prices from AWS, holds them against the old ones, and writes a dated snapshot for this user.

On demand and reserved from the Price List API, spot from the price history, offerings from EC2 itself. What looks
wrong is flagged and the old value kept; nothing is written where a call fails.
"""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift.errors import DeclarationError, InferliftError, Refusal, Retryable
from inferlift.prices import pricelist, snapshot, tables
from inferlift.prices.tables import Offering, Price

LEAST, MOST = 0.003, 200.0  # USD an hour: no instance type costs less or more
FACTOR = 3.0  # a price that moved by more than that is looked at by a person first
AGAIN = "./invoke prices --refresh"
_ZONE = re.compile(r"[a-z0-9]+-az\d+$")  # no local zones


@dataclass(frozen=True)
class Flag:
    """A fetched price that was not taken."""

    instance_type: str
    region: str
    kind: str
    old: float | None  # USD an hour, kept
    new: float | None
    why: str

    def __str__(self) -> str:
        kept = "unknown stays unknown" if self.old is None else f"{self.old:g} USD/h is kept"
        return f"{self.instance_type} {self.region} {self.kind}: {self.why}; {kept}"


@dataclass(frozen=True)
class Refreshed:
    path: Path  # of the snapshot written
    prices: int  # taken
    moved: tuple[str, ...]  # "g5.xlarge eu-central-1 on-demand: 1.258 -> 1.3 USD/h"
    flags: tuple[Flag, ...]
    offerings: int

    def lines(self) -> list[str]:
        """What a terminal shows."""
        said = [f"{self.prices} prices and {self.offerings} offerings written to {self.path}"]
        said += [f"moved: {line}" for line in self.moved]
        return said + [f"not taken: {flag}" for flag in self.flags]


def refresh(
    regions: Sequence[str],
    instance_types: Sequence[str] = (),
    *,
    now: datetime.datetime,
    pricing: Any = None,
    ec2: Callable[[str], Any] | None = None,
    spot: bool = True,
    where: Path | None = None,
) -> Refreshed:
    """Fetch the prices of these types (none named: all in the table) in these regions and write a snapshot.

    `pricing` is a boto3 client of the Price List API, `ec2` makes one of EC2 for a region; without them boto3's own
    are made from the user's credentials. `now` dates the rows. Raises DeclarationError for an unknown region or type
    and without boto3 or credentials, Refusal where AWS denies the call, Retryable where AWS cannot be reached.
    """
    known = [row["instance_type"] for row in tables.rows("aws_instances.csv")]
    for region in regions:
        tables.known_region(region)
    if strange := sorted(set(instance_types) - set(known)):
        raise DeclarationError(
            f"no such instance types in the table: {', '.join(strange)}",
            why=f"known: {', '.join(known)}",
            next_command=AGAIN,
        )
    wanted = list(instance_types) or known
    before = snapshot.load(snapshot.stamp(where))
    old = snapshot.merged(before)
    fetched: list[Price | Flag] = []
    offered: list[Offering] = []
    try:
        session: Any = None if pricing and ec2 else _session()
        client = pricing or session.client("pricing", region_name=pricelist.ENDPOINT)
        for region in regions:
            for name in wanted:
                fetched += _listed(client, name, region, old, now.date())
            host = ec2(region) if ec2 else session.client("ec2", region_name=region)
            offered += _offerings(host, wanted, region, now.date())
            if spot:
                hourly = _hourly(region, old, fetched)
                fetched += _spot(host, wanted, region, old, hourly, now)
    except InferliftError:
        raise
    except Exception as error:
        raise _said(error) from error
    taken = [row for row in fetched if isinstance(row, Price)]
    prices = {**before.prices, **{price.key: price for price in taken}}
    offerings = {**before.offerings, **{offering.key: offering for offering in offered}}
    path = snapshot.write(prices.values(), offerings.values(), now.date().isoformat(), where)
    return Refreshed(
        path,
        len(taken),
        tuple(line for price in taken if (line := _moved(price, old.prices.get(price.key)))),
        tuple(row for row in fetched if isinstance(row, Flag)),
        len(offered),
    )


def held_against(new: Price, old: Price | None, most: float = MOST) -> Price | Flag:
    """The new price, or the flag that says why the old one is kept."""
    was, usd = old.usd_per_hour if old else None, new.usd_per_hour
    why = ""
    if usd is None:
        why = "no price is listed" if was is not None else ""
    elif usd <= 0:
        why = f"{usd:g} USD/h is no price"
    elif not LEAST <= usd <= MOST:
        why = f"{usd:g} USD/h lies outside of {LEAST:g}..{MOST:g}"
    elif usd > most * 1.0001:
        why = f"{usd:g} USD/h is above the on-demand price of {most:g}"
    elif was is not None and not was / FACTOR <= usd <= was * FACTOR:
        why = f"{was:g} -> {usd:g} USD/h is more than a factor of {FACTOR:g}"
    return Flag(*new.key, was, usd, why) if why else new


def _listed(client: Any, name: str, region: str, old: snapshot.Snapshot, today: datetime.date) -> list[Price | Flag]:
    found: list[Price | Flag] = []
    for kind, figures in pricelist.hourly(client, name, region).items():
        key = (name, region, kind)
        if not figures and (kind != "on-demand" or key not in old.prices):
            continue
        if len(set(figures)) > 1:
            was = old.prices[key].usd_per_hour if key in old.prices else None
            said = ", ".join(f"{usd:g}" for usd in sorted(set(figures)))
            found.append(Flag(*key, was, None, f"several prices are listed: {said}"))
            continue
        source = pricelist.SOURCE_DEDICATED if kind == "dedicated" else pricelist.SOURCE
        new = Price(*key, figures[0] if figures else None, source, today.isoformat())
        found.append(held_against(new, old.prices.get(key)))
    return found


def _hourly(region: str, old: snapshot.Snapshot, fetched: list[Price | Flag]) -> dict[str, float]:
    """On-demand prices of a region by type: today's where they were taken, else the old ones."""
    current = [*old.prices.values(), *(row for row in fetched if isinstance(row, Price))]
    return {
        price.instance_type: price.usd_per_hour
        for price in current
        if price.region == region and price.kind == "on-demand" and price.usd_per_hour is not None
    }


def _spot(
    client: Any,
    names: list[str],
    region: str,
    old: snapshot.Snapshot,
    hourly: dict[str, float],
    now: datetime.datetime,
) -> list[Price | Flag]:
    """The median over the region's zones of each zone's spot price now."""
    latest: dict[tuple[str, str], tuple[Any, float]] = {}
    asked = {"InstanceTypes": names, "ProductDescriptions": ["Linux/UNIX"], "StartTime": now, "EndTime": now}
    for row in _pages(client.describe_spot_price_history, "SpotPriceHistory", **asked):
        zone = (row["InstanceType"], row["AvailabilityZone"])
        if not re.fullmatch(rf"{region}[a-z]", zone[1]):
            continue
        if zone not in latest or row["Timestamp"] > latest[zone][0]:
            latest[zone] = (row["Timestamp"], float(row["SpotPrice"]))
    found: list[Price | Flag] = []
    for name in names:
        figures = [usd for (of, _), (_, usd) in latest.items() if of == name]
        if not figures:
            continue
        key = (name, region, "spot")
        note = f"median of {len(figures)} zones, {min(figures):g} to {max(figures):g}"
        source = "AWS EC2 DescribeSpotPriceHistory, Linux/UNIX"
        new = Price(*key, statistics.median(figures), source, now.date().isoformat(), note)
        found.append(held_against(new, old.prices.get(key), hourly.get(name, MOST)))
    return found


def _offerings(client: Any, names: list[str], region: str, today: datetime.date) -> list[Offering]:
    zones: dict[str, list[str]] = {name: [] for name in names}
    asked = {"LocationType": "availability-zone-id", "Filters": [{"Name": "instance-type", "Values": names}]}
    for row in _pages(client.describe_instance_type_offerings, "InstanceTypeOfferings", **asked):
        if row["InstanceType"] in zones and _ZONE.fullmatch(row["Location"]):
            zones[row["InstanceType"]].append(row["Location"])
    source = "AWS EC2 DescribeInstanceTypeOfferings"
    return [Offering(name, region, tuple(sorted(ids)), source, today.isoformat()) for name, ids in zones.items()]


def _pages(call: Callable[..., Any], key: str, **asked: Any) -> Iterable[Any]:
    token: dict[str, str] = {}
    while True:
        answer = call(**asked, **token)
        yield from answer[key]
        if not answer.get("NextToken"):
            return
        token = {"NextToken": answer["NextToken"]}


def _moved(price: Price, old: Price | None) -> str:
    was, usd = old.usd_per_hour if old else None, price.usd_per_hour
    if was == usd:
        return ""
    before = "unknown" if was is None else f"{was:g}"
    after = "unknown" if usd is None else f"{usd:g}"
    return f"{' '.join(price.key)}: {before} -> {after} USD/h"


def _session() -> Any:
    """A session of its own: credentials are looked up anew, not taken from whatever ran before in this process."""
    try:
        import boto3
    except ImportError:
        raise DeclarationError(
            "prices cannot be refreshed: boto3 is not installed",
            why="the AWS Price List API is asked through it",
            next_command="./invoke doctor",
        ) from None
    return boto3.Session()


def _said(error: Exception) -> InferliftError:
    """What a failed call means for the user. An error that is not AWS's own stays as it is."""
    try:
        from botocore import exceptions
    except ImportError:
        raise error from None
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, exceptions.ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        if code in ("Throttling", "ThrottlingException", "RequestLimitExceeded", "InternalError", "ServiceUnavailable"):
            return Retryable("AWS does not answer for now; no price was changed", why=why, next_command=AGAIN)
        return Refusal(
            "AWS denies the price look-up; no price was changed",
            why=f"{why}; it needs pricing:GetProducts, ec2:DescribeSpotPriceHistory, ec2:DescribeInstanceTypeOfferings",
            next_command=f"allow these for `aws sts get-caller-identity`, then {AGAIN}",
        )
    no_login = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.ProfileNotFound,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    )
    if isinstance(error, no_login):
        return DeclarationError(
            "there are no AWS credentials to look prices up with; no price was changed",
            why=why,
            next_command=f"aws configure sso (or set AWS_PROFILE), then {AGAIN}",
        )
    if isinstance(error, exceptions.BotoCoreError):
        return Retryable("AWS cannot be reached; no price was changed", why=why, next_command=AGAIN)
    raise error
