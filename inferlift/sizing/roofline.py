"""What one step of serving must move and compute, and the fitted form that makes times of it.

`terms` holds physics only (data-sheet rates, bytes, FLOP, hops). `tpot_s` and `ttft_s` are written with arithmetic
alone, so that the same lines serve one prediction (floats) and the fit (numpy arrays).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferlift.profile import Model
from inferlift.sizing.hardware import Gpu, Layout

ENGINES = ("trtllm", "vllm", "sglang")
"""Engines with coefficients of their own; any other is taken as vllm, llama.cpp with its own assumption."""

# What fills before requests wait: assumption, near the most that engines are set to (0.95 of a GPU's memory) less a
# CUDA context, graphs and activations; a request holds its mean length, since blocks are taken as it grows.
_SHARE, _OVERHEAD = 0.95, 2e9

Number = Any
"""A float, or an array of them while fitting."""


@dataclass(frozen=True)
class Pools:
    """Prefill on GPUs of its own. None: the source does not say."""

    prefill_gpus: float  # of one prefill worker
    prefill_workers: float | None = None
    decode_workers: float | None = None


@dataclass(frozen=True)
class Run:
    """One copy of a model under a steady number of requests, each with as many tokens in and out."""

    model: Model
    gpu: Gpu
    layout: Layout
    engine: str
    input_tokens: float
    output_tokens: float
    concurrency: float
    data_parallel: int = 1  # attention copies among the layout's GPUs (requests are divided between them)
    expert_parallel: int = 1
    pools: Pools | None = None
    plain: bool = True  # False: the source does not say that no tokens were drafted ahead
    month: float = -1  # months since 2025-01 that the software is from; -1: not said


@dataclass(frozen=True)
class Shape:
    """Of a model: what a token touches. Parameters, not bytes, unless the name says so."""

    shared: float  # outside of the routed experts, without the token embeddings
    expert: float  # one expert, over all its layers
    experts: float
    chosen: float  # experts a token goes through
    head_bytes: float
    shared_bytes: float
    expert_bytes: float
    file_bytes: float
    hidden: float


def shape(model: Model) -> Shape:
    """From totals alone where the architecture's details are unknown: total = shared + experts * e and
    active = shared + chosen * e give both. A dense model has no experts."""
    hidden = model.hidden or model.heads * model.head_dim
    table = (model.vocab or 0) * hidden  # the token embeddings are looked up, not read
    untied = 0 if model.tied_embeddings else table
    active = model.parameters_active or model.parameters_total
    experts, chosen, expert = 0.0, 0.0, 0.0
    if active < model.parameters_total:
        experts, chosen = float(model.experts or 128), float(model.experts_per_token or 8)
        expert = (model.parameters_total - active) / max(experts - chosen, 1)
    shared = max(active - chosen * expert - untied, table)
    file_bytes = model.parameters_total * model.weight_bits / 8
    head_bytes = table * 2.0
    # in mixtures of experts the 4-bit formats leave attention and shared layers at 16 bits
    body = shared - table
    body_bits = 16.0 if experts and model.weight_bits < 6 else model.weight_bits
    if experts:
        shared_bytes = body * body_bits / 8
        expert_bytes = max(file_bytes - shared_bytes - head_bytes - untied * 2, 0) / experts
    else:
        quantised = model.weight_bits < 15
        shared_bytes = max(file_bytes - head_bytes - untied * (2 if quantised else model.weight_bits / 8), 0)
        expert_bytes = 0.0
    return Shape(shared, expert, experts, chosen, head_bytes, shared_bytes, expert_bytes, file_bytes, float(hidden))


def kv_bytes(model: Model, context: float, tensor: float) -> float:
    """On one GPU, of one request with `context` tokens."""
    if model.attention == "latent":
        values = float((model.kv_lora_rank or 0) + (model.rope_dim or 0))
    else:
        values = 2.0 * math.ceil(model.kv_heads / tensor) * model.head_dim
    layers = model.layers if model.kv_layers is None else model.kv_layers
    windowed = (model.layers if model.window_layers is None else model.window_layers) if model.window else 0
    windowed = min(windowed, layers)
    kept = (layers - windowed) * context + windowed * min(context, model.window or 0)
    return values * model.kv_bits / 8 * kept


def flops_rate(model: Model, gpu: Gpu) -> float:
    """FLOP/s of one GPU at the model's format: weight-only formats compute at 16 bits. 0: no data sheet."""
    sixteen = gpu.flops or 0.0
    name = model.weight_format or ""
    if name in ("nvfp4", "mxfp4"):
        return gpu.flops_fp4 or sixteen
    if name == "int8" and gpu.ops_int8:
        return gpu.ops_int8
    if name == "fp8" and gpu.fp8:
        return gpu.flops_fp8 or sixteen
    return sixteen


