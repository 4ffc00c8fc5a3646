"""What of a plan is billed, item by item: nothing is free because nobody listed it (resource_types.csv has them all).

Prices of hosts and disks are the price tables' own (`invoke prices`); here are those of what stands around them, where
one is known. An unknown price is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferlift.provision.aws import naming
from inferlift.provision.aws.plan import parent_region
from inferlift.provision.aws.policies import Asked
from inferlift.provision.aws.tables import rows

HOURS_A_MONTH = 730


@dataclass(frozen=True)
class Billed:
    """`count` of an item, each at `usd` a `unit`. Which region the price is of: `region`; where it is made: `place`."""

    item: str
    count: int
    unit: str  # hour, month, usage
    usd: float | None
    region: str | None
    source: str
    place: str = ""

    @property
    def usd_per_hour(self) -> float | None:
        """Of all of them, whether used or not; None where the price is not known, or is one of usage alone."""
        if self.usd is None or self.unit == "usage":
            return None
        return self.usd * self.count / (HOURS_A_MONTH if self.unit == "month" else 1)


def bill(asked: Iterable[Asked], region: str) -> list[Billed]:
    """Every billed item of a plan, priced in its own region (`region` where its tags name none) or, where that price
    is not known, in us-east-1, and says so.
    """
    counts: dict[tuple[str, str, str], int] = {}
    everything = list(asked)
    templates = {a.name: a.inputs for a in everything if a.type.endswith(":LaunchTemplate")}
    known = {row["type"]: row for row in rows("resource_types.csv")}
    for one in everything:
        row = known.get(one.type)
        if row is None or row["billed"] == "no":
            continue
        place = _region(one, region)
        for item, unit, count in _items(one, row, templates):
            counts[(item, unit, place)] = counts.get((item, unit, place), 0) + count
    return [_priced(item, count, unit, place) for (item, unit, place), count in sorted(counts.items())]


def _region(one: Asked, otherwise: str) -> str:
    tags = one.inputs.get("tags") or {}
    named = tags if isinstance(tags, Mapping) else {t["key"]: t["value"] for t in tags}
    site = named.get(naming.SITE)
    return parent_region(site) if isinstance(site, str) else otherwise


def _items(one: Asked, row: dict[str, str], templates: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    unit = {"hourly": "hour", "monthly": "month"}.get(row["billed"], "usage")
    if one.type.endswith(":VpcEndpoint"):
        zones = len(one.inputs.get("subnetIds") or [])
        return [(row["item"], "hour", zones)] if one.inputs.get("vpcEndpointType") == "Interface" else []
    if row["billed"] == "instances":
        template = templates.get(f"{one.name}-template")
        if template is None:
            return [(row["item"], "hour", 1)]
        market = (template.get("instanceMarketOptions") or {}).get("marketType", "on-demand")
        disks = sum(int(d["ebs"]["volumeSize"]) for d in template.get("blockDeviceMappings") or [])
        return [(f"{template['instanceType']} {market}", "hour", 1), ("disk gp3, GB", "month", disks)]
    return [(row["item"], unit, 1)]


def _priced(item: str, count: int, unit: str, region: str) -> Billed:
    table = [row for row in rows("idle_prices.csv") if row["item"] == item]
    for place in (region, "us-east-1"):
        for row in table:
            if row["region"] == place:
                return Billed(item, count, unit, float(row["usd"]), place, f"{row['source']} ({row['date']})", region)
    return Billed(item, count, unit, None, None, "no price is known here", region)
