"""How fast a copy of a model answers: a fitted roofline for GPUs, CPU time a token for CPUs. Predictions, until
measured.

GPUs: physics and form in roofline.py, coefficients fitted by `python -m inferlift.speedfit` in speed_fit.json, with
where they come from. What it means and how right it is: docs/sizing-speed.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from inferlift.profile import Model, Profile
from inferlift.sizing import roofline
from inferlift.sizing.correction import factor, features
from inferlift.sizing.hardware import Gpu, Layout, assumed
from inferlift.sizing.roofline import Run

_FIT = Path(__file__).with_name("speed_fit.json")
_ENGINES = {"triton": "trtllm", "nim": "trtllm"}  # Triton serves language models by TensorRT-LLM
_BUSY, _MANY = 0.3, 100  # share of a step that prompts take, requests at once: predictions spread more beyond
_CARRIED = (
    0.85  # exponent of a correction on another GPU type than it was learnt on; best of 0.4 to 1.1 over six left out
)
_NEWEST = 9.0  # compute capability from which GPUs are of the fit's kind


@dataclass(frozen=True)
class Speed:
    """Of one replica. Times are of a request that is alone on it: what no load can beat."""

    requests_per_s: float
    ttft_s: float  # with the p95 input
    total_s: float
    explain: str


@dataclass(frozen=True)
class Range:
    """A value, and between what it lies in 90 of 100 cases."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """Of one copy. Means over requests: time to the first token, time per token after it, output tokens a second of
    all requests in flight."""

    ttft_ms: Range
    tpot_ms: Range
    tokens_per_s: Range
    explain: tuple[str, ...]
    beyond: str  # in words, where the question lies outside of what was fitted; "": inside
    band: str = ""  # which of the fit's ranges was used


def predict(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    *,
    engine: str,
    input_tokens: float,
    output_tokens: float,
    concurrency: int,
) -> Prediction | None:
    """With `concurrency` requests always in flight on one copy. None: no data sheet, or a model without attention.

    `engine`: a server's kind, or sglang, trtllm. Where more requests are in flight than the memory holds, the wait
    for room is part of the time to the first token.
    """
    if not gpu.bandwidth or not gpu.flops or not model.layers:
        return None
    name = _ENGINES.get(engine, engine)
    run = Run(model, gpu, layout, name, max(input_tokens, 1.0), max(output_tokens, 1.0), max(concurrency, 1))
    return of(dated(run, fitted()), fitted())


def of(run: Run, fit: Mapping[str, Any]) -> Prediction:
    """The prediction of any run by any fit (the bench has its own)."""
    t, form = roofline.terms(run), fit["form"]
    tpot, prompts = roofline.tpot_s(t, form), roofline.prompts_s(t, form)
    ttft = roofline.ttft_s(t, form, tpot)
    where, beyond = _where(run, fit)
    explain = [
        f"TPOT: weights {t['t_weights'] * 1e3:.2f} ms and keys and values {t['t_kv'] * 1e3:.2f} ms at the data sheet's"
        f" bandwidth, compute {t['batch'] * t['t_token'] * 1e3:.2f} ms; a step of {t['batch']:.0f} requests takes"
        f" {roofline.step_s(t, form) * 1e3:.2f} ms, prompts of others add {prompts * 1e3:.2f} ms",
        f"TTFT: a prompt of {run.input_tokens:.0f} tokens alone"
        f" {run.input_tokens * roofline.prompt_token_s(t, form) * 1e3:.0f} ms; with queueing {ttft * 1e3:.0f} ms",
    ]
    if t["over"] > 1:
        explain.append(f"memory holds {t['batch']:.0f} of {t['asked']:.0f} requests at once: the rest wait for room")
    if where in ("measured", "new gpu"):
        form_tpot, form_ttft = tpot, ttft
        carried = 1.0 if where == "measured" else _CARRIED
        tpot *= factor(fit["tpot"], features(t, form_tpot, form_tpot, prompts)) ** carried
        ttft *= factor(fit["ttft"], features(t, form_ttft, form_tpot, prompts)) ** carried
        explain.append(
            f"corrected by measurements of the same model and engine: TPOT * {tpot / form_tpot:.2f},"
            f" TTFT * {ttft / form_ttft:.2f}"
        )
    output = run.output_tokens
    rate = run.concurrency * output / (ttft + tpot * (output - 1))
    band = _band(where, t, prompts / (tpot or 1.0))
    widths = fit["ranges"][band]
    return Prediction(
        _range(ttft * 1e3, widths["ttft"]),
        _range(tpot * 1e3, widths["tpot"]),
        _range(rate, widths["rate"]),
        tuple(explain),
        beyond,
        band,
    )


def dated(run: Run, fit: Mapping[str, Any]) -> Run:
    """With software as new as the newest that the same model was measured with."""
    return replace(run, month=fit["newest"].get(architecture(run), -1.0))


@cache
def fitted() -> Mapping[str, Any]:
    """The shipped coefficients."""
    found: Mapping[str, Any] = json.loads(_FIT.read_text(encoding="utf-8"))
    return found


def architecture(run: Run) -> str:
    """What the corrections are learnt for: an engine serving an architecture in a kind of format, prefill on the same
    GPUs or on others."""
    model = run.model
    bits = 16 if model.weight_bits >= 12 else 8 if model.weight_bits >= 6 else 4
    computed = "computed" if bits == 4 and model.weight_format in ("nvfp4", "mxfp4") else "bits"
    keys = "latent" if model.attention == "latent" else f"{model.kv_heads}kv"
    body = f"{model.layers}x{model.hidden or model.heads * model.head_dim} {keys}"
    return f"{run.engine} {body} {bits} {computed}{' apart' if run.pools else ''}"


def on_cpu(profile: Profile, cpus: float, core_bandwidth: float | None = None) -> Speed:
    """Prompt and reply at the FLOP/s a core was measured to reach, and no faster than memory gives the weights.

    `core_bandwidth`: bytes/s of memory for each core while all of them read; None: the measured core's own, which the
    FLOP/s hold already. A step of `slots` replies reads the weights once.
    """
    cores = min(cpus, float(profile.server.threads))
    model = profile.model
    flop = 2 * _active(profile)
    read_s = flop / assumed("cpu_prefill_flops")  # core seconds a token
    write_s = flop / assumed("cpu_decode_flops")
    step_s = _active(profile) * model.weight_bits / 8 / core_bandwidth if core_bandwidth else 0.0  # core seconds
    alone_s, shared_s = max(write_s, step_s), max(write_s, step_s / profile.server.slots)
    asked = profile.requests
    core_s = asked.input_tokens_p50 * read_s + asked.output_tokens * shared_s
    ttft = (asked.input_tokens_p95 * read_s + alone_s) / cores
    limit = " (memory)" if step_s > write_s else ""
    return Speed(
        requests_per_s=cores / core_s,
        ttft_s=ttft,
        total_s=ttft + (asked.output_tokens - 1) * alone_s / cores,
        explain=f"{cores:g} cores / ({asked.input_tokens_p50} tokens * {read_s * 1000:.2f} ms"
        f" + {asked.output_tokens} tokens * {shared_s * 1000:.2f} ms{limit}) = {cores / core_s:.3g} requests/s",
    )


def _where(run: Run, fit: Mapping[str, Any]) -> tuple[str, str]:
    """How near the question is to what was measured, and in words what is not."""
    on = fit["seen"].get(architecture(run))
    capability = run.gpu.compute_capability or 0.0
    said = []
    if on is None:
        said.append(f"{run.model.name} in this format on {run.engine} is not among the measured models")
    if capability < _NEWEST:
        said.append(f"{run.gpu.name} is of a kind that was not measured (data sheet only)")
        where = "new kind"
    elif on is None:
        where = "new model"
    elif run.gpu.name not in on:
        said.append(f"it was not measured on {run.gpu.name}")
        where = "new gpu"
    else:
        where = "measured"
    if run.layout.pipeline > 1:
        said.append("pipeline stages were not measured")
    asked = {
        "requests in flight": run.concurrency,
        "input tokens": run.input_tokens,
        "output tokens": run.output_tokens,
    }
    for what, value in asked.items():
        low, high = fit["span"][what]
        if not low <= value <= high:
            said.append(f"measured with {low:g} to {high:g} {what}")
    return where, "; ".join(said)


def _band(where: str, t: Mapping[str, float], prompts_share: float) -> str:
    if where != "measured":
        return where
    if not t["agg"]:
        return "pools" if t["told"] and not t["drafted"] else "pools, not told"
    if t["over"] > 1:
        return "crowded"
    return "busy" if prompts_share > _BUSY or t["batch"] > _MANY else "measured"


def _range(value: float, band: tuple[float, float]) -> Range:
    return Range(value, value * band[0], value * band[1])


def _active(profile: Profile) -> int:
    return profile.model.parameters_active or profile.model.parameters_total
