"""A clock should not queue behind what it measures: where it is allowed, the loop's threads run before others.

Real-time round robin needs a privilege and a second core (the kernel still keeps a twentieth of the time for the
rest); without it a better nice value is tried, and without that nothing. Child processes and threads inherit nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

NICE = -10


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """For the calling thread, until the block ends."""
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    if policy == os.SCHED_OTHER:
        _raise()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if policy == os.SCHED_OTHER and os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR:
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            if os.getpriority(os.PRIO_PROCESS, 0) != nice:
                os.setpriority(os.PRIO_PROCESS, 0, nice)


def _raise() -> None:
    if len(os.sched_getaffinity(0)) > 1:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
