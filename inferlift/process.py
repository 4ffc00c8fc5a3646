"""Child processes that can be found again: each carries its owner's mark in the environment.

A killed run leaves children behind (an engine, a provider, a playbook in a session of its own). The next
command, which holds the ledger's lock, finds them by the mark and ends them. Containers must not inherit it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inferlift.errors import CheckFailed

OWNER = "INFERLIFT_OWNER"


@contextlib.contextmanager
def owned(mark: str) -> Iterator[None]:
    """Children started in the block carry the mark."""
    before = os.environ.get(OWNER)
    os.environ[OWNER] = mark
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(OWNER, None)
        else:
            os.environ[OWNER] = before


def unmarked(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without the mark: for what must outlive the run (containers)."""
    return {k: v for k, v in (os.environ if env is None else env).items() if k != OWNER}


def remnants(mark: str) -> list[int]:
    """Pids of live processes with this mark, ourselves and our ancestors excepted.

    A process's environment as it was started is read from /proc: who is in `owned` is not listed itself.
    """
    ours = _lineage()
    needle = f"{OWNER}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes().split(b"\0") and not _dead(int(entry.name)):
                found.append(int(entry.name))
    return found


def end(pids: Sequence[int], *, grace_s: float = 5.0) -> None:
    """SIGTERM, a grace time, SIGKILL; returns when all are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := [p for p in pids if not _dead(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    while any(not _dead(p) for p in left) and time.monotonic() < deadline:
        time.sleep(0.05)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its text output.

    Raises CheckFailed with the last lines of stderr when `check` and the exit status is not 0, or on timeout.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=dict(env) if env is not None else None,
            check=False,
        )
    except FileNotFoundError:
        raise CheckFailed(f"{argv[0]} is not installed", next_command="./invoke doctor") from None
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"{argv[0]} took longer than {timeout_s:.0f} s", why=" ".join(argv[:4])) from None
    if check and done.returncode:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise CheckFailed(f"{argv[0]} {argv[1] if len(argv) > 1 else ''} exited with {done.returncode}", why=tail)
    return done


def _dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _lineage() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 1:
        pids.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            break
    return pids
