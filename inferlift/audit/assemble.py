"""The figures of a reading put together into Evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl

from inferlift.artifacts import Evidence, Percentiles, RouteFigures
from inferlift.artifacts.evidence import Bill, GpuUse, HostLook, HourFigures, ServerMetrics
from inferlift.audit import figures, traffic
from inferlift.audit.findings import findings
from inferlift.audit.formats import Format
from inferlift.audit.gpu import Readings
from inferlift.audit.inference import FAILED, inference_of, is_inference, log_rows
from inferlift.audit.quality import asked, no_latency, plausible, quality
from inferlift.audit.reading import Reading
from inferlift.audit.triggers import Seen, triggers

MAX_HOURS = 48  # above, hours of the day are told instead of calendar hours
MAX_OTHER = 50  # routes that are no inference
SECOND = figures.SECOND


def assembled(
    reading: Reading,
    chosen: Format,
    *,
    name: str,
    notes: Sequence[str],
    written: float | None,
    gpu: Readings | None,
    zone: str,
    bill: Bill | None,
    servers: tuple[ServerMetrics, ...],
    host: HostLook | None,
) -> Evidence:
    """Raises DeclarationError where the durations can only be of another unit."""
    rows = log_rows(reading)
    n = rows.height
    stamped = reading.unstamped < n or not n
    names = reading.routes.names
    inference = is_inference(reading, rows)
    low, high = _span(reading, rows, written)
    covered = min(high, reading.latest or high) - low
    by_route = _by_route(rows, inference, names, reading, covered / SECOND if stamped and covered > 0 else None)
    stamps = rows["stamp"].drop_nulls()
    silences = traffic.gaps(stamps) if stamped else ()
    held = [rows]
    del rows, stamps
    seen = inference_of(held, inference)
    del inference
    flights, count = seen.flights, seen.rows.height
    latency = _percentiles(seen.rows, "duration", "total")
    first_byte = _percentiles(seen.rows, "first", "first_byte")
    doubts = plausible(latency, first_byte, name, chosen)
    questions = doubts + asked(reading)
    use = gpu.use((low / SECOND, high / SECOND) if stamped and n else None, zone) if gpu is not None else None
    if use is not None and use.matched is None and not stamped:
        use = use.model_copy(update={"notes": (*use.notes, "the log has no times to hold the readings against")})
    minute_peak = seen.per_minute_peak
    peak = flights.peak if flights is not None else None
    flight_peak = peak if peak is not None else min(count, 1)  # without durations only this much is certain
    failed = int(seen.rows["failed"].sum())
    judged = first_byte if first_byte.n >= 20 and first_byte.n >= 0.95 * latency.n else latency
    depends = seen.dependence
    told = triggers(
        Seen(
            latency=judged,
            per_minute_peak=minute_peak if stamped else None,
            in_flight_peak=peak,
            in_flight_bounds=flights.bounds if flights is not None else None,
            growth=depends.growth if depends else None,
            errors=depends.errors if depends else None,
            at_1000=depends.at_1000 if depends else None,
            untold=depends.untold if depends else "",
            inference_n=count,
            outside_upstream=_outside(reading, by_route),
            no_latency=no_latency(chosen, reading, latency),
            source=name,
            at=_moment(high).isoformat(),
            servers=servers,
            gpu=use,
            slow_then=_while_read(seen.rows, use, judged) if use is not None else None,
            bill=bill,
            host=host,
            days_after=_days_after(host, high) if host is not None and stamped else None,
            doubt=doubts[0] if doubts else "",
        )
    )
    timed = stamped and count > 1
    starts = seen.starts
    return Evidence(
        start=_moment(low),
        end=_moment(high),
        n=n,
        inference_n=count,
        errors=failed,
        error_share=failed / count if count else None,
        latency=latency,
        routes=tuple(route for route in by_route if route.inference),
        per_minute_peak=minute_peak,
        in_flight_peak=flight_peak,
        triggers=told,
        shape=traffic.shape(seen.rows if stamped else seen.rows.clear(), starts, names, minute_peak, flight_peak),
        quality=quality(reading, notes, questions, silences, count - latency.n, seen.rows, stamped),
        statuses={str(status): told for status, told in sorted(reading.statuses.items())},
        first_byte=first_byte if first_byte.n else None,
        gpu_idle_share=use.idle_share if use is not None and use.matched else None,
        gpu_model=use.models[0] if use is not None and use.models else None,
        bill_growth_quarter=bill.growth_quarter if bill else None,
        growth_per_month=traffic.growth_per_month(starts) if timed else None,
        day_curve=traffic.day_curve(starts) if timed else None,
        sessions=seen.rows["session"].drop_nulls().n_unique() if "session" in seen.rows.columns else None,
        stamped=stamped,
        guessed_routes=reading.routes.declared is None,
        other_routes=tuple(route for route in by_route if not route.inference)[:MAX_OTHER],
        hours=_hours(seen.rows, reading, by_route) if stamped else (),
        in_flight_curve=flights.curve if flights is not None else (),
        in_flight_bounds=flights.bounds if flights is not None else None,
        rate_curve=traffic.rate_curve(starts) if stamped else (),
        at_1000=depends.at_1000 if depends else None,
        findings=(
            found := findings(
                seen.rows,
                flights.cold if flights else None,
                depends.serial if depends else None,
                depends.untold if depends else "",
                name,
                use if use is not None and use.matched else None,
                host,
            )
        ),
        cacheable_share=found[0].figure.value,
        oversized_share=found[1].figure.value,
        batched=None if found[2].verdict == "no data" else found[2].verdict == "not found",
        model_kept_in_memory=host.model_kept_in_memory if host else None,
        sent_bytes=sum(route.sent_bytes or 0 for route in by_route) if by_route else None,
        gpu=use,
        servers=servers,
        bill=bill,
        host=host,
    )


def _percentiles(rows: pl.DataFrame, column: str, clock: figures.Clock) -> Percentiles:
    return figures.percentiles(rows[column].filter(rows["answered"]).drop_nulls().sort(), clock)


def _by_route(
    rows: pl.DataFrame, inference: pl.Series, names: Sequence[str], reading: Reading, seconds: float | None
) -> list[RouteFigures]:
    """Every route, inference first, then by name; what is no HTTP request belongs to none."""
    if not rows.height:
        return []
    group = (rows["route"] * 2 + inference.cast(pl.UInt16)).rename("group")
    status = rows["status"]
    failed = (status.is_in(FAILED) | (status >= 500)).fill_null(False)
    counts = (
        pl.DataFrame([group, failed.rename("failed")])
        .lazy()
        .drop_nulls("group")
        .group_by("group")
        .agg(pl.len(), pl.col("failed").sum())
        .collect()
    )
    answered = status.is_between(1, 399).fill_null(True)

    def told(column: str, clock: figures.Clock) -> dict[int, Percentiles]:
        mask = answered & rows[column].is_not_null() & group.is_not_null()
        return figures.by_group(group.filter(mask), rows[column].filter(mask), clock) if mask.any() else {}

    total, first = told("duration", "total"), told("first", "first_byte")
    sent = _sent(reading, set(rows["route"].filter(inference).unique()))
    none = figures.percentiles(pl.Series([], dtype=pl.Int64), "total")
    found = [
        RouteFigures(
            route=names[key // 2],
            n=n,
            errors=errors,
            latency=total.get(key, none),
            per_s=n / seconds if seconds else None,
            first_byte=first.get(key),
            sent_bytes=sent.get((key // 2, bool(key % 2))),
            inference=bool(key % 2),
        )
        for key, n, errors in counts.iter_rows()
    ]
    return sorted(found, key=lambda route: (not route.inference, route.route if route.inference else "", -route.n))


def _sent(reading: Reading, inference: set[int]) -> dict[tuple[int, bool], int]:
    sent: dict[tuple[int, bool], int] = {}
    for route, asks, bytes_, known in reading.summed().select("route", "asks", "sent", "sent_n").iter_rows():
        if route is not None and known:
            key = (route, bool(asks) and route in inference)
            sent[key] = sent.get(key, 0) + bytes_
    return sent


def _outside(reading: Reading, routes: Sequence[RouteFigures]) -> float | None:
    """Share of the inference requests' time that was not spent in the server behind the proxy."""
    if not reading.sums:
        return None
    wanted = {route.route for route in routes if route.inference}
    rows = reading.summed().filter("asks").select("route", "with_upstream", "upstream").iter_rows()
    mine = [(a, b) for route, a, b in rows if route is not None and reading.routes.names[route] in wanted]
    total, inside = sum(a for a, _ in mine), sum(b for _, b in mine)
    return max(0.0, 1 - inside / total) if total and inside else None


