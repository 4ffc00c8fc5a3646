"""Raw log lines from files: plain, .gz, .bz2 (told by their first bytes), rotated sets in order, copies once."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from inferlift.audit.formats import Format, NotUnderstood, choose, parse
from inferlift.errors import DeclarationError

MAX_LINE = 64 * 1024
_HEAD = 64 * 1024


class Line:
    """Raw bytes without the line end, or why they are refused unread."""

    __slots__ = ("data", "refused")

    def __init__(self, data: bytes, refused: str = "") -> None:
        self.data = data
        self.refused = refused


def ordered(paths: Sequence[Path], wanted: Format | None) -> tuple[list[Path], list[str]]:
    """The files by their first time stamp, each content once, and what was left out.

    Raises DeclarationError for a file that is missing, is no regular file or cannot be read.
    """
    notes: list[str] = []
    seen_inodes: set[tuple[int, int]] = set()
    heads: dict[bytes, list[Path]] = {}
    first: list[tuple[float, int, Path]] = []
    for place, path in enumerate(paths):
        try:
            if not path.is_file():
                what = "is a folder" if path.is_dir() else "is not there" if not path.exists() else "is no regular file"
                raise DeclarationError(f"log {path} {what}", why="expected an access log, plain, .gz or .bz2")
            stat = path.stat()
            head = _head(path)
        except OSError as error:
            raise DeclarationError(f"log {path} cannot be read", why=str(error.strerror or error)) from None
        if (stat.st_dev, stat.st_ino) in seen_inodes:
            notes.append(f"{path.name}: the same file again, read once")
            continue
        seen_inodes.add((stat.st_dev, stat.st_ino))
        twins = heads.setdefault(head, [])
        if head and any(_content(twin) == _content(path) for twin in twins):
            notes.append(f"{path.name}: the same content as {twins[0].name}, read once")
            continue
        twins.append(path)
        first.append((_first_stamp(head, wanted), place, path))
    return [path for _, _, path in sorted(first)], notes


def lines(path: Path) -> Iterator[Line]:
    """Every line of the file; blank, over-long and cut-off ones come refused, with the reason."""
    try:
        with _opened(path) as file:
            while raw := file.readline(MAX_LINE + 1):
                if raw.endswith(b"\n"):
                    yield cleaned(raw.rstrip(b"\r\n"))
                elif len(raw) > MAX_LINE:
                    while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                        pass
                    bare = raw.replace(b"\0", b"")
                    yield Line(bare[:200], f"longer than {MAX_LINE} bytes")
                else:
                    yield Line(raw, "half-written: no line end")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield Line(b"", f"{path.name} is cut short or damaged: {error}")
    except OSError as error:
        if error.errno is not None:
            raise DeclarationError(f"log {path} cannot be read", why=str(error)) from None
        yield Line(b"", f"{path.name} is damaged: {error}")  # bz2 says so with a bare OSError


def cleaned(raw: bytes) -> Line:
    """NUL padding (a log truncated while it was written) goes; what is left is the line."""
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")
    return Line(raw) if raw.strip() else Line(raw, "blank")


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"\x1f\x8b":
        return gzip.open(path, "rb")
    if magic[:3] == b"BZh":
        return bz2.open(path, "rb")
    if magic == b"\x28\xb5\x2f\xfd":
        raise DeclarationError(
            f"log {path} is zstd", why="only plain, .gz and .bz2 are read", next_command=f"zstd -d {path}"
        )
    return path.open("rb")


def _head(path: Path) -> bytes:
    try:
        with _opened(path) as file:
            return file.read(_HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with _opened(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (EOFError, zlib.error, OSError):
        digest.update(str(path).encode())
    return digest.hexdigest()


def _first_stamp(head: bytes, wanted: Format | None) -> float:
    rows = [cleaned(row).data for row in head.split(b"\n")[:200]]
    found = wanted or choose(rows[:50])
    for row in rows:
        try:
            if found is not None:
                return parse(row, found).stamp_s
        except NotUnderstood:
            continue
    return float("inf")
