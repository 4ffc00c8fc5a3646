"""The price table as a person and a program read it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal

from inferlift.artifacts import Offer
from inferlift.errors import DeclarationError
from inferlift.prices.age import MAX_AGE_DAYS, age_days, age_note, oldest
from inferlift.prices.offers import REGION, offers, regions_offering
from inferlift.prices.tables import extras

_HEAD = ("offer", "GPU", "vCPU", "GiB", "USD/h", "spot", "1 year", "zones", "of", "days")


@dataclass(frozen=True)
class PriceTable:
    lines: tuple[str, ...]
    figures: dict[str, float | int | None]
    notes: tuple[str, ...]  # ages over the limit, what is unknown


def table(
    target: Literal["lab", "aws", "static"], region: str = REGION, *, today: datetime.date, gpu: str = ""
) -> PriceTable:
    """The offers of a target that have a price, with their ages; which have none is a note. `gpu` narrows to one GPU.

    Raises DeclarationError for an unknown target or region.
    """
    shown = [offer for offer in offers(target, region) if not gpu or gpu.lower() == (offer.gpu or "").lower()]
    if gpu and not shown:
        known_gpus = sorted({offer.gpu for offer in offers(target, region) if offer.gpu})
        raise DeclarationError(
            f"no offer of {target} has the GPU {gpu!r}",
            why=f"there are: {', '.join(known_gpus) or 'none'}",
            next_command="./invoke prices --gpu NAME, with one of them",
        )
    known = [offer for offer in shown if offer.usd_per_hour is not None]
    dates = [offer.date for offer in known]
    body = [_row(offer, today) for offer in shown if offer.reserve_only or _priced(offer)]
    if target == "aws":
        body += _extra_rows(region, today)
    notes = []
    if dates and (note := age_note(oldest(dates), today)):
        old = sum((age_days(date, today) or MAX_AGE_DAYS + 1) > MAX_AGE_DAYS for date in dates)
        notes.append(f"{old} of {len(dates)} {note}")
    reserved = [offer.name for offer in shown if offer.reserve_only]
    if reserved:
        notes.append(f"reserve only, no price by the hour: {', '.join(reserved)}")
    absent = [offer for offer in shown if offer.offered is False]
    if gpu:
        notes += _elsewhere(absent, region)
    elif absent:
        notes.append(f"not sold in {region} ({len(absent)}): {', '.join(offer.name for offer in absent)}")
    unknown = [
        offer.name for offer in shown if not offer.reserve_only and not _priced(offer) and offer.offered is not False
    ]
    if unknown:
        notes.append(f"price unknown ({len(unknown)}): {', '.join(unknown)}")
    ages = [days for date in dates if (days := age_days(date, today)) is not None]
    figures: dict[str, float | int | None] = {
        "offers": len(shown),
        "priced": len(known),
        "spot_priced": sum(offer.usd_spot_per_hour is not None for offer in shown),
        "oldest_days": max(ages, default=None),
        "newest_days": min(ages, default=None),
        "over_age": sum(days > MAX_AGE_DAYS for days in ages),
    }
    figures |= {f"usd_per_hour.{offer.name}": offer.usd_per_hour for offer in shown}
    return PriceTable(tuple(_aligned([_HEAD, *body])), figures, tuple(notes))


def _elsewhere(absent: list[Offer], region: str) -> list[str]:
    """Types that the region does not have, and the regions that do."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for offer in absent:
        grouped.setdefault(regions_offering(offer.name), []).append(offer.name)
    return [
        f"not sold in {region}: {', '.join(names)}; sold in: {', '.join(regions) or 'no region of the table'}"
        for regions, names in grouped.items()
    ]


def _priced(offer: Offer) -> bool:
    return any(usd is not None for usd in (offer.usd_per_hour, offer.usd_spot_per_hour, offer.usd_reserved_per_hour))


def _row(offer: Offer, today: datetime.date) -> tuple[str, ...]:
    fraction = "" if offer.gpu_fraction == 1 else f"{offer.gpu_fraction:g} "
    gpu = f"{offer.gpu_count or 1} x {fraction}{offer.gpu}" if offer.gpu else "-"
    zones = (
        "unknown"
        if offer.offered is None
        else str(len(offer.zones))
        if offer.zones
        else "-"
        if not offer.region
        else "no"
    )
    return (
        offer.name,
        gpu,
        _figure(offer.vcpu),
        _figure(offer.ram_gib),
        "reserve only" if offer.reserve_only else _figure(offer.usd_per_hour),
        _figure(offer.usd_spot_per_hour),
        _figure(offer.usd_reserved_per_hour),
        zones,
        offer.date or "-",
        _figure(age_days(offer.date, today)),
    )


def _extra_rows(region: str, today: datetime.date) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for item, steps in extras(region).items():
        for step in steps:
            upto = "" if step.up_to_gb is None else f" to {step.up_to_gb:g} GB"
            name = f"{item}{upto}, {'an' if step.unit == 'hour' else 'a'} {step.unit}"
            usd = "unknown" if step.usd is None else f"{step.usd:g}"
            found.append(
                (name, "-", "-", "-", usd, "-", "-", "-", step.date or "-", _figure(age_days(step.date, today)))
            )
    return found


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _aligned(body: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in body) for column in range(len(body[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in body]
