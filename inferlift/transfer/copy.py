"""Copies a folder from the old side to the new hosts by way of the operator's machine, until all sides are equal.

The source is only read. At a destination nothing is written or deleted outside a folder that carries our marker.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from inferlift import ssh
from inferlift.artifacts import Check, Host, Transfer, TransferPass
from inferlift.errors import CheckFailed, Refusal
from inferlift.transfer import on_host, rsync
from inferlift.transfer.manifest import Manifest
from inferlift.transfer.sources import HostFolder, S3Folder, Source

_SCRIPT = Path(on_host.__file__)
T = TypeVar("T")
_SCAN_TIMEOUT_S = 6 * 3600.0


def copy(
    source: Host,
    source_path: str,
    destinations: Sequence[Host],
    destination_path: str,
    workdir: Path,
    say: Callable[[str], None],
    bandwidth_kbps: int | None = None,
    *,
    max_passes: int = 4,
    freeze: Callable[[], None] | None = None,
) -> Transfer:
    """Make `destination_path` on every destination equal to `source_path`, at least two passes, by checksums.

    Files that change meanwhile are copied again, `max_passes` times at most. `bandwidth_kbps` (KiB/s) limits each
    connection. `freeze` stops the writers at the source; it is called after the first pass, so that writes rest only
    while what changed is copied. The same call again goes on where a killed one stopped.
    Raises Refusal (foreign or impossible destination, special files), Retryable (a connection was cut), CheckFailed
    with the names of the files that stayed different.
    """
    there = HostFolder(source, source_path, _scan)
    return _copy(there, destinations, destination_path, workdir, say, bandwidth_kbps, max_passes, freeze)


def copy_s3(
    url: str,
    destinations: Sequence[Host],
    destination_path: str,
    workdir: Path,
    say: Callable[[str], None],
    bandwidth_kbps: int | None = None,
    *,
    max_passes: int = 4,
    freeze: Callable[[], None] | None = None,
    client: Any = None,
) -> Transfer:
    """The same from `s3://BUCKET/PREFIX`; `client` is boto3's, made by its own rules where none is given."""
    there = S3Folder(url, client)
    return _copy(there, destinations, destination_path, workdir, say, bandwidth_kbps, max_passes, freeze)


def _copy(
    source: Source,
    destinations: Sequence[Host],
    destination_path: str,
    workdir: Path,
    say: Callable[[str], None],
    bandwidth_kbps: int | None,
    max_passes: int,
    freeze: Callable[[], None] | None,
) -> Transfer:
    _sound(destinations, destination_path, max_passes)
    origin = source.name
    staging = _staging(workdir, origin)
    before = source.scan(staging)
    if before.special:
        raise Refusal(
            f"{origin} holds {len(before.special)} sockets, pipes or devices that cannot be copied",
            why=", ".join(repr(p) for p in before.special[:5]),
            next_command="move them out of the data folder",
        )
    for host in destinations:
        answer = _ask(host, "claim", destination_path, origin)
        if "refused" in answer:
            raise Refusal(
                f"{destination_path} on {host.name} is not ours to write: {answer['refused']}",
                next_command="give another destination folder, or empty that one by hand",
            )
    passes: list[TransferPass] = []
    differing: list[str] = []
    for number in range(1, max_passes + 1):
        say(f"pass {number}: {origin} to {', '.join(h.name for h in destinations)}")
        checksum = bool(differing)
        passes.append(_pass(source, destinations, destination_path, staging, checksum, bandwidth_kbps))
        last = passes[-1]
        say(f"pass {number}: {last.files} files, {last.bytes_sent / 1e6:.1f} MB in {last.seconds:.1f} s")
        if number == 1 and max_passes > 1:
            if freeze is not None:
                freeze()
            continue
        after = source.scan(staging)
        found = _together(destinations, lambda host: _scan(host, destination_path))
        differing = [f"{host.name}: {d}" for host, m in zip(destinations, found, strict=True)
                     for d in after.sealed().difference(m)]  # fmt: skip
        if not differing:
            return _sealed(origin, destinations, destination_path, after, passes, say)
        say(f"pass {number}: {len(differing)} differences, once more")
    raise CheckFailed(
        f"{origin} and its copies still differ after {len(passes)} passes",
        why="; ".join(differing[:10]) + (f" and {len(differing) - 10} more" if len(differing) > 10 else ""),
        next_command="stop what writes these files at the source, then run the same command again",
    )


