"""Offers of a target from the tables, the user's refreshed snapshot laid over the shipped one."""

from __future__ import annotations

from functools import cache
from typing import Literal

from inferlift.artifacts import Offer
from inferlift.errors import DeclarationError
from inferlift.prices import snapshot, tables
from inferlift.prices.tables import Offering, Price, Region, number, rows

__all__ = ["REGION", "Region", "offers", "regions", "regions_offering"]
REGION = "eu-central-1"  # of the aws table where none is named


def offers(target: Literal["lab", "aws", "static"], region: str = REGION) -> tuple[Offer, ...]:
    """All offers of a target, in the table's order. Raises DeclarationError for an unknown target or region."""
    if target == "aws":
        tables.known_region(region)
        return _aws(region, snapshot.stamp())
    if target not in ("lab", "static"):
        raise DeclarationError(f"there are no prices for the target {target!r}", why="expected lab, aws or static")
    return _hosts(target)


def regions() -> tuple[Region, ...]:
    """All regions of AWS that the tables know, by name."""
    return tuple(tables.regions().values())


def regions_offering(instance_type: str, *, eu_only: bool = False) -> tuple[str, ...]:
    """Regions that really have that type; with `eu_only` those within the European Union."""
    known = _current(snapshot.stamp()).offerings
    return tuple(
        region.name
        for region in regions()
        if (offering := known.get((instance_type, region.name))) and offering.zones and (region.eu or not eu_only)
    )


@cache
def _hosts(target: str) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            name=row["name"],
            vcpu=number(row["vcpu"]),
            ram_gib=number(row["ram_gib"]),
            usd_per_hour=number(row["usd_per_hour"]),
            source=row["source"],
            date=row["date"],
            offered=True,
        )
        for row in rows(f"{target}.csv")
    )


@cache
def _current(stamp: snapshot.Stamp) -> snapshot.Snapshot:
    return snapshot.merged(snapshot.load(stamp))


@cache
def _aws(region: str, stamp: snapshot.Stamp) -> tuple[Offer, ...]:
    current = _current(stamp)
    return tuple(
        _offer(
            row,
            region,
            {kind: current.prices.get((row["instance_type"], region, kind)) for kind in tables.KINDS},
            current.offerings.get((row["instance_type"], region)),
        )
        for row in rows("aws_instances.csv")
    )


def _offer(row: dict[str, str], region: str, price: dict[str, Price | None], offering: Offering | None) -> Offer:
    hourly, spot, reserved, alone = (price[kind] for kind in ("on-demand", "spot", "reserved-1y", "dedicated"))
    reserve_only = "on-demand" not in row["sold_as"].split("|")
    note = "; ".join(filter(None, [row["notes"], hourly.note if hourly else ""]))
    return Offer(
        name=row["instance_type"],
        gpu=row["gpu_model"] or None,
        gpu_count=int(row["gpu_count"]),
        gpu_fraction=float(row["gpu_fraction"]),
        vram_mib=int(row["vram_mib_per_gpu"]) if row["vram_mib_per_gpu"] else None,
        vcpu=number(row["vcpu"]),
        ram_gib=number(row["ram_gib"]),
        usd_per_hour=hourly.usd_per_hour if hourly and not reserve_only else None,
        region=region,
        offered=bool(offering.zones) if offering else None,
        source=hourly.source
        if hourly
        else "reserve only: no price by the hour"
        if reserve_only
        else "no price in the table",
        date=hourly.date if hourly else "",
        note=note,
        usd_spot_per_hour=spot.usd_per_hour if spot and not reserve_only else None,
        spot_source=spot.source if spot else "",
        spot_date=spot.date if spot else "",
        usd_reserved_per_hour=reserved.usd_per_hour if reserved else None,
        usd_dedicated_per_hour=alone.usd_per_hour if alone and not reserve_only else None,
        dedicated_source=alone.source if alone else "",
        dedicated_date=alone.date if alone else "",
        reserve_only=reserve_only,
        zones=offering.zones if offering else (),
        arch=row["arch"] or None,
        network_gbps=number(row["network_gbps"]),
        nvme_gb=number(row["local_nvme_gb"]),
    )
