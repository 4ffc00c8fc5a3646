"""Figures from all samples: percentiles by nearest rank, and whether the client itself may have moved them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil
from typing import Literal

from inferlift.artifacts import Percentiles

MOVED_SHARE = 0.05  # a figure moved by more than this share (after FREE_MS) is not the server's any more
FREE_MS = 5.0
BUSY_SHARE = 0.9  # of one core: beyond it the client's own speed decides the rate


def nearest_rank(ordered: Sequence[float], percent: float) -> float:
    """The smallest value with at least `percent` of all values at or below it. `ordered` is sorted, not empty."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def percentiles(values_ms: Sequence[float], clock: Literal["total", "first_byte", "first_token"]) -> Percentiles:
    """None where there are too few samples: p95 below 20, p99 below 100."""
    ordered = sorted(values_ms)
    n = len(ordered)
    return Percentiles(
        n=n,
        p50_ms=nearest_rank(ordered, 50) if n else None,
        p90_ms=nearest_rank(ordered, 90) if n >= 10 else None,
        p95_ms=nearest_rank(ordered, 95) if n >= 20 else None,
        p99_ms=nearest_rank(ordered, 99) if n >= 100 else None,
        max_ms=ordered[-1] if n else None,
        clock=clock,
    )


def thin(values: Sequence[float], most: int = 200) -> tuple[float, ...]:
    """At most `most` sorted values that keep the shape and both ends, for plots only."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return tuple(ordered)
    return tuple(ordered[round(k * (len(ordered) - 1) / (most - 1))] for k in range(most))


class LoopLag:
    """How late the event loop ran: a tick asked for at a time ran `lag` seconds after it.

    What happened at time t was seen at worst as late as the first tick at or after t was.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._lags: list[float] = []

    def tick(self, now: float, lag: float) -> None:
        self._times.append(now)
        self._lags.append(max(0.0, lag))

    def at(self, moment: float) -> float:
        position = bisect_left(self._times, moment)
        return self._lags[position] if position < len(self._lags) else 0.0

    def within(self, start: float, end: float) -> float:
        """The sum of the lags of a stretch in which every step waited for the loop (a connection set-up)."""
        return sum(self._lags[bisect_left(self._times, start) : bisect_left(self._times, end) + 1])

    def p95_ms(self) -> float | None:
        return nearest_rank(sorted(self._lags), 95) * 1000 if self._lags else None


def client_limit(
    totals_ms: Sequence[float],
    total_shifts_ms: Sequence[float],
    ttfts_ms: Sequence[float],
    ttft_shifts_ms: Sequence[float],
    busy_share: float | None,
) -> str:
    """Why the client may have moved a reported figure by more than 5 %; empty when it cannot have.

    Each shift is the most that the client itself can have added to the latency beside it (late sending, late
    reading). The p95 as measured is compared with the p95 without the shifts.
    """
    for name, values, shifts in (("total", totals_ms, total_shifts_ms), ("TTFT", ttfts_ms, ttft_shifts_ms)):
        if not values:
            continue
        measured = nearest_rank(sorted(values), 95)
        without = nearest_rank(sorted(v - min(s, v) for v, s in zip(values, shifts, strict=True)), 95)
        moved = measured - without
        if moved - FREE_MS > MOVED_SHARE * measured:
            return f"the client may have added {moved:.0f} ms to the p95 {name} of {measured:.0f} ms"
    if busy_share is not None and busy_share > BUSY_SHARE:
        return f"the client used {busy_share:.0%} of the core it runs on: the rate may be its own"
    return ""