def _hours(rows: pl.DataFrame, reading: Reading, routes: Sequence[RouteFigures]) -> tuple[HourFigures, ...]:
    if not rows.height:
        return ()
    hour = rows["start"] // traffic.HOUR
    first, last = figures.whole(hour.min()), figures.whole(hour.max())
    calendar = last - first < MAX_HOURS
    group = (hour - first if calendar else hour % 24).cast(pl.UInt8).rename("group")
    del hour
    counts = pl.DataFrame([group, rows["failed"]]).group_by("group").agg(pl.len(), pl.col("failed").sum()).sort("group")
    statuses: dict[int, dict[str, int]] = {}
    codes = pl.DataFrame([group, rows["status"]]).group_by("group", "status").len().sort("group", "status")
    for key, code, n in codes.iter_rows():
        if code is not None:
            statuses.setdefault(key, {})[str(code)] = n
    mask = rows["answered"] & rows["duration"].is_not_null()
    none = figures.percentiles(pl.Series([], dtype=pl.Int64), "total")
    latency = figures.by_group(group.filter(mask), rows["duration"].filter(mask), "total") if mask.any() else {}
    sent: dict[int, int] = {}
    known = set(counts["group"].to_list())
    for at, bytes_ in _sent_by_hour(reading, routes):
        key = at - first if calendar else at % 24
        if key not in known:  # a stamp of whole seconds just before the hour in which the request was counted
            key = (key + 1) % (MAX_HOURS if calendar else 24)
        sent[key] = sent.get(key, 0) + bytes_
    return tuple(
        HourFigures(
            hour=f"{_moment((first + key) * traffic.HOUR):%Y-%m-%dT%H}" if calendar else f"{key:02d}",
            n=n,
            errors=errors,
            latency=latency.get(key, none),
            statuses=statuses.get(key, {}),
            sent_bytes=sent.get(key),
        )
        for key, n, errors in counts.iter_rows()
    )


