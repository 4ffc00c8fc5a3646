"""The rows of a reading: all of them by stamp, which are inference, with what the sweep over these tells."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from inferlift.audit import concurrency, figures, traffic
from inferlift.audit.reading import Reading
from inferlift.audit.routes import guessed

# The old side gave up or the user did; a request the user got wrong (other 4xx) is no failure of the system.
FAILED = (0, 408, 429, 499)
COLD_AFTER = 300 * figures.SECOND
_STRETCH = 200_000


@dataclass(frozen=True)
class Flights:
    """What the sweep over the requests with a duration tells; times in microseconds."""

    n: int
    peak: int
    curve: tuple[tuple[float, int], ...]
    cold: pl.Series  # starts that came COLD_AFTER after everything before them had ended
    bounds: tuple[int, int] | None  # of the peak, where stamps are whole seconds


@dataclass(frozen=True)
class Inference:
    """The inference requests, in the order of their stamps."""

    rows: pl.DataFrame  # start, route, status, answered, failed, duration, first, received (session, body)
    starts: pl.Series  # sorted
    flights: Flights | None  # None where no start is known
    dependence: concurrency.Dependence | None
    per_minute_peak: int


def log_rows(reading: Reading) -> pl.DataFrame:
    """All rows by stamp, lines of one stamp in log order."""
    schema = {"stamp": pl.Int64, "whole": pl.Boolean, "started": pl.Boolean, "route": pl.UInt16, "asks": pl.Boolean,
              "status": pl.UInt16, "duration": pl.UInt32, "first": pl.UInt32, "received": pl.UInt32}  # fmt: skip
    if not reading.kept:
        return pl.DataFrame(schema=schema)
    rows = pl.concat(reading.kept, how="diagonal_relaxed", rechunk=False)
    reading.kept.clear()
    return rows if rows["stamp"].is_sorted() else rows.sort("stamp", maintain_order=True)


def is_inference(reading: Reading, rows: pl.DataFrame) -> pl.Series:
    if reading.routes.declared is not None or not rows.height:
        return rows["asks"]
    names = reading.routes.names
    asked = rows["route"].filter(rows["asks"]).unique().drop_nulls().to_list()
    chosen = set(guessed([names[route] for route in asked]))
    numbers = [route for route in asked if names[route] in chosen]
    return rows["asks"] & rows["route"].is_in(numbers).fill_null(False)


def inference_of(held: list[pl.DataFrame], inference: pl.Series) -> Inference:
    """Takes the only frame out of `held`: the log's columns and their sorted copy need not be in memory together."""
    rows = held.pop()
    if rows["stamp"].null_count():
        known = rows["stamp"].is_not_null()
        if known.any():  # some lines have a time: only these can be placed
            held.append(rows.filter(known))
            del rows
            return inference_of(held, inference.filter(known))
    stamped = not rows["stamp"].null_count()
    moment = (figures.moments(rows) if stamped else rows["stamp"]).filter(inference)
    rows = rows.drop("asks")
    mine = pl.DataFrame([rows.drop_in_place(name).filter(inference) for name in rows.columns])
    if not stamped:
        rows = _judged(mine.insert_column(0, moment.rename("start")))
        return Inference(rows, rows["start"].drop_nulls(), None, None, 0)
    minute_peak, whole = figures.per_minute_peak(mine["stamp"]), bool(mine["whole"].all())
    length = mine["duration"].cast(pl.Int64).fill_null(0)
    if mine["started"].any():
        lead = pl.DataFrame([mine["started"].rename("s"), moment.rename("m"), length.rename("d")])
        start = lead.select(pl.when("s").then("m").otherwise(pl.col("m") - pl.col("d"))).to_series()
    else:
        start = moment - length
    known = mine["duration"].is_not_null()
    ends = (start + length).filter(known).sort()
    del moment, length  # what is not needed for the sweep would lie beside it, 8 bytes a request each
    flights = _flights(start.filter(known).sort(), ends, _bounds(mine))
    del ends
    told = _dependence(mine, None if whole else start, flights) if flights is not None else None
    rows = _judged(mine.insert_column(0, start.rename("start")))
    return Inference(rows, start.sort(), flights, told, minute_peak)


def _judged(mine: pl.DataFrame) -> pl.DataFrame:
    status = pl.col("status")
    return mine.drop("stamp", "started", "whole").with_columns(
        status.is_between(1, 399).fill_null(True).alias("answered"),
        (status.is_in(FAILED) | (status >= 500)).fill_null(False).alias("failed"),
    )


