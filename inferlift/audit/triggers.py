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
    growth: Growth | None
    errors: tuple[float, float, int, bool] | None  # busier share, quieter share, n, beyond chance
    at_1000: Extrapolation | None
    inference_n: int
    outside_upstream: float | None  # share of the time that requests spent outside of the server behind the proxy
    no_latency: str  # why there is no latency
    source: str
    at: str
    servers: tuple[ServerMetrics, ...] = ()
    gpu: GpuUse | None = None
    bill: Bill | None = None
    host: HostLook | None = None


def triggers(seen: Seen) -> tuple[Trigger, ...]:
    slow = _slow(seen)
    peak = None if seen.inference_n == 0 or seen.per_minute_peak is None else float(seen.per_minute_peak)
    flight = None if seen.in_flight_peak is None else float(seen.in_flight_peak)
    grown = seen.growth
    return (
        slow,
        _held(
            "over 500 inference requests a minute",
            _figure(seen, peak, "requests/min", seen.inference_n),
            PER_MINUTE,
            "no inference request in the log" if seen.inference_n == 0 else "the log holds no times",
        ),
        _held(
            "over 500 in flight",
            _figure(seen, flight, "requests", seen.latency.n),
            IN_FLIGHT,
            "the log holds no durations",
        ),
        _held(
            "latency grows with concurrency",
            _figure(seen, grown.latency_ratio if grown else None, HALVES, grown.n if grown else 0),
            GROWTH,
            "too few requests at different numbers in flight",
        ),
        _errors(seen),
        _beyond(seen),
        _bill(seen),
        _gpu(seen, slow),
        _bound(seen),
    )  # fmt: skip


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
        why = f"{value:.1%} of {told.requests} took over 500 ms ({told.clock} clock), {than}"
        return Trigger(name=name, verdict="met" if met else "not met", figure=figure, threshold=SLOW_SHARE, why=why)
    figure = _figure(seen, seen.latency.p95_ms, "ms", seen.latency.n)
    found = _held(name, figure, P95_MS, seen.no_latency)
    if found.verdict != "no data" and seen.latency.clock != "total":
        return found.model_copy(update={"why": f"{found.why}, {seen.latency.clock.replace('_', ' ')}"})
    return found


def _errors(seen: Seen) -> Trigger:
    name = "errors grow with concurrency"
    if seen.errors is None:
        missing = "too few requests at different numbers in flight"
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
    return _held(
        "bill up 40 % in a quarter", figure, BILL_GROWTH, "; ".join(bill.notes) if bill else "no bill was given"
    )


def _gpu(seen: Seen, slow: Trigger) -> Trigger:
    name, gpu = "GPU missing or idle", seen.gpu
    missing = seen.host is not None and seen.host.gpus == ()
    value = 1.0 if missing and gpu is None else gpu.idle_share if gpu else None
    source = f"look at {seen.host.host}" if missing and seen.host else gpu.source if gpu else seen.source
    figure = Figure(value=value, unit="share of time", basis="unknown" if value is None else "measured", source=source,
                    at=seen.at, n=gpu.samples if gpu else 1 if missing else 0)  # fmt: skip
    if value is None:
        why = "the readings hold no utilisation" if gpu else "no GPU use was given"
        return Trigger(name=name, verdict="no data", figure=figure, threshold=GPU_IDLE, why=why)
    told = "the host has no GPU" if missing and gpu is None else f"at 0 % in {value:.0%} of {figure.n} readings"
    if value <= GPU_IDLE:
        return Trigger(name=name, verdict="not met", figure=figure, threshold=GPU_IDLE, why=told)
    state = {
        "met": "inference is slow",
        "not met": "inference is not slow",
        "no data": "nothing says whether inference is slow",
    }
    verdict = slow.verdict
    return Trigger(name=name, verdict=verdict, figure=figure, threshold=GPU_IDLE, why=f"{told}, and {state[verdict]}")


def _bound(seen: Seen) -> Trigger:
    name, host = "bound by CPU, network or storage", seen.host
    shares: dict[str, tuple[float, float]] = {}
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
