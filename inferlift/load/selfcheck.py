"""What this machine can drive, found out against the built-in echo server before anything is measured."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from inferlift.load.client import LoadPlan, run
from inferlift.load.target import Target


class Drive(NamedTuple):
    """Requests a second with client and echo server on the same cores: less than the client alone could."""

    stream_rps: float
    plain_rps: float
    users: int

    def __str__(self) -> str:
        return (
            f"this machine drives at least {self.stream_rps:.0f} streamed (32 texts each) and {self.plain_rps:.0f} "
            f"plain requests/s"
        )


def self_check(users: int = 32, requests: int = 600) -> Drive:
    """Takes about a second."""
    rates = []
    with echo(0, 0, 32) as port, tempfile.TemporaryDirectory() as folder:
        for stream in (True, False):
            target = Target("127.0.0.1", port=port, tls=False)
            plan = LoadPlan(target, requests, ["hello"], Path(folder) / "s.jsonl", users=users, stream=stream)
            rates.append(run(plan).rate_rps or 0.0)
    return Drive(rates[0], rates[1], users)


@contextmanager
def echo(first_s: float, gap_s: float, tokens: int) -> Iterator[int]:
    """The echo server in a process of its own; its port."""
    server = Path(__file__).with_name("timed_server.py")
    child = subprocess.Popen(
        [sys.executable, str(server), "0", str(first_s), str(gap_s), str(tokens)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,  # Ctrl-C is for the client: the server ends with its stdin
    )  # fmt: skip
    try:
        assert child.stdout is not None  # noqa: S101
        yield int(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()
