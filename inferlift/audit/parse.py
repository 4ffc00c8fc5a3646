"""One line, read by itself: what a format captures of it, and what is wrong with the values. For the first lines, for
lines that fit no layout, and for reasons; the bulk is read in columns (layouts.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from inferlift.audit.formats import Format
from inferlift.audit.templates import Field

MAX_DURATION_S = 7 * 24 * 3600.0
# A stamp outside of these years is no request's time: it is in another unit, or of a clock that was not set.
FIRST_YEAR, LAST_YEAR = 1995, 2100
EARLIEST_US, LATEST_US = (
    (datetime(year, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    for year in (FIRST_YEAR, LAST_YEAR)
)
FACTORS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}  # to microseconds
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_NAMES, 1)}
_CLF = re.compile(r"(\d\d)/([^/]{3,9})/(\d{4}):(\d\d):(\d\d):(\d\d)(\.\d+)?(?: ([+-])(\d\d)(\d\d))?", re.A)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T \t](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d)| ?UTC)?", re.A
)
_NUMBER = re.compile(r"\+?\d{1,20}(?:\.\d{1,12})?", re.A)
PAIR = re.compile(r'\s+(\w{1,40})=(?:"([^"\\]*(?:\\.[^"\\]*)*)"|((?:-|[\d.]+)(?:(?:, | : )(?:-|[\d.]+))+|\S*))', re.S)
_DECIMAL = re.compile(r"^([0-9]+),([0-9]+)$")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Captured(NamedTuple):
    """What a format finds in a line: its fields and their texts, None where one is empty."""

    format: Format
    fields: tuple[Field, ...]
    values: tuple[str | None, ...]


def capture(line: str, wanted: Format) -> Captured | None:
    """None where the line does not have the format's fields."""
    if not wanted.pattern:
        return _json(line, wanted)
    match = wanted.compiled().fullmatch(line)
    if match is None:
        return None
    groups: Sequence[str | None] = match.groups()
    if wanted.csv:
        groups = [_cell(group, wanted.separator) for group in groups]
    if not wanted.open:
        return Captured(wanted, wanted.fields, tuple(groups))
    fields, values, rest = list(wanted.fields), list(groups[:-1]), groups[-1]
    if wanted.pairs and rest:
        of_key = dict(wanted.pairs)
        for key, value, _ in pairs(rest):
            if (field := of_key.get(key)) is not None:
                fields.append(field)
                values.append(value)
    return Captured(wanted, tuple(fields), tuple(values))


def pairs(rest: str) -> Iterator[tuple[str, str, re.Match[str]]]:
    """key=value pairs at the front of `rest`, quoted or bare (an nginx list may hold blanks), with their matches."""
    end = 0
    while end < len(rest) and (pair := PAIR.match(rest, end)):
        yield pair[1], pair[2] if pair[2] is not None else pair[3], pair
        end = pair.end()


def wrong(found: Captured) -> str:
    """Why the values of a captured line cannot be; "" where nothing is wrong."""
    times = [(field, value) for field, value in zip(found.fields, found.values, strict=True) if field.means == "time"]
    if times and all(stamp_us(value, field) is None for field, value in times):
        field, value = times[0]
        return f"time {shown(str(value), 40)} is {_TIMES.get(field.type, 'not understood')}"
    told = next(
        (us for field, value in sorted(times, key=_epoch_first) if (us := stamp_us(value, field)) is not None), None
    )
    if told is not None and not EARLIEST_US <= told < LATEST_US:
        years = f"is not of the years {FIRST_YEAR} to {LAST_YEAR - 1}"
        return f"time {shown(str(times[0][1]), 40)} {years}{_unit(times, told)}"
    for field, value in zip(found.fields, found.values, strict=True):
        long = number(value, field.unit) if field.means == "duration" else None
        if long is not None and long > MAX_DURATION_S * 1e6:
            return f"a duration of {long / 1e6:.0f} s is absurd"
        if field.means == "status" and value not in (None, "-", "-1") and status(value) is None:
            return f"status {shown(str(value), 20)} is no HTTP status"
    return ""


def epoch_unit(value: float) -> str:
    """The unit in which a Unix time is of our years; "" where none does. Two never do: they are a thousand apart."""
    return next((unit for unit in FACTORS if EARLIEST_US <= value * FACTORS[unit] < LATEST_US), "")


def shown(text: str, most: int = 60) -> str:
    """A piece of a line as an example, without what may be a secret: what follows a `?`, values of keys and tokens,
    words that look like them."""
    text = text[:4096]
    for pattern, put in _SECRETS:
        text = pattern.sub(put, text)
    return repr(text[:most])


