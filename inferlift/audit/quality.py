"""What the log itself is worth: what was understood, what was assumed, and what only its owner can answer."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from inferlift.artifacts import LogQuality, Percentiles
from inferlift.audit import figures
from inferlift.audit.formats import Format, formats
from inferlift.audit.reading import Reading
from inferlift.errors import DeclarationError

LONG_MS = 10_000  # a median that is asked about where only a name says the unit


def quality(
    reading: Reading, notes: Sequence[str], questions: Sequence[str], silences: tuple[str, ...], without: int,
    rows: pl.DataFrame, stamped: bool,
) -> LogQuality:  # fmt: skip
    more = list(notes)
    if not stamped:
        more.append("the log has no times: rates, peaks, requests in flight and growth cannot be told")
    elif reading.unstamped:
        more.append(f"{reading.unstamped} lines without a time are left out of all that needs one")
    if "none" in reading.zones:
        more.append("times without a zone were taken as UTC, or as the zone given")
    if reading.low is not None and reading.earliest is not None and reading.low < reading.earliest and rows.height:
        more.append("the log begins after the window does: nothing is known of the time before its first line")
    declared = reading.routes.declared or []
    known = {reading.routes.names[route] for route in rows["route"].unique().drop_nulls().to_list()}
    if known:
        more += [f"no inference request goes to {route}" for route in declared if route not in known]
    if len(reading.zones) > 1:
        more.append(f"zones are mixed ({', '.join(sorted(reading.zones))}): each line counts by its own")
    if len(reading.formats) > 1:
        more.append("several formats: " + ", ".join(f"{name} {n}" for name, n in reading.formats.most_common()))
    if reading.routes.declared is None:
        names = sorted(known)
        told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        more.append(
            f"guessed: inference is {told or 'nothing'} (POSTs, by name where names say so); --routes declares it"
        )
    return LogQuality(
        lines=reading.counted,
        understood=reading.understood,
        refused=reading.refused,
        examples=tuple(reading.examples),
        notes=tuple(more),
        questions=tuple(questions),
        formats=dict(reading.formats.most_common()),
        without_duration=int(rows["duration"].null_count()),
        gaps=silences,
        steps_back=reading.steps_back if stamped else None,
        largest_step_back_s=reading.largest_step_back / figures.SECOND if stamped and reading.steps_back else None,
        zones=tuple(sorted(reading.zones)),
        repeated_lines=reading.repeated,
    )


def plausible(latency: Percentiles, first_byte: Percentiles, name: str, chosen: Format) -> list[str]:
    median = latency.p50_ms
    if median is not None and median > 3_600_000:
        raise DeclarationError(
            f"{name}: the median duration would be {median / 3_600_000:.1f} hours",
            why=f"{chosen.name} holds another unit; this log seems to hold milliseconds or microseconds",
            next_command="write $request_time into that field, or name the format that fits",
        )
    if latency.n < 20 or median is None:
        return []
    asks = []
    units = {field.unit for field in (*chosen.fields, *(f for _, f in chosen.pairs)) if field.means == "duration"}
    documented = chosen.source.startswith("https://") and not chosen.only_named  # the server's own manual says the unit
    if 0 < median < 1 and units & {"ms", "us"} and (latency.max_ms or 0) < 1000:
        unit = "ms" if "ms" in units else "us"
        asks.append(
            f"the median duration is {median:g} ms: is the unit of {chosen.name} really {unit}, or are these seconds?"
        )
    finer = {"s": "milliseconds", "ms": "microseconds", "us": "nanoseconds"}
    if median >= LONG_MS and not documented:
        for unit in sorted(units & set(finer)):
            asks.append(
                f"the median duration is {median / 1000:.0f} s: is the unit of {chosen.name} really {unit}, or are "
                f"these {finer[unit]}?"
            )
    if first_byte.n >= 20 and first_byte.p50_ms is not None and first_byte.p50_ms > 2 * median > 0:
        asks.append("the first byte would come after the last one: are both in the same unit?")
    return asks


def asked(reading: Reading) -> list[str]:
    asks = []
    of_name = {known.name: known for known in formats()}
    for name in sorted(reading.ask):
        if name in of_name:
            asks.append(f"the log does not say the unit of its last number: --format {' or '.join(of_name[name].ask)}")
        else:
            asks.append(f"the unit of {name!r} is not known: name it in a mapping file (--format FILE)")
    if reading.unread:
        asks.append(
            f"what follows the known fields is not read, for example {reading.unread}: if a duration is in it, "
            "paste the server's log_format line (--format)"
        )
    return asks


def no_latency(chosen: Format, reading: Reading, latency: Percentiles) -> str:
    if latency.n:
        return "fewer than 20 answered inference requests with a duration in the log"
    questions = asked(reading)
    return questions[0] if questions else "the log holds no durations of answered inference requests"
