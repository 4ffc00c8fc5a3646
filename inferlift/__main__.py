"""Invoke's own program with this project's manners: exit 2 for a wrong command line, --help after a task's name."""

from __future__ import annotations

import difflib
import io
import os
import sys

from invoke import Exit, Program
from invoke.exceptions import ParseError

from inferlift import __version__


class Tasks(Program):
    def parse_core(self, argv: list[str] | None) -> None:
        try:
            super().parse_core(_help_first(argv))
        except ParseError as error:
            raise _wrong(error) from None

    def parse_tasks(self) -> None:
        try:
            super().parse_tasks()
        except ParseError as error:
            raise _wrong(error, self._nearest(str(error))) from None
        except ValueError as error:  # --requests abc
            then = "./invoke TASK --help (its options)"
            raise Exit(f"inferlift: not a number: {error}\n  next: {then}", code=2) from None

    def _nearest(self, message: str) -> str:
        """The task or option that an unknown word is close to."""
        if not message.startswith("No idea"):
            return ""
        word = message.split("'")[1]
        flags = {flag for context in self.collection.to_contexts() for flag in context.flags if flag.startswith("--")}
        near = difflib.get_close_matches(word, flags if word.startswith("-") else list(self.collection.task_names), 1)
        return near[0] if near and near[0] != word else ""


def _help_first(argv: list[str] | None) -> list[str] | None:
    """`diff --help` is asked as `--help diff`: required arguments are no condition for help."""
    if argv is None or len(argv) < 3 or argv[1].startswith("-") or not {"--help", "-h"} & set(argv[2:]):
        return argv
    return [argv[0], "--help", argv[1]]


def _wrong(error: ParseError, near: str = "") -> Exit:
    hint = f"; did you mean {near}?" if near else ""
    help_ = "./invoke --list (all tasks), ./invoke TASK --help (its options)"
    return Exit(f"inferlift: {str(error).rstrip('.!')}{hint}\n  next: {help_}", code=2)


def _write_any_letter() -> None:
    """Names in a profile or a log may hold what this terminal cannot show: escaped then, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")


def main() -> None:
    _write_any_letter()
    try:
        Tasks(name="invoke", binary="invoke", version=__version__).run(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads us has seen enough: `--list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
