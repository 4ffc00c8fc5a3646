"""What the fitted form leaves over, learnt by small regression trees: a factor on its time, read from physical
features. Pure Python: one factor takes well under 0.1 ms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Tree = Any
"""[feature index, threshold, tree if <=, tree if >], or the leaf's value."""

FEATURES = (
    "requests", "on a rank", "tensor", "gpus", "input", "output", "input by output", "one pool", "told", "drafted",
    "trtllm", "sglang", "16 bits", "4 bits", "latent", "windowed", "hybrid", "ranks", "expert ranks", "layers",
    "hidden", "active", "over", "time", "weights share", "keys share", "compute share", "prompts share", "touched",
    "month", "workers", "prefill workers", "prefill gpus",
)  # fmt: skip


def features(t: Mapping[str, float], time_s: float, tpot: float, prompts: float) -> list[float]:
    """Of one run, in the order of FEATURES. `time_s`: what the form says, to be corrected."""
    log = math.log
    step = max(tpot - prompts, 1e-9)
    return [
        log(t["batch"]),
        log(t["rank"]),
        t["log_tensor"],
        log(t["gpus"]),
        log(t["isl"]),
        log(t["osl"]),
        log(t["isl"] / t["osl"]),
        t["agg"],
        t["told"],
        t["drafted"],
        t["trtllm"],
        t["sglang"],
        t["bits16"],
        t["bits4"] + t["only4"],
        t["latent"],
        t["windowed"],
        t["hybrid"],
        t["data_parallel"],
        t["expert_parallel"],
        t["layers"],
        t["hidden"],
        log(t["active"]),
        log(t["over"]),
        log(time_s),
        t["t_weights"] / step,
        t["t_kv"] / step,
        t["batch"] * t["t_token"] / step,
        prompts / tpot,
        t["touched"],
        t["month"],
        t["workers"],
        t["prefill_workers"],
        t["prefill_gpus"],
    ]


def factor(trees: Sequence[Tree], x: Sequence[float]) -> float:
    """exp(sum of the leaves `x` falls into)."""
    total = 0.0
    for tree in trees:
        node = tree
        while type(node) is list:
            node = node[2] if x[node[0]] <= node[1] else node[3]
        total += node
    return math.exp(total)
