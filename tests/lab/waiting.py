"""Waiting for a condition of another machine, which can only be asked again and again."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(ask: Callable[[], bool], seconds: float, every_s: float = 0.25) -> bool:
    """Did it come true within `seconds`?"""
    deadline = time.monotonic() + seconds
    while not (done := ask()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return done
