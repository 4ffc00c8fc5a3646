"""The header of a GGUF file: sizes and the bits a weight that are really stored.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Little-endian versions 2 and 3.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from inferlift.modelfile.fields import LARGEST, Fields, Figures, lacks, wrong

MAGIC = b"GGUF"
MOST_HEADER = 128 * 2**20  # bytes; token lists of large vocabularies are near 10 MB
MOST_TENSORS, MOST_KEYS, MOST_ITEMS, MOST_PARTS = 100_000, 10_000, 4_000_000, 1000
# What is kept of a header: no more than figures need, whatever it holds.
KEPT_TEXT, KEPT_ITEMS, PIECE = 200, 100_000, 2**20
# The fewest bytes that a key (length, name, type, value) and a tensor (length, dimensions, type, offset) can take.
LEAST_KEY, LEAST_TENSOR = 13, 24
_SCALARS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# ggml type -> values in a block, bytes of a block (ggml.h and ggml-common.h of ggml-org/ggml).
_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
    35: (256, 66), 39: (32, 17), 40: (64, 36),
}  # fmt: skip
# general.file_type -> our name of the format (llama.h, enum llama_ftype).
_FILE_TYPES = {
    0: "fp32", 1: "fp16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s",
    12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 32: "bf16",
}  # fmt: skip
# Every n-th layer is a full one where the file does not say (llama-model.cpp, set_swa_pattern).
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}


def read(path: Path) -> Figures:
    """Figures from the header, all parts of a split file together. Raises DeclarationError."""
    first = _header(path)
    parts = _parts(path, first)
    fields = Fields(path.name, first.keys)
    arch = fields.text("general.architecture")
    if not arch:
        raise lacks(path.name, "general.architecture")
    total = sum(part.values for part in parts)
    if not total:
        raise lacks(path.name, "tensors (0 are listed)")
    known = {"parameters_total": total, **_sizes(fields, arch)}
    known["weight_bits"] = sum(part.stored for part in parts) * 8 / total
    known["tied_embeddings"] = not any(part.has_head for part in parts)
    stated = fields.maybe("general.file_type", least=0)
    if stated in _FILE_TYPES:
        known["weight_format"] = _FILE_TYPES[stated]
    used, experts = known.get("experts_per_token"), known.get("experts")
    if used and experts:
        routed = sum(part.routed for part in parts)
        known["parameters_active"] = total - routed + math.ceil(routed * used / experts)
    return known


def _sizes(fields: Fields, arch: str) -> dict[str, Any]:
    def of(name: str) -> int:
        return fields.integer(f"{arch}.{name}")

    def maybe(name: str) -> int | None:
        return _largest(fields, f"{arch}.{name}")

    layers, hidden = of("block_count"), of("embedding_length")
    heads = maybe("attention.head_count")
    if heads is None:
        raise lacks(fields.file, f"{arch}.attention.head_count")
    kv_heads = maybe("attention.head_count_kv") or heads
    known: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": maybe("attention.key_length") or hidden // heads,
        "context": of("context_length"),
        "vocab": maybe("vocab_size") or _count(fields.value("tokenizer.ggml.tokens")),
        "intermediate": maybe("feed_forward_length"),
        "experts": maybe("expert_count"),
        "experts_per_token": maybe("expert_used_count"),
        "expert_intermediate": maybe("expert_feed_forward_length"),
    }
    if (rank := maybe("attention.kv_lora_rank")) is not None:
        known |= {"attention": "latent", "kv_lora_rank": rank, "rope_dim": of("rope.dimension_count")}
        known["kv_heads"] = heads  # newer files state the one latent head
        known["head_dim"] = maybe("attention.key_length_mla") or known["head_dim"]
    elif (window := maybe("attention.sliding_window")) is not None and window < known["context"]:
        every = maybe("attention.sliding_window_pattern") or _FULL_EVERY.get(arch)
        known |= {"attention": "sliding", "window": window}
        if every:
            known["window_layers"] = layers - layers // every
    return {key: value for key, value in known.items() if value is not None}


def _largest(fields: Fields, name: str) -> int | None:
    """A figure that may be stated a layer each: the largest of them. None where it is not there or 0."""
    value = fields.value(name)
    if isinstance(value, list):
        numbers = [one for one in value if isinstance(one, int) and not isinstance(one, bool) and 0 < one <= LARGEST]
        return max(numbers, default=None)
    return fields.maybe(name, least=0) or None


def _count(value: Any) -> int | None:
    return value.items or None if isinstance(value, _Many) else None


@dataclass(frozen=True)
class _Many:
    """A list of which only the length is kept."""

    items: int


@dataclass
class _Header:
    """The keys that figures are read from, and what all tensors together come to."""

    keys: dict[str, Any] = field(default_factory=dict)
    values: int = 0
    stored: int = 0  # bytes
    routed: int = 0  # values of experts that a token may be sent to
    has_head: bool = False


def _parts(path: Path, first: _Header) -> list[_Header]:
    """The header of each part of a split model."""
    count = Fields(path.name, first.keys).maybe("split.count", least=0, most=MOST_PARTS) or 1
    if count == 1:
        return [first]
    named = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if named is None or int(named[2]) != count:
        raise wrong(path.name, "split.count", f"the model is in {count} parts; give NAME-00001-of-{count:05}.gguf")
    others = [path.with_name(f"{named[1]}-{number:05}-of-{named[2]}.gguf") for number in range(2, count + 1)]
    missing = [other.name for other in others if not other.is_file()]
    if missing:
        raise wrong(path.name, "split.count", f"the model is in {count} parts and {missing[0]} is not there")
    return [first, *(_sums(_header(other)) for other in others)]


def _sums(header: _Header) -> _Header:
    """Without its keys: the first part's count."""
    header.keys.clear()
    return header


