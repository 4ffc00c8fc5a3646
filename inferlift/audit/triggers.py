"""Reasons to move, as the figures see them: met, not met, or no data. A missing figure is never "not met"."""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.artifacts import Figure, Percentiles, Trigger
from inferlift.artifacts.evidence import Bill, Extrapolation, GpuUse, HostLook, ServerMetrics
from inferlift.audit.concurrency import Growth

P95_MS = 500.0
PER_MINUTE = 500.0
IN_FLIGHT = 500.0
GROWTH = 1.5  # median latency, busier half over quieter half
BILL_GROWTH = 0.4
GPU_IDLE = 0.5
LEAST_READINGS = 10
LOOK_DAYS = 1.0  # a look at the host that is further from the log's end saw another load
HALVES = "busier half / quieter half, medians"
SLOW_SHARE = 0.05  # over 500 ms: what "P95 over 500 ms" means in a histogram
BUSY = 0.9
IO_WAIT = 0.2
OUTSIDE = 0.5


@dataclass(frozen=True)
class Seen:
    """What the triggers are told from."""

    latency: Percentiles  # on the clock that is judged
    per_minute_peak: int | None
    in_flight_peak: int | None
    in_flight_bounds: tuple[int, int] | None  # least and most, where stamps are whole seconds
    growth: Growth | None
    errors: tuple[float, float, int, bool] | None  # busier share, quieter share, n, beyond chance
    at_1000: Extrapolation | None
    untold: str  # why the three above cannot be told, where that is so
    inference_n: int
    outside_upstream: float | None  # share of the time that requests spent outside of the server behind the proxy
    no_latency: str  # why there is no latency
    source: str
    at: str
    servers: tuple[ServerMetrics, ...] = ()
    gpu: GpuUse | None = None
    slow_then: Percentiles | None = None  # of the requests that ran while the GPU was read
    bill: Bill | None = None
    host: HostLook | None = None
    days_after: float | None = None  # from the log's end to the look at the host
    doubt: str = ""  # a question about the unit of the durations


def triggers(seen: Seen) -> tuple[Trigger, ...]:
    slow = _slow(seen)
    peak = None if seen.inference_n == 0 or seen.per_minute_peak is None else float(seen.per_minute_peak)
    told = (
        slow,
        _held(
            "over 500 inference requests a minute",
            _figure(seen, peak, "requests/min", seen.inference_n),
            PER_MINUTE,
            "no inference request in the log" if seen.inference_n == 0 else "the log holds no times",
        ),
        _in_flight(seen),
        _growth(seen),
        _errors(seen),
        _beyond(seen),
        _bill(seen),
        _gpu(seen, slow),
        _bound(seen),
    )
    return tuple(_doubted(one, seen.doubt) if one.name in _BY_DURATION else one for one in told)


_BY_DURATION = ("P95 over 500 ms", "over 500 in flight", "over 500 ms at 1000 users")


def _doubted(trigger: Trigger, doubt: str) -> Trigger:
    if not doubt or trigger.verdict == "no data":
        return trigger
    return trigger.model_copy(update={"why": f"{trigger.why}; if the unit is right: {doubt}"})


def _in_flight(seen: Seen) -> Trigger:
    """Where stamps are whole seconds only the bounds are certain."""
    name, peak, bounds = "over 500 in flight", seen.in_flight_peak, seen.in_flight_bounds
    figure = _figure(seen, None if peak is None else float(peak), "requests", seen.latency.n)
    found = _held(name, figure, IN_FLIGHT, "the log holds no durations")
    if peak is None or bounds is None or bounds[0] == bounds[1]:
        return found
    told = f"between {bounds[0]} and {bounds[1]}, since stamps are whole seconds (n={figure.n})"
    verdict = "met" if bounds[0] > IN_FLIGHT else "not met" if bounds[1] <= IN_FLIGHT else "no data"
    why = {"met": f"{told}: over 500", "not met": f"{told}: not over 500", "no data": f"{told}: 500 lies within"}
    return found.model_copy(update={"verdict": verdict, "why": why[verdict]})


def _growth(seen: Seen) -> Trigger:
    grown = seen.growth
    figure = _figure(seen, grown.latency_ratio if grown else None, HALVES, grown.n if grown else 0)
    missing = seen.untold or "too few requests at different numbers in flight"
    return _held("latency grows with concurrency", figure, GROWTH, missing)


