"""The assumptions of the comparison over years (tco.yaml), with what the profile says laid over them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.artifacts.cost import TcoAssumption
from inferlift.errors import DeclarationError

TABLE = Path(__file__).parent / "tco.yaml"
_SHARES = frozenset({"residual_share", "idle_power_share", "cloud_reserved_discount", "circuit_share", "power_factor"})
_NOT_ZERO = frozenset({"years", "hardware_life_years", "eur_usd"})


def assumptions(
    currency: str, usd_rate: float, declared: Mapping[str, float] | None = None
) -> dict[str, TcoAssumption]:
    """All of them by name, money in `currency` (EUR or USD; `usd_rate` USD for one unit of it).

    `declared` replaces values, its money is in `currency` already. Raises DeclarationError for a name that is none and
    for a value that cannot be.
    """
    declared = declared or {}
    table = _table()
    for name, value in declared.items():
        if name not in table:
            near = difflib.get_close_matches(name, table, 1)
            raise DeclarationError(
                f"tco.{name} is not an assumption of the comparison",
                why=f"did you mean {near[0]}?" if near else f"known: {', '.join(table)}",
                next_command="see inferlift/sizing/tco.yaml",
            )
        _check(name, value)
    euro = declared.get("eur_usd", table["eur_usd"]["value"])
    found = {}
    for name, row in table.items():
        money = row.get("money", "")
        value = declared.get(name, _converted(row["value"], money, currency, usd_rate, euro))
        found[name] = TcoAssumption(
            name=name,
            value=float(value),
            unit=f"{currency} per {row['unit']}" if money else row["unit"],
            source="declared: profile, tco section" if name in declared else row["source"],
            declared=name in declared,
            low=None if name in declared else row.get("low"),
            high=None if name in declared else row.get("high"),
        )
    return found


def reserved_range() -> tuple[float, float, str]:
    """Shares off the price on demand that reservations usually give, and where that is from."""
    row = _table()["cloud_reserved_discount"]
    return float(row["low"]), float(row["high"]), str(row["source"])


def highest(name: str) -> float:
    """Above this a value cannot be: 1 for shares."""
    return 1.0 if name in _SHARES else math.inf


def _check(name: str, value: float) -> None:
    least = "above 0" if name in _NOT_ZERO or name in ("power_factor", "circuit_share") else "0 or more"
    wrong = value <= 0 if least == "above 0" else value < 0
    if not math.isfinite(value) or wrong or value > highest(name):
        most = " and at most 1" if highest(name) == 1 else ""
        raise DeclarationError(f"tco.{name}: {value:g} cannot be", why=f"expected a number {least}{most}")


def _converted(value: float, money: str, currency: str, usd_rate: float, euro: float) -> float:
    if not money or money == currency:
        return value
    usd = value if money == "USD" else value * (usd_rate if currency == "EUR" else euro)
    return usd if currency == "USD" else usd / usd_rate


@cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return found
