"""The tables beside this file: instance types, quotas, error codes, images. Read once."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from inferlift.errors import DeclarationError

HERE = Path(__file__).parent
Kind = Literal["no capacity", "quota", "credentials", "permission", "bad request", "throttled", "unknown"]
Market = Literal["on-demand", "spot"]


@dataclass(frozen=True)
class InstanceType:
    name: str
    quota: str  # which of the account's vCPU quotas it counts against: standard, g, p
    vcpus: int
    memory_mib: int
    arch: str  # x86_64, arm64
    gpu: str
    gpus: int
    nvme_gb: int  # local, of all drives together
    nvme_drives: int
    network_cards: int
    efa_interfaces: int
    cluster: bool  # can be in a cluster placement group
    sold_as: tuple[str, ...]

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Quota:
    code: str | None  # None: not known
    name: str


@dataclass(frozen=True)
class ImageSource:
    parameter: str  # SSM parameter that holds the AMI's id
    user: str  # whom the image makes; may become root


def instance_type(name: str) -> InstanceType:
    """Raises DeclarationError for a type that is not in the table, with the nearest of its family."""
    known = _instance_types()
    if name not in known:
        family = name.partition(".")[0]
        near = [other for other in known if other.partition(".")[0] == family] or sorted(
            {k.split(".")[0] for k in known}
        )
        raise DeclarationError(
            f"{name} is not one of the EC2 types that this version makes", why=f"there are {', '.join(near)}"
        )
    return known[name]


def instance_types() -> tuple[InstanceType, ...]:
    """All types, each family from small to large."""
    return tuple(_instance_types().values())


def quota(kind: InstanceType, market: Market) -> Quota:
    """The vCPU quota that hosts of this type count against. On-demand and spot are apart."""
    name = kind.quota
    if market == "spot" and name == "p":
        name = kind.family[:2]
    for row in rows("quotas.csv"):
        if (row["quota"], row["market"]) == (name, market):
            return Quota(row["code"] or None, row["name"])
    return Quota(None, f"no quota is known for {kind.family} {market}")


def error_kind(code: str) -> Kind:
    """What an error code of AWS means for what to do next; "unknown" for one that is not in the table."""
    return _error_kinds().get(code, "unknown")


def image_source(kind: str, arch: str) -> ImageSource:
    for row in rows("images.csv"):
        if (row["kind"], row["arch"]) == (kind, arch):
            return ImageSource(row["parameter"], row["user"])
    raise DeclarationError(f"there is no image {kind} for {arch}")


@cache
def _instance_types() -> dict[str, InstanceType]:
    return {
        row["instance_type"]: InstanceType(
            name=row["instance_type"],
            quota=row["quota"],
            vcpus=int(row["vcpus"]),
            memory_mib=int(row["memory_mib"]),
            arch=row["arch"],
            gpu=row["gpu"],
            gpus=int(row["gpus"]),
            nvme_gb=int(row["nvme_gb"]),
            nvme_drives=int(row["nvme_drives"]),
            network_cards=int(row["network_cards"]),
            efa_interfaces=int(row["efa_interfaces"]),
            cluster=row["cluster"] == "yes",
            sold_as=tuple(row["sold_as"].split("|")),
        )
        for row in rows("instance_types.csv")
    }


@cache
def _error_kinds() -> dict[str, Kind]:
    return {row["code"]: row["kind"] for row in rows("errors.csv")}  # type: ignore[misc]


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
