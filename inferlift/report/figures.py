"""How numbers are written for people: unknown is a word, never 0, and nothing is rounded into looking perfect."""

from __future__ import annotations

import math
from datetime import UTC, datetime

UNKNOWN = "unknown"
NARROW = "\u202f"  # narrow no-break space: groups digits and holds a unit to its number
_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def number(value: float | int | None, digits: int = 3) -> str:
    """At least `digits` significant digits; whole numbers in full, in groups of three."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}".replace(",", NARROW)
    if abs(value) >= 10**digits:
        return f"{value:,.0f}".replace(",", NARROW)
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    if places > 9:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit, in the size people say it in: 8229 ms is 8.23 s, a share is a percentage."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if unit == "ms":
        return milliseconds(value)
    if unit == "s":
        return seconds(value)
    if unit in ("bytes", "B"):
        return size(value)
    if unit == "share":
        return share(value)
    if unit.startswith("share of "):
        return f"{share(value)} {unit.removeprefix('share ')}"
    return f"{number(value)}{NARROW}{unit}" if unit else number(value)


def milliseconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 100_000:
        return seconds(value / 1000)
    return f"{number(value / 1000)}{NARROW}s" if abs(value) >= 1000 else f"{number(value)}{NARROW}ms"


def seconds(value: float | None) -> str:
    """0.4 ms, 1.9 s, 121 s as 2 min 01 s, 120 s as 2 min, 26.5 h as 26 h 30 min."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if 0 < abs(value) < 1:
        return milliseconds(value * 1000)
    if abs(value) < 90:
        return f"{number(value)}{NARROW}s"
    whole = round(value)
    large, small, unit = (60, 1, ("min", "s")) if abs(whole) < 5400 else (3600, 60, ("h", "min"))
    rest = whole % large // small
    text = f"{whole // large}{NARROW}{unit[0]}"
    return f"{text} {rest:02d}{NARROW}{unit[1]}" if rest else text


def size(value: float | None) -> str:
    """Bytes in powers of ten."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for unit, factor in _BYTES:
        if abs(value) >= factor:
            return f"{number(value / factor)}{NARROW}{unit}"
    return f"{number(value)}{NARROW}bytes"


def memory(value: float | None) -> str:
    """Bytes of memory in powers of two, as hosts and models are described."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 0.1 * 2**30:
        return f"{number(value / 2**30)}{NARROW}GiB"
    return f"{number(value / 2**20)}{NARROW}MiB"


def share(value: float | None) -> str:
    """A percentage. Only exactly all is 100 %, and only exactly none is 0 %."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value in (0, 1):
        return f"{value * 100:.0f}{NARROW}%"
    texts = (number(value * 100, digits) for digits in range(3, 17))
    return f"{next((t for t in texts if t not in ('0', '100')), 'almost 100')}{NARROW}%"


def moment(value: str | datetime | None) -> str:
    """A time in UTC to the second; text that is no time is shown as it is."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            return value
        if len(value) <= 10:
            return value
        value = parsed
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def words(name: str) -> str:
    """A figure's key as words: p95_total_ms is "P95 total", its unit stands with its value."""
    base = name
    for unit in ("_ms", "_rps", "_share", "_s"):
        base = base.removesuffix(unit)
    text = base.replace("_", " ")
    return (
        text.upper()
        if len(text) <= 3
        else text[0].upper() + text[1:]
        if text[:1] == "p" and text[1:2].isdigit()
        else text
    )


def count(value: int, one: str, many: str = "") -> str:
    """1 check, 2 checks."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"
