"""Reasons to move, as the figures see them: met, not met, or no data. A missing figure is never "not met"."""

from __future__ import annotations

from inferlift.artifacts import Figure, Percentiles, Trigger

P95_MS = 500.0
PER_MINUTE = 500.0
IN_FLIGHT = 500.0
GROWTH = 1.5  # median latency, busier half over quieter half
BILL_GROWTH = 0.4
GPU_IDLE = 0.5


def triggers(
    latency: Percentiles,
    per_minute_peak: int,
    in_flight_peak: int | None,
    growth: tuple[float, int] | None,
    inference_n: int,
    source: str,
    at: str,
) -> tuple[Trigger, ...]:
    def figure(value: float | None, unit: str, n: int) -> Figure:
        return Figure(
            value=value, unit=unit, basis="unknown" if value is None else "measured", source=source, at=at, n=n
        )

    peak = None if inference_n == 0 else float(per_minute_peak)
    slow = "fewer than 20 answered inference requests with a duration in the log"
    return (
        _held("P95 over 500 ms", figure(latency.p95_ms, "ms", latency.n), P95_MS, slow),
        _held(
            "over 500 inference requests a minute",
            figure(peak, "requests/min", inference_n),
            PER_MINUTE,
            "no inference request in the log",
        ),
        _held(
            "over 500 in flight",
            figure(None if in_flight_peak is None else float(in_flight_peak), "requests", latency.n),
            IN_FLIGHT,
            "the log holds no durations",
        ),
        _held(
            "latency grows with concurrency",
            figure(growth[0] if growth else None, "busier half / quieter half, medians", growth[1] if growth else 0),
            GROWTH,
            "too few requests at different numbers in flight",
        ),
        _held("bill up 40 % in a quarter", figure(None, "share", 0), BILL_GROWTH, "no bill was given"),
        _held("GPU missing or idle", figure(None, "share of time", 0), GPU_IDLE, "no GPU use was given"),
    )


def _held(name: str, figure: Figure, threshold: float, missing: str) -> Trigger:
    if figure.value is None:
        return Trigger(name=name, verdict="no data", figure=figure, threshold=threshold, why=missing)
    met = figure.value > threshold
    value = f"{figure.value:.3g}" if figure.value < 100 else f"{figure.value:.0f}"
    why = f"{value} {figure.unit} {'is over' if met else 'is not over'} {threshold:g} (n={figure.n})"
    return Trigger(name=name, verdict="met" if met else "not met", figure=figure, threshold=threshold, why=why)
