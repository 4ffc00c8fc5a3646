"""Live progress on stderr: stage, step, elapsed, remaining by earlier runs. The log file keeps every line."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from inferlift import __version__


class Progress:
    """Lines for people. On a terminal the running step is one line that is rewritten; elsewhere each step is a line."""

    def __init__(self, log: Path | None = None, *, verbose: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._verbose = verbose
        self._lock = threading.Lock()
        self._log = log.open("a", encoding="utf-8") if log else None
        self._stage, self._start, self._remaining_after = "", time.monotonic(), 0.0
        self._expected: float | None = None
        self._open = False  # a line that is still being rewritten
        self._last_shown = 0.0
        self._write_log(f"inferlift {__version__}")

    def stage(self, name: str, *, expected_s: float | None, remaining_after_s: float = 0.0) -> None:
        """A stage begins; `expected_s` by earlier runs (None: never ran here)."""
        self._stage, self._expected, self._start = name, expected_s, time.monotonic()
        self._remaining_after = remaining_after_s
        self._show(f"{name:<8} begins" + (f", about {_span(expected_s)} by earlier runs" if expected_s else ""))

    def say(self, line: str, *, always: bool = False) -> None:
        """One step of the running stage. `always`: also where it follows another one at once."""
        took = time.monotonic() - self._start
        left = ""
        if self._expected is not None:
            left = f", about {_span(max(self._expected - took, 0) + self._remaining_after)} to go"
        self._write_log(f"{self._stage}: {line}")
        text = f"{self._stage:<8} {line}  [{_span(took)}{left}]"
        if self._terminal and not self._verbose:
            self._put("\r\x1b[2K" + text[: self._width()])
            self._open = True
        elif always or self._verbose or time.monotonic() - self._last_shown > 0.4:
            # without a terminal: a few lines a second at most, so that a log stays readable
            self._last_shown = time.monotonic()
            self._show(text)

    def done(self, line: str) -> None:
        self._show(f"{self._stage:<8} {line}  [{_span(time.monotonic() - self._start)}]")

    def note(self, line: str) -> None:
        self._show(line)

    def detail(self, line: str) -> None:
        """For the log, and the screen with -v."""
        self._write_log(line)
        if self._verbose:
            self._show(line, log=False)

    def close(self) -> None:
        if self._open:
            self._put("\r\x1b[2K")  # what is said next stands on a line of its own
            self._open = False
        if self._log:
            self._log.close()
            self._log = None

    def _show(self, text: str, *, log: bool = True) -> None:
        if log:
            self._write_log(text)
        self._put(("\r\x1b[2K" if self._terminal else "") + text + "\n")
        self._open = False

    def _put(self, text: str) -> None:
        # Nobody reading any more (a closed pipe, a lost terminal) does not end a migration half-way.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _write_log(self, text: str) -> None:
        if self._log:
            self._log.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")
            self._log.flush()

    def _width(self) -> int:
        import shutil

        return max(shutil.get_terminal_size((100, 24)).columns - 1, 20)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
