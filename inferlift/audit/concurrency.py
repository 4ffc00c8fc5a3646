"""How latency and errors depend on the number of requests in flight, and what that says about 1000 users."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import polars as pl

from inferlift.artifacts.evidence import Extrapolation
from inferlift.audit.figures import median_us, whole

STRETCHES = 20
USERS = 1000
FAR = 10  # a line is not read off further out than this many times the most in flight that the log saw
PIECE, MOST_PIECES = 100, 1000  # requests that follow each other, and how many such pieces are looked at
MORE_ARRIVE = 1.2  # arrivals in the busier pieces over those in the quieter ones
FOLLOWS = 0.2  # exponent within pieces, from which on latency follows the number in flight
CROWDED = 0.1  # share of the requests that must have met two others
RELIABLE = 0.8
# 97.5 % quantile of Student's t for the degrees of freedom that a jackknife over n stretches leaves (n - 1).
# Source: scipy.stats.t.ppf(0.975, n - 1)
_T = {4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228, 12: 2.201, 13: 2.179, 14: 2.160,
      15: 2.145, 16: 2.131, 17: 2.120, 18: 2.110, 19: 2.101, 20: 2.093}  # fmt: skip
_LEAST = 10  # requests in a stretch


@dataclass(frozen=True)
class Growth:
    """Busier over quieter requests: medians of latency, and shares of errors."""

    latency_ratio: float
    n: int
    middle: int  # quieter requests met at most this many in flight


@dataclass(frozen=True)
class Dependence:
    """What depends on the number in flight, and how."""

    at_1000: Extrapolation
    growth: Growth | None
    errors: tuple[float, float, int, bool] | None  # busier share, quieter share, n, beyond chance
    serial: Serial | None
    untold: str = ""  # why growth, errors and 1000 users cannot be told, where that is so


@dataclass(frozen=True)
class Serial:
    """How nearly latency is in proportion to the number in flight that a request met, within short pieces of time."""

    exponent: float
    low: float  # 95 %
    high: float
    n: int
    most: int  # in flight
    crowded: float  # share of the requests that met at least two others


def dependence(rows: pl.DataFrame, begun: pl.Series) -> Dependence:
    """`rows`: level, duration (us), failed, answered; sorted by start. `begun`: the starts (us).

    Whatever slows answers down puts more of them in flight (Little's law: in flight = arrivals * latency), so latency
    and number in flight rise together without the one being the cause of the other. Concurrency is blamed only where
    more arrived while more were in flight, or where latency follows the number in flight from one request to the next.
    """
    answered = rows["answered"]
    found = serial(rows)
    grown = growth(rows["level"].filter(answered), rows["duration"].filter(answered))
    more = _arrivals(rows["level"], begun)
    if more is None or more >= MORE_ARRIVE or (found is not None and found.low > FOLLOWS):
        return Dependence(at_users(rows), grown, error_growth(rows["level"], rows["failed"]), found)
    why = (
        f"no more requests arrived while more were in flight (busier / quieter: {more:.2f}): what made answers slow "
        "kept more of them in flight (Little's law), so nothing says what more users would do"
    )
    return untold(rows.height, whole(rows["level"].max()), why, found)


def untold(n: int, most: int, why: str, found: Serial | None = None) -> Dependence:
    return Dependence(_nothing(n, most).model_copy(update={"why": why}), None, None, found, why)


def reliability(one: pl.Series, other: pl.Series) -> float:
    """Correlation of two measurements of the numbers in flight: how much of their spread is no matter of chance."""
    told = pl.select(pl.corr(one.cast(pl.Float64), other.cast(pl.Float64))).item()
    return float(told) if told is not None and math.isfinite(told) else 0.0


def growth(level: pl.Series, duration_us: pl.Series) -> Growth | None:
    """None where there are fewer than 20 of either kind, or nothing ever ran at once."""
    if len(level) < 40:
        return None
    middle = int(level.quantile(0.5, interpolation="lower") or 0)
    busy = level > middle
    if int(busy.sum()) < 20:  # most were at the highest level: split below it instead
        busy, middle = level >= middle, middle - 1
    quiet = ~busy
    if int(busy.sum()) < 20 or int(quiet.sum()) < 20:
        return None
    low, high = median_us(duration_us.filter(quiet)), median_us(duration_us.filter(busy))
    return Growth(high / low, len(level), middle) if low and high is not None else None


def error_growth(level: pl.Series, failed: pl.Series) -> tuple[float, float, int, bool] | None:
    """Shares of errors among busier and quieter requests, how many, and whether they differ beyond chance (95 %)."""
    if len(level) < 40:
        return None
    middle = int(level.quantile(0.5, interpolation="lower") or 0)
    busy = level > middle
    if int(busy.sum()) < 20:
        busy = level >= middle
    n_busy, n_quiet = int(busy.sum()), int((~busy).sum())
    if n_busy < 20 or n_quiet < 20:
        return None
    bad_busy, bad_quiet = int((failed & busy).sum()), int((failed & ~busy).sum())
    p, q = bad_busy / n_busy, bad_quiet / n_quiet
    low, _ = _wilson(bad_busy, n_busy)
    _, high = _wilson(bad_quiet, n_quiet)
    return p, q, n_busy + n_quiet, low > high


def at_users(rows: pl.DataFrame, users: int = USERS) -> Extrapolation:
    """`rows`: level, duration (us), failed, answered; sorted by start.

    Mean latency of answered requests and share of errors as straight lines in the level; 95 % interval by a jackknife
    that leaves out one stretch of time after the other, widened by Student's t. The line through the busier half alone
    is a second one: where the two disagree the range holds both, since then no straight line is right.
    """
    n, most = rows.height, whole(rows["level"].max())
    nothing = _nothing(n, most, users)
    stretches = min(STRETCHES, n // _LEAST)
    if stretches < 4:
        return nothing.model_copy(update={"why": f"{n} requests with a duration are too few for a line"})
    if most < 3:
        return nothing.model_copy(update={"why": f"never more than {most} in flight: nothing says what more would do"})
    if users > FAR * most:
        why = f"the log saw {most} in flight at most: {users} is {users / most:.0f} times that, too far for any line"
        return nothing.model_copy(update={"why": why})
    x, y = pl.col("level").cast(pl.Float64), pl.col("duration").cast(pl.Float64) / 1000
    ok, bad = pl.col("answered"), pl.col("failed").cast(pl.Float64)
    # fmt: off
    wanted = [
        ok.sum().cast(pl.Float64).alias("n"), x.filter(ok).sum().alias("x"), y.filter(ok).sum().alias("y"),
        (x * x).filter(ok).sum().alias("xx"), (x * y).filter(ok).sum().alias("xy"),
        pl.len().cast(pl.Float64).alias("en"), x.sum().alias("ex"), bad.sum().alias("ey"),
        (x * x).sum().alias("exx"), (x * bad).sum().alias("exy"),
    ]
    # fmt: on
    edges = [n * k // stretches for k in range(stretches + 1)]
    sums = [rows[a:b].select(wanted).row(0) for a, b in itertools.pairwise(edges)]
    middle = rows["level"].quantile(0.5, interpolation="lower") or 0
    busier = pl.col("level") >= middle
    half = [rows[a:b].filter(busier).select(wanted).row(0) for a, b in itertools.pairwise(edges)]
    latency = _jackknife([row[:5] for row in sums], users)
    errors = _jackknife([row[5:] for row in sums], users)
    if latency is None:
        return nothing.model_copy(update={"why": "the number in flight hardly changes: no line can be drawn"})
    value, low, high, slope = latency
    if (upper := _jackknife([row[:5] for row in half], users)) is not None:
        low, high = min(low, upper[1]), max(high, upper[2])
    else:
        return nothing.model_copy(update={"why": "the busier half has no line of its own to hold the line against"})
    told = {} if errors is None else dict(
        zip(("error_share", "error_low", "error_high"), (min(max(v, 0.0), 1.0) for v in errors[:3]), strict=True)
    )  # fmt: skip
    far = f"{users / most:.0f} times the most in flight that the log saw ({most})" if users > most else ""
    return nothing.model_copy(
        update={
            "latency_ms": max(value, 0.0), "latency_low_ms": max(low, 0.0), "latency_high_ms": max(high, 0.0), **told,
            "ms_per_request_in_flight": slope, "stretches": stretches, "why": f"mean latency as a straight line; {far}",
        }
    )  # fmt: skip


def serial(rows: pl.DataFrame) -> Serial | None:
    """`rows`: as in at_users. The exponent b of latency = a * level ^ b, from request to request within pieces of time
    that are too short for anything else to change: about 1 where requests are served one after the other, about 0
    where they are served together. None where fewer than three levels have 20 answered requests each, or these span
    less than a factor of three.
    """
    height = rows.height // PIECE
    if height < 4:
        return None
    told = (
        rows.lazy()
        .filter(pl.col("answered") & (pl.col("duration") > 0))
        .group_by("level")
        .agg(pl.len().alias("n"))
        .filter(pl.col("n") >= 20)
        .sort("level")
        .collect()
    )
    if told.height < 3 or told["level"][-1] < 3 * told["level"][0]:
        return None
    step = -(-height // MOST_PIECES)
    pieces = pl.concat(
        rows.slice(k * PIECE, PIECE)
        .filter(pl.col("answered") & (pl.col("duration") > 0))
        .select(
            pl.lit(k, dtype=pl.UInt32).alias("piece"),
            pl.col("level").cast(pl.Float64).log().alias("x"),
            pl.col("duration").cast(pl.Float64).log().alias("y"),
        )
        for k in range(0, height, step)
    )
    x, y = pl.col("x") - pl.col("x").mean(), pl.col("y") - pl.col("y").mean()
    sums = pieces.group_by("piece").agg((x * y).sum().alias("xy"), (x * x).sum().alias("xx")).sort("piece")
    groups = min(STRETCHES, sums.height)
    if groups < 4:
        return None
    parts = [(float(sums["xy"][k::groups].sum()), float(sums["xx"][k::groups].sum())) for k in range(groups)]
    xy, xx = math.fsum(a for a, _ in parts), math.fsum(b for _, b in parts)
    if xx <= 0 or any(xx - b <= 0 for _, b in parts):
        return None
    left_out = [(xy - a) / (xx - b) for a, b in parts]
    mean = math.fsum(left_out) / groups
    half = _T[groups] * math.sqrt((groups - 1) / groups * math.fsum((v - mean) ** 2 for v in left_out))
    crowded = int((rows["level"] >= 3).sum()) / rows.height
    return Serial(xy / xx, xy / xx - half, xy / xx + half, pieces.height, whole(told["level"].max()), crowded)


def _arrivals(level: pl.Series, begun: pl.Series) -> float | None:
    """Arrivals a second in the pieces of time with more in flight, over those in the pieces with less (medians)."""
    height = len(level) // PIECE
    if height < 8:
        return None
    size = height * PIECE
    first, last = begun.head(size).gather_every(PIECE), begun.head(size).gather_every(PIECE, PIECE - 1)
    crowd = level.head(size).cast(pl.Float32).reshape((height, PIECE)).arr.sum()
    told = pl.DataFrame({"crowd": crowd, "took": (last - first).clip(1)})
    middle = float(told["crowd"].median() or 0)  # type: ignore[arg-type]
    busy, quiet = told.filter(pl.col("crowd") > middle)["took"], told.filter(pl.col("crowd") <= middle)["took"]
    fast, slow = median_us(busy), median_us(quiet)
    return slow / fast if fast and slow else None


def _nothing(n: int, most: int, users: int = USERS) -> Extrapolation:
    return Extrapolation(
        users=users, latency_ms=None, latency_low_ms=None, latency_high_ms=None, error_share=None, error_low=None,
        error_high=None, most_in_flight=most, ms_per_request_in_flight=None, n=n,
        stretches=0,
    )  # fmt: skip


def _jackknife(rows: list[tuple[float, ...]], at: float) -> tuple[float, float, float, float] | None:
    """(value, low, high, slope) of the line at `at`, from sums (n, x, y, xx, xy) of each stretch."""
    whole = tuple(map(sum, zip(*rows, strict=True)))
    line = _line(whole)
    if line is None:
        return None
    value, count = line[0] + line[1] * at, len(rows)
    left_out = []
    for row in rows:
        other = _line(tuple(a - b for a, b in zip(whole, row, strict=True)))
        if other is None:
            return None
        left_out.append(other[0] + other[1] * at)
    mean = math.fsum(left_out) / count
    deviation = math.sqrt((count - 1) / count * math.fsum((v - mean) ** 2 for v in left_out))
    half = _T[count] * deviation
    return value, value - half, value + half, line[1]


def _line(sums: tuple[float, ...]) -> tuple[float, float] | None:
    n, x, y, xx, xy = sums
    spread = n * xx - x * x
    if n < 2 or spread <= 1e-9 * max(n * xx, 1.0):
        return None
    slope = (n * xy - x * y) / spread
    return (y - slope * x) / n, slope


def _wilson(k: int, n: int) -> tuple[float, float]:
    z, p = 1.96, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half
