"""How many bytes a replica needs: weights, keys and values of the sessions it decodes at once, overhead."""

from __future__ import annotations

import math

from inferlift.artifacts import Memory
from inferlift.profile import Model, Server
from inferlift.sizing.hardware import assumed, assumptions

GIB = 2**30


def weights_bytes(model: Model) -> int:
    """All parameters, of a mixture of experts too: each expert must be there. weight_bits includes scales."""
    return math.ceil(model.parameters_total * model.weight_bits / 8)


def kv_bytes_per_token(model: Model, tensor_parallel: int = 1) -> int:
    """Keys and values of one token on one of the GPUs that share each layer (grouped-query attention).

    2 * layers * ceil(kv_heads / tp) * head_dim * bytes: kv heads are not split further than one a GPU.
    """
    heads = math.ceil(model.kv_heads / tensor_parallel)
    return math.ceil(2 * model.layers * heads * model.head_dim * model.kv_bits / 8)


def memory(model: Model, server: Server, *, on_gpu: bool, tensor_parallel: int = 1) -> Memory:
    """The need of one replica in all, over the GPUs that share it."""
    context = server.context_per_slot or model.context
    name = "gpu_overhead_bytes" if on_gpu else "cpu_overhead_bytes"
    overhead = int(assumed(name)) * tensor_parallel
    weights = weights_bytes(model)
    per_gpu = kv_bytes_per_token(model, tensor_parallel)
    per_token = per_gpu * tensor_parallel
    kv = per_token * server.slots * context
    heads = math.ceil(model.kv_heads / tensor_parallel)
    shared = f" on each of {tensor_parallel} GPUs" if tensor_parallel > 1 else ""
    return Memory(
        weights_bytes=weights,
        kv_bytes_per_token=per_token,
        kv_bytes=kv,
        overhead_bytes=overhead,
        total_bytes=weights + kv + overhead,
        explain=(
            f"weights: {model.parameters_total} parameters * {model.weight_bits:g} bits / 8 = {_gib(weights)}",
            f"KV a token: 2 * {model.layers} layers * {heads} kv heads * {model.head_dim} head_dim"
            f" * {model.kv_bits:g} bits / 8 = {per_gpu} bytes{shared}",
            f"KV: {per_token} bytes * {server.slots} slots * {context} tokens = {_gib(kv)}",
            f"overhead: {_gib(overhead)} ({assumptions()[name].source})",
            f"in all: {_gib(weights + kv + overhead)}",
        ),
    )


def tensor_parallel_sizes(model: Model, gpus: int) -> list[int]:
    """Over how many of a host's GPUs a layer can be split: powers of two that divide the attention heads."""
    return [tp for tp in (1, 2, 4, 8, 16) if tp <= gpus and model.heads % tp == 0]


def _gib(count: int) -> str:
    return f"{count / GIB:.3f} GiB"
