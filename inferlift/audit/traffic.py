"""The shape of the traffic: arrivals, burstiness, the day, growth from month to month, sessions, silences."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime

import polars as pl

from inferlift.artifacts import TrafficShape
from inferlift.audit.figures import SECOND

MAX_SHAPE = 5000
CURVE = 240  # slices of the curve of requests in flight
HOUR = 3600 * SECOND
DAY = 24 * HOUR
_TEN_SECONDS = 10 * SECOND


def shape(rows: pl.DataFrame, starts: pl.Series, names: list[str], minute_peak: int, flight_peak: int) -> TrafficShape:
    """`rows`: start, received, route; `starts` sorted. Over MAX_SHAPE requests the stretch around the busiest minute is
    kept."""
    n, kept = rows.height, rows
    if n > MAX_SHAPE:
        runs = (starts // (60 * SECOND)).rle().struct.unnest()
        centre = int(runs["len"].head(int(runs["len"].arg_max() or 0)).cast(pl.Int64).sum())
        first = min(max(0, centre - MAX_SHAPE // 4), n - MAX_SHAPE)
        kept = rows.filter(rows["start"].is_between(starts[first], starts[first + MAX_SHAPE - 1]))
    kept = kept.select("start", "received").sort("start", maintain_order=True).head(MAX_SHAPE)
    moments, sizes = kept["start"], kept["received"]
    gaps = [] if not kept.height else [0.0, *(round(us / SECOND, 3) for us in moments.diff().drop_nulls())]
    every = rows["received"].drop_nulls()
    counts = Counter(dict(rows["route"].value_counts().iter_rows()))
    shares: dict[str, float] = {}
    for route, count in counts.items():
        shares[names[route]] = shares.get(names[route], 0.0) + count / n
    return TrafficShape(
        gaps_s=tuple(gaps),
        request_bytes=tuple(sizes.to_list()) if not sizes.null_count() else (),
        routes={route: round(part, 6) for route, part in sorted(shares.items())},
        per_minute_peak=minute_peak,
        in_flight_peak=flight_peak,
        arrivals_by_hour=day_curve(starts),
        dispersion=dispersion(starts),
        request_bytes_p50=_quantile(every, 0.5),
        request_bytes_p95=_quantile(every, 0.95),
    )


def day_curve(starts: pl.Series) -> tuple[float, ...] | None:
    """Share of the requests in each hour of the day, UTC; None unless a whole day is spanned."""
    if len(starts) < 2 or starts[-1] - starts[0] < DAY:
        return None
    counts = dict((starts // HOUR % 24).value_counts().iter_rows())
    return tuple(round(counts.get(hour, 0) / len(starts), 6) for hour in range(24))


def dispersion(starts: pl.Series) -> float | None:
    """Variance over mean of the arrivals in 10 s, empty stretches counted; None for less than 20 stretches."""
    if len(starts) < 2:
        return None
    first, last = int(starts[0]), int(starts[-1])
    slots = (last - first) // _TEN_SECONDS
    if slots < 20:
        return None
    counts = ((starts - first) // _TEN_SECONDS).rle().struct.field("len").cast(pl.Float64)
    mean = len(starts) / (slots + 1)
    return round((float((counts**2).sum()) / (slots + 1) - mean**2) / mean, 3)


def growth_per_month(starts: pl.Series) -> float | None:
    """Of the requests in whole weeks, by a straight line through their logarithms; None under four weeks, or where the
    slope is not clear of chance (two standard errors)."""
    if len(starts) < 2:
        return None
    week = 7 * DAY
    weeks = int((starts[-1] - starts[0]) // week)
    if weeks < 4:
        return None
    begin = int(starts[-1]) - weeks * week
    inside = starts.filter(starts > begin)
    counts = dict(((inside - begin - 1) // week).value_counts().iter_rows())
    values = [counts.get(k, 0) for k in range(weeks)]
    if not all(values):
        return None
    logs = [math.log(value) for value in values]
    mean_x, mean_y = (weeks - 1) / 2, sum(logs) / weeks
    spread = sum((k - mean_x) ** 2 for k in range(weeks))
    slope = sum((k - mean_x) * (y - mean_y) for k, y in enumerate(logs)) / spread
    rest = sum((y - mean_y - slope * (k - mean_x)) ** 2 for k, y in enumerate(logs)) / (weeks - 2)
    if abs(slope) <= 2 * math.sqrt(rest / spread):
        return 0.0
    return round(math.exp(slope * 365.25 / 12 / 7) - 1, 4)


def in_flight_curve(starts: pl.Series, levels: pl.Series) -> tuple[tuple[float, int], ...]:
    """(seconds since the first start, the most in flight in that slice); slices without an arrival are left out."""
    if not len(starts):
        return ()
    first = int(starts[0])
    width = max((int(starts[-1]) - first) // CURVE + 1, SECOND)
    told = (
        pl.DataFrame({"slice": (starts - first) // width, "level": levels})
        .group_by("slice")
        .agg(pl.col("level").max())
        .sort("slice")
    )
    return tuple((round(at * width / SECOND, 3), int(level)) for at, level in told.iter_rows())


def rate_curve(starts: pl.Series) -> tuple[tuple[float, float], ...]:
    """(seconds since the first start, arrivals a second in that slice), slices without an arrival too."""
    if len(starts) < 2:
        return ()
    first = int(starts[0])
    width = max((int(starts[-1]) - first) // CURVE + 1, SECOND)
    counts = dict(((starts - first) // width).value_counts().iter_rows())
    return tuple(
        (round(at * width / SECOND, 3), round(counts.get(at, 0) * SECOND / width, 4)) for at in range(max(counts) + 1)
    )


def gaps(stamps: pl.Series) -> tuple[str, ...]:
    """The three longest silences: an hour and more, and ten times the longest that is usual (P99 of the gaps)."""
    if len(stamps) < 100:
        return ()
    between = stamps.diff().drop_nulls()
    usual = float(between.quantile(0.99) or 0)
    least = max(HOUR, int(10 * usual))
    rows = (between > least).arg_true()
    longest = sorted(rows.to_list(), key=lambda row: -int(between[row]))[:3]
    return tuple(
        f"{datetime.fromtimestamp(stamps[row] / SECOND, UTC):%Y-%m-%d %H:%M} UTC: "
        f"{between[row] / HOUR:.1f} h without a line"
        for row in longest
    )


def _quantile(values: pl.Series, share: float) -> float | None:
    found = values.quantile(share, interpolation="lower") if len(values) >= 20 else None
    return None if found is None else float(found)