def _slow(seen: Seen) -> Trigger:
    name = "P95 over 500 ms"
    told = next((server for server in seen.servers if server.over_500_share is not None), None)
    if seen.latency.p95_ms is None and told is not None:
        value = told.over_500_share or 0.0
        figure = Figure(
            value=value, unit="share over 500 ms", basis="measured", source=f"{told.server} metrics", n=told.requests
        )
        met = value > SLOW_SHARE
        than = "more than 5 %" if met else "not more than 5 %"
        why = f"{value:.1%} of {told.requests} took over 500 ms ({told.clock} clock, since the server started), {than}"
        return Trigger(name=name, verdict="met" if met else "not met", figure=figure, threshold=SLOW_SHARE, why=why)
    figure = _figure(seen, seen.latency.p95_ms, "ms", seen.latency.n)
    found = _held(name, figure, P95_MS, seen.no_latency)
    if found.verdict != "no data" and seen.latency.clock != "total":
        return found.model_copy(update={"why": f"{found.why}, {seen.latency.clock.replace('_', ' ')}"})
    return found


def _errors(seen: Seen) -> Trigger:
    name = "errors grow with concurrency"
    if seen.errors is None:
        missing = seen.untold or "too few requests at different numbers in flight"
        return _held(name, _figure(seen, None, "busier share - quieter share", 0), 0.0, missing)
    busy, quiet, n, clear = seen.errors
    figure = _figure(seen, busy - quiet, "busier share - quieter share", n)
    why = f"{busy:.2%} of the busier and {quiet:.2%} of the quieter requests failed (n={n})"
    verdict = "met" if clear else "not met"
    tail = ", beyond chance (95 %)" if clear else ", which is within chance" if busy > quiet else ""
    return Trigger(name=name, verdict=verdict, figure=figure, threshold=0.0, why=why + tail)


def _beyond(seen: Seen) -> Trigger:
    name, told = "over 500 ms at 1000 users", seen.at_1000
    if told is None or told.latency_ms is None or told.latency_low_ms is None or told.latency_high_ms is None:
        why = told.why if told else "the log holds no durations"
        return _held(name, _figure(seen, None, "ms", 0), P95_MS, why)
    figure = Figure(value=told.latency_ms, unit="ms", basis="predicted", source=seen.source, at=seen.at, n=told.n)
    verdict = "met" if told.latency_low_ms > P95_MS else "not met" if told.latency_high_ms <= P95_MS else "no data"
    why = (
        f"{told.latency_ms:.0f} ms (95 %: {told.latency_low_ms:.0f} to {told.latency_high_ms:.0f}) "
        f"with {told.users} in flight, "
        f"{told.why} (n={told.n})"
    )
    if verdict == "no data":
        why = f"too uncertain: {why}"
    return Trigger(name=name, verdict=verdict, figure=figure, threshold=P95_MS, why=why)


def _bill(seen: Seen) -> Trigger:
    bill = seen.bill
    value = bill.growth_quarter if bill else None
    basis = "unknown" if value is None else "measured"
    n = len(bill.months) if bill else 0
    figure = Figure(value=value, unit="share", basis=basis, source="the bill" if bill else seen.source, at=seen.at, n=n)
    found = _held(
        "bill up 40 % in a quarter", figure, BILL_GROWTH, "; ".join(bill.notes) if bill else "no bill was given"
    )
    if value is None or bill is None:
        return found
    return found.model_copy(update={"why": f"{found.why}, {bill.months[-1][0]} against three months before"})


