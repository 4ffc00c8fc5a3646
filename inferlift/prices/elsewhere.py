"""Prices outside of AWS: GPUs rented by the hour, models as a service by the token, servers to buy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlift.prices.tables import number, rows


@dataclass(frozen=True)
class Rental:
    """A host with GPUs by the hour at another provider."""

    provider: str
    product: str
    gpu: str  # as sizing/gpus.csv calls it, with the size where there are several
    gpus: int
    usd_per_hour: float  # of the whole product
    eu: bool | None  # within the European Union; None: unknown
    quality: str  # "first": read at the provider or its own catalogue's copy; "second": told by others
    source: str
    date: str
    note: str = ""

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.gpus


@dataclass(frozen=True)
class Api:
    """A model as a managed service, USD per million tokens."""

    provider: str
    product: str
    model: str
    usd_per_million_in: float
    usd_per_million_out: float | None  # None: it writes nothing
    eu: bool | None
    quality: str
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True)
class ServerPrice:
    """What a GPU server costs to buy. `kw` is the most it draws."""

    gpu: str
    gpus: int
    product: str
    usd: float | None
    kw: float | None
    usd_source: str
    kw_source: str
    date: str
    note: str = ""


@cache
def rentals(gpu: str = "") -> tuple[Rental, ...]:
    """Rented GPU hosts, of that GPU where one is named, cheapest for a GPU first."""
    found = [
        Rental(
            row["provider"],
            row["product"],
            row["gpu"],
            int(row["gpus"]),
            float(row["usd"]),
            _yes_no(row["eu"]),
            row["quality"],
            row["source"],
            row["date"],
            row["note"],
        )
        for row in rows("other.csv")
        if row["unit"] == "hour" and gpu in ("", row["gpu"])
    ]
    return tuple(sorted(found, key=lambda rental: (rental.usd_per_gpu_hour, rental.provider)))


@cache
def apis(model: str = "") -> tuple[Api, ...]:
    """Managed models, those of that name (case and dots aside) where one is given, cheapest output first."""
    found = [
        Api(
            row["provider"],
            row["product"],
            row["model"],
            float(row["usd_in"]),
            number(row["usd_out"]),
            _yes_no(row["eu"]),
            row["quality"],
            row["source"],
            row["date"],
            row["note"],
        )
        for row in rows("other.csv")
        if row["unit"] == "million tokens" and (not model or _plain(row["model"]) == _plain(model))
    ]
    return tuple(sorted(found, key=lambda api: (api.usd_per_million_out or 0.0, api.usd_per_million_in, api.provider)))


@cache
def servers(gpu: str = "") -> tuple[ServerPrice, ...]:
    """GPU servers to buy, with that GPU where one is named. A price or a draw that nobody states is None."""
    return tuple(
        ServerPrice(
            row["gpu"],
            int(row["gpus"]),
            row["product"],
            number(row["usd"]),
            number(row["kw"]),
            row["usd_source"],
            row["kw_source"],
            row["date"],
            row["note"],
        )
        for row in rows("hardware_prices.csv")
        if gpu in ("", row["gpu"])
    )


def _yes_no(text: str) -> bool | None:
    return {"yes": True, "no": False}.get(text)


def _plain(name: str) -> str:
    return name.lower().replace("-instruct", "").replace(".", "").replace("-", "").replace("_", "").replace(" ", "")
