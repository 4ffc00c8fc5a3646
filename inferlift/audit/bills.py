"""Bills -> Bill: a CSV of month and amount, or AWS Cost and Usage columns (legacy and CUR 2.0 names).

Source: https://docs.aws.amazon.com/cur/latest/userguide/Lineitem-columns.html.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from inferlift.artifacts.evidence import Bill
from inferlift.audit.parse import shown
from inferlift.errors import DeclarationError

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: i for i, name in enumerate(_NAMES, 1)}
_START = ("lineitem/usagestartdate", "line_item_usage_start_date")
_COST = ("lineitem/unblendedcost", "line_item_unblended_cost", "lineitem/blendedcost", "line_item_blended_cost")
_CURRENCY = ("lineitem/currencycode", "line_item_currency_code", "currency")
_MONTH_NAMES = ("month", "period", "date", "billing_period", "invoice_month", "usage_month")
_AMOUNT_NAMES = ("amount", "cost", "total", "price", "sum", "unblended_cost", "unblendedcost")


def bill(path: Path) -> Bill:
    """Amounts summed by month. Raises DeclarationError where no month and amount can be read."""
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        text = raw.decode("utf-8-sig", "replace").replace("\0", "")
    except (OSError, EOFError) as error:
        raise DeclarationError(f"bill {path} cannot be read", why=str(error)) from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(",;\t", key=first.count)
    rows: Iterator[list[str]] = csv.reader((line for line in text.splitlines() if line.strip()), delimiter=separator)
    header = next(rows, [])
    names = [cell.strip().lower() for cell in header]
    month_at, amount_at = _column(names, (*_START, *_MONTH_NAMES)), _column(names, (*_COST, *_AMOUNT_NAMES))
    currency_at = _column(names, _CURRENCY)
    if month_at is None or amount_at is None:
        if len(header) >= 2 and _month(header[0]) and _amount(header[1], separator) is not None:
            month_at, amount_at, rows = 0, 1, itertools.chain([header], rows)
        else:
            raise DeclarationError(
                f"bill {path.name}: no columns of month and amount",
                why=f"it begins {shown(first)}",
                next_command="a CSV with the columns month (2026-10) and amount, or an AWS Cost and Usage report",
            )
    totals: dict[str, list[float]] = {}
    currencies: dict[str, None] = {}
    refused, examples = 0, ""
    for row in rows:
        month = _month(row[month_at]) if len(row) > max(month_at, amount_at) else None
        amount = _amount(row[amount_at], separator) if month else None
        if month is None or amount is None:
            refused += 1
            examples = examples or shown(separator.join(row))
            continue
        totals.setdefault(month, []).append(amount)
        if currency_at is not None and len(row) > currency_at and row[currency_at].strip():
            currencies[row[currency_at].strip()] = None
    if not totals:
        raise DeclarationError(
            f"bill {path.name} holds no amount", why=f"for example {examples}" if examples else "no rows"
        )
    if len(currencies) > 1:
        raise DeclarationError(f"bill {path.name} mixes currencies", why=", ".join(currencies))
    months = tuple((month, round(math.fsum(totals[month]), 6)) for month in sorted(totals))
    notes = [f"{refused} rows were not understood, for example {examples}"] if refused else []
    growth, why = _growth(dict(months))
    return Bill(
        months=months,
        currency=next(iter(currencies), ""),
        growth_quarter=growth,
        notes=(*notes, *([why] if why else [])),
    )


def _growth(months: dict[str, float]) -> tuple[float | None, str]:
    """The last month over the one three months before. A last month that is not over yet makes this too small."""
    last = max(months)
    year, month = (int(part) for part in last.split("-"))
    before = f"{year - (month <= 3)}-{(month - 4) % 12 + 1:02d}"
    if before not in months:
        return None, f"the bill has no {before} to hold {last} against"
    if months[before] <= 0:
        return None, f"{before} cost nothing: a growth from it has no meaning"
    return months[last] / months[before] - 1, ""


def _month(cell: str) -> str | None:
    text = cell.strip().lower()
    if found := re.match(r"(\d{4})[-/.](\d{1,2})(?!\d)", text):
        year, month = int(found[1]), int(found[2])
    elif found := re.match(r"(\d{1,2})[-/.](\d{4})$", text):
        year, month = int(found[2]), int(found[1])
    elif (found := re.match(r"([a-z]{3})[a-z]*[ -]+(\d{4})$", text)) and found[1] in _MONTHS:
        year, month = int(found[2]), _MONTHS[found[1]]
    else:
        return None
    return f"{year}-{month:02d}" if 1 <= month <= 12 and 1990 < year < 2200 else None


def _amount(cell: str, separator: str) -> float | None:
    """1234.5, 1,234.50, 1.234,50 (where `;` separates), with a currency sign or not."""
    text = re.sub(r"[^\d.,eE+-]", "", cell.strip().replace("EUR", "").replace("USD", ""))
    if separator == ";" and re.search(r",\d{1,2}$", text):
        text = text.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _column(names: list[str], wanted: Iterable[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)