def _gpu(seen: Seen, slow: Trigger) -> Trigger:
    """A GPU that idles is a reason only while inference is slow: readings count where requests of the log ran."""
    name, gpu = "GPU missing or idle", seen.gpu
    missing = seen.host is not None and seen.host.gpus == ()
    if gpu is None and missing and seen.host is not None:
        figure = Figure(value=1.0, unit="share of time", basis="measured", source=f"look at {seen.host.host}",
                        at=seen.at, n=1)  # fmt: skip
        told = f"the host has no GPU ({seen.host.at[:10]})"
        return Trigger(
            name=name,
            verdict=slow.verdict,
            figure=figure,
            threshold=GPU_IDLE,
            why=f"{told}, and {_STATE[slow.verdict]}",
        )
    value = gpu.idle_share if gpu is not None and gpu.matched else None
    n = gpu.samples if gpu is not None else 0
    figure = Figure(value=value, unit="share of time", basis="unknown" if value is None else "measured",
                    source=gpu.source if gpu else seen.source, at=seen.at, n=n)  # fmt: skip
    if gpu is None or value is None or n < LEAST_READINGS:
        why = "no GPU use was given" if gpu is None else "; ".join(gpu.notes) or "the readings hold no utilisation"
        if value is not None:
            why = f"{n} readings fall into the log's time, {LEAST_READINGS} are needed"
        return Trigger(name=name, verdict="no data", figure=figure, threshold=GPU_IDLE, why=why)
    told = f"at 0 % in {value:.0%} of {n} readings"
    if value <= GPU_IDLE:
        return Trigger(name=name, verdict="not met", figure=figure, threshold=GPU_IDLE, why=told)
    then = seen.slow_then
    p95 = then.p95_ms if then is not None else None
    verdict = "no data" if p95 is None else "met" if p95 > P95_MS else "not met"
    told += f" while {then.n if then is not None else 0} timed requests ran"
    if p95 is not None:
        told += f" (P95 {p95:.0f} ms)"
    return Trigger(name=name, verdict=verdict, figure=figure, threshold=GPU_IDLE, why=f"{told}, and {_STATE[verdict]}")


_STATE = {
    "met": "inference is slow",
    "not met": "inference is not slow",
    "no data": "too few to say whether inference is slow",
}


def _bound(seen: Seen) -> Trigger:
    name, host = "bound by CPU, network or storage", seen.host
    shares: dict[str, tuple[float, float]] = {}
    late = seen.days_after is not None and abs(seen.days_after) > LOOK_DAYS
    if late and seen.outside_upstream is None:
        why = f"the look at the host is {abs(seen.days_after or 0):.0f} days away from the log's end: another load"
        return _held(name, _figure(seen, None, "share", 0), BUSY, why)
    host = None if late else host
    if host is not None:
        if host.cpu_busy_share is not None:
            shares["CPU"] = (host.cpu_busy_share, BUSY)
        if host.io_wait_share is not None:
            shares["storage (waiting for it)"] = (host.io_wait_share, IO_WAIT)
        if host.network_mb_s is not None and host.network_limit_mb_s:
            shares["network"] = (host.network_mb_s / host.network_limit_mb_s, BUSY)
    if seen.outside_upstream is not None:
        shares["network (time outside of the server behind the proxy)"] = (seen.outside_upstream, OUTSIDE)
    if not shares:
        return _held(name, _figure(seen, None, "share", 0), BUSY, "needs a look at the host (--host) or upstream times")
    worst = max(shares, key=lambda key: shares[key][0] / shares[key][1])
    value, limit = shares[worst]
    told = ", ".join(f"{key} {part:.0%}" for key, (part, _) in shares.items())
    figure = _figure(seen, value, "share", seen.inference_n)
    if value > limit:
        return Trigger(
            name=name, verdict="met", figure=figure, threshold=limit, why=f"{worst} is over {limit:.0%}: {told}"
        )
    if host is None or host.cpu_busy_share is None:
        why = f"{told}; CPU and storage need a look at the host (--host)"
        return Trigger(name=name, verdict="no data", figure=figure, threshold=limit, why=why)
    return Trigger(name=name, verdict="not met", figure=figure, threshold=limit, why=told)


def _figure(seen: Seen, value: float | None, unit: str, n: int) -> Figure:
    basis = "unknown" if value is None else "measured"
    return Figure(value=value, unit=unit, basis=basis, source=seen.source, at=seen.at, n=n)


def _held(name: str, figure: Figure, threshold: float, missing: str) -> Trigger:
    if figure.value is None:
        return Trigger(name=name, verdict="no data", figure=figure, threshold=threshold, why=missing)
    met = figure.value > threshold
    value = f"{figure.value:.3g}" if figure.value < 100 else f"{figure.value:.0f}"
    why = f"{value} {figure.unit} {'is over' if met else 'is not over'} {threshold:g} (n={figure.n})"
    return Trigger(name=name, verdict="met" if met else "not met", figure=figure, threshold=threshold, why=why)
