"""The user's own price snapshot: dated JSON files in the state folder, laid over the shipped tables."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inferlift.errors import DeclarationError
from inferlift.prices import tables
from inferlift.prices.tables import KINDS, Offering, Price

Stamp = tuple[str, int]  # the newest snapshot's path and time of change; ("", 0): there is none
NONE: Stamp = ("", 0)


@dataclass(frozen=True)
class Snapshot:
    prices: dict[tuple[str, str, str], Price]
    offerings: dict[tuple[str, str], Offering]


def folder() -> Path:
    """Where snapshots lie: the user's state folder (XDG). It need not exist yet."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(base) / "inferlift" / "prices"


def stamp(where: Path | None = None) -> Stamp:
    """Which snapshot counts now: the newest by the date in its name."""
    found = sorted((where or folder()).glob("prices-*.json"))
    return (str(found[-1]), found[-1].stat().st_mtime_ns) if found else NONE


def load(which: Stamp) -> Snapshot:
    """The snapshot of that stamp, empty where there is none. Raises DeclarationError for a file that is none."""
    path, _ = which
    if not path:
        return Snapshot({}, {})
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
        prices = [_price(row) for row in body["prices"]]
        offerings = [Offering(**{**row, "zones": tuple(row["zones"])}) for row in body["offerings"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise DeclarationError(
            f"{path} is not a price snapshot",
            why=str(error).splitlines()[0] if str(error) else type(error).__name__,
            next_command=f"rm {path}",
        ) from None
    return Snapshot({price.key: price for price in prices}, {offering.key: offering for offering in offerings})


def merged(over: Snapshot) -> Snapshot:
    """The shipped tables with a snapshot laid over them: of two rows for the same thing the newer one counts."""
    prices = {price.key: price for price in tables.prices()}
    for key, price in over.prices.items():
        if key not in prices or price.date >= prices[key].date:
            prices[key] = price
    offerings = dict(tables.offerings())
    for pair, offering in over.offerings.items():
        if pair not in offerings or offering.date >= offerings[pair].date:
            offerings[pair] = offering
    return Snapshot(prices, offerings)


def write(prices: Iterable[Price], offerings: Iterable[Offering], date: str, where: Path | None = None) -> Path:
    """Write the snapshot of that day, whole or not at all. Raises DeclarationError where that cannot be."""
    target = (where or folder()) / f"prices-{date}.json"
    body = {
        "made": date,
        "prices": [asdict(price) for price in sorted(prices, key=lambda price: price.key)],
        "offerings": [asdict(offering) for offering in sorted(offerings, key=lambda offering: offering.key)],
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, suffix=".part", delete=False, encoding="utf-8"
        ) as file:
            json.dump(body, file, indent=1)
        os.replace(file.name, target)  # noqa: PTH105
    except OSError as error:
        raise DeclarationError(
            f"the price snapshot cannot be written to {target}",
            why=error.strerror or str(error),
            next_command="set XDG_STATE_HOME to a folder of yours, then run the same command again",
        ) from None
    return target


def _price(row: dict[str, Any]) -> Price:
    price = Price(**row)
    usd = price.usd_per_hour
    figure = usd is None or (isinstance(usd, int | float) and not isinstance(usd, bool) and 0.003 <= usd <= 200)
    texts = (price.instance_type, price.region, price.kind, price.source, price.date)
    if not all(isinstance(text, str) for text in texts) or price.kind not in KINDS or not figure:
        raise ValueError(f"not a price: {row}")
    return price
