"""Images and data without a migration: `build --dockerfile` moves any Dockerfile, `migrate --from` any folder."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferlift import ssh
from inferlift.artifacts import Host, Image
from inferlift.commands import finite_json
from inferlift.errors import DeclarationError, Refusal
from inferlift.place import callers, state_folder

if TYPE_CHECKING:
    from inferlift.images.registry import Pushed


def build_image(
    dockerfile: str, *, base: str = "", out: str = "", name: str = "", rewrite_only: bool = False, push: str = "",
    user: str = "", password: str = "", ca: str = "", as_json: bool = False,
) -> int:  # fmt: skip
    """Move a Dockerfile to a Debian or CUDA base; build it, check it, push it where a registry is named."""
    from inferlift import toolchain
    from inferlift.images import build, rewrite

    path = _dockerfile(dockerfile)
    folder = callers(out or f"inferlift-{name or path.resolve().parent.name.lower()}")
    wanted = base or toolchain.base_image()
    moved = rewrite(path.read_text(encoding="utf-8"), wanted)
    lines = [
        f"line {c.line:>3}  {_short(c.before)}\n      ->  {_short(c.after)}\n          {c.why}" for c in moved.changes
    ]
    if not moved.changes:
        return _told(as_json, "unchanged", {"changed_lines": 0}, [f"{path} stands on no Alpine image: nothing to move"])
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "Dockerfile"
    new.write_text(moved.text, encoding="utf-8")
    lines.append(f"wrote {new}, {len(moved.changes)} lines moved")
    if rewrite_only:
        return _told(as_json, "rewritten", {"changed_lines": len(moved.changes)}, lines)
    if os.geteuid() != 0:
        raise Refusal(
            "building needs root",
            why=f"podman builds in a storage of its own; {new} is written already",
            next_command=f"sudo ./invoke build --dockerfile {dockerfile}, or with --rewrite only the new Dockerfile",
        )
    toolchain.ensure(["debian-packages", *(() if base else ("base-image",))], _say)
    tag = name or re.sub(r"[^a-z0-9_.-]+", "-", path.resolve().parent.name.lower()).strip("-.") or "image"
    image = build(
        path.parent, moved.text, wanted, tag, folder / "image.tar", toolchain.podman_env(), _say,
        changes=moved.changes, owner="alone",
    )  # fmt: skip
    lines += [f"check  {c.name}: {'skipped, ' if c.skipped else ''}{c.detail or 'ok'}" for c in image.checks]
    lines += [f"package  {line}" for line in _difference(image)]
    lines.append(f"image  {image.archive}, {image.digest}")
    figures: dict[str, float | None] = {"changed_lines": len(moved.changes), "archive_bytes": image.bytes}
    if push:
        done = _push(image, push, user, password, ca)
        lines.append(f"pushed {done.reference}")
        figures |= {"push_seconds": done.seconds, "push_bytes": done.bytes_sent}
    return _told(as_json, "built", figures, lines)


def copy_folder(
    source: str, to: str, *, key: str = "", known_hosts: str = "", limit_mb_per_s: float = 0.0, as_json: bool = False
) -> int:
    """Copy a folder of a host, or objects of S3, to the same folder on one or more hosts; compared by checksums."""
    from inferlift import transfer

    if limit_mb_per_s < 0:
        raise DeclarationError("--limit is below 0", why="expected megabytes a second, 0 for no limit")
    folder = state_folder() / "alone" / hashlib.sha256(f"{source} {to}".encode()).hexdigest()[:12]
    origin = None if "://" in source else _place(source)
    places = [_place(part) for part in to.split(",") if part.strip()]
    if len({path for _, _, _, path in places}) != 1:
        raise DeclarationError(
            "the destinations are not one folder on one or more hosts",
            why=f"given: {to or 'nothing'}",
            next_command="--to root@HOST:/srv/data,root@OTHER:/srv/data",
        )
    access = _Access(key or "~/.ssh/id_ed25519", known_hosts or "~/.ssh/known_hosts", folder)
    hosts = [access.host(f"host-{n}", *place) for n, place in enumerate(places, start=1)]
    limit = round(limit_mb_per_s * 1e6 / 1024) or None
    destination = places[0][3]
    if origin is None:
        done = transfer.copy_s3(source, hosts, destination, folder, _say, limit)
    else:
        done = transfer.copy(access.host("source", *origin), origin[3], hosts, destination, folder, _say, limit)
    figures: dict[str, float | None] = {"files": done.files, "bytes": done.bytes, "passes": len(done.passes),
               "sent_bytes": sum(p.bytes_sent for p in done.passes)}  # fmt: skip
    return _told(as_json, "equal", figures, [c.name for c in done.checks] + [f"manifest {done.manifest}"])


@dataclass(frozen=True)
class _Access:
    """How the hosts are reached: the operator's key, and the host keys that the operator knows."""

    key: str
    known_hosts: str
    folder: Path

    def host(self, name: str, user: str, address: str, port: int, _folder: str) -> Host:
        return ssh.operators_host(
            (user, address, port), name=f"{name} {address}", role="origin" if name == "source" else "model",
            key=self.key, known_hosts=self.known_hosts, folder=self.folder / "ssh",
        )  # fmt: skip


def _place(text: str) -> tuple[str, str, int, str]:
    """User, address, port and folder of `[USER@]HOST[:PORT]:/FOLDER`."""
    found = re.fullmatch(
        r"\s*(?:([^@/\s-][^@/\s]*)@)?(\[[0-9a-fA-F:.]+\]|[^@:/\s-][^@:/\s]*)(?::(\d+))?:(/.*\S)\s*", text
    )
    if found is None:
        raise DeclarationError(
            f"{text!r} is no folder on a host",
            why="expected USER@HOST:/FOLDER, with HOST:PORT where SSH is not on 22, or s3://BUCKET/PREFIX for --from",
            next_command="./invoke migrate --from root@old:/srv/data --to root@new:/srv/data",
        )
    user, address, port, folder = found.groups()
    return user or "root", address.strip("[]"), int(port or 22), folder.rstrip("/") or "/"


def _dockerfile(given: str) -> Path:
    path = callers(given)
    if path.is_dir():
        path = path / "Dockerfile"
    if not path.is_file():
        raise DeclarationError(f"there is no Dockerfile {path}", next_command="give the file, or the folder it is in")
    return path


def _push(image: Image, address: str, user: str, password: str, ca: str) -> Pushed:
    from inferlift.images import registry

    there = registry.at(address, user, password, str(callers(ca)) if ca else None, name=image.name)
    return registry.push(image, there, _say)


def _difference(image: Image) -> list[str]:
    path = Path(image.archive).with_suffix(".difference.txt")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:157] + "..."


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _told(as_json: bool, verdict: str, figures: dict[str, float | None], lines: list[str]) -> int:
    if as_json:
        print(finite_json({"ok": True, "verdict": verdict, "figures": figures, "lines": lines}))
    else:
        print("\n".join(lines))
    return 0
