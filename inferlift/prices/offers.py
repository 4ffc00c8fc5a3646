"""Reads the price tables beside this file (lab.csv, aws.csv, static.csv)."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Literal

from inferlift.artifacts import Offer
from inferlift.errors import DeclarationError

REGION = "eu-central-1"  # of the aws table where none is named
_AWS_PRICE = {
    "eu-central-1": ("usd_h_eu_central_1", "price_eu_source"),
    "us-east-1": ("usd_h_us_east_1", "price_us_source"),
}


@cache
def offers(target: Literal["lab", "aws", "static"], region: str = REGION) -> tuple[Offer, ...]:
    """All offers of a target, in the table's order. Raises DeclarationError for an unknown target or region."""
    if target == "aws":
        return _aws(region)
    if target not in ("lab", "static"):
        raise DeclarationError(f"there are no prices for the target {target!r}", why="expected lab, aws or static")
    return tuple(
        Offer(
            name=row["name"],
            vcpu=_number(row["vcpu"]),
            ram_gib=_number(row["ram_gib"]),
            usd_per_hour=_number(row["usd_per_hour"]),
            source=row["source"],
            date=row["date"],
            offered=True,
        )
        for row in _rows(f"{target}.csv")
    )


def _aws(region: str) -> tuple[Offer, ...]:
    if region not in _AWS_PRICE:
        raise DeclarationError(
            f"there are no prices for the region {region!r}", why=f"the table holds {', '.join(_AWS_PRICE)}"
        )
    price, source = _AWS_PRICE[region]
    return tuple(
        Offer(
            name=row["instance_type"],
            gpu=row["gpu_model"] or None,
            gpu_count=int(row["gpu_count"]),
            gpu_fraction=float(row["gpu_fraction"]),
            vram_mib=int(row["vram_mib_per_gpu"]),
            vcpu=_number(row["vcpu"]),
            ram_gib=_number(row["ram_gib"]),
            usd_per_hour=_number(row[price]),
            region=region,
            offered={"yes": True, "no": False}.get(row["offered_eu_central_1"]) if region == REGION else None,
            source=row[source] or "no price in the table",
            date=row["price_date"],
            note=row["notes"],
        )
        for row in _rows("aws.csv")
    )


def _rows(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float | None:
    """A price or size; empty, zero and negative figures in a table mean that nobody knows."""
    return value if text and (value := float(text)) > 0 else None
