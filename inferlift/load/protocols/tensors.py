"""KServe v2 / Triton, by HTTP and by gRPC: named tensors in, named tensors out.

Sources: the Open Inference Protocol (KServe, "v2"), REST and gRPC; the gRPC message is encoded here by hand, since
its six fields are less than a generated module.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from inferlift.errors import DeclarationError
from inferlift.load.answer import Answer
from inferlift.load.protocols.base import Checked, Protocol

GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
# datatype -> struct code; BYTES is length-prefixed
CODES = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


class KServe(Protocol):
    """`inputs`: tensors as in the REST protocol (name, shape, datatype, data), one list a request, taken in turn.

    A good answer holds every output of `outputs` (any, when empty) with as many values as its shape says.
    """

    name: ClassVar[str] = "kserve"

    def __init__(self, model: str, inputs: Sequence[Sequence[Mapping[str, Any]]], outputs: Sequence[str] = ()) -> None:
        self.model, self.outputs = model, tuple(outputs)
        self.inputs = tuple(tuple(dict(tensor) for tensor in request) for request in inputs)
        for request in self.inputs:
            for tensor in request:
                _check(tensor)
        self._bodies = tuple(self._encode(request) for request in self.inputs)

    @property
    def route(self) -> str:
        return f"/v2/models/{self.model}/infer"

    def body(self, i: int) -> bytes:
        return self._bodies[i % len(self._bodies)]

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return Checked(self._wrong)

    def _encode(self, request: Sequence[Mapping[str, Any]]) -> bytes:
        body: dict[str, Any] = {"inputs": list(request)}
        if self.outputs:
            body["outputs"] = [{"name": name} for name in self.outputs]
        return json.dumps(body, separators=(",", ":")).encode()

    def _wrong(self, data: bytes) -> str | None:
        try:
            document = json.loads(data)
            if isinstance(document, dict) and document.get("error"):
                return str(document["error"])[:200]
            found = {o["name"]: (o["shape"], len(_flat(o["data"]))) for o in document["outputs"]}
        except (ValueError, KeyError, TypeError) as error:
            return f"no tensors: {type(error).__name__} in {data[:60]!r}"
        return self._judge(found)

    def _judge(self, found: Mapping[str, tuple[Sequence[int], int | None]]) -> str | None:
        missing = [name for name in self.outputs if name not in found]
        if missing or not found:
            return f"the answer lacks {', '.join(missing) or 'outputs'}"
        for name, (shape, count) in found.items():
            if count is not None and count != math.prod(shape):
                return f"{name} has {count} values for the shape {list(shape)}"
        return None


class KServeGrpc(KServe):
    name: ClassVar[str] = "kserve-grpc"
    transport: ClassVar[Literal["http", "grpc"]] = "grpc"
    content_type = "application/grpc"

    @property
    def route(self) -> str:
        return GRPC_METHOD

    def shown(self) -> Any:
        return {"model_name": self.model, "inputs": list(self.inputs[0])}

    def _encode(self, request: Sequence[Mapping[str, Any]]) -> bytes:
        parts = [_field(1, self.model.encode())]
        for tensor in request:
            shape = b"".join(map(_varint, tensor["shape"]))
            inner = _field(1, tensor["name"].encode()) + _field(2, tensor["datatype"].encode()) + _field(3, shape)
            parts.append(_field(5, inner))
        parts += [_field(6, _field(1, name.encode())) for name in self.outputs]
        parts += [_field(7, raw_values(t["datatype"], t["data"])) for t in request]
        return b"".join(parts)

    def _wrong(self, data: bytes) -> str | None:
        try:
            outputs, raws = [], []
            for number, value in fields(data):
                if number == 5:
                    outputs.append(_output(value))
                elif number == 6:
                    raws.append(value)
        except (ValueError, IndexError, TypeError) as error:
            return f"no ModelInferResponse: {error}"
        found: dict[str, tuple[Sequence[int], int | None]] = {}
        for k, (name, datatype, shape) in enumerate(outputs):
            count = None
            if k < len(raws) and datatype in CODES:
                count = len(raws[k]) // struct.calcsize("<" + CODES[datatype])
            found[name] = (shape, count)
        return self._judge(found)


def raw_values(datatype: str, data: Any) -> bytes:
    """Values as raw little-endian bytes. Raises DeclarationError for what the datatype cannot hold."""
    values = _flat(data)
    if datatype == "BYTES":
        texts = [v if isinstance(v, bytes) else str(v).encode() for v in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    try:
        return struct.pack(f"<{len(values)}{CODES[datatype]}", *values)
    except (KeyError, struct.error) as error:
        raise DeclarationError(f"the tensor's values do not fit {datatype}", why=str(error)) from None


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protobuf message: bytes or whole numbers. Raises ValueError, IndexError when cut."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _read_varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field is cut")
        yield number, data[at : at + size]
        at += size


def _output(data: bytes) -> tuple[str, str, list[int]]:
    name, datatype, shape = "", "", []
    for number, value in fields(data):
        if number == 1:
            name = value.decode()
        elif number == 2:
            datatype = value.decode()
        elif number == 3 and isinstance(value, int):
            shape.append(value)
        elif number == 3:
            at = 0
            while at < len(value):
                size, at = _read_varint(value, at)
                shape.append(size)
    return name, datatype, shape


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number that does not end")


def _flat(data: Any) -> list[Any]:
    return [x for part in data for x in _flat(part)] if isinstance(data, list | tuple) else [data]


def _check(tensor: Mapping[str, Any]) -> None:
    missing = {"name", "shape", "datatype", "data"} - set(tensor)
    if missing:
        raise DeclarationError(f"a tensor lacks {sorted(missing)[0]!r}", why=f"got {sorted(tensor)}")
    if tensor["datatype"] not in (*CODES, "BYTES"):
        raise DeclarationError(f"unknown datatype {tensor['datatype']!r}", why=f"known: {', '.join((*CODES, 'BYTES'))}")
    count = len(_flat(tensor["data"]))
    if any(not isinstance(n, int) or n < 0 for n in tensor["shape"]) or math.prod(tensor["shape"]) != count:
        raise DeclarationError(f"tensor {tensor['name']!r} has {count} values for the shape {tensor['shape']}")
