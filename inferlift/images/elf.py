"""What an ELF file asks of its system: the interpreter and the C library. Layout: the ELF specification (gABI)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB = 1, 5


@dataclass(frozen=True)
class Linkage:
    interpreter: str | None
    needed: tuple[str, ...]

    @property
    def musl(self) -> bool:
        return "ld-musl" in (self.interpreter or "") or any(n.startswith("libc.musl-") for n in self.needed)


def read(path: Path) -> Linkage | None:
    """None for anything that is not a regular, complete, little-endian ELF file."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except (OSError, OverflowError, ValueError, struct.error, IndexError):
        return None


def scan(root: Path) -> dict[str, Linkage]:
    """All ELF files below `root`, by their path inside it; those that are linked statically ask for nothing."""
    found: dict[str, Linkage] = {}
    for folder, names, files in os.walk(root):
        if Path(folder) == root:
            names[:] = [n for n in names if n not in ("proc", "sys", "dev")]
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and (linkage := read(path)):
                found["/" + str(path.relative_to(root))] = linkage
    return found


def _read(file: BinaryIO) -> Linkage | None:
    head = file.read(64)
    if head[:4] != b"\x7fELF" or head[5] != 1:
        return None
    wide = head[4] == 2
    offset = struct.unpack_from("<Q", head, 32)[0] if wide else struct.unpack_from("<I", head, 28)[0]
    size, count = struct.unpack_from("<HH", head, 54 if wide else 42)
    file.seek(offset)
    table = file.read(size * count)
    loads: list[tuple[int, int, int]] = []
    interpreter: str | None = None
    dynamic = b""
    for index in range(count):
        if wide:
            kind, _, place, virtual, _, length = struct.unpack_from("<IIQQQQ", table, index * size)
        else:
            kind, place, virtual, _, length = struct.unpack_from("<IIIII", table, index * size)
        if kind == _PT_LOAD:
            loads.append((virtual, place, length))
        elif kind == _PT_INTERP:
            file.seek(place)
            interpreter = file.read(length).split(b"\0")[0].decode(errors="replace")
        elif kind == _PT_DYNAMIC:
            file.seek(place)
            dynamic = file.read(length)
    return Linkage(interpreter, _needed(file, dynamic, loads, wide))


def _needed(file: BinaryIO, dynamic: bytes, loads: list[tuple[int, int, int]], wide: bool) -> tuple[str, ...]:
    form = "<qQ" if wide else "<iI"
    whole = len(dynamic) // struct.calcsize(form) * struct.calcsize(form)
    entries = list(struct.iter_unpack(form, dynamic[:whole]))
    strings = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    if strings is None:
        return ()
    names = []
    for offset in (value for tag, value in entries if tag == _DT_NEEDED):
        for virtual, place, length in loads:
            if virtual <= strings < virtual + length:
                file.seek(strings - virtual + place + offset)
                names.append(file.read(256).split(b"\0")[0].decode(errors="replace"))
    return tuple(names)
