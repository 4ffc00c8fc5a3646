"""When the next request goes out: users that wait for their answers (closed loop), or a schedule (open loop)."""

from __future__ import annotations

import collections
from typing import Protocol as Interface

from inferlift.load.plan import LoadPlan

STAGGER_S = 0.00025  # between the users' first requests
STAGGER_FROM = 4  # requests a user; with fewer all begin at once, as a burst


class Pacer(Interface):
    """Times in seconds since the start of the run."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to send."""

    def next_is_due(self, now: float) -> bool: ...

    def take(self) -> int:
        """The number of the next request, which is due."""

    def next_s(self) -> float | None:
        """When the next one is due; None where that waits for an answer, or where all are sent."""

    def scheduled_s(self, i: int, now: float) -> float:
        """From when request `i`, just being sent, counts."""

    def free_s(self, i: int) -> float | None:
        """Since when its user could have sent it (closed loop)."""

    def ended(self, now: float) -> None: ...


def pacer(plan: LoadPlan) -> Pacer:
    return _Users(plan) if plan.users is not None else _Schedule(plan)


class _Users:
    """Each user sends its next request when its last is answered. Latency counts from the sending: what the client
    itself takes between two requests is its `delay`, and no part of a latency."""

    def __init__(self, plan: LoadPlan) -> None:
        users = min(plan.users or 1, plan.requests)
        gap = STAGGER_S if plan.requests >= STAGGER_FROM * users else 0.0
        if plan.ramp_s is not None:
            gap = plan.ramp_s / users
        self._free = collections.deque(k * gap for k in range(users))
        self._requests, self._next, self._since = plan.requests, 0, 0.0

    @property
    def over(self) -> bool:
        return self._next >= self._requests

    def next_is_due(self, now: float) -> bool:
        return self._next < self._requests and bool(self._free) and self._free[0] <= now

    def take(self) -> int:
        self._since = self._free.popleft()
        self._next += 1
        return self._next - 1

    def next_s(self) -> float | None:
        return self._free[0] if self._free and self._next < self._requests else None

    def scheduled_s(self, i: int, now: float) -> float:
        return now

    def free_s(self, i: int) -> float | None:
        return self._since

    def ended(self, now: float) -> None:
        if self._free and now < self._free[-1]:  # users that have not begun yet stand behind
            self._free.appendleft(now)
        else:
            self._free.append(now)


class _Schedule:
    def __init__(self, plan: LoadPlan) -> None:
        self._times, self._next = plan.schedule_s or (), 0

    @property
    def over(self) -> bool:
        return self._next >= len(self._times)

    def next_is_due(self, now: float) -> bool:
        return self._next < len(self._times) and self._times[self._next] <= now

    def take(self) -> int:
        self._next += 1
        return self._next - 1

    def next_s(self) -> float | None:
        return self._times[self._next] if self._next < len(self._times) else None

    def scheduled_s(self, i: int, now: float) -> float:
        return self._times[i]

    def free_s(self, i: int) -> float | None:
        return None

    def ended(self, now: float) -> None:
        return None
