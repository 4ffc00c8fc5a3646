"""Figures from all samples: percentiles by nearest rank, and whether the client itself may have moved them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import ceil, exp, lgamma, log, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

from inferlift.artifacts import Percentiles, Spread

MOVED_SHARE = 0.05  # a figure moved by more than this share (after FREE_MS) is not the server's any more
FREE_MS = 5.0


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


def spread(values_ms: Sequence[float]) -> Spread | None:
    if not len(values_ms):
        return None
    ordered = sorted(values_ms)
    return _spread(len(ordered), lambda percent: nearest_rank(ordered, percent), ordered[-1])


def from_counts(counts: Mapping[int, int], step_ms: float) -> Spread | None:
    """From counts by whole steps: nearest rank, told as the middle of its step."""
    n = sum(counts.values())
    if not n:
        return None
    steps = sorted(counts)
    upto = list(accumulate(counts[k] for k in steps))

    def rank(percent: float) -> float:
        return (steps[bisect_left(upto, max(1, ceil(n * percent / 100)))] + 0.5) * step_ms

    return _spread(n, rank, (steps[-1] + 0.5) * step_ms)


def p95_range(ordered: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Between which values the true p95 lies, by order statistics (binomial ranks); None where no upper rank exists.

    Source: Hahn and Meeker, Statistical Intervals, 5.2 (distribution-free interval for a percentile).
    """
    n, p = len(ordered), 0.95
    tail = (1 - confidence) / 2
    low, high = _binomial_rank(n, p, tail), _binomial_rank(n, p, 1 - tail) + 1
    if low < 1 or high > n:
        return None
    return ordered[low - 1], ordered[high - 1]


def p95_difference(old: Sequence[float], new: Sequence[float], *, draws: int = 4000, seed: int = 0) -> Change | None:
    """New p95 minus old with its 95 % range; None with fewer than 20 samples on a side.

    The p95 of a bootstrap sample is the value at a rank that is beta-distributed: drawn directly, which needs no
    resampling of the values (Efron 1979; the order statistic's law, David and Nagaraja, 2.3).
    """
    a, b = sorted(old), sorted(new)
    if len(a) < 20 or len(b) < 20:
        return None
    draw = random.Random(seed)  # noqa: S311 (statistics, no secret)
    found = sorted(_drawn_p95(b, draw) - _drawn_p95(a, draw) for _ in range(draws))
    return Change(nearest_rank(b, 95) - nearest_rank(a, 95), nearest_rank(found, 2.5), nearest_rank(found, 97.5))


class Change(NamedTuple):
    """A difference with the ends of its 95 % range."""

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        return self.low > 0 or self.high < 0


def share_range(correct: int, n: int) -> tuple[float, float] | None:
    """95 % range of a share, after Wilson (1927)."""
    if n < 1:
        return None
    z = 1.959964
    p = correct / n
    middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def client_limit(
    totals_ms: Sequence[float],
    total_shifts_ms: Sequence[float],
    ttfts_ms: Sequence[float],
    ttft_shifts_ms: Sequence[float],
    turns_ms: Sequence[float] = (),
) -> str:
    """Why the client may have moved a reported figure by more than 5 %; empty when it cannot have.

    Each shift is the most that the client itself can have added to the latency beside it (late sending, late
    reading). The p95 as measured is compared with the p95 without the shifts. `turns_ms` is what the client took in
    a closed loop between an answer and the same user's next request: it lowers the rate that was offered.
    """
    for name, values, shifts in (("total", totals_ms, total_shifts_ms), ("TTFT", ttfts_ms, ttft_shifts_ms)):
        if not len(values):
            continue
        measured = nearest_rank(sorted(values), 95)
        without = nearest_rank(sorted(v - min(s, v) for v, s in zip(values, shifts, strict=True)), 95)
        moved = measured - without
        if moved - FREE_MS > MOVED_SHARE * measured:
            return f"the client may have added {moved:.0f} ms to the p95 {name} of {measured:.0f} ms"
    if len(turns_ms) and len(totals_ms):
        turn, total = sum(turns_ms) / len(turns_ms), sum(totals_ms) / len(totals_ms)
        if turn - FREE_MS > MOVED_SHARE * (turn + total):
            return f"the client took {turn:.0f} ms between an answer and the next request: the rate is its own"
    return ""


def rate_behind(
    seconds: float, sent: int, ended: int, first_ms: Sequence[float], last_ms: Sequence[float], delay_p95_ms: float
) -> tuple[Literal["", "client", "server"], str]:
    """Whether an open loop's rate was kept up, and by whom not: a queue that only grows is no answer to a rate.

    `ended` is how many of the `sent` requests had ended when the last one went out, `seconds` after the first.
    `first_ms` and `last_ms` are the latencies of the first and the last quarter: where the server keeps up they are
    alike, in a growing queue the median grows with the schedule; by more than MOVED_SHARE of it, with as many
    requests waiting at its end, is not kept up.
    """
    if sent < 2 or seconds <= 0:
        return "", ""
    if delay_p95_ms - FREE_MS > MOVED_SHARE * seconds * 1000:
        return "client", f"the client sent {delay_p95_ms:.0f} ms late in a schedule of {seconds:.1f} s"
    if not len(first_ms) or not len(last_ms):
        return "", ""
    before, after = nearest_rank(sorted(first_ms), 50), nearest_rank(sorted(last_ms), 50)
    waiting = sent - ended
    if after - before - FREE_MS > MOVED_SHARE * seconds * 1000 and waiting > MOVED_SHARE * sent:
        return "server", (
            f"{waiting} of {sent} requests were unanswered when the last one was sent: {ended / seconds:.1f}/s were "
            f"answered while {(sent - 1) / seconds:.1f}/s were sent; the median answer took {before:.0f} ms in the "
            f"first quarter and {after:.0f} ms in the last"
        )
    return "", ""


def _spread(n: int, rank: Callable[[float], float], most: float) -> Spread:
    return Spread(
        n=n,
        p50_ms=rank(50),
        p90_ms=rank(90) if n >= 10 else None,
        p95_ms=rank(95) if n >= 20 else None,
        p99_ms=rank(99) if n >= 100 else None,
        max_ms=most,
    )


def _binomial_rank(n: int, p: float, below: float) -> int:
    """The largest k with P(X <= k - 1) <= `below` for X ~ Binomial(n, p); by the normal law for many."""
    if n > 2000:
        return int(NormalDist(n * p, sqrt(n * p * (1 - p))).inv_cdf(below))
    if n < 1:
        return 0
    total, k = 0.0, 0
    while k < n:
        total += exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log(1 - p))
        if total > below:
            break
        k += 1
    return k


def _drawn_p95(ordered: Sequence[float], draw: random.Random) -> float:
    n = len(ordered)
    k = ceil(n * 0.95)
    return ordered[max(1, ceil(n * draw.betavariate(k, n - k + 1))) - 1]
