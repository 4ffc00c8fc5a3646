"""`deploy --detach`: the run goes on without the terminal, and a small process beside it starts it again after a kill.

python -m inferlift.detached FOLDER WORD...      (the words of the command line)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferlift.errors import Refusal
from inferlift.ledger import now, write_atomically
from inferlift.process import unmarked
from inferlift.profile import ROOT

FILE, LOG = "detached.json", "detached.log"
TRIES = 5  # starts in all: what is killed more often than that is killed by something that a start does not cure
PAUSE_S = 5.0
FIRST_S = 20.0  # what is wrong from the start is told on the terminal: until it holds the ledger, at most so long


def start(folder: Path, words: Sequence[str]) -> int | None:
    """Start the command behind `words`; None: it runs on, else how it ended within the first seconds.

    Raises Refusal while another one runs.
    """
    known = look(folder)
    if known is not None and known["running"]:
        raise Refusal(
            f"a detached run of this migration goes on since {known['started']}",
            why=f"pid {known['pid']}, log {folder / LOG}",
            next_command=f"wait for it, or stop it: kill -INT {known['pid']}",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / FILE).unlink(missing_ok=True)
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "inferlift.detached", str(folder), *words], cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True, env=unmarked(),
        )  # fmt: skip
    finally:
        os.close(log)
    until = time.monotonic() + FIRST_S
    while time.monotonic() < until and not _works(folder):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
            return child.returncode
    return None


def _works(folder: Path) -> bool:
    """Does the run itself hold the migration's lock by now?"""
    try:
        held = json.loads((folder / "lock").read_text(encoding="utf-8"))["pid"]
        return bool(held == json.loads((folder / FILE).read_text(encoding="utf-8"))["child"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def look(folder: Path) -> dict[str, Any] | None:
    """How the last detached run stands; None where there was none. `running` is its supervisor, asked by pid."""
    try:
        found: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        line = Path(f"/proc/{found['pid']}/cmdline")
    except (OSError, ValueError, LookupError, TypeError):
        return None
    running = False
    with contextlib.suppress(OSError):
        running = found.get("exit") is None and b"inferlift.detached" in line.read_bytes().split(b"\0")
    return {**found, "running": running}


def told(folder: Path) -> str:
    """One line for people; empty where there was no detached run."""
    found = look(folder)
    if found is None:
        return ""
    again = f", started again {found['starts'] - 1} times" if found["starts"] > 1 else ""
    if found["running"]:
        return f"detached since {found['started']}{again}: pid {found['pid']}, log {folder / LOG}"
    if found["exit"] is None:
        return f"detached run of {found['started']} is gone, its supervisor too: the same command goes on"
    return f"detached run of {found['started']} ended with exit code {found['exit']}{again}, log {folder / LOG}"


def main(argv: Sequence[str]) -> int:
    """Run the command; again when a signal ended it, not when it ended by itself."""
    folder, words = Path(argv[0]), list(argv[1:])
    state: dict[str, Any] = {"pid": os.getpid(), "command": words, "started": now(), "starts": 0, "exit": None}
    child: subprocess.Popen[bytes] | None = None
    stopped = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        stopped = True
        if child is not None:
            child.send_signal(signal.SIGINT)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    code = 130
    while state["starts"] < TRIES and not stopped:
        state["starts"] += 1
        child = subprocess.Popen([sys.executable, "-m", "inferlift", *words], cwd=ROOT, stdin=subprocess.DEVNULL)
        write_atomically(folder / FILE, json.dumps({**state, "child": child.pid}))
        code = child.wait()
        if code >= 0:
            break
        print(f"{now()} ended by signal {-code}", flush=True)
        time.sleep(PAUSE_S if not stopped else 0)
    code = 130 if stopped and code < 0 else code if code >= 0 else 1
    write_atomically(folder / FILE, json.dumps({**state, "exit": code, "finished": now()}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
