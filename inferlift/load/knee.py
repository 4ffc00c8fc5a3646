"""The knee: the highest rate of an open loop that still meets every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from inferlift.artifacts import LoadRun, Verdict
from inferlift.errors import DeclarationError
from inferlift.load.arrivals import schedule

GROWTH = 1.6
CLOSE = 0.05  # the search ends when the step between the best good and the lowest bad rate is this share


class Step(NamedTuple):
    rate: float
    verdict: Verdict
    why: str
    run: LoadRun


class Knee(NamedTuple):
    """`rate` None: not even the lowest rate met the targets. `bounded` False: the highest asked still met them."""

    rate: float | None
    bounded: bool
    steps: tuple[Step, ...]


def find(
    measure: Callable[[tuple[float, ...], str], LoadRun],
    judge: Callable[[LoadRun], tuple[Verdict, str]],
    *,
    low: float,
    high: float,
    seconds: float = 20.0,
    kind: str = "poisson",
    seed: int = 0,
    most_steps: int = 12,
    say: Callable[[str], None] | None = None,
) -> Knee:
    """Rates grow from `low` until one fails, then the gap is halved. `measure(schedule, label)` makes one run.

    An undecided step (client limited, too few samples) ends the search upwards like a failed one: what could not be
    measured is not claimed.
    """
    if not 0 < low <= high:
        raise DeclarationError(f"a knee is sought between two rates above zero, got {low} and {high}")
    steps: list[Step] = []
    good: float | None = None
    bad: float | None = None
    rate = low
    while len(steps) < most_steps:
        count = max(20, round(rate * seconds))
        run = measure(schedule(kind, count, rate, seed=seed), f"{rate:.3g}/s")
        verdict, why = judge(run)
        steps.append(Step(rate, verdict, why, run))
        if say is not None:
            say(f"knee: {rate:.3g}/s {verdict} ({why})")
        if verdict == "pass":
            good = rate
        else:
            bad = rate
        if good is None or (bad is not None and (bad - good) <= CLOSE * bad):
            break
        if bad is None and good >= high:
            break
        rate = min(high, good * GROWTH) if bad is None else (good + bad) / 2
    return Knee(good, bad is not None, tuple(steps))
