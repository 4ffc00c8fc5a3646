"""The cache folder: things made once, whole or not at all, under a lock that other clones and runs wait for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from inferlift.errors import CheckFailed, Refusal, Retryable

Say = Callable[[str], None]


def cache() -> Path:
    """The user's cache folder for inferlift (XDG), shared by all clones. It need not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "inferlift"


@contextlib.contextmanager
def locked(name: str, say: Say) -> Iterator[None]:
    """Hold the machine-wide lock `name`; says so when another process has it, and waits."""
    path = cache() / "locks" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise Refusal(
            f"the cache folder {cache()} cannot be written",
            why=error.strerror or str(error),
            next_command="set XDG_CACHE_HOME to a folder of yours, then run the same command again",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "?"
            say(f"{name}: process {holder} is making it; waiting")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def workshop(name: str) -> Iterator[Path]:
    """A fresh folder inside the cache (so that a rename out of it is atomic); removed afterwards.

    To be used while `locked(name)`: what killed earlier runs left is removed first. The folder is our process's own,
    so that a program which outlives a killed run cannot write into the next one's.
    """
    rooms = cache() / "tmp"
    for left in rooms.glob(f"{name}.*"):
        _remove(left)
    folder = rooms / f"{name}.{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        _remove(folder)


def place(made: Path, target: Path) -> None:
    """Move a finished file or folder to where it counts as present, in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)


def need_space(megabytes: int) -> None:
    """Raises Refusal when the cache's file system has less than this free."""
    cache().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache()).free // 1_000_000
    if free < megabytes:
        raise Refusal(
            f"{megabytes} MB are needed in {cache()}, {free} MB are free",
            next_command="free some space or set XDG_CACHE_HOME to a roomier folder, then run the same command again",
        )


def run_logged(
    tool: str,
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    die_with_us: bool = True,
) -> None:
    """Run a maker with its output in the cache's logs. Raises Retryable with the last lines when it fails.

    `die_with_us`: the kernel ends the program when we are killed, so that no orphan goes on writing. Not for
    package managers, which must finish.
    """
    if not shutil.which(argv[0]):
        raise CheckFailed(f"{tool}: {argv[0]} is not installed", next_command="./invoke doctor")
    log = cache() / "logs" / f"{tool}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    guard = ["setpriv", "--pdeathsig", "TERM", "--"] if die_with_us and shutil.which("setpriv") else []
    started = time.monotonic()
    try:
        with log.open("ab") as out:
            out.write(f"\n$ {' '.join(argv)}\n".encode())
            out.flush()
            done = subprocess.run(
                [*guard, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                timeout=timeout_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise Retryable(
            f"{tool}: {argv[0]} had not finished after {timeout_s:.0f} s",
            why=_tail(log),
            next_command="run the same command again",
        ) from None
    elapsed_s = time.monotonic() - started
    if done.returncode:
        raise Retryable(
            f"{tool} could not be made: {argv[0]} exited with {done.returncode} after {elapsed_s:.0f} s",
            why=f"{_tail(log)}\n        (all of it in {log})",
            next_command="check that the package registries are reachable (network, proxy, certificates), "
            "then run the same command again",
        )


def _remove(folder: Path) -> None:
    # A root file system in the making may have /dev or /proc mounted in it: never follow those.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)


def _tail(log: Path, lines: int = 3) -> str:
    text = log.read_bytes()[-4000:].decode(errors="replace").strip()
    return "\n        ".join(text.splitlines()[-lines:])
