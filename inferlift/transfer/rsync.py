"""rsync over SSH with pinned host keys: one call or several at once, ended together when interrupted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlift import process, ssh
from inferlift.artifacts import Host
from inferlift.errors import CheckFailed, Retryable
from inferlift.transfer.on_host import MARKER, PARTIAL

# rsync(1), exit values: files that vanished or could not be read while they changed; and a broken connection.
_CHANGED, _CONNECTION = {23, 24}, {5, 10, 12, 20, 30, 35, 255}


@dataclass(frozen=True)
class Stats:
    files: int  # regular files sent
    bytes_total: int
    bytes_moved: int
    complete: bool  # False: something changed or vanished while it was read


@dataclass(frozen=True)
class Call:
    host: Host
    argv: list[str]


def pull(host: Host, path: str, staging: Path, *, checksum: bool, bandwidth_kbps: int | None) -> Call:
    remote = f"{host.user}@{_bracketed(host.address)}:{path.rstrip('/')}/"
    return Call(host, [*_common(host, checksum, bandwidth_kbps), "--", remote, f"{staging}/"])


def push(host: Host, staging: Path, path: str, *, checksum: bool, bandwidth_kbps: int | None) -> Call:
    """Root owns what arrives, and nobody else can write it."""
    remote = f"{host.user}@{_bracketed(host.address)}:{path.rstrip('/')}/"
    owner = ["--chown=root:root"] if host.user == "root" else []
    argv = [*_common(host, checksum, bandwidth_kbps), *owner, "--chmod=o-w", "--", f"{staging}/", remote]
    return Call(host, argv)


def together(calls: Sequence[Call]) -> list[Stats]:
    """Run all at once. Raises Retryable when a host does not answer, CheckFailed for any other failure."""
    with tempfile.TemporaryDirectory() as folder:
        children: list[subprocess.Popen[bytes]] = []
        try:
            for number, call in enumerate(calls):
                with Path(folder, str(number)).open("wb") as output:
                    children.append(
                        subprocess.Popen(
                            call.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                            env={**os.environ, "LC_ALL": "C"}, start_new_session=True,
                        )
                    )  # fmt: skip
            while any(child.poll() is None for child in children):
                time.sleep(0.02)
        except FileNotFoundError:
            raise CheckFailed("rsync is not installed", next_command="./invoke doctor") from None
        finally:
            process.end([c.pid for c in children if c.poll() is None])
            for child in children:
                child.wait()
        texts = [Path(folder, str(n)).read_text(errors="replace") for n in range(len(calls))]
    return [_stats(call, child.returncode, text) for call, child, text in zip(calls, children, texts, strict=True)]


def _common(host: Host, checksum: bool, bandwidth_kbps: int | None) -> list[str]:
    remote_shell = shlex.join(["ssh", *ssh.options(host), "-p", str(host.ssh_port)])
    argv = ["rsync", "--recursive", "--links", "--perms", "--times", "--hard-links", "--delete", "--delete-delay"]
    argv += [
        "--partial",
        f"--partial-dir={PARTIAL}",
        "--timeout=60",
        "--protect-args",
        "--stats",
        "--no-human-readable",
    ]
    argv += [f"--exclude=/{MARKER}", "-e", remote_shell]
    argv += ["--checksum"] if checksum else []
    argv += [f"--bwlimit={bandwidth_kbps}"] if bandwidth_kbps else []
    return argv


def _stats(call: Call, status: int, text: str) -> Stats:
    why = "\n".join(text.strip().splitlines()[-3:])
    if status in _CONNECTION or status < 0:
        raise Retryable(
            f"the copy with {call.host.name} was cut off (rsync: {status})",
            why=why,
            next_command="the same command again goes on where it stopped",
        )
    if status and status not in _CHANGED:
        raise CheckFailed(f"rsync with {call.host.name} exited with {status}", why=why)
    sent, received = _figure("Total bytes sent", text), _figure("Total bytes received", text)
    return Stats(
        files=_figure("Number of regular files transferred", text),
        bytes_total=_figure("Total file size", text),
        bytes_moved=sent + received,
        complete=status == 0,
    )


def _figure(name: str, text: str) -> int:
    found = re.search(rf"^{name}: ([\d,]+)", text, re.MULTILINE)
    return int(found.group(1).replace(",", "")) if found else 0


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
