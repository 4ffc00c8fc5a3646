"""What a killed update leaves: a lock, pending entries, a torn state file, live processes. Found and ended here.

Reads files and /proc only; the engine is needed for nothing but rewriting a state with pending entries.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift import process
from inferlift.errors import Uncertain

PARENT = "INFERLIFT_ENGINE_PARENT"  # PID:START of the process that runs the engine, in the engine's environment


# How long to wait for a clean end, and the signal after that.
LIMITS = ((10.0, signal.SIGINT), (10.0, signal.SIGTERM), (5.0, signal.SIGKILL))


@dataclass(frozen=True)
class StackFiles:
    """Where one stack's files are. Home, state and passphrase are shared by all stacks of a work folder."""

    workdir: Path
    project: str
    stack: str

    @property
    def root(self) -> Path:
        return self.workdir.resolve() / "pulumi"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def work(self) -> Path:
        return self.root / self.project

    @property
    def passphrase(self) -> Path:
        return self.root / "passphrase"

    @property
    def checkpoint(self) -> Path:
        return self.state / ".pulumi" / "stacks" / self.project / f"{self.stack}.json"

    def prepare(self) -> None:
        for folder in (self.home, self.state, self.bin, self.work):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def locks(self) -> list[Path]:
        folder = self.state / ".pulumi" / "locks" / "organization" / self.project / self.stack
        return sorted(folder.glob("*.json"))

    def pending(self) -> int:
        """Operations that an update announced and never finished."""
        return len(_latest(self.checkpoint).get("pending_operations") or [])

    def pending_creates(self) -> list[dict[str, Any]]:
        """What was being made when the update died: the resources as the state noted them, inputs resolved."""
        waiting = _latest(self.checkpoint).get("pending_operations") or []
        return [o["resource"] for o in waiting if o.get("type") == "creating" and isinstance(o.get("resource"), dict)]

    def resources(self) -> list[str]:
        """URNs in the state."""
        return [r["urn"] for r in _latest(self.checkpoint).get("resources") or []]

    def known(self) -> tuple[set[str], set[str]]:
        """(ids, names) of the resources in the state; names are the program's and, where it gives one, the cloud's."""
        rows = _latest(self.checkpoint).get("resources") or []
        names = {str(r["urn"]).rpartition("::")[2] for r in rows}
        names |= {str(r["inputs"]["name"]) for r in rows if isinstance((r.get("inputs") or {}).get("name"), str)}
        return {str(r["id"]) for r in rows if r.get("id")}, names

    def readable(self) -> bool:
        return _readable(self.checkpoint)

    def torn_beside(self) -> list[Path]:
        """Small files beside the state and the selected stack that a kill left half-written.

        The engine writes them in place, cannot start with one that is no JSON, and does without one that is missing.
        """
        beside = [*(self.state / ".pulumi").rglob("*.attrs"), *(self.home / "workspaces").glob("*.json")]
        return sorted(path for path in beside if not _is_json(path))

    def restore_torn(self) -> None:
        """Put the engine's own backup in place of a state file that cannot be read; without one, start empty.

        An empty state is safe here: every create adopts what exists by its label. What is torn beside it goes.
        """
        for torn in self.torn_beside():
            torn.unlink(missing_ok=True)
        path = self.checkpoint
        if not path.exists() or _readable(path):
            return
        backup = path.with_name(path.name + ".bak")
        if _readable(backup):
            backup.replace(path)
        else:
            path.unlink()


def parent_mark() -> str:
    return f"{os.getpid()}:{_started(os.getpid())}"


def end_orphans(home: Path, limits: Sequence[tuple[float, signal.Signals]] = LIMITS) -> int:
    """End engines, providers and their podman calls whose run is gone. Returns how many there were.

    An engine whose starter died gets a SIGINT from the kernel and is ending cleanly: it is waited for. A podman
    call in progress is waited for too: killing it would leave half-made things.
    Raises Uncertain when a live run of somebody else uses this folder.
    """
    seen: set[int] = set()
    for wait_s, last in limits:
        deadline = time.monotonic() + wait_s
        while orphans := _orphans(home):
            seen.update(orphans)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if not orphans:
            return len(seen)
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, last)
    process.end(_orphans(home))
    return len(seen)


def _orphans(home: Path) -> list[int]:
    needle = f"PULUMI_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            env = (entry / "environ").read_bytes().split(b"\0")
            if needle not in env or _state(int(entry.name)) in "ZX":
                continue
            mark = next((e.decode() for e in env if e.startswith(PARENT.encode() + b"=")), "")
            if not mark:
                continue  # a plain `pulumi` that a person runs
            if _alive(mark.partition("=")[2]):
                raise Uncertain(
                    "another run is changing these hosts",
                    why=f"process {mark.partition('=')[2].split(':')[0]} runs the engine in {home.parent}",
                    next_command="wait for it or stop it with Ctrl-C, then run the same command again",
                )
            found.append(int(entry.name))
    return found


def lock_holder(lock: Path) -> int | None:
    """Pid of the live engine that holds a lock; None when it is dead or the pid is another program's by now."""
    try:
        pid = int(json.loads(lock.read_text())["pid"])
        alive = _state(pid) not in "ZX" and Path(f"/proc/{pid}/exe").readlink().name == "pulumi"
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if alive else None


def _alive(mark: str) -> bool:
    pid, _, started = mark.partition(":")
    return pid.isdigit() and _state(int(pid)) not in "ZX" and _started(int(pid)) == started


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or ["X"])[0]


def _started(pid: int) -> str:
    """Start time in clock ticks since boot: tells a pid from its later reuse."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def _latest(checkpoint: Path) -> dict[str, Any]:
    try:
        found = json.loads(checkpoint.read_text())["checkpoint"].get("latest")
    except (OSError, ValueError, KeyError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except FileNotFoundError:  # gone meanwhile
        return True
    except (OSError, ValueError):
        return False
    return True


def _readable(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text())["checkpoint"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return False
