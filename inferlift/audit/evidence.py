"""Reads access logs in a window and says what the old system really does."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from inferlift.artifacts import Evidence, LogQuality, RouteFigures
from inferlift.audit import figures
from inferlift.audit.formats import BadValue, Format, NotUnderstood, Request, choose, formats, named, parse
from inferlift.audit.lines import Line, cleaned, lines, ordered
from inferlift.audit.triggers import triggers
from inferlift.errors import DeclarationError

SAMPLE = 200  # lines that decide the format
# The old side gave up or the user did; a request the user got wrong (other 4xx) is no failure of the system.
FAILED = (408, 429, 499)
_NO_INFERENCE = ("OPTIONS", "HEAD")


def audit(
    logs: Iterable[Path | str | bytes],
    *,
    routes: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    format_name: str | None = None,
) -> Evidence:
    """Evidence from log files (paths) or from lines (text or bytes).

    `routes`: paths that are inference (each with what lies below it); None guesses: every POST. The window is
    half open, [since, until); a stamp of whole seconds belongs to it only if its whole second does, so that a later
    audit of grown logs with since=evidence.start, until=evidence.end finds the same. Latency is the total clock of
    answered (status < 400) inference requests; errors are 408, 429, 499 and 5xx among inference requests.
    A window without a request is evidence too (n = 0). Raises DeclarationError where nothing can be read.
    """
    low, high = _seconds(since, "since"), _seconds(until, "until")
    wanted = named(format_name) if format_name else None
    source, notes, name = _source(logs, wanted)
    sample = list(itertools.islice(source, SAMPLE))
    chosen = wanted or choose([line.data for line in sample if not line.refused])
    if chosen is None:
        raise _nothing(name, sample)
    reading = _Reading(routes=None if routes is None else tuple(_trimmed(route) for route in routes))
    reading.read(itertools.chain(sample, source), chosen, low, high)
    if not reading.stamps and not reading.outside:
        raise DeclarationError(
            f"{name}: no line could be understood",
            why="; ".join(reading.examples),
            next_command="name the log's format, or look at the lines",
        )
    return _evidence(reading, low, high, name, notes)


@dataclass
class _Reading:
    """What one pass over the lines leaves, in log order."""

    routes: tuple[str, ...] | None
    counted: int = 0
    refused: int = 0
    outside: int = 0  # understood, but not in the window
    latest: float = 0.0  # the last moment that any line stands for
    examples: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    stamps: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    # of the inference requests, one entry each
    place: list[int] = field(default_factory=list)  # in stamps
    route: list[str] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    duration_s: list[float | None] = field(default_factory=list)
    header_s: list[float | None] = field(default_factory=list)
    request_bytes: list[int | None] = field(default_factory=list)
    _route_of: dict[str, str | None] = field(default_factory=dict)

    def read(self, source: Iterator[Line], chosen: Format, low: float | None, high: float | None) -> None:
        others = [other for other in formats() if other is not chosen]
        waiting: list[tuple[int, str]] = []  # refused since the last line in the window: which side is not known yet
        for at, line in enumerate(source, 1):
            request, why = _understood(line, chosen, others)
            if request is None:
                waiting.append((at, why))
                if len(waiting) > 10_000:
                    self._refuse(waiting)
                continue
            width = 1.0 if request.whole_seconds else 0.0
            before = low is not None and request.stamp_s < low
            after = high is not None and (request.stamp_s + width > high or request.stamp_s >= high)
            self.latest = max(self.latest, request.stamp_s + (width or 0.001))
            if before or after:
                self.outside += 1
                waiting.clear()
                continue
            self._refuse(waiting)
            self.counted += 1
            self._take(request)
        self._refuse(waiting)

    def _refuse(self, waiting: list[tuple[int, str]]) -> None:
        self.counted += len(waiting)
        self.refused += len(waiting)
        for at, why in waiting[: max(0, 3 - len(self.examples))]:
            self.examples.append(f"line {at}: {why}")
        waiting.clear()

    def _take(self, request: Request) -> None:
        place = len(self.stamps)
        self.stamps.append(request.stamp_s)
        self.whole.append(request.whole_seconds)
        self.statuses[request.status] += 1
        if request.path is None or request.method in _NO_INFERENCE:
            return
        route = self._inference_route(request.path, request.method)
        if route is not None:
            self.place.append(place)
            self.route.append(route)
            self.status.append(request.status)
            self.duration_s.append(request.duration_s)
            self.header_s.append(request.header_s)
            self.request_bytes.append(request.request_bytes)

    def _inference_route(self, path: str, method: str | None) -> str | None:
        if self.routes is None:
            return _folded(path) if method == "POST" else None
        if path not in self._route_of:
            if len(self._route_of) > 50_000:
                self._route_of.clear()
            hits = [route for route in self.routes if path == route or path.startswith(route.rstrip("/") + "/")]
            self._route_of[path] = max(hits, key=len) if hits else None
        return self._route_of[path]


def _evidence(reading: _Reading, low: float | None, high: float | None, name: str, notes: list[str]) -> Evidence:
    moments = figures.spread(reading.stamps, reading.whole)
    start = low if low is not None else min(reading.stamps, default=reading.latest)
    end = high if high is not None else max(reading.latest, start)
    durations, statuses, count = reading.duration_s, reading.status, len(reading.place)
    ends = [moments[place] for place in reading.place]
    starts = [end_s - (duration or 0.0) for end_s, duration in zip(ends, durations, strict=True)]
    timed = [i for i in range(count) if durations[i] is not None]
    peak, at_start = figures.in_flight([starts[i] for i in timed], [ends[i] for i in timed])
    level = dict(zip(timed, at_start, strict=True))
    answered = [i for i in timed if statuses[i] < 400]
    milliseconds = {i: round((durations[i] or 0.0) * 1000, 3) for i in answered}
    latency = figures.percentiles(list(milliseconds.values()), "total")
    _plausible(latency.p50_ms, name)
    headers = [
        round(header * 1000, 3)
        for header, status in zip(reading.header_s, statuses, strict=True)
        if header is not None and status < 400
    ]
    growth = figures.growth_with_concurrency([level[i] for i in answered], [milliseconds[i] for i in answered])
    minute_peak = figures.per_minute_peak([reading.stamps[place] for place in reading.place])
    failed = sum(map(_failed, statuses))
    of_route: dict[str, list[int]] = {}
    for i, route in enumerate(reading.route):
        of_route.setdefault(route, []).append(i)
    by_route = [
        RouteFigures(
            route=route,
            n=len(mine),
            errors=sum(_failed(statuses[i]) for i in mine),
            latency=figures.percentiles([milliseconds[i] for i in mine if i in milliseconds], "total"),
        )
        for route, mine in sorted(of_route.items())
    ]
    flight_peak = peak if timed else min(count, 1)  # without durations only this much is certain
    at = datetime.fromtimestamp(end, UTC).isoformat()
    return Evidence(
        start=datetime.fromtimestamp(start, UTC),
        end=datetime.fromtimestamp(end, UTC),
        n=len(reading.stamps),
        inference_n=count,
        errors=failed,
        error_share=failed / count if count else None,
        latency=latency,
        routes=tuple(by_route),
        per_minute_peak=minute_peak,
        in_flight_peak=flight_peak,
        triggers=triggers(latency, minute_peak, peak if timed else None, growth, count, name, at),
        shape=figures.shape(
            starts,
            reading.request_bytes,
            reading.route,
            minute_peak,
            flight_peak,
        ),
        quality=LogQuality(
            lines=reading.counted,
            understood=len(reading.stamps),
            refused=reading.refused,
            examples=tuple(reading.examples),
            notes=tuple(notes),
        ),
        statuses={str(status): count for status, count in sorted(reading.statuses.items())},
        first_byte=figures.percentiles(headers, "first_byte") if headers else None,
    )


def _source(logs: Iterable[Path | str | bytes], wanted: Format | None) -> tuple[Iterator[Line], list[str], str]:
    """The lines in order, notes on what was left out, and what to call the whole."""
    iterator = iter(logs)
    first = next(iterator, None)
    if first is None:
        raise DeclarationError("no log was given", why="expected at least one access log")
    if not isinstance(first, Path):
        given = itertools.chain([first], iterator)
        return (cleaned(_bytes(line).rstrip(b"\r\n")) for line in given), [], "the lines given"
    files = [first, *(path for path in iterator if isinstance(path, Path))]
    in_order, notes = ordered(files, wanted)
    more = f" and {len(in_order) - 1} more" if len(in_order) > 1 else ""
    return itertools.chain.from_iterable(map(lines, in_order)), notes, f"{first.name}{more}"


def _bytes(line: Path | str | bytes) -> bytes:
    return line if isinstance(line, bytes) else str(line).encode("utf-8", "surrogateescape")


def _understood(line: Line, chosen: Format, others: Sequence[Format]) -> tuple[Request | None, str]:
    if line.refused:
        return None, line.refused
    try:
        return parse(line.data, chosen), ""
    except BadValue as error:
        return None, str(error)
    except NotUnderstood as error:
        why = str(error)
    for other in others:  # several formats may follow each other in one file
        try:
            return parse(line.data, other), ""
        except NotUnderstood:
            continue
    return None, f"{why}: {line.data[:60].decode('utf-8', 'replace')!r}"


def _nothing(name: str, sample: Sequence[Line]) -> DeclarationError:
    known = ", ".join(candidate.name for candidate in formats())
    if not sample:
        return DeclarationError(f"{name}: no lines", why="the log is empty")
    seen = [line.refused or repr(line.data[:60].decode("utf-8", "replace")) for line in sample[:3]]
    return DeclarationError(f"{name}: no known log format; it begins {'; '.join(seen)}", why=f"known formats: {known}")


def _plausible(median_ms: float | None, name: str) -> None:
    if median_ms is not None and median_ms > 3_600_000:
        raise DeclarationError(
            f"{name}: the median duration would be {median_ms / 3_600_000:.1f} hours",
            why="$request_time is in seconds; this log seems to hold milliseconds or microseconds",
            next_command="write $request_time into that field, or name the format that fits",
        )


def _seconds(moment: datetime | None, what: str) -> float | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise DeclarationError(f"{what} has no time zone: {moment}", why="logs of several zones are compared in UTC")
    return moment.timestamp()


def _failed(status: int) -> bool:
    return status >= 500 or status in FAILED


def _trimmed(route: str) -> str:
    return route.rstrip("/") or "/"


def _folded(path: str) -> str:
    """Ids in paths folded, so that a million conversations are one route."""
    return "/".join("*" if any(c.isdigit() for c in part) and len(part) > 3 else part for part in path.split("/"))
