"""Runs on a host by `python3 - COMMAND PATH ...` over SSH: looks at a folder, claims it, seals it. Standard library,
Python 3.9 and newer."""

# Plain os calls: thousands of paths, and names that are no valid text.

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator

MARKER = ".inferlift-owner"
PARTIAL = ".inferlift-partial"
Entry = tuple[str, str, int, int, str]  # path, kind, mode, size, sha256 or link target


def walk(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below `root` by relative path, our own marker and rsync's partial files left out."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as listing:
            entries = sorted(listing, key=lambda e: e.name)
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if path in (MARKER, MARKER + ".new") or entry.name == PARTIAL:
                continue
            yield path, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)


def scan(root: str) -> list[Entry]:
    """Path, kind (file, folder, link, special), mode, size and sha256 (or target) of everything below `root`."""
    found: list[Entry] = []
    for path, status in walk(root):
        mode, size = stat.S_IMODE(status.st_mode), 0
        if stat.S_ISREG(status.st_mode):
            kind, (size, content) = "file", _sha256(os.path.join(root, path))
        elif stat.S_ISDIR(status.st_mode):
            kind, content = "folder", ""
        elif stat.S_ISLNK(status.st_mode):
            kind, mode, content = "link", 0, os.readlink(os.path.join(root, path))
        else:
            kind, content = "special", ""
        found.append((path, kind, mode, size, content))
    return found


def quick(root: str) -> dict[str, object]:
    """Counts, sizes and a digest over paths, sizes, modes and times, without reading any content."""
    lines, files, size = [], 0, 0
    for path, status in walk(root):
        lines.append(json.dumps([path, status.st_mode, status.st_size, status.st_mtime_ns, status.st_uid]))
        if stat.S_ISREG(status.st_mode):
            files, size = files + 1, size + status.st_size
    digest = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    return {"files": files, "bytes": size, "quick": digest}


def claim(root: str, source: str) -> dict[str, object]:
    """Make the folder ours: absent, empty or already ours for the same source. Else say why not."""
    if os.path.islink(root) or (os.path.exists(root) and not os.path.isdir(root)):
        return {"refused": "it is no folder"}
    os.makedirs(root, exist_ok=True)
    marker = os.path.join(root, MARKER)
    if os.path.lexists(marker):
        known = read_marker(root).get("source")
        return {"ok": True} if known == source else {"refused": f"it holds data copied from {known}"}
    if os.listdir(root):
        return {"refused": "it holds files that were not copied by inferlift"}
    write_marker(root, {"source": source})
    return {"ok": True}


def seal(root: str, source: str, manifest: str) -> dict[str, object]:
    """Note in the marker what was verified."""
    write_marker(root, dict(quick(root), source=source, manifest=manifest))
    return {"ok": True}


def remove(root: str) -> dict[str, object]:
    """Remove the folder if it is ours. Only what carries the marker is touched."""
    if os.path.islink(root) or not os.path.lexists(os.path.join(root, MARKER)):
        return {"ok": True, "removed": False}
    shutil.rmtree(root)
    return {"ok": True, "removed": True}


def look(root: str) -> dict[str, object]:
    """What is there now beside what was sealed."""
    if not os.path.isdir(root):
        return {"absent": True}
    return {"now": quick(root), "sealed": read_marker(root)}


def read_marker(root: str) -> dict[str, object]:
    try:
        with open(os.path.join(root, MARKER), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_marker(root: str, content: dict[str, object]) -> None:
    path = os.path.join(root, MARKER)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(path + ".new", path)


def _sha256(path: str) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def main(arguments: list[str]) -> int:
    commands: dict[str, Callable[..., object]] = {
        "scan": scan,
        "claim": claim,
        "seal": seal,
        "look": look,
        "remove": remove,
    }
    try:
        print(json.dumps(commands[arguments[0]](*arguments[1:])))
    except OSError as error:
        print(f"{error.filename or arguments[1]!r}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
