"""Urgency lasts as long as the block, and no child inherits it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from inferlift.load.client import undisturbed
from inferlift.load.urgency import urgent

SHOW = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"


def standing() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def test_it_ends_with_its_block_and_is_nobody_elses() -> None:
    before = standing()
    other: list[tuple[int, int]] = []
    with urgent():
        inside = standing()
        thread = threading.Thread(target=lambda: other.append(standing()))
        thread.start()
        thread.join()
        child = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True).stdout.split()
    assert standing() == before
    real_time = inside[0] & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    if os.geteuid() == 0:
        assert real_time or inside[1] < before[1]
    if real_time:
        assert other[0][0] == int(child[0]) == os.SCHED_OTHER


def test_it_ends_with_an_error_too() -> None:
    before = standing()
    with pytest.raises(ValueError, match="out"), urgent():
        raise ValueError("out")
    assert standing() == before


def test_without_the_privilege_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "setpriority", refuse)
    before = standing()
    with urgent():
        assert standing() == before


def test_a_run_freezes_and_thaws_its_own_process_and_leaves_what_was_frozen() -> None:
    held, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        gc.unfreeze()
        with undisturbed():
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold() != thresholds
        assert (gc.get_freeze_count(), gc.get_threshold()) == (0, thresholds)
        gc.freeze()
        before = gc.get_freeze_count()
        with undisturbed():
            pass
        assert gc.get_freeze_count() == before
    finally:
        if not held:
            gc.unfreeze()
