"""How fast a replica answers: a roofline for GPUs, CPU time a token for CPUs. Predictions, until measured."""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.profile import Profile
from inferlift.sizing.hardware import Gpu, assumed
from inferlift.sizing.memory import kv_bytes_per_token


@dataclass(frozen=True)
class Speed:
    """Of one replica. Times are of a request that is alone on it: what no load can beat."""

    requests_per_s: float
    ttft_s: float  # with the p95 input
    total_s: float
    explain: str


def on_cpu(profile: Profile, cpus: float) -> Speed:
    """Prompt and reply at the FLOP/s a core was measured to reach; `slots` gain nothing where compute is the limit."""
    cores = min(cpus, float(profile.server.threads))
    flop = 2 * _active(profile)
    read_s = flop / assumed("cpu_prefill_flops")  # core seconds a token
    write_s = flop / assumed("cpu_decode_flops")
    asked = profile.requests
    core_s = asked.input_tokens_p50 * read_s + asked.output_tokens * write_s
    ttft = (asked.input_tokens_p95 * read_s + write_s) / cores
    return Speed(
        requests_per_s=cores / core_s,
        ttft_s=ttft,
        total_s=ttft + (asked.output_tokens - 1) * write_s / cores,
        explain=f"{cores:g} cores / ({asked.input_tokens_p50} tokens * {read_s * 1000:.2f} ms"
        f" + {asked.output_tokens} tokens * {write_s * 1000:.2f} ms) = {cores / core_s:.3g} requests/s",
    )


def on_gpu(profile: Profile, gpu: Gpu, tensor_parallel: int) -> Speed | None:
    """Bytes over bandwidth for each step, plus a cost a layer; FLOP over FLOP/s for prompts. None: no data sheet."""
    if gpu.bandwidth is None or gpu.flops is None:
        return None
    model, asked, slots = profile.model, profile.requests, profile.server.slots
    bandwidth = gpu.bandwidth * assumed("gpu_bandwidth_share") * tensor_parallel
    flops = gpu.flops * assumed("gpu_compute_share") * tensor_parallel
    layers_s = model.layers * assumed("gpu_layer_us") * 1e-6 * (2 if tensor_parallel > 1 else 1)
    kv = kv_bytes_per_token(model, tensor_parallel) * tensor_parallel

    def step_s(batch: int) -> float:
        # a step of many sessions touches more experts than one token's; at most all of them
        touched = min(batch * _active(profile), model.parameters_total) * model.weight_bits / 8
        held = batch * kv * (asked.input_tokens_p50 + asked.output_tokens / 2)
        return max((touched + held) / bandwidth, batch * 2 * _active(profile) / flops) + layers_s

    prefill_s = 2 * _active(profile) * asked.input_tokens_p50 / flops
    first_s = 2 * _active(profile) * asked.input_tokens_p95 / flops + step_s(1)
    rate = slots / (asked.output_tokens * step_s(slots) + slots * prefill_s)
    return Speed(
        requests_per_s=rate,
        ttft_s=first_s,
        total_s=first_s + (asked.output_tokens - 1) * step_s(1),
        explain=f"{slots} slots / ({asked.output_tokens} steps * {step_s(slots) * 1000:.2f} ms"
        f" + {slots} * {prefill_s * 1000:.2f} ms prefill) = {rate:.3g} requests/s",
    )


def _active(profile: Profile) -> int:
    return profile.model.parameters_active or profile.model.parameters_total
