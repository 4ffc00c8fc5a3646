"""Exact figures from columns: percentiles, moments within a second, requests in flight, the busiest minute.

Times are integer microseconds. Percentiles are nearest rank over every sample.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from inferlift.artifacts import Percentiles

MINUTE = 60_000_000
SECOND = 1_000_000
Clock = Literal["total", "first_byte", "first_token"]
_PIECE = 500_000
_LARGE = 20  # a group with a twentieth of all
_SHIFT = 1 << 42  # above any duration that is read (7 days in microseconds)


def percentiles(ordered_us: pl.Series, clock: Clock) -> Percentiles:
    """Of sorted durations. The smallest value with at least p percent of the samples at or below it."""
    n = len(ordered_us)
    return Percentiles(
        n=n,
        p50_ms=_rank(ordered_us, 50, least=1),
        p90_ms=_rank(ordered_us, 90, least=10),
        p95_ms=_rank(ordered_us, 95, least=20),
        p99_ms=_rank(ordered_us, 99, least=100),
        max_ms=_ms(ordered_us[-1]) if n else None,
        clock=clock,
    )


def by_group(groups: pl.Series, durations_us: pl.Series, clock: Clock) -> dict[int, Percentiles]:
    """Percentiles of each group (a small number for each duration). The few large groups are sorted each by itself, the
    many small ones together: neither takes a sort a group nor wide keys for all."""
    told = groups.value_counts(sort=False, name="count")
    large = told.filter(pl.col("count") * _LARGE >= len(groups))[groups.name].to_list()
    found = {int(group): percentiles(durations_us.filter(groups == group).sort(), clock) for group in large}
    if len(large) == told.height:
        return found
    small = ~groups.is_in(large)
    groups, durations_us = groups.filter(small), durations_us.filter(small)
    key = (groups.cast(pl.Int64) * _SHIFT + durations_us.cast(pl.Int64)).sort()
    at = 0
    for group, count in told.filter(~pl.col(groups.name).is_in(large)).sort(groups.name).iter_rows():
        found[int(group)] = percentiles(key.slice(at, count) % _SHIFT, clock)
        at += count
    return found


def moments(rows: pl.DataFrame) -> pl.Series:
    """When each row happened; `rows` are sorted by stamp, lines of one second in log order.

    k lines of one whole second are laid evenly into that second: a log that names whole seconds would otherwise show
    requests that followed each other as being in flight at once.
    """
    stamp, whole = rows["stamp"], rows["whole"]
    if not whole.any():
        return stamp
    if whole.all():
        return _spread(stamp)
    place = pl.int_range(rows.height, eager=True)
    some, rest = place.filter(whole), place.filter(~whole)
    values = pl.concat([_spread(stamp.gather(some)), stamp.gather(rest)])
    return values.gather(pl.concat([some, rest]).arg_sort())


def scattered(stamp: pl.Series, seed: int = 11, *, ordered: bool = True) -> pl.Series:
    """Moments of whole seconds laid at random into them, in order unless told otherwise; always the same ones.

    Lines that are laid evenly keep apart from each other, so short requests would seem to meet fewer others than long
    ones do: a line through (in flight, latency) would rise where nothing does.
    """
    noise = pl.int_range(len(stamp), dtype=pl.UInt64, eager=True).hash(seed) % SECOND
    moments = stamp + noise.cast(pl.Int32)
    return moments.sort() if ordered else moments


def _spread(stamp: pl.Series) -> pl.Series:
    runs = stamp.rle().struct.unnest()
    values, counts = runs["value"], runs["len"].cast(pl.Int64)
    until, begin, pieces = counts.cum_sum(), 0, []
    while begin < len(counts):  # in pieces: the columns that are needed on the way are many times the result
        before = int(until[begin - 1]) if begin else 0
        end = max(begin + 1, int(until.search_sorted(before + _PIECE)))
        n = counts.slice(begin, end - begin)
        piece = pl.DataFrame({"value": values.slice(begin, end - begin), "n": n, "k": n}).lazy()
        piece = piece.with_columns(pl.int_ranges(0, "k").alias("k")).explode("k")
        at = pl.col("value") + (pl.col("k") * 2 + 1) * (SECOND // 2) // pl.col("n")
        pieces.append(piece.select(at.alias("stamp")).collect().to_series())
        begin = end
    return pl.concat(pieces)


def levels(starts: pl.Series, ends: pl.Series) -> pl.Series:
    """For each request how many were in flight when it started, itself too. Starts and ends are sorted.

    Intervals are half open: one that ends when another starts is not in flight with it.
    """
    closed = ends.search_sorted(starts, side="right")  # 32 bits
    opened = pl.int_range(1, len(starts) + 1, dtype=pl.Int32, eager=True)
    return (opened - closed.cast(pl.Int32)).clip(1).cast(pl.UInt32).rename("level")


def per_minute_peak(ordered: pl.Series) -> int:
    """The most requests in any 60 seconds (from one stamp up to, not at, 60 s later), by the log's own time stamps.

    A calendar minute would halve a burst that begins at half past.
    """
    if not len(ordered):
        return 0
    runs = ordered.rle().struct.unnest()
    until = runs["len"].cast(pl.Int64).cum_sum()
    gone = runs["value"].search_sorted(runs["value"] - MINUTE, side="right")
    before = pl.concat([pl.Series([0], dtype=pl.Int64), until]).gather(gone)
    return whole((until - before).max())


def median_us(values: pl.Series) -> float | None:
    """Nearest rank."""
    found = values.quantile(0.5, interpolation="lower")
    return None if found is None else float(found)


def whole(value: object) -> int:
    """An aggregate as a whole number; 0 where there was nothing to aggregate."""
    return int(value) if isinstance(value, int | float) else 0


def _rank(rows: pl.Series, percent: int, *, least: int) -> float | None:
    n = len(rows)
    return _ms(rows[(n * percent + 99) // 100 - 1]) if n >= least else None


def _ms(us: int | float) -> float:
    return round(us / 1000, 3)
