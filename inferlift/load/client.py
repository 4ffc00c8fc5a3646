"""The load client: exactly N requests, closed loop or by schedule, each one measured and accounted for.

The loop runs in a thread of its own (`worker.py`); the caller's thread shows progress, writes samples and takes
signals, so that neither a slow terminal nor an interrupt touches a measurement.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from inferlift.artifacts import LoadRun
from inferlift.errors import Refusal
from inferlift.load.hidden import body_shown, hider, url_shown
from inferlift.load.plan import LoadPlan
from inferlift.load.replay import replay_schedule
from inferlift.load.result import Record, Taken, last_line, result
from inferlift.load.samples import SampleWriter
from inferlift.load.urgency import urgent
from inferlift.load.worker import Worker

__all__ = ["LoadPlan", "replay_schedule", "run"]

Say = Callable[[str], None]
SECOND_S = 1.0  # between two lines of progress; a long run says less often
SLOWEST_S = 15.0
WRITE_S = 0.1


class Stopped(KeyboardInterrupt):
    """Ctrl-C in the middle of a run. `run` is what there is of it: what was in flight counts as interrupted."""

    def __init__(self, run: LoadRun) -> None:
        super().__init__("stopped")
        self.run = run


def run(plan: LoadPlan, say: Say | None = None, stop: threading.Event | None = None) -> LoadRun:
    """Send the plan's requests and return what came of them. Blocks; progress through `say`.

    `stop`, once set, ends sending: what is in flight is still awaited, the rest counts as unsent. Past
    `deadline_s` what is in flight counts as timed out. Raises CheckFailed when the counts do not balance,
    Refusal when this machine allows too few open files, Stopped on Ctrl-C.
    """
    _allow_open_files(min(plan.users or plan.requests, plan.requests) + 64, needed=plan.users is not None)
    started = datetime.now(UTC)
    writer = SampleWriter(plan.samples, head(plan, started))
    work, taken = Worker(plan), Taken(plan, writer)
    thread = threading.Thread(target=work.main, name=f"load-{plan.label}", daemon=True)
    with heeding() as asked_to_end, undisturbed():
        thread.start()
        began = said = time.monotonic()
        try:
            while not work.finished.wait(WRITE_S):
                taken.take(work)
                if asked_to_end.is_set():
                    work.abort()
                if stop is not None and stop.is_set():
                    work.no_more()
                if say is not None and time.monotonic() - said >= min(SLOWEST_S, max(SECOND_S, (said - began) / 10)):
                    said = time.monotonic()
                    say(_progress(plan, work))
        except BaseException:
            work.abort()
            work.finished.wait(5)
            raise
        finally:
            taken.take(work)
            writer.close()
        thread.join()
    if work.failure is not None:
        raise work.failure
    found = result(plan, work, taken, started)
    if say is not None:
        say(last_line(found))
    if asked_to_end.is_set():
        raise Stopped(found)
    return found


def unsent(plan: LoadPlan) -> LoadRun:
    """The record of a run that was not begun: everything planned, nothing sent."""
    started = datetime.now(UTC)
    writer = SampleWriter(plan.samples, head(plan, started))
    writer.close()
    return result(plan, Record(), Taken(plan), started)


@contextmanager
def heeding() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of breaking into the counting; handlers of others are left as they are."""
    heard = threading.Event()
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, lambda *_: heard.set())
    try:
        yield heard
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """While the loop runs: rare collections of garbage (a full one takes tens of ms), short turns between threads.

    The calling thread is as urgent as the loop's: it holds Python's lock while it writes.
    Where somebody froze objects before, that is left to them: there is no thawing of our part alone.
    """
    thresholds, interval, ours = gc.get_threshold(), sys.getswitchinterval(), gc.get_freeze_count() == 0
    if ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    sys.setswitchinterval(0.0005)
    try:
        with urgent():
            yield
    finally:
        if ours:
            gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


def _allow_open_files(wanted: int, *, needed: bool) -> None:
    """A closed loop's users each hold a connection; an open loop takes what there is, and says when that was short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted += 256  # what the rest of the process has open
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        if needed:
            raise Refusal(
                f"{wanted} open files are needed for so many users, {hard} are allowed",
                why="each user holds a connection",
                next_command=f"ulimit -Hn {wanted}, or fewer users",
            )
        wanted = hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def head(plan: LoadPlan, started: datetime) -> dict[str, Any]:
    """The plan as it was carried out, with the first body as it goes out; no secret is in it."""
    target = plan.target
    return {
        "label": plan.label,
        "started": started.isoformat(),
        "planned": plan.requests,
        "url": url_shown(target.url),
        "address": target.address or target.resolver,
        "protocol": plan.sends.name,
        "users": plan.users,
        "scheduled_s": plan.schedule_s[-1] if plan.schedule_s else None,
        "body": body_shown(plan.sends.shown(), hider(target)),
    }


def _progress(plan: LoadPlan, work: Worker) -> str:
    done, errors = work.done, sum(work.errors.copy().values())
    elapsed = time.monotonic() - work.start if work.start else 0.0
    rate = done / elapsed if elapsed > 0 else 0.0
    left = f", about {(plan.requests - done) / rate:.0f} s left" if rate > 0 else ""
    return (
        f"{plan.label}: {done}/{plan.requests} answered, {work.in_flight} in flight, {rate:.1f}/s, "
        f"{errors} errors{left}"
    )