def terms(run: Run) -> dict[str, float]:
    """Seconds and counts of one decode step and of one prompt token on the fullest GPU, at the data sheet's rates.

    The GPU must have a bandwidth and FLOP/s (`Gpu.bandwidth`, `Gpu.flops`).
    """
    model, gpu, m = run.model, run.gpu, shape(run.model)
    gpus = run.layout.gpus
    groups = run.data_parallel
    tensor = max(run.layout.tensor / groups, 1.0)
    workers = run.pools.decode_workers if run.pools and run.pools.decode_workers else 1.0
    bandwidth, sixteen, rate = gpu.bandwidth or 1.0, gpu.flops or 1.0, flops_rate(model, gpu) or 1.0
    link = gpu.link or 25e9  # assumption: what PCIe 4.0 x16 carries (32e9 by the standard, about 0.8 of it usable)
    context = run.input_tokens + run.output_tokens / 2
    each = kv_bytes(model, context, tensor)
    free = (_SHARE * gpu.vram_mib * 2**20 - _OVERHEAD) * gpus - m.file_bytes
    stages = float(run.layout.pipeline)
    # weights that do not fit are refused elsewhere; here the layout is wrong, not the number of requests
    most = max(free / gpus / each * stages * groups, 1.0) if free > 0 and each else math.inf
    asked = max(run.concurrency / workers, 1.0)
    batch = min(asked, most)
    rank = max(batch / groups, 1.0)
    # stages work on a part of the requests each; a token passes all of them, one after the other
    lane = max(batch / stages, 1.0)
    touched = m.experts * (1 - (1 - m.chosen / m.experts) ** lane) if m.experts else 0.0
    weights = (m.shared_bytes + m.head_bytes) / tensor + touched * m.expert_bytes / gpus * stages
    per_token = 2 * (m.shared + m.chosen * m.expert) / gpus
    width = 544.0 if model.attention == "latent" else float(model.head_dim)
    kv_layers = model.layers if model.kv_layers is None else model.kv_layers
    windowed = (model.layers if model.window_layers is None else model.window_layers) if model.window else 0
    look = 4 * model.heads * width / gpus / sixteen
    hops = model.layers * m.hidden * 2 * 2
    moe_layers = float(model.layers) if m.experts else 0.0
    pool = run.pools
    return {
        "asked": asked,
        "batch": batch,
        "rank": rank,
        "over": max(asked / most, 1.0),
        "free": free,
        "isl": run.input_tokens,
        "osl": run.output_tokens,
        "t_weights": weights / bandwidth,
        "t_kv": max(rank / stages, 1.0) * each / bandwidth,
        "t_token": per_token / rate,
        "t_look": look * (kv_layers - windowed) * run.input_tokens / 2
        + look * windowed * min(run.input_tokens / 2, float(model.window or 0)),
        "t_link": hops * (tensor - 1) / tensor / link,
        "t_a2a": moe_layers * m.hidden * 4 * m.chosen / gpus * (run.expert_parallel - 1) / run.expert_parallel / link,
        "layers": float(model.layers),
        "moe_layers": moe_layers,
        "shared_layers": float(model.layers) if tensor > 1 else 0.0,
        "log_tensor": math.log2(tensor),
        "no_link": float(gpu.link is None and tensor > 1),
        "agg": float(pool is None),
        "told": float(pool is None or pool.decode_workers is not None),
        "drafted": float(not run.plain),
        "prefill_gpus": (pool.prefill_gpus * (pool.prefill_workers or 1.0)) if pool else gpus / stages,
        "gpus": float(gpus),
        "trtllm": float(run.engine == "trtllm"),
        "sglang": float(run.engine == "sglang"),
        "vllm": float(run.engine not in ("trtllm", "sglang", "llamacpp")),
        "llamacpp": float(run.engine == "llamacpp"),
        "bits16": float(model.weight_bits >= 12),
        "bits8": float(6 <= model.weight_bits < 12),
        "bits4": float(model.weight_bits < 6 and rate > sixteen),
        "only4": float(model.weight_bits < 6 and rate <= sixteen),
        "latent": float(model.attention == "latent"),
        "hybrid": float(model.kv_layers is not None and model.kv_layers < model.layers),
        "windowed": float(bool(model.window)),
        "fast": float((gpu.compute_capability or 0) >= 10),
        "data_parallel": float(groups),
        "expert_parallel": float(run.expert_parallel),
        "hidden": m.hidden,
        "active": m.shared + m.chosen * m.expert,
        "touched": touched / m.experts if m.experts else 1.0,
        "month": run.month,
        "workers": workers if pool and pool.decode_workers else 0.0,
        "prefill_workers": (pool.prefill_workers or 0.0) if pool else 0.0,
    }


