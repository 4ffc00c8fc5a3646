"""The parts of what a replica takes on its fullest GPU, in bytes: formulas, and what engines add.

Every formula and its sources: docs/sizing-memory.md. Engines' own figures: engines.yaml.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

from inferlift.profile import Model, Server
from inferlift.profile.formats import weight_format
from inferlift.sizing.engines import Engine
from inferlift.sizing.hardware import Gpu, Layout, assumed

Part = Literal["weights", "kv", "activations", "graphs", "runtime", "collectives", "vision", "available"]
Parts = dict[Part, int | None]


def weights_bytes(model: Model) -> int:
    """All parameters, of a mixture of experts too: each expert must be there. weight_bits includes scales."""
    return math.ceil(model.parameters_total * model.weight_bits / 8)


def kv_bytes_per_token(model: Model, layout: Layout | int = 1) -> int:
    """Bytes of one token on the fullest GPU, every layer charged in full.

    Full and sliding: 2 * layers * ceil(kv_heads / tp) * head_dim * bytes; kv heads are not split further than one a
    GPU. Latent: layers * (kv_lora_rank + rope_dim) * bytes, neither doubled nor split by tp. Layers: of the stage
    that has most.
    """
    layout = Layout(layout) if isinstance(layout, int) else layout
    return math.ceil(_kv_values(model, layout.tensor) * kv_layers(model, layout.pipeline) * model.kv_bits / 8)


def kv_layers(model: Model, pipeline: int) -> int:
    """Layers with keys and values on the stage that has most."""
    return max(full + windowed for full, windowed in keeping(model, pipeline))


def keeping(model: Model, pipeline: int) -> tuple[tuple[int, int], ...]:
    """Of each stage: layers that keep all keys and values, and layers that keep those of their window.

    A profile says how many there are, and by `window_place` where the windowed ones lie. Layers of two kinds are
    spread as models do it: of L layers with F of the rarer kind, every (L // F)-th is one of them.
    """
    kept = model.layers if model.kv_layers is None else model.kv_layers
    windowed = min(model.window_layers or kept, kept) if model.attention == "sliding" else 0
    return _keeping(model.layers, kept, windowed, model.window_place, pipeline)


def parts_of(
    model: Model, server: Server, used: Engine, gpu: Gpu | None, layout: Layout, sessions: int, context: int
) -> Parts:
    """All parts on the fullest GPU and what the engine may take there; unchecked, see memory.need."""
    weights, vision, kv = _fullest(model, server, used, gpu, layout, sessions, context)
    activations = _activations(model, server, used, layout, sessions, context)
    parts: Parts = {
        "weights": weights,
        "vision": vision,
        "kv": kv,
        "activations": int(assumed("gpu_overhead_bytes")) if activations is None and gpu else activations or 0,
        "graphs": used.graphs if server.graphs and gpu else 0,
        "runtime": used.runtime if gpu else int(assumed("cpu_overhead_bytes")),
        "collectives": used.collectives if layout.tensor > 1 else 0,
    }
    parts["available"] = _available(server, used, gpu, parts)
    return parts


def tiles(model: Model, used: Engine, gpu: Gpu | None, tensor: int) -> int:
    """Bytes that experts take beyond their own, where kernels that unpack them want widths of whole tiles."""
    form = weight_format(model.weight_format)
    native = (
        form is None or form.min_compute is None or gpu is None or (gpu.compute_capability or 0) >= form.min_compute
    )
    if native or model.weight_format != "mxfp4" or not (model.experts and model.expert_intermediate and model.hidden):
        return 0
    width = math.ceil(model.expert_intermediate / tensor / used.tile_intermediate) * used.tile_intermediate * tensor
    hidden = math.ceil(model.hidden / used.tile_hidden) * used.tile_hidden
    more = width * hidden - model.expert_intermediate * model.hidden
    return math.ceil(model.layers * model.experts * 3 * more * (form.bits if form else 0) / 8)


def _stages(layers: int, pipeline: int) -> list[int]:
    """Layers of each stage. What is left over goes to the stages before the last, which has the head.

    Source: get_pp_indices in https://github.com/vllm-project/vllm/blob/main/vllm/distributed/utils.py
    """
    counts = [layers // pipeline] * pipeline
    for extra in range(layers % pipeline):
        counts[-2 - extra if pipeline > 1 else 0] += 1
    return counts


def _kv_values(model: Model, tensor: int) -> int:
    """Values of one token and layer on one GPU."""
    if model.attention == "latent":
        return (model.kv_lora_rank or 0) + (model.rope_dim or 0)
    return 2 * math.ceil(model.kv_heads / tensor) * model.head_dim


@lru_cache(maxsize=1024)
def _keeping(layers: int, kept: int, windowed: int, place: str, pipeline: int) -> tuple[tuple[int, int], ...]:
    with_kv = _spread(layers, kept)
    if place == "spread":
        full = {with_kv[at] for at in _spread(kept, kept - windowed)}
    else:
        full = set(with_kv[windowed:] if place == "first" else with_kv[: kept - windowed])
    found, start = [], 0
    for count in _stages(layers, pipeline):
        here = [layer for layer in with_kv if start <= layer < start + count]
        found.append((sum(layer in full for layer in here), sum(layer not in full for layer in here)))
        start += count
    return tuple(found)


def _spread(layers: int, some: int) -> list[int]:
    """Which of so many layers are of a kind that there are `some` of: every n-th, as far as they go."""
    if some <= 0 or layers <= 0:
        return []
    if some >= layers:
        return list(range(layers))
    rare = min(some, layers - some)
    every = layers // rare
    at = {number * every - 1 for number in range(1, rare + 1)}
    return sorted(at) if rare == some else [layer for layer in range(layers) if layer not in at]


def _fullest(
    model: Model, server: Server, used: Engine, gpu: Gpu | None, layout: Layout, sessions: int, context: int
) -> tuple[int, int, int]:
    """Bytes of weights, of the vision encoder and of all sessions' keys and values on a GPU of the fullest stage."""
    weights, vision = _weights(model, used, layout, gpu)
    caches = _kv(model, server, used, layout, sessions, context)
    fullest = max(range(len(caches)), key=lambda stage: (weights[stage] + caches[stage], caches[stage]))
    return weights[fullest], vision, caches[fullest]


def _kv(model: Model, server: Server, used: Engine, layout: Layout, sessions: int, context: int) -> list[int]:
    """Bytes of all sessions on a GPU of each stage, their contexts rounded up to blocks."""
    tokens = math.ceil(context / used.block_tokens) * used.block_tokens
    per_layer = _kv_values(model, layout.tensor) * model.kv_bits / 8
    # A windowed layer keeps its window and the chunk that is being worked on, where the server tells them apart.
    chunk = min(server.max_batched_tokens or used.chunk_tokens, context)
    seen = math.ceil(min((model.window or 0) + chunk, tokens) / used.block_tokens) * used.block_tokens
    windowed_tokens = min(seen, tokens) if server.hybrid_kv else tokens
    return [
        math.ceil(per_layer * sessions * (full * tokens + windowed * windowed_tokens))
        for full, windowed in keeping(model, layout.pipeline)
    ]


def _table(model: Model, used: Engine) -> int:
    """Bytes of the token table; the head is as large. 0 where its size is not known: it lies with the layers then.

    An engine that keeps it in the host's memory reads files of one average (GGUF), whose table is no exception.
    """
    if model.vocab is None or model.hidden is None:
        return 0
    form = weight_format(model.weight_format)
    kept = form is not None and form.keeps_16 and not used.host_embeddings
    bits = max(16.0, model.weight_bits) if kept else model.weight_bits
    return math.ceil(model.vocab * model.hidden * bits / 8)


def _weights(model: Model, used: Engine, layout: Layout, gpu: Gpu | None) -> tuple[list[int], int]:
    """Bytes of weights on a GPU of each stage, and of the vision encoder on every GPU."""
    whole = weights_bytes(model) + tiles(model, used, gpu, layout.tensor)
    form = weight_format(model.weight_format)
    encoder = model.vision_parameters or 0
    vision = math.ceil(encoder * model.weight_bits / 8)
    # at 16 bit where the format leaves it alone and the declared average has room for that
    if form and form.keeps_16 and encoder * 2 < whole:
        vision = max(vision, encoder * 2)
    tied = model.tied_embeddings is True
    counts = _stages(model.layers, layout.pipeline) if model.layers else [1] * layout.pipeline
    # where the declared average leaves less than the format would keep at 16 bit, there is no more than that
    table = min(_table(model, used), max(whole - vision, 0) // (1 if tied else 2))
    body = whole - vision - table * (1 if tied else 2)
    first = 0 if used.host_embeddings and gpu is not None and not tied else table
    sizes = [body * count / max(sum(counts), 1) for count in counts]
    sizes[0] += first
    if not tied or len(sizes) > 1:
        sizes[-1] += table
    return [math.ceil(size / layout.tensor) for size in sizes], math.ceil(vision / layout.tensor)


def _activations(model: Model, server: Server, used: Engine, layout: Layout, sessions: int, context: int) -> int | None:
    """Bytes at the peak of a step: the larger of a chunk's forward pass and of sampling. None: sizes not known."""
    if model.hidden is None or (model.vocab is None and model.layers):
        return None
    chunk = min(server.max_batched_tokens or used.chunk_tokens, max(context * sessions, 1))
    vocab = model.vocab or 0
    if used.name == "llamacpp":
        return chunk * (vocab + model.hidden) * 4
    width = model.intermediate or 4 * model.hidden
    if model.experts and model.expert_intermediate:
        width = max((model.experts_per_token or 1) * model.expert_intermediate, 1)
    forward = chunk * 2 * used.forward * (width / layout.tensor + model.hidden)
    sampling = used.sampler_floats * 4 * sessions * vocab
    return math.ceil(max(forward, sampling))


def _available(server: Server, used: Engine, gpu: Gpu | None, parts: Parts) -> int | None:
    """What all needs together may take on one GPU, by what the engine's share is of."""
    if gpu is None:
        return None
    total = gpu.vram_mib * 2**20
    share = used.share if server.gpu_memory_share is None else server.gpu_memory_share
    beside = sum(parts[name] or 0 for name in ("activations", "graphs", "runtime", "collectives"))
    if used.share_of == "static":
        return min(total, int(share * total) + beside)
    if used.share_of == "free":
        fixed = beside + (parts["weights"] or 0) + (parts["vision"] or 0)
        return total if fixed >= total else fixed + int(share * (total - fixed))
    return int(share * total)
