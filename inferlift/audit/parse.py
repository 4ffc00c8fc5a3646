"""One line, read by itself: what a format captures of it, and what is wrong with the values. For the first lines, for
lines that fit no layout, and for reasons; the bulk is read in columns (layouts.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from inferlift.audit.formats import Format, formats, generic
from inferlift.audit.templates import Field

MAX_DURATION_S = 7 * 24 * 3600.0
FACTORS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}  # to microseconds
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_NAMES, 1)}
_CLF = re.compile(r"(\d\d)/([^/]{3,9})/(\d{4}):(\d\d):(\d\d):(\d\d)(\.\d+)?(?: ([+-])(\d\d)(\d\d))?", re.A)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T \t](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d)| ?UTC)?", re.A
)
_NUMBER = re.compile(r"\+?\d{1,20}(?:\.\d{1,12})?", re.A)
PAIR = re.compile(r'\s+(\w{1,40})=(?:"([^"\\]*(?:\\.[^"\\]*)*)"|((?:-|[\d.]+)(?:(?:, | : )(?:-|[\d.]+))+|\S*))', re.S)
_CLOUDFRONT = "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html"
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
        groups = [_uncsv(group) for group in groups]
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
        return f"time {str(value)[:40]!r} is {_TIMES.get(field.type, 'not understood')}"
    for field, value in zip(found.fields, found.values, strict=True):
        if field.means == "duration" and (us := number(value, field.unit)) is not None and us > MAX_DURATION_S * 1e6:
            return f"a duration of {us / 1e6:.0f} s is absurd"
        if field.means == "status" and value not in (None, "-", "-1") and status(value) is None:
            return f"status {str(value)[:20]!r} is no HTTP status"
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


def choose(lines: Sequence[str]) -> Format | None:
    """The format that understands most of the lines, durations counting double; None if none understands any."""
    best: tuple[float, Format] | None = None
    for candidate in (*(known for known in formats() if not known.only_named), *_generic(lines)):
        score = 0.0
        for line in lines:
            found = capture(line, candidate)
            if found is None or wrong(found):
                continue
            means = {field.means for field, value in zip(found.fields, found.values, strict=True) if value}
            score += 2 if means & {"duration", "created"} else 1.5 if "unknown_duration" in means else 1
        if score and (best is None or score > best[0]):
            best = (score, candidate)
    return best[1] if best else None


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


def _generic(lines: Sequence[str]) -> list[Format]:
    """Formats that only these lines tell: keys of JSON objects, a CSV header, CloudFront's #Fields."""
    found: list[Format | None] = []
    for line in lines[:50]:
        if line.startswith("#Fields:"):
            found.append(_cloudfront(line.removeprefix("#Fields:").split()))
        elif line.startswith("{"):
            data = _object(line)
            if data is not None:
                found.append(generic(list(_keys(data))))
        if any(found):
            break
    first = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=first.count)
    if not first.startswith(("{", "#")) and first.count(separator) >= 2 and " " not in first:
        found.append(generic([(cell.strip().strip('"'),) for cell in first.split(separator)], separator=separator))
    return [one for one in found if one is not None]


def _cloudfront(names: Sequence[str]) -> Format | None:
    """The standard log's columns in the order that its own header gives; date and time are one stamp, in UTC."""
    if tuple(names[:2]) != ("date", "time"):
        return None
    built = generic([("time",), *((name,) for name in names[2:])], separator="\t")
    if built is None:
        return None
    fields = tuple(replace(field, type="date_tab_time") if field.means == "time" else field for field in built.fields)
    cells = ["([0-9-]{10}\\t[0-9:]{8})"]
    wanted = {field.key[0] for field in fields}
    cells += ["([^\\t]*)" if name in wanted else "[^\\t]*" for name in names[2:]]
    return replace(built, name="cloudfront", pattern="\\t".join(cells), fields=fields, csv=False,
                   source=_CLOUDFRONT)  # fmt: skip


def _json(line: str, wanted: Format) -> Captured | None:
    data = _object(line)
    if data is None:
        return None
    for key, pattern in wanted.must:
        value = _at(data, key)
        if value is None or (pattern and not re.search(pattern, value)):
            return None
    values = tuple(_at(data, field.key) for field in wanted.fields)
    has_time = any(f.means == "time" and v is not None for f, v in zip(wanted.fields, values, strict=True))
    return Captured(wanted, wanted.fields, values) if has_time else None


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _keys(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for key, value in data.items():
        if isinstance(value, dict) and len(above) < 3:
            yield from _keys(value, (*above, key))
        else:
            yield (*above, key)


def _at(data: Any, key: tuple[str, ...]) -> str | None:
    for part in key:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None or data == "":
        return None
    return data if isinstance(data, str) else json.dumps(data)


def _uncsv(cell: str | None) -> str | None:
    if cell and cell.startswith('"'):
        return cell[1:-1].replace('""', '"')
    return cell
