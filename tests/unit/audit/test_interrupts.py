"""Ctrl-C after an audit: what waits for a child hears it at once, as before."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from inferlift.audit import audit

LINE = '1.1.1.1 - - [10/Oct/2026:12:00:00 +0000] "POST /c HTTP/1.1" 200 1 "-" "-" rt=0.1'


def test_a_wait_for_a_child_is_interrupted_after_an_audit() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
    audit([LINE] * 50, routes=["/c"])
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            child.wait()
        assert child.poll() is None, "it was heard only when the child had ended"
    finally:
        interrupt.join()
        child.kill()
        child.wait()
        signal.signal(signal.SIGINT, before)
