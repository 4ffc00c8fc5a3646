"""How old prices are. Today is an argument: nothing here looks at a clock."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

MAX_AGE_DAYS = 90
NEXT = "./invoke prices --refresh"
_DATE = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?$")


def age_days(date: str, today: datetime.date) -> int | None:
    """Days since `date` (ISO day, or a month, which counts from its first day); None where it is no date."""
    day = _day(date)
    return None if day is None else (today - day).days


def age_note(date: str, today: datetime.date) -> str:
    """What a plan says of prices of that date; nothing up to 90 days."""
    days = age_days(date, today)
    if days is None:
        return f"prices without a date: their age is not known; refresh: {NEXT}"
    if days < 0:
        return f"prices are dated {date}, after today ({today.isoformat()}): check the clock or the price table"
    if days <= MAX_AGE_DAYS:
        return ""
    return f"prices are of {date}: {days} days old, more than {MAX_AGE_DAYS}; refresh: {NEXT}"


def oldest(dates: Iterable[str]) -> str:
    """The oldest of them; one that is no date is older than all ("" where there is none)."""
    return min(dates, key=lambda date: _day(date) or datetime.date.min, default="")


def _day(date: str) -> datetime.date | None:
    found = _DATE.match(date)
    if found is None:
        return None
    try:
        return datetime.date(int(found[1]), int(found[2]), int(found[3] or 1))
    except ValueError:
        return None
