"""Reads the tables beside this file: instance types, prices, offerings, regions, what comes on top of hosts."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from inferlift.errors import DeclarationError

Kind = Literal["on-demand", "dedicated", "spot", "reserved-1y", "reserved-3y", "capacity-block"]
KINDS: tuple[str, ...] = get_args(Kind)
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Price:
    """What an hour of an instance type costs in a region; None is unknown."""

    instance_type: str
    region: str
    kind: str  # one of KINDS
    usd_per_hour: float | None
    source: str
    date: str  # ISO day or month
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.instance_type, self.region, self.kind


@dataclass(frozen=True)
class Offering:
    """Whether a region really has an instance type, and in which zones."""

    instance_type: str
    region: str
    zones: tuple[str, ...]  # empty: the region does not offer it
    source: str
    date: str

    @property
    def key(self) -> tuple[str, str]:
        return self.instance_type, self.region


@dataclass(frozen=True)
class Region:
    """A region of AWS and where it lies."""

    name: str
    place: str
    country: str
    eu: bool  # in the European Union
    offerings_known: bool
    source: str
    date: str


@dataclass(frozen=True)
class Extra:
    """What comes on top of hosts: "disk gp3", "egress", "address", "load balancer", "dedicated fee"."""

    item: str
    region: str  # empty: every region
    unit: str  # "GB-month", "GB" or "hour"
    usd: float | None  # None: unknown; 0 is free
    source: str
    date: str
    from_gb: float = 0.0  # a step of a rate that falls with the amount, GB a month
    up_to_gb: float | None = None
    note: str = ""


@cache
def prices() -> tuple[Price, ...]:
    """Prices as shipped."""
    return tuple(
        Price(
            row["instance_type"],
            row["region"],
            row["kind"],
            number(row["usd_per_hour"]),
            row["source"],
            row["date"],
            row["note"],
        )
        for row in rows("aws_prices.csv")
    )


@cache
def regions() -> dict[str, Region]:
    return {
        row["region"]: Region(
            row["region"],
            row["name"],
            row["country"],
            row["eu"] == "yes",
            row["offerings_known"] == "yes",
            row["source"],
            row["date"],
        )
        for row in rows("aws_regions.csv")
    }


@cache
def offerings() -> dict[tuple[str, str], Offering]:
    """Offerings as shipped, of all types in all regions whose offerings are known."""
    of_prefix = {row["zone_prefix"]: row["region"] for row in rows("aws_regions.csv")}
    known = [region.name for region in regions().values() if region.offerings_known]
    found: dict[tuple[str, str], Offering] = {}
    for row in rows("aws_offered.csv"):
        zones: dict[str, list[str]] = {region: [] for region in known}
        for zone in row["zones"].split("|"):
            prefix, _, rest = zone.partition("-")
            if rest and "-" not in rest:  # a local zone ("use1-atl2-az1") is none that a fleet can be spread over
                zones[of_prefix[prefix]].append(zone)
        for region, ids in zones.items():
            offering = Offering(row["instance_type"], region, tuple(ids), row["source"], row["date"])
            found[offering.key] = offering
    return found


@cache
def all_extras() -> tuple[Extra, ...]:
    return tuple(
        Extra(
            row["item"],
            row["region"],
            row["unit"],
            float(row["usd"]) if row["usd"] else None,
            row["source"],
            row["date"],
            float(row["from_gb"] or 0),
            float(row["up_to_gb"]) if row["up_to_gb"] else None,
            row["note"],
        )
        for row in rows("aws_extras.csv")
    )


def extras(region: str) -> dict[str, tuple[Extra, ...]]:
    """What comes on top of hosts in that region, by item; an item of several steps has them all in order.

    An item without a price there is told as unknown, never left out. Raises DeclarationError for an unknown region.
    """
    known_region(region)
    found: dict[str, tuple[Extra, ...]] = {}
    for item in dict.fromkeys(extra.item for extra in all_extras()):
        here = tuple(extra for extra in all_extras() if extra.item == item and extra.region in (region, ""))
        unit = next(extra.unit for extra in all_extras() if extra.item == item)
        found[item] = here or (Extra(item, region, unit, None, f"no price of {item} in {region} in the table", ""),)
    return found


def known_region(region: str) -> Region:
    """Raises DeclarationError for a region that no table knows."""
    if region not in regions():
        raise DeclarationError(
            f"there are no prices for the region {region!r}",
            why=f"known: {', '.join(sorted(regions()))}",
            next_command="./invoke prices --region NAME, with one of them",
        )
    return regions()[region]


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def number(text: str) -> float | None:
    """A price or size; empty, zero and negative figures in a table mean that nobody knows."""
    return value if text and (value := float(text)) > 0 else None
