"""Figures from requests: exact percentiles, requests in flight, the busiest minute, the shape of the traffic."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from inferlift.artifacts import Percentiles, TrafficShape

MAX_SHAPE = 5000
Clock = Literal["total", "first_byte", "first_token"]


def percentiles(samples_ms: Sequence[float], clock: Clock) -> Percentiles:
    """Nearest rank over all samples: the smallest value with at least p percent of the samples at or below it."""
    rows = sorted(samples_ms)
    return Percentiles(
        n=len(rows),
        p50_ms=_rank(rows, 50, least=1),
        p90_ms=_rank(rows, 90, least=10),
        p95_ms=_rank(rows, 95, least=20),
        p99_ms=_rank(rows, 99, least=100),
        max_ms=rows[-1] if rows else None,
        clock=clock,
    )


def spread(stamps: Sequence[float], whole_seconds: Sequence[bool]) -> list[float]:
    """Moments for stamps in log order: k lines of one whole second are laid evenly into that second.

    A log that names whole seconds would otherwise show requests that followed each other as being in flight at once.
    """
    counts = Counter(stamp for stamp, whole in zip(stamps, whole_seconds, strict=True) if whole)
    seen: Counter[float] = Counter()
    moments = []
    for stamp, whole in zip(stamps, whole_seconds, strict=True):
        if not whole:
            moments.append(stamp)
            continue
        moments.append(stamp + (seen[stamp] + 0.5) / counts[stamp])
        seen[stamp] += 1
    return moments


def in_flight(starts: Sequence[float], ends: Sequence[float]) -> tuple[int, list[int]]:
    """The most requests in flight at once, and for each request how many there were when it started (itself too).

    Intervals are half open: one that ends when another starts is not in flight with it.
    """
    order = sorted(range(len(starts)), key=starts.__getitem__)
    closing = sorted(ends)
    at_start = [0] * len(starts)
    peak = closed = 0
    for opened, index in enumerate(order, 1):
        start = starts[index]
        while closed < len(closing) and closing[closed] <= start:
            closed += 1
        at_start[index] = max(opened - closed, 1)
        peak = max(peak, at_start[index])
    return peak, at_start


def per_minute_peak(stamps: Sequence[float]) -> int:
    """The most requests in any 60 seconds (from one stamp up to, not at, 60 s later), by the log's own time stamps.

    A calendar minute would halve a burst that begins at half past.
    """
    ordered, first, most = sorted(stamps), 0, 0
    for last, stamp in enumerate(ordered):
        while stamp - ordered[first] >= 60:
            first += 1
        most = max(most, last - first + 1)
    return most


def shape(
    starts: Sequence[float],
    sizes: Sequence[int | None],
    routes: Sequence[str],
    minute_peak: int,
    flight_peak: int,
) -> TrafficShape:
    """Gaps between arrivals in order; over MAX_SHAPE requests the stretch around the busiest minute is kept."""
    order = sorted(range(len(starts)), key=starts.__getitem__)
    if len(order) > MAX_SHAPE:
        arrived = [int(starts[index] // 60) for index in order]
        busiest = Counter(arrived).most_common(1)[0][0]
        centre = arrived.index(busiest)
        begin = min(max(0, centre - MAX_SHAPE // 4), len(order) - MAX_SHAPE)
        order = order[begin : begin + MAX_SHAPE]
    moments = [starts[index] for index in order]
    gaps = [0.0] * len(moments[:1]) + [round(b - a, 3) for a, b in itertools.pairwise(moments)]
    known = [size for index in order if (size := sizes[index]) is not None]
    shares = Counter(routes)
    return TrafficShape(
        gaps_s=tuple(gaps),
        request_bytes=tuple(known) if len(known) == len(order) else (),
        routes={route: round(count / len(routes), 6) for route, count in sorted(shares.items())},
        per_minute_peak=minute_peak,
        in_flight_peak=flight_peak,
    )


def growth_with_concurrency(at_start: Sequence[int], latencies_ms: Sequence[float]) -> tuple[float, int] | None:
    """Median latency of the busier requests over that of the quieter ones, and how many were compared.

    None where there are fewer than 20 of either kind, or nothing ever ran at once.
    """
    if len(at_start) < 40:
        return None
    middle = sorted(at_start)[(len(at_start) - 1) // 2]
    quiet = sorted(ms for level, ms in zip(at_start, latencies_ms, strict=True) if level <= middle)
    busy = sorted(ms for level, ms in zip(at_start, latencies_ms, strict=True) if level > middle)
    if len(busy) < 20:  # most were at the highest level: split below it instead
        quiet = sorted(ms for level, ms in zip(at_start, latencies_ms, strict=True) if level < middle)
        busy = sorted(ms for level, ms in zip(at_start, latencies_ms, strict=True) if level >= middle)
    if len(quiet) < 20 or len(busy) < 20:
        return None
    low, high = _rank(quiet, 50, least=1), _rank(busy, 50, least=1)
    return (high / low, len(at_start)) if low and high is not None else None


def _rank(rows: Sequence[float], percent: int, *, least: int) -> float | None:
    return rows[math.ceil(len(rows) * percent / 100) - 1] if len(rows) >= least else None
