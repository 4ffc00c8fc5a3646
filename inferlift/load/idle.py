"""The first answer after a pause: is the model still in memory, or is it loaded for whoever comes first?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from inferlift.artifacts import LoadRun
from inferlift.load.client import LoadPlan, run

ADDED_MS = 50.0  # more than this is not a model kept in memory
WARM = 7


class AfterIdle(NamedTuple):
    """Milliseconds to the first token (to the whole answer, without streaming). None: a request was not answered."""

    idle_s: float
    warm_ms: float | None
    first_ms: float | None
    slowest_warm_ms: float | None = None

    @property
    def added_ms(self) -> float | None:
        return None if self.warm_ms is None or self.first_ms is None else self.first_ms - self.warm_ms

    @property
    def kept(self) -> bool | None:
        """Whether the model was kept in memory; None: unknown, or not told apart from how much warm answers differ."""
        if self.added_ms is None or self.first_ms is None:
            return None
        if self.added_ms < ADDED_MS:
            return True
        return None if self.slowest_warm_ms is not None and self.first_ms <= self.slowest_warm_ms else False


def after_idle(
    plan: LoadPlan,
    idle_s: float,
    say: Callable[[str], None] | None = None,
    *,
    name: str = "idle",
    sleep: Callable[[float], None] = time.sleep,
) -> AfterIdle:
    """A few requests one after the other, a pause without any, then one more; each on a connection opened before.

    `name` sets their texts apart from other runs' (`Protocol.apart`), and the last one's from the first ones'.
    """
    warm = run(_plan(plan, WARM, "warm", name), None)
    if say is not None:
        say(f"idle for {idle_s:.0f} s, then one request")
    sleep(idle_s)
    first = run(_plan(plan, 1, "after-idle", name), None)
    slowest = warm.ttft.max_ms if warm.ttft is not None else warm.total.max_ms
    return AfterIdle(idle_s, _median(warm), _median(first), slowest)


def _plan(plan: LoadPlan, requests: int, label: str, name: str) -> LoadPlan:
    return dataclasses.replace(
        plan, requests=requests, users=1, schedule_s=None, label=label, protocol=plan.sends.apart(f"{name}{label[0]}"),
        samples=plan.samples.with_name(f"{plan.samples.stem}-{label}.jsonl"),
    )  # fmt: skip


def _median(found: LoadRun) -> float | None:
    if found.counts.ok < found.counts.planned:
        return None
    return found.ttft.p50_ms if found.ttft is not None else found.total.p50_ms
