"""How one host of an offer would serve the workload, whatever it holds: GPUs, a CPU, or nothing that can be used."""

from __future__ import annotations

from inferlift.artifacts import Offer
from inferlift.profile import Profile
from inferlift.sizing import compat, copies, hardware, items
from inferlift.sizing.copies import Known
from inferlift.sizing.hardware import assumed
from inferlift.sizing.memory import GIB, memory
from inferlift.sizing.reach import TOKENS_PER_S, TOTAL, TTFT, Served, Unserved, no_memory
from inferlift.sizing.speed import on_cpu


def serve(profile: Profile, offer: Offer, known: Known) -> Served | Unserved:
    """The offer's host at work, or why it cannot be. `known` is filled and read: offers share their GPUs."""
    if offer.offered is False:
        return Unserved(offer.name, no_memory(profile), f"not offered in {offer.region}")
    if offer.arch is not None and profile.server.arch not in ("any", offer.arch):
        why = f"an {offer.arch} host, and server.arch is {profile.server.arch}"
        return Unserved(offer.name, no_memory(profile), why)
    if offer.gpu is None:
        return _without_gpu(profile, offer)
    gpu = hardware.gpu(offer.gpu, offer.vram_mib or 0) or hardware.named(offer.gpu)
    if gpu is None:
        return Unserved(offer.name, no_memory(profile), f"no data sheet of {offer.gpu}")
    for check in (compat.weights(gpu, profile.model.weight_format), compat.cache_of(gpu, profile.model.kv_format)):
        if check.verdict == "fail":
            return Unserved(offer.name, no_memory(profile), check.detail)
    if offer.gpu_fraction < 1 or offer.gpu_count < 1:
        return Unserved(offer.name, no_memory(profile), "a slice of a GPU; not compared")
    if items.by_item(profile):
        return items.on_device(profile, offer, gpu)
    return copies.on_gpu(profile, offer, gpu, known)


def _without_gpu(profile: Profile, offer: Offer) -> Served | Unserved:
    lab = profile.lab if profile.target == "lab" else None
    cpus = offer.vcpu or (lab.model_cpus if lab else None)
    ram = offer.ram_gib or (lab.model_memory_mb / 1024 if lab else None)
    sized = offer.model_copy(update={"vcpu": cpus, "ram_gib": ram})
    name = f"{offer.name} {cpus:g} CPU" if cpus and lab else offer.name
    if items.by_item(profile):
        found = items.on_device(profile, sized, None)
        return type(found)(**{**found.__dict__, "name": name})
    asked = memory(profile.model, profile.server, on_gpu=False)
    if ram is not None and asked.total_bytes > ram * GIB:
        return Unserved(name, asked, f"needs {asked.total_bytes / GIB:.2f} GiB of memory, has {ram:.2f}")
    if profile.task == "multimodal":
        return Unserved(name, asked, "images and text on a CPU: nothing here predicts it")
    threads = profile.server.threads
    # what a cloud calls a vCPU is a hyper-thread: two of them are the core that the figures are of
    cores = cpus if lab is not None or cpus is None else cpus / 2
    at_once = max(1, int((cores or threads) // threads))
    if ram is not None and lab is None:
        at_once = max(1, min(at_once, int(ram * GIB // asked.total_bytes)))
    bandwidth = None if lab is not None else assumed("cpu_core_bandwidth")
    speed = on_cpu(profile, cores or float(threads), bandwidth)
    reached = {TTFT: speed.ttft_s * 1000, TOTAL: speed.total_s * 1000}
    reached[TOKENS_PER_S] = 1 / speed.total_s
    if profile.requests.output_tokens > 1:
        reached[TOKENS_PER_S] = (profile.requests.output_tokens - 1) / max(speed.total_s - speed.ttft_s, 1e-9)
    rate, explain = speed.requests_per_s * at_once, speed.explain
    return Served(
        name=name, memory=asked, rate=rate, explain=explain if at_once == 1 else f"{at_once} x ({explain})",
        reached=reached, copies=at_once,
    )  # fmt: skip