def _flights(starts: pl.Series, ends: pl.Series, bounds: tuple[int, int] | None) -> Flights | None:
    """Starts and ends are sorted each by themselves: the number in flight does not depend on what belongs together."""
    if not len(starts):
        return None
    level = figures.levels(starts, ends)
    # the k requests that began before have all ended by the k-th smallest end
    cold = starts.filter((starts - ends.shift(1) > COLD_AFTER).fill_null(False))
    return Flights(len(starts), figures.whole(level.max()), traffic.in_flight_curve(starts, level), cold, bounds)


def _dependence(mine: pl.DataFrame, start: pl.Series | None, flights: Flights) -> concurrency.Dependence:
    """Without `start` stamps are whole seconds, and their moments are laid at random: see figures.scattered."""
    if start is None and (sure := _reliability(mine)) < concurrency.RELIABLE:
        return concurrency.untold(
            flights.n,
            flights.peak,
            "stamps of whole seconds do not say which requests ran together (laid into their seconds twice, the "
            f"numbers in flight agree by {max(sure, 0.0):.2f} only, {concurrency.RELIABLE} are needed): log $msec or "
            "another stamp with a fraction",
        )
    columns = ["duration", "status"] if start is not None else ["duration", "status", "started"]
    rows = mine.select(columns).insert_column(
        0, (figures.scattered(mine["stamp"]) if start is None else start).rename("start")
    )
    if start is None:
        rows = rows.with_columns((pl.col("start") - _lead()).alias("start")).drop("started")
    rows = rows.filter(pl.col("duration").is_not_null()) if rows["duration"].null_count() else rows
    rows = rows.sort("start", maintain_order=True)
    level = figures.levels(rows["start"], (rows["start"] + rows["duration"]).sort())
    begun = rows.drop_in_place("start")
    status = pl.col("status")
    rows = rows.select(
        "duration",
        status.is_between(1, 399).fill_null(True).alias("answered"),
        (status.is_in(FAILED) | (status >= 500)).fill_null(False).alias("failed"),
        level,
    )
    return concurrency.dependence(rows, begun)


def _reliability(mine: pl.DataFrame) -> float:
    """Of the numbers in flight by stamps of whole seconds, from a stretch in the middle laid at random twice."""
    size = min(mine.height, _STRETCH)
    some = mine.slice((mine.height - size) // 2, size).filter(pl.col("duration").is_not_null())
    found = []
    for seed in (11, 12):
        told = some.select("duration", "started", figures.scattered(some["stamp"], seed, ordered=False).alias("start"))
        told = told.select("duration", (pl.col("start") - _lead()).alias("start")).with_row_index("row")
        told = told.sort("start")
        level = figures.levels(told["start"], (told["start"] + told["duration"]).sort())
        found.append(told.select("row").insert_column(1, level).sort("row")["level"])
    return concurrency.reliability(*found)


def _lead() -> pl.Expr:
    """From the start of a request to its stamp."""
    return pl.when("started").then(0).otherwise(pl.col("duration").fill_null(0))


def _bounds(mine: pl.DataFrame) -> tuple[int, int] | None:
    """The least and the most that may have been in flight at once, where stamps are whole seconds; None where they are
    not. An event of second s lies anywhere in it, so a request was in flight for certain from the end of the second
    that it may have begun in, and perhaps from that second's beginning."""
    if not mine["whole"].any():
        return None
    perhaps: list[pl.DataFrame] = []
    surely: list[pl.DataFrame] = []
    first, last = pl.col("stamp") - _lead(), pl.col("stamp") - _lead() + pl.col("duration")
    width = pl.when("whole").then(figures.SECOND).otherwise(0)
    for begin in range(0, mine.height, _STRETCH):  # in pieces: only counts by second are kept
        some = mine.slice(begin, _STRETCH).filter(pl.col("duration").is_not_null())
        told = some.select(
            (first // figures.SECOND).alias("a"),
            _up(last + width).alias("b"),
            pl.when("whole").then(_up(first + width)).otherwise(first // figures.SECOND + 1).alias("c"),
            (last // figures.SECOND + 1).alias("d"),
        )
        perhaps += [_counted(told["a"], 1), _counted(told["b"], -1)]
        told = told.filter(pl.col("c") < pl.col("d"))
        surely += [_counted(told["c"], 1), _counted(told["d"], -1)]
    least, most = _most_at_once(surely), _most_at_once(perhaps)
    return (max(least, 1), most) if most else None


def _up(microseconds: pl.Expr) -> pl.Expr:
    """Seconds, rounded up."""
    return -(-microseconds // figures.SECOND)


def _counted(seconds: pl.Series, step: int) -> pl.DataFrame:
    return pl.DataFrame({"second": seconds}).group_by("second").agg(pl.len().cast(pl.Int64).alias("change") * step)


def _most_at_once(changes: list[pl.DataFrame]) -> int:
    told = pl.concat(changes).group_by("second").agg(pl.col("change").sum()).sort("second")
    return figures.whole(told["change"].cum_sum().max())