def verify(transfer: Transfer, destinations: Sequence[Host], destination_path: str) -> list[Check]:
    """Is it still there as it was verified? Paths, sizes, modes, times and owners, in one SSH call a host; contents
    are not read again. Raises Retryable when a host does not answer."""

    def check(host: Host) -> Check:
        name = f"data on {host.name}"
        answer = _ask(host, "look", destination_path)
        if answer.get("absent"):
            return Check(name=name, ok=False, detail=f"{destination_path} is not there")
        now, sealed = answer["now"], answer["sealed"]
        assert isinstance(now, dict) and isinstance(sealed, dict)  # noqa: S101, PT018 - on_host.look
        if sealed.get("manifest") != transfer.manifest:
            return Check(name=name, ok=False, detail=f"{destination_path} is not sealed as this transfer's copy")
        if (now["files"], now["bytes"]) != (transfer.files, transfer.bytes):
            detail = f"{now['files']} files, {now['bytes']} bytes; copied were {transfer.files} and {transfer.bytes}"
            return Check(name=name, ok=False, detail=detail)
        same = now["quick"] == sealed.get("quick")
        return Check(name=name, ok=same, detail=f"{now['files']} files" if same else "changed since it was verified")

    return _together(destinations, check)


def remove(destinations: Sequence[Host], destination_path: str) -> None:
    """Take the copies away again; a folder without our marker stays. Raises Retryable, CheckFailed."""
    _together(destinations, lambda host: _ask(host, "remove", destination_path))


def _pass(
    source: Source,
    destinations: Sequence[Host],
    destination_path: str,
    staging: Path,
    checksum: bool,
    bandwidth_kbps: int | None,
) -> TransferPass:
    started = time.monotonic()
    how = {"checksum": checksum, "bandwidth_kbps": bandwidth_kbps}
    first = source.pull(staging, **how)  # type: ignore[arg-type]
    rest = rsync.together([rsync.push(host, staging, destination_path, **how) for host in destinations])  # type: ignore[arg-type]
    return TransferPass(
        files=max(first.files, *(s.files for s in rest)),
        bytes_total=first.bytes_total,
        bytes_sent=first.bytes_moved + sum(s.bytes_moved for s in rest),
        seconds=round(time.monotonic() - started, 3),
    )


def _sealed(
    origin: str,
    destinations: Sequence[Host],
    destination_path: str,
    manifest: Manifest,
    passes: list[TransferPass],
    say: Callable[[str], None],
) -> Transfer:
    _together(destinations, lambda host: _ask(host, "seal", destination_path, origin, manifest.digest))
    say(f"{manifest.files} files, {manifest.bytes / 1e6:.1f} MB equal on {len(destinations)} hosts")
    detail = f"{manifest.files} files by sha256, {len(manifest.entries)} entries with mode and kind"
    return Transfer(
        source=origin,
        destinations=tuple(f"{h.name}:{destination_path}" for h in destinations),
        manifest=manifest.digest,
        files=manifest.files,
        bytes=manifest.bytes,
        passes=tuple(passes),
        checks=tuple(Check(name=f"data on {h.name} equals the source", ok=True, detail=detail) for h in destinations),
    )


def _scan(host: Host, path: str) -> Manifest:
    answer = _call(host, "scan", path)
    assert isinstance(answer, list)  # noqa: S101 - on_host.scan
    return Manifest.of(answer)


def _ask(host: Host, *arguments: str) -> dict[str, object]:
    answer = _call(host, *arguments)
    assert isinstance(answer, dict)  # noqa: S101 - on_host
    return answer


def _call(host: Host, *arguments: str) -> object:
    done = ssh.run(
        host,
        shlex.join(["python3", "-", *arguments]),
        timeout_s=_SCAN_TIMEOUT_S if arguments[0] == "scan" else 60,
        stdin=_SCRIPT.read_text(encoding="utf-8"),
        check=False,
    )
    if done.returncode:
        raise CheckFailed(
            f"{arguments[0]} of {arguments[1]} on {host.name} failed",
            why=done.stderr.strip()[-300:],
            next_command="python3 and rsync must be there, and the folder readable",
        )
    return json.loads(done.stdout)


def _together(hosts: Sequence[Host], what: Callable[[Host], T]) -> list[T]:
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(hosts)))) as pool:
        return list(pool.map(what, hosts))


def _staging(workdir: Path, origin: str) -> Path:
    """One folder for each source, so that a changed profile never mixes two sources' files."""
    staging = workdir / "staging" / hashlib.sha256(origin.encode()).hexdigest()[:16]
    staging.mkdir(parents=True, exist_ok=True)
    workdir.chmod(0o700)
    return staging


def _sound(destinations: Sequence[Host], path: str, max_passes: int) -> None:
    parts = PurePosixPath(path)
    if not parts.is_absolute() or len(parts.parts) < 3 or ".." in parts.parts:
        raise Refusal(
            f"{path!r} cannot be a destination folder",
            why="it must be an absolute path at least two levels deep, without ..",
            next_command="give a folder such as /srv/data",
        )
    if not destinations or max_passes < 1:
        raise Refusal("there is no destination to copy to" if not destinations else "max_passes must be at least 1")