def step_s(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    """One decode step: the slower of memory and compute (rounded off), layers, host, links."""
    part = _part(t, c)
    memory = t["t_weights"] * c["weights"] * (
        1 + t["bits8"] * c["weights8"] + t["bits4"] * c["weights4"] + t["only4"] * c["weights_only4"]
    ) + t["t_kv"] * part * c["kv"] * (1 + t["latent"] * c["kv_latent"] + t["hybrid"] * c["kv_hybrid"])
    compute = t["batch"] * part * _token_s(t, c)
    layers = (
        t["layers"] * c["layer"]
        + t["shared_layers"] * c["layer_shared"]
        + t["layers"] * t["log_tensor"] * c["layer_log"]
        + t["moe_layers"] * c["layer_moe"]
        + t["layers"] * t["latent"] * c["layer_latent"]
        + t["layers"] * t["no_link"] * c["layer_no_link"]
    )
    layers = layers * _engine(t, c, "layer") * (1 - t["fast"] * (1 - c["layer_fast"]))
    host = (c["host"] + t["rank"] * part * c["host_each"]) * _engine(t, c, "host")
    links = t["batch"] * part * (t["t_link"] * c["link"] + t["t_a2a"] * c["a2a"])
    step = (memory**4 + compute**4) ** 0.25 + layers + host + links
    return step * (1 - t["drafted"] * (1 - c["drafted"]))


def prompts_s(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    """What the prompts of others add to a step: in steady state isl/osl prompt tokens come with each new one."""
    return t["agg"] * t["batch"] * t["isl"] / t["osl"] * prompt_token_s(t, c) * _engine(t, c, "prompt")


def prompt_token_s(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    """One token of a prompt, read in chunks with others."""
    return _token_s(t, c) + t["t_look"] * c["look"] + t["t_link"] * c["link"] + t["t_a2a"] * c["a2a"]


def tpot_s(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    """Mean time per output token after the first."""
    return step_s(t, c) + prompts_s(t, c)


def ttft_s(t: Mapping[str, Number], c: Mapping[str, float], tpot: Number) -> Number:
    """Mean time to the first token in a closed loop: own prompt, others' prompts before it, the start together,
    and the wait for room where more requests are in flight than the memory holds."""
    alone = t["isl"] * prompt_token_s(t, c) * t["gpus"] / t["prefill_gpus"]
    prompts = prompts_s(t, c)
    share = prompts / tpot
    ahead = t["batch"] * alone
    rest = ahead - t["osl"] * tpot  # prefill that cannot keep up makes requests wait before it
    lag = (rest + abs(rest)) / 2
    return (
        c["first"]
        + t["layers"] * c["first_layer"]
        + alone * c["alone"] * (1 + c["queue"] * share / (1.05 - share))
        + (tpot - prompts) * c["first_step"]
        + ahead * (t["agg"] * c["together"] + (1 - t["agg"]) * c["together_apart"])
        + lag * c["lag"] * (1 - t["agg"])
        + (t["over"] - 1) * t["told"] * t["osl"] * tpot * c["room"]
        + (1 - t["agg"]) * c["handover"]
    ) * _engine(t, c, "first")


def _token_s(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    return t["t_token"] * c["flops"] * (1 + t["bits4"] * c["flops4"] + t["bits8"] * c["flops8"])


def _part(t: Mapping[str, Number], c: Mapping[str, float]) -> Number:
    """Of the requests in flight, those on one decode worker where the source does not say how many there are."""
    return t["told"] + (1 - t["told"]) * c["part"]


def _engine(t: Mapping[str, Number], c: Mapping[str, float], what: str) -> Number:
    return (
        t["trtllm"]
        + t["vllm"] * c[f"{what}_vllm"]
        + t["sglang"] * c[f"{what}_sglang"]
        + t["llamacpp"] * c["plain_engine"]
    )
