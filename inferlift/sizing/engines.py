"""The table of engines (engines.yaml): how each takes a GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import yaml

from inferlift.errors import DeclarationError

# Which engine a server of the profile is: a container is the user's own image, counted as vLLM is.
_OF_SERVER = {"vllm": "vllm", "llamacpp": "llamacpp", "triton": "triton", "container": "vllm"}


@dataclass(frozen=True)
class Engine:
    name: str
    share: float  # of a GPU's memory; of what, share_of says
    share_of: str  # total: all needs within it; static: weights and KV; free: KV, of what the rest leaves
    runtime: int  # bytes a GPU outside of the engine's own allocations
    collectives: int  # bytes a GPU, with tensor parallelism
    graphs: int  # bytes a GPU
    chunk_tokens: int  # prompt tokens worked on at once
    block_tokens: int  # KV is handed out in blocks of so many tokens
    forward: float  # widths of MLP and of hidden states held at once
    sampler_floats: float  # 4-byte values a session and vocabulary entry
    host_embeddings: bool  # the token table is not on the GPU
    tile_intermediate: int  # MXFP4 experts on a GPU without the format: widths are rounded up to these
    tile_hidden: int
    sources: Mapping[str, str]


@cache
def engines() -> Mapping[str, Engine]:
    rows = yaml.safe_load(Path(__file__).with_name("engines.yaml").read_text(encoding="utf-8"))
    return {name: _engine(name, row) for name, row in rows.items()}


def engine(name: str) -> Engine:
    """By its own name or the server's kind. Raises DeclarationError for an unknown one."""
    found = engines().get(_OF_SERVER.get(name, name))
    if found is None:
        raise DeclarationError(
            f"unknown engine {name[:40]!r}", why=f"the memory of these is known: {', '.join(engines())}"
        )
    return found


def _engine(name: str, row: Mapping[str, object]) -> Engine:
    sources = {key: str(value) for key, value in row.items() if key.endswith("_source")}
    values = {field.name: row[field.name] for field in fields(Engine) if field.name not in ("name", "sources")}
    whole = ("runtime", "collectives", "graphs", "chunk_tokens", "block_tokens", "tile_intermediate", "tile_hidden")
    return Engine(
        name=name,
        sources=sources,
        **{key: int(float(str(value))) if key in whole else value for key, value in values.items()},  # type: ignore[arg-type]
    )
