"""Blocks of whole lines: plain, .gz, .bz2, .zst (told by their first bytes), standard input, rotated sets in order."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import itertools
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl
import zstandard

from inferlift.audit.block import Block
from inferlift.audit.formats import Format
from inferlift.audit.parse import first_stamp, plain
from inferlift.audit.recognise import choose, of_header
from inferlift.errors import DeclarationError

MAX_LINE = 64 * 1024
BLOCK = 2 << 20
_HEAD = 64 * 1024
STDIN = "-"
DAMAGE = (EOFError, zlib.error, OSError, zstandard.ZstdError)


def ordered(paths: Sequence[Path], wanted: Format | None) -> tuple[list[Path], list[str]]:
    """The files by their first time stamp, each content once, and what was left out.

    Raises DeclarationError for a file that is missing, is no regular file or cannot be read.
    """
    notes: list[str] = []
    seen_inodes: set[tuple[int, int]] = set()
    heads: dict[bytes, list[Path]] = {}
    first: list[tuple[float, int, Path]] = []
    for place, path in enumerate(paths):
        if str(path) == STDIN:
            first.append((float("inf"), place, path))
            continue
        try:
            if not path.is_file():
                what = "is a folder" if path.is_dir() else "is not there" if not path.exists() else "is no regular file"
                raise DeclarationError(f"log {path} {what}", why="expected an access log, plain, .gz, .zst or .bz2")
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
        first.append((_first_stamp(head, wanted) if len(paths) > 1 else 0.0, place, path))
    return [path for _, _, path in sorted(first)], notes


def blocks(path: Path, note: Callable[[str], None]) -> Iterator[Block]:
    """Every line of the file; over-long, cut-off and half-written ones are refused with the reason."""
    try:
        before = None if str(path) == STDIN else path.stat()
        with _opened(path) as file:
            yield from _blocks(cast(BinaryIO, file))
        after = path.stat() if before is not None and path.exists() else None
        if before is not None and (after is None or after.st_ino != before.st_ino or after.st_size < before.st_size):
            note(f"{path.name} was rotated or cut while it was read: what came after may be missing")
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        yield _damaged(f"{path.name} is cut short or damaged: {error}")
    except OSError as error:
        if error.errno is not None:
            raise DeclarationError(f"log {path} cannot be read", why=str(error)) from None
        yield _damaged(f"{path.name} is damaged: {error}")  # bz2 says so with a bare OSError


def given(lines: Iterable[bytes]) -> Iterator[Block]:
    """Lines that are no file, in blocks."""
    iterator = iter(lines)
    while batch := list(itertools.islice(iterator, 50_000)):
        data = b"\n".join(line.rstrip(b"\r\n").replace(b"\n", b" ") for line in batch) + b"\n"
        yield _block(data)


def _blocks(file: BinaryIO) -> Iterator[Block]:
    rest, skipping, first = b"", False, True
    while chunk := file.read(BLOCK):
        if first:  # marks that Windows programs put before the text
            chunk, first = chunk.removeprefix(codecs.BOM_UTF8).removeprefix(codecs.BOM_UTF16_LE), False
        if skipping:  # inside a line that is too long: on to its end
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, skipping = chunk[end:], False
        data = rest + chunk if rest else chunk
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if len(rest) > MAX_LINE:
            rest, skipping = rest[: MAX_LINE + 1], True
        if cut:
            yield _block(data if cut == len(data) else data[:cut])
    if rest:
        too_long = len(rest) > MAX_LINE
        last = rest.replace(b"\0", b"").decode("utf-8", "replace")[:200]
        yield Block(
            pl.Series([last]), {0: f"longer than {MAX_LINE} bytes" if too_long else "half-written: no line end"}
        )


def _block(data: bytes) -> Block:
    """NUL padding (a log truncated while it was written) goes; bytes that are no UTF-8 are replaced."""
    if b"\0" in data:
        data = data.replace(b"\0", b"")
    if b"\x1b" in data:
        data = plain(data.decode("utf-8", "replace")).encode()
    try:
        lines = pl.read_lines(data).to_series()
    except pl.exceptions.ComputeError:
        lines = pl.read_lines(data.decode("utf-8", "replace").encode()).to_series()
    sizes = lines.str.len_bytes()
    if (sizes.max() or 0) <= MAX_LINE:  # type: ignore[operator]
        return Block(lines)
    rows = (sizes > MAX_LINE).arg_true().to_list()
    short = pl.select(pl.when(sizes > MAX_LINE).then(pl.lit("")).otherwise(lines)).to_series()
    return Block(short, dict.fromkeys(rows, f"longer than {MAX_LINE} bytes"))


def _damaged(why: str) -> Block:
    return Block(pl.Series([""]), {0: why})


class _Unpacked:
    """Reads small pieces of a compressed file, so that what stands before the damage is not lost with it."""

    def __init__(self, piece: Callable[[], bytes], close: Callable[[], None]) -> None:
        self._piece, self._close = piece, close
        self._left = b""
        self._damage: Exception | None = None

    def __enter__(self) -> _Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, size: int) -> bytes:
        parts, found = [self._left], len(self._left)
        try:
            while found < size and self._damage is None and (part := self._piece()):
                parts.append(part)
                found += len(part)
        except DAMAGE as error:
            self._damage = error
        data = b"".join(parts)
        if not data and self._damage is not None:
            raise self._damage
        self._left = data[size:]
        return data[:size]


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    """Frames one after the other. The library's own reader does not say that the last one is cut short."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    while packed := file.read(1 << 17):
        while packed:
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
            if part := decompressor.decompress(packed):
                yield part
            packed = decompressor.unused_data if decompressor.eof else b""
    if not decompressor.eof:
        raise EOFError("the last frame has no end")


def _opened(path: Path) -> BinaryIO | _Unpacked:
    if str(path) == STDIN:
        if sys.stdin is None or sys.stdin.buffer.closed:
            raise DeclarationError(
                "standard input is closed", why="--logs - reads it", next_command="pipe a log into it"
            )
        file = cast(BinaryIO, sys.stdin.buffer)
        magic = cast(BufferedReader, sys.stdin.buffer).peek(4)[:4]
    else:
        file = path.open("rb")
        magic = file.read(4)
        file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        packed = gzip.GzipFile(fileobj=file, mode="rb")
        return _Unpacked(lambda: packed.read1(1 << 18), file.close)
    if magic[:3] == b"BZh":
        unpacked = bz2.BZ2File(file, "rb")
        return _Unpacked(lambda: unpacked.read1(1 << 18), file.close)
    if magic == b"\x28\xb5\x2f\xfd":
        parts = _zstd(file)
        return _Unpacked(lambda: next(parts, b""), file.close)
    return file


def _head(path: Path) -> bytes:
    try:
        with _opened(path) as file:
            return file.read(_HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError):
        return b""


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with _opened(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (EOFError, zlib.error, OSError, zstandard.ZstdError):
        digest.update(str(path).encode())
    return digest.hexdigest()


def _first_stamp(head: bytes, wanted: Format | None) -> float:
    rows = [plain(row.replace(b"\0", b"").decode("utf-8", "replace")).rstrip("\r") for row in head.split(b"\n")[:200]]
    found = wanted or choose(rows[:50])
    if found is not None and found.csv and rows:
        found = of_header(found, rows[0], rows[1] if len(rows) > 1 else "") or (found if found.pattern else None)
    return first_stamp(rows, found) if found else float("inf")
