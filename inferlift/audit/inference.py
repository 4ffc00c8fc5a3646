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


@dataclass(frozen=True)
class Flights:
    """What the sweep over the requests with a duration tells; times in microseconds."""

    n: int
    peak: int
    curve: tuple[tuple[float, int], ...]
    cold: pl.Series  # starts that came COLD_AFTER after everything before them had ended


@dataclass(frozen=True)
class Inference:
    """The inference requests, in the order of their stamps."""

    rows: pl.DataFrame  # start, route, answered, failed, duration, first, received (session, body)
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
    flights = _flights(start.filter(known).sort(), ends)
    del ends
    told = _dependence(mine, None if whole else start) if flights is not None else None
    rows = _judged(mine.insert_column(0, start.rename("start")))
    return Inference(rows, start.sort(), flights, told, minute_peak)


def _judged(mine: pl.DataFrame) -> pl.DataFrame:
    status = pl.col("status")
    return (
        mine.drop("stamp", "started", "whole")
        .with_columns(
            status.is_between(1, 399).fill_null(True).alias("answered"),
            (status.is_in(FAILED) | (status >= 500)).fill_null(False).alias("failed"),
        )
        .drop("status")
    )


def _flights(starts: pl.Series, ends: pl.Series) -> Flights | None:
    """Starts and ends are sorted each by themselves: the number in flight does not depend on what belongs together."""
    if not len(starts):
        return None
    level = figures.levels(starts, ends)
    # the k requests that began before have all ended by the k-th smallest end
    cold = starts.filter((starts - ends.shift(1) > COLD_AFTER).fill_null(False))
    return Flights(len(starts), figures.whole(level.max()), traffic.in_flight_curve(starts, level), cold)


def _dependence(mine: pl.DataFrame, start: pl.Series | None) -> concurrency.Dependence:
    """Without `start` stamps are whole seconds, and their moments are laid at random: see figures.scattered."""
    if start is not None:
        rows = mine.select("duration", "status").insert_column(0, start.rename("start"))
    else:
        rows = mine.select("duration", "status", "started").insert_column(
            0, figures.scattered(mine["stamp"]).rename("start")
        )
        length = pl.when("started").then(0).otherwise(pl.col("duration").fill_null(0))
        rows = rows.with_columns((pl.col("start") - length).alias("start")).drop("started")
    rows = rows.filter(pl.col("duration").is_not_null()) if rows["duration"].null_count() else rows
    rows = rows.sort("start", maintain_order=True)
    begun = rows.drop_in_place("start")
    status = pl.col("status")
    level = figures.levels(begun, (begun + rows["duration"]).sort())
    del begun
    return concurrency.dependence(
        rows.select(
            "duration",
            status.is_between(1, 399).fill_null(True).alias("answered"),
            (status.is_in(FAILED) | (status >= 500)).fill_null(False).alias("failed"),
            level,
        )
    )