_NAMES_OF_SECRETS = (
    r"(?:api[_-]?key|access[_-]?key|key|token|secret|passw(?:or)?d|pwd|auth(?:orization)?|credentials?|cookie|"
    r"sess(?:ion)?(?:[_-]?id)?|sid|sig(?:nature)?|jwt|code|x-amz-\w+)"
)
_SECRETS = (
    (re.compile(r"\?[^\s\"']*"), "?..."),
    (re.compile(r"(?i)%3f[^\s\"']*"), "?..."),
    (re.compile(r"(?i)\b(bearer|basic|digest)\s+[^\s\"',;]+"), r"\1 ..."),
    (re.compile(rf"(?i)([\w.-]*{_NAMES_OF_SECRETS}[\"']?\s*[=:]\s*)(?:\"[^\"]*\"?|'[^']*'?|[^\s&,;\"']+)"), r"\1..."),
    (re.compile(r"//[^/\s@]+@"), "//...@"),
    (re.compile(r"\b(?:sk|pk|ghp|gho|xox[a-z]|hf|glpat|AKIA|ASIA|eyJ)[-_A-Za-z0-9.]{8,}"), "..."),
    (re.compile(r"[A-Za-z0-9+_=-]{24,}"), "..."),
)


def _epoch_first(pair: tuple[Field, str | None]) -> bool:
    return pair[0].type != "epoch"


def _unit(times: Sequence[tuple[Field, str | None]], us: int) -> str:
    """Which unit of a Unix time would fit."""
    for field, value in times:
        if field.type == "epoch" and value is not None and (unit := epoch_unit(us / FACTORS[field.unit])):
            return f": read as {field.unit}; as {unit} it would be"
    return ""


_TIMES = {
    "clf": "not dd/Mon/yyyy:hh:mm:ss +hhmm with an English month",
    "haproxy": "not dd/Mon/yyyy:hh:mm:ss.mmm with an English month",
    "iso": "not ISO 8601",
    "date_tab_time": "no date and time",
    "epoch": "no Unix time",
}


def stamp_us(text: str | None, field: Field) -> int | None:
    """Unix time in microseconds; a time without a zone is taken as UTC. None where it is no time."""
    if not text:
        return None
    if field.type == "epoch":
        value = number(text, field.unit)
        return None if value is None else round(value)
    parts = _ISO.fullmatch(text) if field.type in ("iso", "date_tab_time") else _CLF.fullmatch(text.strip("[]"))
    if parts is None:
        return None
    try:
        if field.type in ("iso", "date_tab_time"):
            year, month, day, hour, minute, second = (int(parts[i]) for i in range(1, 7))
            fraction, sign, hours, minutes = f".{parts[7] or 0}", parts[8], parts[9], parts[10]
        else:
            year, month, day = int(parts[3]), _MONTHS[parts[2]], int(parts[1])
            hour, minute, second = (int(parts[i]) for i in range(4, 7))
            fraction, sign, hours, minutes = parts[7] or ".0", parts[8], parts[9], parts[10]
        offset = (
            timedelta(hours=int(hours), minutes=int(minutes)) * (1 if sign == "+" else -1) if sign else timedelta(0)
        )
        leap = 1 if second == 60 else 0
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=timezone(offset))
        whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) + leap
    except (ValueError, OverflowError, KeyError):
        return None
    return whole * 1_000_000 + int(float(fraction) * 1e6)


def number(text: str | None, unit: str = "us") -> float | None:
    """In microseconds for a unit of time. Negative numbers, `-` and other text are None: not logged is not zero."""
    return float(text) * FACTORS[unit] if text is not None and _NUMBER.fullmatch(text) else None


def status(text: str | None) -> int | None:
    """0 stands for a request that was never answered (CloudFront's 000, Envoy's 0, HAProxy's -1)."""
    if text == "-1":
        return 0
    return (
        int(text)
        if text and text.isascii() and text.isdigit() and (int(text) == 0 or 100 <= int(text) < 1000)
        else None
    )


def first_stamp(lines: Iterable[str], wanted: Format) -> float:
    """Unix time in microseconds of the first line that has one; infinity if none does."""
    for line in lines:
        found = capture(line, wanted)
        for field, value in zip(found.fields, found.values, strict=True) if found else ():
            if field.means == "time" and (us := stamp_us(value, field)) is not None:
                return float(us)
    return float("inf")


def plain(line: str) -> str:
    """Without the colours that a server writes to a terminal."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def _json(line: str, wanted: Format) -> Captured | None:
    data = json_object(line)
    if data is None:
        return None
    for key, pattern in wanted.must:
        value = at_key(data, key)
        if value is None or (pattern and not re.search(pattern, value)):
            return None
    values = tuple(at_key(data, field.key) for field in wanted.fields)
    has_time = any(f.means == "time" and v is not None for f, v in zip(wanted.fields, values, strict=True))
    return Captured(wanted, wanted.fields, values) if has_time else None


def json_object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def at_key(data: Any, key: tuple[str, ...]) -> str | None:
    for part in key:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None or data == "":
        return None
    return data if isinstance(data, str) else json.dumps(data)


def _cell(cell: str | None, separator: str) -> str | None:
    """Without quotes; with a decimal point where a comma can be one, since it does not separate."""
    if cell is None:
        return None
    cell = cell.strip(" ")
    if cell.startswith('"'):
        cell = cell[1:-1].replace('""', '"')
    return _DECIMAL.sub(r"\1.\2", cell) if separator != "," else cell