def _header(path: Path) -> _Header:
    try:
        with path.open("rb") as file:
            return _parse(_Reader(file, path.name, path.stat().st_size))
    except OSError as error:
        raise wrong(path.name, "file", f"cannot be read: {error.strerror or error}") from None


def _parse(reader: _Reader) -> _Header:
    if reader.take(4) != MAGIC:
        raise wrong(reader.name, "magic", "expected GGUF")
    version = reader.number("<I")
    if version not in (2, 3):
        raise wrong(reader.name, "version", f"expected 2 or 3 (little-endian), got {version}")
    tensors = reader.length("tensor count", MOST_TENSORS, LEAST_TENSOR)
    keys = reader.length("key count", MOST_KEYS, LEAST_KEY)
    header = _Header()
    for _ in range(keys):
        name = reader.text()
        value = reader.value(reader.number("<I"))
        if name and value is not None:
            header.keys[name] = value
    for _ in range(tensors):
        _tensor(reader, header)
    return header


def _tensor(reader: _Reader, header: _Header) -> None:
    name = reader.text() or ""
    dimensions = reader.number("<I")
    if dimensions > 8:
        raise wrong(reader.name, f"tensor {name[:60]!r}", f"has {dimensions} dimensions")
    values = math.prod(int(reader.number("<Q")) for _ in range(int(dimensions)))
    kind = int(reader.number("<I"))
    reader.skip(8)  # offset
    if not 0 < values <= LARGEST:
        raise wrong(reader.name, f"tensor {name[:60]!r}", f"has {values:.3g} values")
    if kind not in _TYPES:
        raise wrong(reader.name, f"tensor {name[:60]!r}", f"has the type {kind}, which is not known")
    block, size = _TYPES[kind]
    header.values += values
    header.stored += math.ceil(values / block) * size
    header.routed += values if "_exps." in name else 0
    header.has_head |= name == "output.weight"


class _Reader:
    """Reads onward through a header, a piece at a time; no length is believed that goes beyond the file's end."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.name, self._file, self._size = name, file, size
        self._data, self._at, self._start = b"", 0, 0  # _start: where in the file the piece begins
        self._room = KEPT_ITEMS

    def take(self, count: int) -> bytes:
        """At most PIECE bytes. Raises DeclarationError where the file has fewer."""
        self._within(count)
        if len(self._data) - self._at < count:
            rest = self._data[self._at :]
            self._start += self._at
            self._data, self._at = rest + self._file.read(PIECE - len(rest)), 0
            if len(self._data) < count:  # shorter than it said it is
                raise wrong(self.name, "header", "ends early; the file is cut short")
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def skip(self, count: int) -> None:
        self._within(count)
        if count <= len(self._data) - self._at:
            self._at += count
            return
        self._start += self._at + count
        self._file.seek(self._start)
        self._data, self._at = b"", 0

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def length(self, what: str, most: int, each: int = 1) -> int:
        """A count of things of at least `each` bytes."""
        found = int(self.number("<Q"))
        if found > most:
            raise wrong(self.name, what, f"{found} is more than {most}")
        self._within(found * each)
        return found

    def text(self) -> str | None:
        """None for one that is longer than any of use here."""
        count = self.length("length of a text", MOST_HEADER)
        if count > KEPT_TEXT:
            self.skip(count)
            return None
        return self.take(count).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """What is kept of a value; None of one that is of no use."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise wrong(self.name, "key", f"has the type {kind}, which is not known")
        inner = int(self.number("<I"))
        if inner in _SCALARS:
            form = _SCALARS[inner][-1]
            each = struct.calcsize(f"<{form}")
            count = self.length("length of a list", MOST_ITEMS, each)
            if count > self._room:
                self.skip(count * each)
                return _Many(count)
            self._room -= count
            return list(struct.unpack(f"<{count}{form}", self.take(count * each)))
        if inner != _STRING:
            raise wrong(self.name, "key", f"is a list of the type {inner}, which is not known")
        count = self.length("length of a list", MOST_ITEMS, 8)
        self._skip_texts(count)
        return _Many(count)

    def _skip_texts(self, count: int) -> None:
        """A vocabulary is some hundred thousand of them: those that lie whole in the piece are stepped over quickly."""
        length_at = struct.Struct("<Q").unpack_from
        while count:
            data, at, end = self._data, self._at, len(self._data)
            while count and end - at >= 8 and (after := at + 8 + length_at(data, at)[0]) <= end:
                at, count = after, count - 1
            self._at = at
            if count:
                self.skip(self.length("length of a text", MOST_HEADER))
                count -= 1

    def _within(self, count: int) -> None:
        end = self._start + self._at + count
        if end > self._size:
            raise wrong(self.name, "header", "ends early; the file is cut short")
        if end > MOST_HEADER:
            raise wrong(self.name, "header", f"is longer than {MOST_HEADER // 2**20} MiB")
