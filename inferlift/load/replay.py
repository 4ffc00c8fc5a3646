"""The audit's traffic shape as send times: its own gaps, in its own order, scaled to a wanted rate."""

from __future__ import annotations

import math
import random

from inferlift.artifacts import TrafficShape
from inferlift.errors import CheckFailed


def replay_schedule(
    shape: TrafficShape, requests: int, mean_rps: float | None = None, *, speedup: float = 1.0, seed: int = 0
) -> tuple[float, ...]:
    """Send times in seconds since the start, `requests` of them, the first at 0.

    The recorded gaps are taken in order from a place that `seed` chooses, and begin again at their end, so
    that bursts and lulls stay as they were. All are scaled by one factor: to `mean_rps` over the whole
    schedule (what the replicas present are offered), or to `speedup` times the recorded rate without it.
    Raises CheckFailed when nothing can be replayed.
    """
    gaps = shape.gaps_s
    if not gaps or not 0 < sum(gaps) < math.inf or min(gaps) < 0:
        raise CheckFailed(
            "the audit's traffic shape cannot be replayed",
            why="it has no gaps between requests" if not gaps else "its gaps are all zero or negative",
            next_command="audit logs with more requests",
        )
    if (mean_rps is not None and mean_rps <= 0) or speedup <= 0:
        raise CheckFailed("a replay needs a rate above zero", why=f"mean_rps {mean_rps}, speedup {speedup}")
    first = random.Random(seed).randrange(len(gaps))  # noqa: S311 (a place to begin, not a secret)
    taken = [gaps[(first + k) % len(gaps)] for k in range(requests - 1)]
    offsets = [0.0]
    for gap in taken:
        offsets.append(offsets[-1] + gap)
    factor = 1 / speedup
    if mean_rps is not None:
        mean_gap = sum(gaps) / len(gaps)
        factor = 1 / mean_rps / mean_gap
        if offsets[-1] > mean_gap * (requests - 1) / 100:
            # exactly the wanted mean; not for a short run inside one burst, which would be blown up to a lull
            factor = (requests - 1) / mean_rps / offsets[-1]
    return tuple(offset * factor for offset in offsets)
