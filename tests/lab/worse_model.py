"""Makes a worse model for the quality gate: a copy of a GGUF with the scales of some blocks damaged.

    python worse_model.py GOOD.gguf WORSE.gguf [EVERY]

In the feed-forward tensors (type Q4_1) the lowest exponent bit of every EVERYth block's scale is flipped: its 32
weights are doubled or halved. The file stays valid, loads, and answers at the same speed; only the answers suffer,
as after a quantisation gone wrong.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path
from typing import BinaryIO

Q4_1, BLOCK_WEIGHTS, BLOCK_BYTES = 3, 32, 20  # f16 scale, f16 minimum, 16 bytes of weights
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF value types of fixed size


def damage(good: Path, worse: Path, *, every: int = 50, name: str = "ffn_down") -> int:
    """Write the damaged copy; returns how many blocks were changed. The same input gives the same output."""
    shutil.copyfile(good, worse)
    changed = 0
    with worse.open("r+b") as file:
        for tensor, weights, offset in _tensors(file):
            if name not in tensor:
                continue
            file.seek(offset)
            data = bytearray(file.read(weights // BLOCK_WEIGHTS * BLOCK_BYTES))
            for block in range(0, len(data), BLOCK_BYTES * every):
                data[block + 1] ^= 0x04  # the lowest exponent bit of a little-endian f16
                changed += 1
            file.seek(offset)
            file.write(data)
    return changed


def _tensors(file: BinaryIO) -> list[tuple[str, int, int]]:
    """(name, weights, absolute offset) of the Q4_1 tensors."""
    magic, version, count, pairs = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version < 2:
        raise ValueError("not a GGUF file of version 2 or later")
    alignment = 32
    for _ in range(pairs):
        key = _string(file)
        value = _value(file, *struct.unpack("<I", file.read(4)))
        if key == "general.alignment" and isinstance(value, int):
            alignment = value
    found = []
    for _ in range(count):
        name = _string(file)
        (dimensions,) = struct.unpack("<I", file.read(4))
        weights = 1
        for size in struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions)):
            weights *= size
        kind, offset = struct.unpack("<IQ", file.read(12))
        if kind == Q4_1:
            found.append((name, weights, offset))
    start = -(-file.tell() // alignment) * alignment
    return [(name, weights, start + offset) for name, weights, offset in found]


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(length).decode()


def _value(file: BinaryIO, kind: int) -> object:
    if kind == 8:
        return _string(file)
    if kind == 9:
        inner, length = struct.unpack("<IQ", file.read(12))
        for _ in range(length):
            _value(file, inner)
        return None
    raw = file.read(SIZES[kind])
    return int.from_bytes(raw, "little") if kind in (4, 10) else None


if __name__ == "__main__":
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    print(f"{damage(Path(sys.argv[1]), Path(sys.argv[2]), every=every)} blocks damaged")