def _sent_by_hour(reading: Reading, routes: Sequence[RouteFigures]) -> list[tuple[int, int]]:
    """(hours since 1970, bytes) of the inference requests; none where it is not known by hour."""
    if not reading.sums:
        return []
    wanted = {route.route for route in routes if route.inference}
    numbers = [number for number, name in enumerate(reading.routes.names) if name in wanted]
    known = reading.summed().filter(
        pl.col("asks") & pl.col("route").is_in(numbers) & pl.col("hour").is_not_null() & (pl.col("sent_n") > 0)
    )
    return list(known.group_by("hour").agg(pl.col("sent").sum()).sort("hour").iter_rows())


def _while_read(rows: pl.DataFrame, use: GpuUse, judged: Percentiles) -> Percentiles | None:
    """Latency of the requests that ran while the GPU was read, on the clock that is judged."""
    if not use.matched or use.start is None or use.end is None:
        return None
    low, high = round(use.start.timestamp() * SECOND), round(use.end.timestamp() * SECOND)
    then = rows.filter((rows["start"] <= high) & (rows["start"] + rows["duration"].fill_null(0) >= low))
    return _percentiles(then, "duration" if judged.clock == "total" else "first", judged.clock)


def _days_after(host: HostLook, high: int) -> float | None:
    try:
        at = datetime.fromisoformat(host.at)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - _moment(high)).total_seconds() / 86_400


def _span(reading: Reading, rows: pl.DataFrame, written: float | None) -> tuple[int, int]:
    if reading.latest is None:  # no times at all: the file's own is all that is known
        now = round((written if written is not None else datetime.now(UTC).timestamp()) * SECOND)
        return reading.low if reading.low is not None else now, reading.high if reading.high is not None else now
    low = reading.low
    if low is not None and len(rows) and reading.earliest is not None:
        low = max(low, reading.earliest)  # of the time before the log's first line nothing is known
    if low is None:
        low = figures.whole(rows["stamp"].min()) if len(rows) > rows["stamp"].null_count() else reading.latest
    return low, reading.high if reading.high is not None else max(reading.latest, low)


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us // SECOND, UTC).replace(microsecond=us % SECOND)
