"""Packages of the machine's own Debian: looked up with dpkg, installed with apt."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from inferlift.errors import DeclarationError, Refusal, Retryable
from inferlift.process import run
from inferlift.toolchain.store import Say, locked, run_logged
from inferlift.toolchain.table import Spec, Tool

LISTS = Path("/var/lib/apt/lists")
LISTS_FRESH_S = 24 * 3600
LOCK_WAIT_S = 300


def look(spec: Spec) -> Tool:
    versions = installed(spec.packages)
    missing = [p for p in spec.packages if p not in versions]
    main = spec.packages[0]
    return spec.tool(
        present=not missing,
        version=versions.get(main),
        detail=f"missing: {' '.join(missing)}" if missing else f"{main} and {len(spec.packages) - 1} more",
    )


def make(spec: Spec, say: Say) -> None:
    """Install what is missing. Raises Refusal (not root, no apt) or Retryable (could not be fetched)."""
    with locked("apt", say):
        missing = [p for p in spec.packages if p not in installed(spec.packages)]
        if not missing:
            return
        require_root(
            f"installing {' '.join(missing)}", "sudo apt-get install --no-install-recommends " + " ".join(missing)
        )
        require_debian()
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        if any(Path("/var/lib/dpkg/updates").glob("[0-9]*")):
            # A killed apt run left packages half configured; apt refuses to go on before this.
            run_logged(spec.name, ["dpkg", "--configure", "-a"], timeout_s=600, env=env, die_with_us=False)
        options = ["-q", "-y", "-o", f"DPkg::Lock::Timeout={LOCK_WAIT_S}", "-o", "Dpkg::Use-Pty=0"]
        update = ["apt-get", *options, "update"]
        install = ["apt-get", *options, "install", "--no-install-recommends", *missing]
        if _lists_fresh(missing):
            # Good lists may still name versions that the archive has replaced since: then once more with new ones.
            with contextlib.suppress(Retryable):
                run_logged(spec.name, install, timeout_s=1800, env=env, die_with_us=False)
                return
        run_logged(spec.name, update, timeout_s=600, env=env, die_with_us=False)
        run_logged(spec.name, install, timeout_s=1800, env=env, die_with_us=False)


def installed(packages: Sequence[str]) -> dict[str, str]:
    """Version of each of these packages that is installed; {} where there is no dpkg."""
    if not packages or not shutil.which("dpkg-query"):
        return {}
    form = "${Package} ${db:Status-Status} ${Version}\n"
    listing = run(["dpkg-query", "-W", "-f", form, *packages], timeout_s=30, check=False).stdout
    rows = [line.split() for line in listing.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def require_root(what: str, otherwise: str) -> None:
    """Raises Refusal naming what root is for and the command that helps."""
    if os.geteuid() != 0:
        raise Refusal(
            f"{what} needs root", why=f"this runs as user id {os.geteuid()}", next_command=f"as root: {otherwise}"
        )


def require_debian() -> None:
    """Raises DeclarationError on another system, Refusal on a Debian without apt-get."""
    system = os_release()
    if system.get("ID") != "debian":
        raise DeclarationError(
            f"the lab runs on Debian, this is {system.get('PRETTY_NAME', 'an unknown system')}",
            why="its hosts are made from the machine's own Debian packages",
            next_command="use a Debian 12 machine (a virtual one will do), or another target than the lab",
        )
    if not shutil.which("apt-get"):
        raise Refusal("apt-get is not on PATH", next_command="put /usr/bin on PATH, then run the same command again")


def os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """/etc/os-release as a mapping; {} where there is none."""
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, _, value in pairs}


def _lists_fresh(packages: Sequence[str]) -> bool:
    """Lists of the last day that know every package: nothing to update."""
    newest = max((p.stat().st_mtime for p in LISTS.glob("*Packages*")), default=0.0)
    stamp = max(newest, LISTS.stat().st_mtime) if newest else 0.0
    if time.time() - stamp > LISTS_FRESH_S:
        return False
    return all(run(["apt-cache", "show", "-q", p], timeout_s=30, check=False).returncode == 0 for p in packages)
