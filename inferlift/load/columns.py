"""Every sample of a run as columns: a .npz file (numpy.load reads it), written and read by the standard library.

One array a column, in the order of the requests' ends; unknown is NaN in floats and -1 in whole numbers. `error` is
an index into the names in `errors.json`, -1 where there was none. About 40 bytes a request.
"""

from __future__ import annotations

import ast
import json
import struct
import zipfile
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferlift.load.samples import ERRORS, read_samples

FLOATS = ("at_s", "delay_ms", "connect_ms", "tls_ms", "ttft_ms", "first_content_ms", "last_token_ms", "total_ms")
INTS = ("i", "status", "tokens", "prompt_tokens", "chunks", "error", "retried")
_DTYPES = {"d": "<f8", "f": "<f4", "i": "<i4"}
_MAGIC = b"\x93NUMPY\x01\x00"


def write(samples: Path, into: Path) -> int:
    """From a run's JSON lines. Returns how many samples there are."""
    columns: dict[str, array[Any]] = {name: array("d" if name == "at_s" else "f") for name in FLOATS}
    columns |= {name: array("i") for name in INTS}
    codes = {name: k for k, name in enumerate(ERRORS)}
    n = 0
    for record in read_samples(samples):
        n += 1
        for name in FLOATS:
            columns[name].append(record.get(name, float("nan")))
        for name in ("i", "status", "tokens", "prompt_tokens", "chunks"):
            columns[name].append(record.get(name, -1))
        columns["error"].append(codes[record["error"]] if "error" in record else -1)
        columns["retried"].append(int(bool(record.get("retried"))))
    part = into.with_name(into.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, column in columns.items():
            archive.writestr(f"{name}.npy", _npy(column))
        archive.writestr("errors.json", json.dumps(ERRORS))
    part.replace(into)
    return n


def read(path: Path) -> Mapping[str, array[Any]]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                found[name.removesuffix(".npy")] = _array(archive.read(name))
    return found


def _npy(column: array[Any]) -> bytes:
    head = f"{{'descr': '{_DTYPES[column.typecode]}', 'fortran_order': False, 'shape': ({len(column)},), }}".encode()
    head += b" " * (-(len(_MAGIC) + 2 + len(head) + 1) % 64) + b"\n"
    return _MAGIC + struct.pack("<H", len(head)) + head + column.tobytes()


def _array(data: bytes) -> array[Any]:
    (size,) = struct.unpack_from("<H", data, len(_MAGIC))
    start = len(_MAGIC) + 2
    head = ast.literal_eval(data[start : start + size].decode())
    code = next(code for code, dtype in _DTYPES.items() if dtype == head["descr"])
    column: array[Any] = array(code)
    column.frombytes(data[start + size :])
    return column
