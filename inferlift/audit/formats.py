"""Log formats (formats.yaml) compiled to byte patterns, and one line turned into one request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from inferlift.errors import DeclarationError

MAX_CACHED = 50_000
MAX_DURATION_S = 7 * 24 * 3600.0
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_TIME_LOCAL = re.compile(rb"(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_NUMBER = re.compile(rb"\d{1,15}(?:\.\d{1,9})?")
_REQUEST = re.compile(rb"([A-Z]{1,20}) (\S+)(?: HTTP/\d(?:\.\d)?)?")
_PAIR = re.compile(rb'\s+(\w{1,40})=(?:"([^"\\]*(?:\\.[^"\\]*)*)"|((?:-|[\d.]+)(?:(?:, | : )(?:-|[\d.]+))+|\S*))', re.S)


class Request(NamedTuple):
    """One understood line. `stamp_s` is Unix time; times that are not logged are None, never 0."""

    stamp_s: float
    whole_seconds: bool  # the stamp has no fraction: the event lies somewhere in that second
    method: str | None
    path: str | None
    status: int
    duration_s: float | None
    header_s: float | None  # to the upstream's response header
    request_bytes: int | None


class NotUnderstood(Exception):
    """Why a line cannot be read."""


class BadValue(NotUnderstood):
    """The fields are there, a value in them is impossible: no other format makes it right."""


@dataclass(frozen=True)
class Format:
    name: str
    pattern: re.Pattern[bytes]
    variables: tuple[str, ...]  # of the pattern's groups, in order
    pairs: dict[bytes, str]
    timed: bool
    source: str


@cache
def formats() -> tuple[Format, ...]:
    rows: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "formats.yaml").read_text(encoding="utf-8"))
    return tuple(_compiled(row) for row in rows)


def named(name: str) -> Format:
    """Raises DeclarationError for an unknown name."""
    for candidate in formats():
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in formats())
    raise DeclarationError(f"there is no log format {name!r}", why=f"known formats: {known}")


def choose(lines: Sequence[bytes]) -> Format | None:
    """The format that understands most of the lines, durations counting double; None if none understands any."""
    best: tuple[int, Format] | None = None
    for candidate in formats():
        score = 0
        for line in lines:
            try:
                score += 2 if parse(line, candidate).duration_s is not None else 1
            except NotUnderstood:
                continue
        if score and (best is None or score > best[0]):
            best = (score, candidate)
    return best[1] if best else None


def parse(line: bytes, wanted: Format) -> Request:
    """One line without its line end. Raises NotUnderstood."""
    match = wanted.pattern.match(line)
    if match is None:
        raise NotUnderstood(f"does not have the fields of {wanted.name}")
    values = dict(zip(wanted.variables, match.groups(), strict=True))
    if wanted.pairs:
        end, size = match.end(), len(line)
        while end < size and (pair := _PAIR.match(line, end)):
            if (variable := wanted.pairs.get(pair[1])) is not None:
                values[variable] = pair[2] if pair[2] is not None else pair[3]
            end = pair.end()
    stamp, whole = float(epoch(values["time_local"])), True
    if (msec := number(values.get("msec"))) is not None:
        stamp, whole = msec, False
    method, path = request_line(values["request"])
    duration = number(values.get("request_time"))
    if duration is not None and duration > MAX_DURATION_S:
        raise BadValue(f"a duration of {duration:.0f} s is absurd")
    size_of_request = number(values.get("request_length"))
    return Request(
        stamp,
        whole,
        method,
        path,
        int(values["status"]),
        duration,
        upstream_times(values.get("upstream_header_time"))[0],
        None if size_of_request is None else int(size_of_request),
    )


_epochs: dict[bytes, int] = {}


def epoch(time_local: bytes) -> int:
    """Unix time of nginx's $time_local; the offset stands in every line, so summer time needs no guessing."""
    known = _epochs.get(time_local)
    if known is not None:
        return known
    match = _TIME_LOCAL.fullmatch(time_local)
    if match is None or match[2] not in _MONTHS:
        raise BadValue(f"time {time_local.decode('utf-8', 'replace')[:40]!r} is not dd/Mon/yyyy:hh:mm:ss +hhmm")
    day, _, year, hour, minute, second = (int(match[i]) if i != 2 else 0 for i in range(1, 7))
    offset = timedelta(hours=int(match[8]), minutes=int(match[9])) * (1 if match[7] == b"+" else -1)
    try:
        zone = timezone(offset)
        leap = 1 if second == 60 else 0
        moment = datetime(year, _MONTHS[match[2]], day, hour, minute, second - leap, tzinfo=zone)
        seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) + leap
    except (ValueError, OverflowError) as error:
        raise BadValue(f"time {time_local.decode('utf-8', 'replace')[:40]!r}: {error}") from None
    if len(_epochs) >= MAX_CACHED:
        _epochs.clear()
    _epochs[time_local] = seconds
    return seconds


_requests: dict[bytes, tuple[str | None, str | None]] = {}


def request_line(request: bytes) -> tuple[str | None, str | None]:
    """Method and path without query; (None, None) for what is no HTTP request (TLS bytes, `-`, nothing)."""
    known = _requests.get(request)
    if known is not None:
        return known
    match = _REQUEST.fullmatch(request)
    found: tuple[str | None, str | None] = (None, None)
    if match:
        found = (match[1].decode(), match[2].split(b"?", 1)[0].decode("utf-8", "replace"))
    if len(_requests) >= MAX_CACHED:
        _requests.clear()
    _requests[request] = found
    return found


def number(text: bytes | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def upstream_times(text: bytes | None) -> tuple[float | None, float | None]:
    """Total over all tries and the serving (last) try of an nginx upstream list, in seconds; `-` parts are skipped."""
    if text is None:
        return None, None
    tries = [value for part in re.split(rb"\s*[,:]\s*", text.strip()) if (value := number(part)) is not None]
    return (round(sum(tries), 6), tries[-1]) if tries else (None, None)


_READ = ("time_local", "request", "status", "request_time", "upstream_header_time", "request_length", "msec")


def _compiled(row: dict[str, Any]) -> Format:
    pattern, variables = "", []
    template: str = row["template"]
    at = 0
    for found in re.finditer(r"\$(\w+)", template):
        pattern += re.escape(template[at : found.start()])
        at = found.end()
        before, name = template[found.start() - 1 : found.start()], found[1]
        if before == '"':
            inner = r'[^"\\]*(?:\\.[^"\\]*)*'
        elif before == "[":
            inner = r"[^\]]*"
        elif name == "status":
            inner = r"\d{3}"
        elif name == "remote_user":
            inner = r".*?"  # may hold blanks
        elif name == "request_time":
            inner = r"(?:-|\d+\.\d+)"
        elif name.startswith("upstream_"):
            inner = r"(?:-|[\d.]+)(?:(?:, | : )(?:-|[\d.]+))*"
        else:
            inner = r"\S+"
        if name in _READ:
            variables.append(name)
            inner = f"({inner})"
        pattern += inner
    pattern += re.escape(template[at:]) + r"(?=\s|$)"
    pairs = {key.encode(): variable for key, variable in row.get("pairs", {}).items()}
    timed = "request_time" in (*variables, *pairs.values())
    return Format(row["name"], re.compile(pattern.encode(), re.S), tuple(variables), pairs, timed, row["source"])
