"""Images and texts: devices side by side, each offered as much as it answers within the target."""

from __future__ import annotations

from collections.abc import Callable

from inferlift.artifacts import Interval, ItemRate, Memory, Offer
from inferlift.profile import Profile
from inferlift.sizing import batching, vision
from inferlift.sizing.hardware import Gpu, assumed
from inferlift.sizing.memory import GIB, memory
from inferlift.sizing.reach import TOTAL, Served, Unserved, network_ms, no_memory


def by_item(profile: Profile) -> bool:
    """Whether the work is counted in images or texts instead of tokens written."""
    return profile.task in ("image", "embeddings") or (profile.task == "batch" and not profile.requests.output_tokens)


def on_device(profile: Profile, offer: Offer, gpu: Gpu | None) -> Served | Unserved:
    """Devices work side by side; each is offered as much as it answers within the target, or all it can."""
    one = vision.item_rate(profile, offer, gpu)
    devices = offer.gpu_count if gpu is not None else 1
    asked = no_memory(profile) if gpu is not None else memory(profile.model, profile.server, on_gpu=False)
    if one is None:
        why = "the FLOP of an item are unknown (model.flops_per_item)" if vision.flops_per_item(profile) is None else (
            "the host's size is unknown" if gpu is None else f"the FLOPS of {gpu.name} are unknown"
        )  # fmt: skip
        return Unserved(offer.name, asked, why)
    if (short := _too_small(profile, offer, gpu, asked)) is not None:
        return Unserved(offer.name, asked, short)
    per_request = profile.requests.images_per_request if profile.requests.image_width else 1
    service, unlucky = _of_requests(one, per_request, slow=False), _of_requests(one, per_request, slow=True)
    limit = profile.targets.p95_total_ms
    longer, shortest, longest = _longer_ms(profile, offer, gpu, one)
    target = None if limit is None else max(limit - network_ms(profile) - longer, 0.001)
    most = one.items_per_s.value / per_request
    reached: dict[str, float] = {}
    ranges: dict[str, Interval] = {}
    if target is not None and service is not None and unlucky is not None:
        # offered no more than it answers in time even where the prediction was too kind, if that can be
        least = one.items_per_s.low / per_request
        most = _most_within(unlucky, target, least) or _most_within(service, target, most)
        most = most or batching.COMFORTABLE * 1000 / service(1)
        usual = batching.choose(most, service, target).latency_ms or one.latency_ms.value
        worst = batching.choose(most, unlucky, target).latency_ms or one.latency_ms.high
        usual, worst = usual + longer + network_ms(profile), worst + longest + network_ms(profile)
        reached[TOTAL] = usual
        low = min(usual, one.latency_ms.low + shortest + network_ms(profile))
        ranges[TOTAL] = Interval(value=usual, low=low, high=max(usual, worst), unit="ms")
    else:
        most *= batching.FULL
    rate = most * devices
    return Served(
        name=offer.name,
        memory=asked,
        rate=rate,
        explain=f"{devices} x {most:.3g} requests/s of {per_request} item(s) = {rate:.3g} requests/s;"
        f" {one.explain[-1]}",
        reached=reached,
        ranges=ranges,
        gpu=gpu,
        copies=devices,
        items=one,
        beyond=one.beyond,
    )


def _longer_ms(profile: Profile, offer: Offer, gpu: Gpu | None, one: ItemRate) -> tuple[float, float, float]:
    """What a text of the 95th percentile takes beyond one of the median: expected, at the quick and the slow end."""
    asked = profile.requests
    if profile.model.flops_per_item is not None or asked.input_tokens_p95 <= asked.input_tokens_p50:
        return 0.0, 0.0, 0.0
    long = vision.item_rate(profile, offer, gpu, tokens=asked.input_tokens_p95)
    if long is None:
        return 0.0, 0.0, 0.0
    a, b = one.latency_ms, long.latency_ms
    return b.value - a.value, b.low - a.low, b.high - a.high


def _of_requests(one: ItemRate, items: int, *, slow: bool) -> Callable[[int], float] | None:
    """Milliseconds of a batch of so many requests, all of whose items are worked off."""
    each = vision.service_time(one, slow=slow)
    return None if each is None else lambda batch: each(batch * items)


def _most_within(service: Callable[[int], float], target_ms: float, ceiling: float) -> float:
    """The most arrivals a second of one device whose P95 stays within the target; 0 if none does."""
    low, high = 0.0, ceiling * batching.FULL
    for _ in range(14):
        middle = (low + high) / 2
        if batching.choose(middle, service, target_ms).meets_target:
            low = middle
        else:
            high = middle
    return low


def _too_small(profile: Profile, offer: Offer, gpu: Gpu | None, asked: Memory) -> str | None:
    if gpu is not None:
        usable = (offer.vram_mib or gpu.vram_mib) * 2**20 * assumed("gpu_memory_share")
        wanted = asked.weights_bytes + assumed("gpu_overhead_bytes")
        return None if wanted <= usable else f"needs {wanted / GIB:.1f} GiB of GPU memory, may use {usable / GIB:.1f}"
    if offer.ram_gib is not None and asked.total_bytes > offer.ram_gib * GIB:
        return f"needs {asked.total_bytes / GIB:.2f} GiB of memory, has {offer.ram_gib:.2f}"
    return None
