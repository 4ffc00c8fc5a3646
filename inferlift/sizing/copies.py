"""Language models on GPUs: how the model lies over them, and how many sessions at once still meet the targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from inferlift.artifacts import Interval, Memory, Offer
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.sizing import image_tokens
from inferlift.sizing.hardware import Gpu, Layout, assumed
from inferlift.sizing.memory import GIB, Need, kv_bytes_per_token, layouts, most_sessions, need, weights_bytes
from inferlift.sizing.reach import (
    TOKENS_PER_S,
    TOTAL,
    TTFT,
    Served,
    Unserved,
    context_of,
    image_context,
    network_ms,
    no_memory,
    over,
)
from inferlift.sizing.roofline import flops_rate
from inferlift.sizing.speed import Range, predict

MOST_OF_FLOPS = 0.74
MOST_AT_ONCE = 256  # vLLM's default for max_num_seqs, https://docs.vllm.ai/en/latest/configuration/engine_args.html


@dataclass(frozen=True)
class Copy:
    """One copy of the model on the GPUs of a layout."""

    layout: Layout
    sessions: int
    rate: float
    need: Need
    reached: Mapping[str, float]
    ranges: Mapping[str, Interval]
    tokens_per_s: Interval
    explain: str
    beyond: str
    short: float  # by how much targets are missed, as shares added up; 0: all are met


Known = dict[tuple[object, ...], Copy | str]


def on_gpu(profile: Profile, offer: Offer, gpu: Gpu, known: Known) -> Served | Unserved:
    """The layout whose copies, filling the host, answer most requests a second of those that meet most."""
    found: list[tuple[tuple[float, float], Copy, int]] = []
    whys = []
    for layout in layouts(profile.model, offer.gpu_count):
        key = (gpu.name, gpu.vram_mib, layout)
        if key not in known:
            known[key] = _copy(profile, gpu, layout)
        copy = known[key]
        if isinstance(copy, str):
            whys.append(copy)
            continue
        copies = offer.gpu_count // layout.gpus
        found.append(((copy.short, -copy.rate * copies), copy, copies))
    if not found:
        # the largest layout comes nearest: its reason says what is missing
        why = whys[-1] if whys else "the model cannot be split over its GPUs"
        return Unserved(offer.name, no_memory(profile), why)
    _, best, copies = min(found, key=lambda row: row[0])
    split = f"{copies} x {said(best.layout)}"
    return Served(
        name=offer.name,
        memory=_memory(profile, best),
        rate=best.rate * copies,
        explain=f"{split}: {best.explain}",
        reached=best.reached,
        ranges=best.ranges,
        gpu=gpu,
        layout=best.layout,
        copies=copies,
        sessions=best.sessions,
        need=best.need,
        tokens_per_s=best.tokens_per_s,
        beyond=best.beyond,
    )


def said(layout: Layout) -> str:
    return f"tp {layout.tensor}" + (f" pp {layout.pipeline}" if layout.pipeline > 1 else "")


def _copy(profile: Profile, gpu: Gpu, layout: Layout) -> Copy | str:
    """The most sessions at once that meet the targets, or as near as one session comes; or why it does not fit."""
    model, server, context = profile.model, profile.server, context_of(profile)
    most = server.slots if "slots" in server.model_fields_set else MOST_AT_ONCE
    try:
        fits = most_sessions(model, server, gpu, layout, context, most)
    except DeclarationError as error:
        return f"{error.what}" + (f": {error.why}" if error.why else "")
    if fits < 1:
        wanted = need(model, server, gpu=gpu, layout=layout, sessions=1, context=context)
        have = (wanted.available or 0) / GIB
        over = f"{layout.gpus} x {gpu.name}" if layout.gpus > 1 else gpu.name
        return f"needs {wanted.total / GIB:.1f} GiB of GPU memory ({over}, the fullest GPU), may use {have:.1f}"
    steps = sorted({*(2**n for n in range(fits.bit_length())), fits})
    best = _at(profile, gpu, layout, steps[-1], context)
    if best is None:
        return f"bandwidth and FLOPS of {gpu.name} are unknown"
    if best.short == 0 or len(steps) == 1:
        return best
    # More sessions are slower for each of them: the most that still meet the targets, else what one alone reaches.
    best = _at(profile, gpu, layout, steps[0], context)
    low, high = 0, len(steps) - 2
    while low <= high:
        middle = (low + high) // 2
        found = _at(profile, gpu, layout, steps[middle], context)
        if found is not None and found.short == 0:
            best, low = found, middle + 1
        else:
            high = middle - 1
    return best if best is not None else f"bandwidth and FLOPS of {gpu.name} are unknown"


def _at(profile: Profile, gpu: Gpu, layout: Layout, sessions: int, context: int) -> Copy | None:
    asked, model = profile.requests, profile.model
    images = image_context(profile)
    kind = profile.server.engine
    usual = predict(
        model, gpu, layout, engine=kind, input_tokens=asked.input_tokens_p50 + images,
        output_tokens=max(asked.output_tokens, 1), concurrency=sessions,
    )  # fmt: skip
    long = usual
    if usual is not None and asked.input_tokens_p95 != asked.input_tokens_p50:
        long = predict(
            model, gpu, layout, engine=kind, input_tokens=asked.input_tokens_p95 + images,
            output_tokens=max(asked.output_tokens, 1), concurrency=sessions,
        )  # fmt: skip
    if usual is None or long is None:
        return None
    encoder_ms, way_ms = _encoder_ms(profile, gpu, layout), network_ms(profile)
    writes = (asked.output_tokens_p95 or asked.output_tokens) - 1
    ttft = _plus(long.ttft_ms, encoder_ms + way_ms)
    total = Range(*(first + writes * each for first, each in zip(_parts(ttft), _parts(usual.tpot_ms), strict=True)))
    speed = Range(1000 / usual.tpot_ms.value, 1000 / usual.tpot_ms.high, 1000 / usual.tpot_ms.low)
    ranges = {TTFT: _interval(ttft, "ms"), TOTAL: _interval(total, "ms"), TOKENS_PER_S: _interval(speed, "tokens/s")}
    reached = {key: found.value for key, found in ranges.items()}
    request_s = (usual.ttft_ms.value + encoder_ms + (asked.output_tokens - 1) * usual.tpot_ms.value) / 1000
    rate = min(sessions / request_s, _most_by_compute(profile, gpu, layout, images))
    if encoder_ms:
        rate = min(rate, 1000 / encoder_ms)  # each request's images keep the GPUs busy so long
    wanted = {key: limit for key in ranges if (limit := getattr(profile.targets, key)) is not None}
    short = sum(over(key, reached[key], limit) for key, limit in wanted.items())
    return Copy(
        layout=layout,
        sessions=sessions,
        rate=rate,
        need=need(model, profile.server, gpu=gpu, layout=layout, sessions=sessions, context=context),
        reached=reached,
        ranges=ranges,
        tokens_per_s=_interval(usual.tokens_per_s, "tokens/s"),
        explain=f"{sessions} sessions / ({usual.ttft_ms.value + encoder_ms:.0f} ms + {asked.output_tokens - 1} tokens"
        f" * {usual.tpot_ms.value:.2f} ms) = {rate:.3g} requests/s",
        beyond=usual.beyond,
        short=short,
    )


def _most_by_compute(profile: Profile, gpu: Gpu, layout: Layout, images: int) -> float:
    """Requests/s whose FLOP (2 a parameter and token, read or written) the GPUs can do at all."""
    asked, model = profile.requests, profile.model
    flop = 2 * (model.parameters_active or model.parameters_total)
    flop *= asked.input_tokens_p50 + images + asked.output_tokens
    # a batch that is mostly prompts comes near the data sheet's share of the fit's upper bound (docs/sizing-speed.md)
    return MOST_OF_FLOPS * flops_rate(model, gpu) * layout.gpus / flop if flop else math.inf


def _encoder_ms(profile: Profile, gpu: Gpu, layout: Layout) -> float:
    """The vision encoder's share of the first token: its FLOP at the share of the data sheet that prefill reaches."""
    asked, model = profile.requests, profile.model
    family = image_tokens.family_of(model.name)
    if not asked.image_width or not asked.image_height or family is None or not model.vision_parameters:
        return 0.0
    if gpu.flops is None:
        return 0.0
    told = image_tokens.image_tokens(asked.image_width, asked.image_height, family)
    flop = image_tokens.encoder_flops(model.vision_parameters, told.patches) * asked.images_per_request
    return flop / (gpu.flops * assumed("gpu_compute_share") * layout.tensor) * 1000


def _memory(profile: Profile, copy: Copy) -> Memory:
    gpus, parts = copy.layout.gpus, copy.need
    return Memory(
        weights_bytes=weights_bytes(profile.model),
        kv_bytes_per_token=kv_bytes_per_token(profile.model, copy.layout) * copy.layout.tensor,
        kv_bytes=parts.kv * gpus,
        overhead_bytes=(parts.total - parts.weights - parts.kv) * gpus,
        total_bytes=parts.total * gpus,
        explain=parts.lines,
        gpu_bytes=parts.total,
        gpu_available_bytes=parts.available,
    )


def _parts(found: Range) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def _plus(found: Range, more: float) -> Range:
    return Range(found.value + more, found.low + more, found.high + more)


def _interval(found: Range, unit: str) -> Interval:
    return Interval(value=found.value, low=min(found.low, found.value), high=max(found.high, found.value), unit=unit)
