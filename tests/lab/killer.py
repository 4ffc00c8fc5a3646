"""A deploy that kills itself, without warning, at the first intent boundary that was not hit yet.

Started again and again it goes through all boundaries of one migration. Each is a process of its own, forked from one
that has imported what all of them need: sixty times the same imports would be a minute of the test.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from inferlift import migration, place
from inferlift.errors import InferliftError
from inferlift.plan import approver
from inferlift.stages.base import Options

IMPORTED = (
    "ansible_runner", "dns.query", "inferlift.configure", "inferlift.dns.switch", "inferlift.images", "inferlift.load",
    "inferlift.migration", "inferlift.observe", "inferlift.provision", "inferlift.reporting", "inferlift.sizing",
    "pulumi.automation", "requests",
)  # fmt: skip


def start(profile: str, hits: Path, log: Path) -> ForkServerProcess:
    """Its end is in `exitcode`: 0, an error's code, or minus a signal. The environment is the first call's."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    started = context.Process(target=run, args=(profile, hits, log))
    started.start()
    return started


def run(profile: str, hits: Path, log: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, wherever the test itself was started
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.exit(_deploy(profile, hits))


def _deploy(profile: str, hits: Path) -> int:
    def kill_at_a_new_boundary(name: str) -> None:
        known = hits.read_text().splitlines() if hits.exists() else []
        if name in known:
            return
        with hits.open("a") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with migration.session(
            place.place(profile),
            f"deploy --profile {profile} --load-origin",
            options=Options(load_origin=True),
            on_boundary=kill_at_a_new_boundary,
        ) as ctx:
            migration.deploy(ctx, approve=approver(ask=False, given=None))
    except InferliftError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    return 0
