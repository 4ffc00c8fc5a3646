"""A command as typed, in the test's process: starting Python for each took most of such a test's time.

What this does not prove, that `python -m inferlift` starts and ends as a process, test_program.py shows.
"""

from __future__ import annotations

import contextlib
import io
import sys
from subprocess import CompletedProcess
from unittest import mock

from inferlift.__main__ import main
from inferlift.profile import ROOT


def typed(*words: str) -> CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.multiple(sys, argv=["inferlift", *words], path=[*sys.path]),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())
