"""How many bytes a replica needs on its fullest GPU: weights, keys and values of its sessions, and what engines add.

Every formula and its sources: docs/sizing-memory.md. Engines' own figures: engines.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from inferlift.artifacts import Memory
from inferlift.errors import DeclarationError
from inferlift.profile import Model, Server
from inferlift.sizing.engines import Engine, engine
from inferlift.sizing.footprint import (
    Part,
    Parts,
    keeping,
    kv_bytes_per_token,
    kv_layers,
    parts_of,
    tiles,
    weights_bytes,
)
from inferlift.sizing.hardware import Gpu, Layout, assumed, assumptions

__all__ = [
    "GIB", "Need", "kv_bytes_per_token", "layouts", "longest_context", "memory", "most_sessions", "need",
    "tensor_parallel_sizes", "weights_bytes",
]  # fmt: skip
GIB = 2**30
MOST_SESSIONS = 2**16
# Compute capability from which a KV format works: bf16 from Ampere, fp8 by kernels that convert on reading.
# Source: https://docs.vllm.ai/en/latest/features/quantization/quantized_kvcache.html
_KV_NEEDS = {"bf16": 8.0, "fp8": 8.0}


@dataclass(frozen=True)
class Need:
    """Bytes on the fullest GPU of a replica. `available` is None where there is no GPU."""

    weights: int
    kv: int
    activations: int
    graphs: int
    runtime: int
    collectives: int
    vision: int
    available: int | None
    lines: tuple[str, ...]

    @property
    def total(self) -> int:
        return self.fixed + self.kv

    @property
    def fixed(self) -> int:
        """All that does not grow with sessions and context, activations counted as they stand."""
        return self.weights + self.vision + self.activations + self.graphs + self.runtime + self.collectives

    @property
    def fits(self) -> bool:
        return self.available is None or self.total <= self.available


def need(
    model: Model,
    server: Server,
    *,
    gpu: Gpu | None,
    layout: Layout,
    sessions: int,
    context: int,
    engine_name: str | None = None,
) -> Need:
    """What a replica needs that decodes `sessions` requests at once with `context` tokens each.

    `gpu` None: in a host's memory (one layout). `engine_name` stands in for the server's kind. Raises DeclarationError
    where the model cannot be split so, the context is beyond the model, or the GPU lacks the KV format.
    """
    _possible(model, gpu, layout, sessions, context)
    used = engine(engine_name or server.engine)
    parts = parts_of(model, server, used, gpu, layout, sessions, context)
    return Need(**parts, lines=_lines(model, server, used, gpu, layout, sessions, context, parts))  # type: ignore[arg-type]


def most_sessions(
    model: Model, server: Server, gpu: Gpu, layout: Layout, context: int, limit: int = MOST_SESSIONS
) -> int:
    """How many sessions of `context` tokens fit at once, at most `limit`; 0 where not even one does."""
    _possible(model, gpu, layout, 1, context)
    used = engine(server.engine)
    return _most(lambda count: _fits(model, server, used, gpu, layout, count, context), limit)


def longest_context(model: Model, server: Server, gpu: Gpu, layout: Layout, sessions: int) -> int:
    """How many tokens each of `sessions` can have, at most the model's; 0 where none fits."""
    _possible(model, gpu, layout, sessions, min(model.context, 1))
    used = engine(server.engine)
    return _most(lambda tokens: _fits(model, server, used, gpu, layout, sessions, tokens), model.context)


