"""Progress for people: stage, step, elapsed, remaining by earlier runs; the log keeps every line."""

from __future__ import annotations

import io
from pathlib import Path

from inferlift.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_remaining_time_is_said_only_when_earlier_runs_tell_it() -> None:
    out = io.StringIO()
    progress = Progress(stream=out)
    progress.stage("load", expected_s=None)
    progress.say("first")
    assert "to go" not in out.getvalue()
    progress.stage("load", expected_s=30, remaining_after_s=100)
    progress._last_shown = 0
    progress.say("second")
    assert "about 2.2 min to go" in out.getvalue()


def test_a_terminal_gets_one_rewritten_line_and_a_log_gets_all(tmp_path: Path) -> None:
    out, log = Terminal(), tmp_path / "run.log"
    progress = Progress(log, stream=out)
    progress.stage("poc", expected_s=None)
    for step in range(50):
        progress.say(f"step {step}")
    progress.done("ready")
    progress.close()
    assert out.getvalue().count("\n") == 2
    assert log.read_text().count("step ") == 50


def test_without_a_terminal_at_most_a_line_a_second() -> None:
    out = io.StringIO()
    progress = Progress(stream=out)
    progress.stage("poc", expected_s=None)
    for step in range(50):
        progress.say(f"step {step}")
    assert out.getvalue().count("step ") == 1
    progress.say("pulumi: making it", always=True)
    assert "pulumi: making it" in out.getvalue()
    verbose = Progress(stream=out, verbose=True)
    verbose.detail("a detail")
    assert "a detail" in out.getvalue()


def test_what_is_said_after_an_interrupt_stands_on_a_line_of_its_own() -> None:
    out = Terminal()
    progress = Progress(stream=out)
    progress.stage("poc", expected_s=None)
    progress.say("half-way")
    progress.close()
    assert out.getvalue().endswith("\r\x1b[2K")


def test_nobody_reading_does_not_end_a_run(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    progress = Progress(tmp_path / "run.log", stream=Closed())
    progress.stage("poc", expected_s=None)
    progress.note("done")
    assert "done" in (tmp_path / "run.log").read_text()
