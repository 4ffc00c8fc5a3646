"""Where a standalone test leaves its samples and reports: proved writable before a request is sent, nothing replaced
unasked."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.load.asked import Asked

NAMES = ("*.jsonl", "*.npz")  # what a former test leaves in its folder


def prepare(asked: Asked) -> Path:
    """The folder for samples, made. Raises DeclarationError for what cannot be written, or holds a former result."""
    files = {"--html": asked.html, "--junit": asked.junit}
    for option, path in files.items():
        if path is not None:
            _file(option, path, replace=asked.replace)
    if asked.html is not None and asked.html == asked.junit:
        raise DeclarationError(f"--html and --junit name the same file {asked.html}")
    if asked.folder is None:
        return _own()
    _writable("--folder", asked.folder)
    former = sorted(p.name for pattern in NAMES for p in asked.folder.glob(pattern))
    if former and not asked.replace:
        raise DeclarationError(
            f"{asked.folder} holds the samples of a former test ({former[0]}{', ...' if len(former) > 1 else ''})",
            why="a result is not replaced unasked",
            next_command="another --folder, or --replace",
        )
    for name in former:
        (asked.folder / name).unlink()
    return asked.folder


def _own() -> Path:
    """A folder named by the time; where two tests begin in the same second, each has its own."""
    base = Path(".inferlift") / "load" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for k in range(1, 1000):
        folder = base if k == 1 else base.with_name(f"{base.name}-{k}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise DeclarationError(f"{folder} cannot be made", why=str(error), next_command="--folder DIR") from None
        return folder
    raise DeclarationError(f"{base} and a thousand beside it are taken", next_command="--folder DIR")


def _file(option: str, path: Path, *, replace: bool) -> None:
    if path.is_dir():
        raise DeclarationError(f"{option} {path} is a folder, a file is written there")
    if path.exists() and not replace:
        raise DeclarationError(
            f"{option} {path} exists", why="a result is not replaced unasked",
            next_command="another name, or --replace",
        )  # fmt: skip
    _writable(option, path.parent)


def _writable(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DeclarationError(f"{option}: {folder} cannot be written", why=str(error)) from None
