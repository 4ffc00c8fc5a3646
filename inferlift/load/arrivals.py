"""Send times of an open loop: constant, Poisson, bursty, or rising. In seconds since the start, the first at 0.

A seed makes them the same again. Replay of recorded traffic is in `replay.py`.
"""

from __future__ import annotations

import math
import random

from inferlift.errors import DeclarationError

KINDS = ("constant", "poisson", "bursty")


def schedule(kind: str, requests: int, rate: float, *, seed: int = 0, burstiness: float = 4.0) -> tuple[float, ...]:
    """`requests` send times at `rate` a second in the mean. Raises DeclarationError for what cannot be.

    bursty: gamma-distributed gaps whose squared coefficient of variation is `burstiness` (1 is Poisson), as in
    BurstGPT's traces (Wang et al. 2024, section 3).
    """
    if kind not in KINDS:
        raise DeclarationError(f"unknown arrivals {kind!r}", why=f"known: {', '.join(KINDS)}")
    _check(requests, rate, burstiness)
    if kind == "constant":
        return tuple(k / rate for k in range(requests))
    draw = random.Random(seed)  # noqa: S311 (arrivals, no secret)
    shape = 1.0 if kind == "poisson" else 1 / burstiness
    gaps = [draw.gammavariate(shape, 1 / (rate * shape)) for _ in range(requests - 1)]
    return _summed(gaps)


def ramp(requests: int, first_rate: float, last_rate: float) -> tuple[float, ...]:
    """A rate that goes evenly from one value to the other over the run."""
    _check(requests, first_rate)
    _check(requests, last_rate)
    if math.isclose(first_rate, last_rate):
        return schedule("constant", requests, first_rate)
    seconds = 2 * (requests - 1) / (first_rate + last_rate)
    slope = (last_rate - first_rate) / seconds if seconds else 0.0
    # request k goes out when the integral of the rate, first*t + slope*t^2/2, reaches k
    times = [
        (math.sqrt(max(0.0, first_rate**2 + 2 * slope * k)) - first_rate) / slope if slope else 0.0
        for k in range(requests)
    ]
    return tuple(times)


def _check(requests: int, rate: float, burstiness: float = 1.0) -> None:
    if requests < 1 or not (rate > 0 and math.isfinite(rate)):
        raise DeclarationError(f"arrivals need at least one request and a rate above zero, got {requests} at {rate}/s")
    if not (burstiness > 0 and math.isfinite(burstiness)):
        raise DeclarationError(f"burstiness is above zero, got {burstiness}")


def _summed(gaps: list[float]) -> tuple[float, ...]:
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    return tuple(times)