def layouts(model: Model, gpus: int) -> list[Layout]:
    """How one copy can lie over at most `gpus` GPUs, so that copies fill them evenly; fewest GPUs and stages first."""
    if not model.layers:
        return [Layout()]
    found = [
        Layout(tensor, stages)
        for tensor in tensor_parallel_sizes(model, gpus)
        for stages in range(1, gpus // tensor + 1)
        if gpus % (tensor * stages) == 0 and stages <= model.layers
    ]
    return sorted(found, key=lambda layout: (layout.gpus, layout.pipeline))


def tensor_parallel_sizes(model: Model, gpus: int) -> list[int]:
    """Over how many of a host's GPUs a layer can be split: powers of two that divide the attention heads."""
    return [tp for tp in (1, 2, 4, 8, 16) if tp <= gpus and model.heads % tp == 0]


def memory(model: Model, server: Server, *, on_gpu: bool, tensor_parallel: int = 1) -> Memory:
    """The need of one replica in all, over the GPUs that share it, with one lump for what the engine adds."""
    context = server.context_per_slot or model.context
    name = "gpu_overhead_bytes" if on_gpu else "cpu_overhead_bytes"
    overhead = int(assumed(name)) * tensor_parallel
    weights = weights_bytes(model)
    per_gpu = kv_bytes_per_token(model, tensor_parallel)
    per_token = per_gpu * tensor_parallel
    kv = per_token * server.slots * context
    return Memory(
        weights_bytes=weights,
        kv_bytes_per_token=per_token,
        kv_bytes=kv,
        overhead_bytes=overhead,
        total_bytes=weights + kv + overhead,
        explain=(
            _weights_line(model),
            f"{_kv_line(model, Layout(tensor_parallel))} = {per_gpu} bytes"
            + (f" on each of {tensor_parallel} GPUs" if tensor_parallel > 1 else ""),
            f"KV: {per_token} bytes * {server.slots} slots * {context} tokens = {_gib(kv)}",
            f"overhead: {_gib(overhead)} ({assumptions()[name].source})",
            f"in all: {_gib(weights + kv + overhead)}",
        ),
    )


# --- checks ---------------------------------------------------------------------------------------------------


def _possible(model: Model, gpu: Gpu | None, layout: Layout, sessions: int, context: int) -> None:
    if layout.tensor < 1 or layout.pipeline < 1 or sessions < 1:
        raise DeclarationError("a layout and sessions count from 1", why=f"got {layout} and {sessions} sessions")
    if model.heads and model.heads % layout.tensor:
        sizes = ", ".join(map(str, (n for n in range(1, 17) if model.heads % n == 0)))
        raise DeclarationError(
            f"{model.heads} attention heads cannot be split over {layout.tensor} GPUs",
            why=f"each GPU takes as many heads; tensor parallel sizes that divide them: {sizes}",
        )
    if model.layers and layout.pipeline > model.layers:
        raise DeclarationError(f"{model.layers} layers cannot be split into {layout.pipeline} stages")
    if context > model.context and model.layers:
        raise DeclarationError(
            f"a context of {context} tokens is beyond the model's {model.context}",
            why="the model was not made for longer ones",
            next_command=f"set server.context_per_slot to at most {model.context}",
        )
    wanted = _KV_NEEDS.get(model.kv_format or "")
    have = gpu.compute_capability if gpu else None
    if gpu is not None and wanted is not None and have is not None and have < wanted:
        raise DeclarationError(
            f"{gpu.name} has no {model.kv_format} keys and values",
            why=f"they need compute capability {wanted:g}, it has {have:g}",
            next_command="set model.kv_format to fp16",
        )


def _fits(model: Model, server: Server, used: Engine, gpu: Gpu, layout: Layout, sessions: int, context: int) -> bool:
    parts = parts_of(model, server, used, gpu, layout, sessions, context)
    available = parts.pop("available") or 0
    return sum(value or 0 for value in parts.values()) <= available


def _most(fits: Callable[[int], bool], limit: int) -> int:
    """The largest count up to `limit` that fits, where each larger one needs more."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


# --- words ---------------------------------------------------------------------------------------------------


def _lines(
    model: Model,
    server: Server,
    used: Engine,
    gpu: Gpu | None,
    layout: Layout,
    sessions: int,
    context: int,
    parts: Parts,
) -> tuple[str, ...]:
    def of(name: Part) -> str:
        return _gib(parts[name] or 0)

    shared = f" on the fullest of {layout.gpus} GPUs" if layout.gpus > 1 else ""
    lines = [f"{_weights_line(model)}; {of('weights')}{shared}" if layout.gpus > 1 else _weights_line(model)]
    if rounding := tiles(model, used, gpu, layout.tensor):
        lines.append(f"of them rounding of experts to whole tiles: {_gib(rounding)} over all")
    if parts["vision"]:
        lines.append(f"vision encoder: {model.vision_parameters} parameters = {of('vision')}")
    each = kv_bytes_per_token(model, layout)
    lines.append(f"{_kv_line(model, layout)} = {each} bytes{shared}")
    whole = model.attention != "sliding" or not server.hybrid_kv
    how = f"{each} bytes * " if whole else f"{_mix(model, layout)} with a window of {model.window} tokens, "
    lines.append(f"KV: {how}{sessions} sessions * {context} tokens in blocks of {used.block_tokens} = {of('kv')}")
    chunk = server.max_batched_tokens or used.chunk_tokens
    lines.append(f"activations: {of('activations')} (prompts in chunks of {chunk} tokens, {sessions} sessions sampled)")
    lines.append(
        f"{used.name}: graphs {of('graphs')}, runtime {of('runtime')}, collectives {of('collectives')}"
        if gpu
        else f"{used.name} beside its buffers: {of('runtime')} ({assumptions()['cpu_overhead_bytes'].source})"
    )
    total = sum(value or 0 for name, value in parts.items() if name != "available")
    may = f"; {used.name} may take {of('available')} of {gpu.vram_mib / 1024:.2f} GiB" if gpu else ""
    return (*lines, f"in all: {_gib(total)}{may}")


def _weights_line(model: Model) -> str:
    whole = _gib(weights_bytes(model))
    return f"weights: {model.parameters_total} parameters * {model.weight_bits:.5g} bits / 8 = {whole}"


def _kv_line(model: Model, layout: Layout) -> str:
    layers = kv_layers(model, layout.pipeline)
    bits = f"{model.kv_bits:g} bits / 8"
    if model.attention == "latent":
        return f"KV a token: {layers} layers * ({model.kv_lora_rank} latent + {model.rope_dim} rope) * {bits}"
    heads = math.ceil(model.kv_heads / layout.tensor)
    return f"KV a token: 2 * {layers} layers * {heads} kv heads * {model.head_dim} head_dim * {bits}"


def _mix(model: Model, layout: Layout) -> str:
    """Layers of the stage that keeps most."""
    full, windowed = max(keeping(model, layout.pipeline))
    return f"{full} layers in full, {windowed}"


def _gib(count: int) -> str:
    return f"{count / GIB:.3f} GiB"
