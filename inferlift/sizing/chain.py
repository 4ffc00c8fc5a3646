"""The whole chain as computed minima: each link's need, what the offer has, named exceptions, and the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.artifacts import Basis, Chain, ChainLink, Offer
from inferlift.profile import Profile
from inferlift.sizing.hardware import Gpu, Layout

GIB = 2**30
ONE_GPU = Layout()


@dataclass(frozen=True)
class Question:
    """What the chain is asked to carry: one host of an offer, with the model as it would lie on it."""

    profile: Profile
    offer: Offer
    gpu: Gpu | None
    weights_bytes: float  # of one copy, all its GPUs together
    need_bytes: float | None = None  # of the fullest GPU, or of the host where there is no GPU; None: not computed
    layout: Layout = ONE_GPU
    peak_rps: float | None = None  # requests a second that reach this host at the peak
    busy: float | None = None  # share of the time its GPUs (or its CPU's model server) work at the peak
    request_bytes: float | None = None  # mean, both ways, as logged; None: estimated from the profile
    latency_ms: float | None = None  # between users and this host, there and back, as measured


def chain(question: Question) -> Chain:
    """All links, in the order a request passes them, and which one is used most at the peak.

    Memory holds or does not: it is no bottleneck of a rate, but too little of it is said like the others.
    """
    links = [
        _latency(question),
        _network(question),
        _cpu(question),
        _ram(question),
        _nvme(question),
        _pcie(question),
        _vram(question),
        _gpu(question),
    ]
    flowing = [link for link in links if link.utilisation is not None and link.name not in ("ram", "vram")]
    tight = max(flowing, key=lambda link: link.utilisation or 0.0, default=None)
    if tight is None or tight.utilisation is None:
        return Chain(links=tuple(links), bottleneck=None, why="no link's use at the peak is known")
    why = f"{tight.name} is used {tight.utilisation:.0%} at the peak, more than any other link that is known"
    missing = [link.name for link in links if link.utilisation is None and link.name not in ("ram", "vram", "latency")]
    if missing:
        why += f"; not known: {', '.join(missing)}"
    return Chain(links=tuple(links), bottleneck=tight.name, why=why)


def bytes_of_a_request(profile: Profile) -> float:
    """Question and answer together, estimated from lengths and image sizes (assumptions in chain.yaml)."""
    asked = profile.requests
    total = asked.input_tokens_p50 * figure("bytes_per_token_in") + asked.output_tokens * figure("bytes_per_token_out")
    if asked.image_width is not None and asked.image_height is not None:
        pixels = asked.image_width * asked.image_height * asked.images_per_request
        total += pixels * figure("bytes_per_pixel")
    return total


def load_seconds(weights_bytes: float, mb_per_s: float) -> float:
    """How long the weights take from a disk that reads so many megabytes (10^6 bytes) a second."""
    return weights_bytes / (mb_per_s * 1e6)


def figure(name: str) -> float:
    """An assumed figure of chain.yaml."""
    return float(_table()["figures"][name]["value"])


def _latency(ask: Question) -> ChainLink:
    budget, rule = ask.profile.network.latency_budget_ms, float(_table()["latency"]["rule"])
    asynchronous = ask.profile.task == "batch"
    needed = None if asynchronous else max(budget or rule, rule)
    basis: Basis = "measured" if ask.latency_ms is not None else "unknown"
    told = _Told(ask.latency_ms, basis, needed=needed, at_most=True)
    if ask.latency_ms is None:
        limit = f"{needed:g} ms" if needed is not None else "nothing"
        why = f"how far users are from {ask.offer.region or 'this host'} is not known; {limit} may be taken"
        return _link(
            "latency", told, "ok" if asynchronous else "unknown", why, exception="nobody-waits", when=asynchronous
        )
    if ask.latency_ms <= rule:
        return _link("latency", told, "ok", f"{ask.latency_ms:g} ms there and back")
    if asynchronous:
        return _link("latency", told, "exception", f"{ask.latency_ms:g} ms", exception="nobody-waits")
    if budget is not None and ask.latency_ms <= budget:
        why = f"{ask.latency_ms:g} ms of the {budget:g} ms that network.latency_budget_ms allows"
        return _link("latency", told, "exception", why, exception="budget-allows")
    return _link("latency", told, "too small", f"{ask.latency_ms:g} ms, but at most {needed:g} ms may be taken")


def _network(ask: Question) -> ChainLink:
    each = ask.request_bytes if ask.request_bytes is not None else bytes_of_a_request(ask.profile)
    load = None if ask.peak_rps is None else each * ask.peak_rps * 8 / 1e9
    told = _Told(ask.offer.network_gbps, load=load, needed=None if load is None else load / figure("busiest"))
    logged = "as logged" if ask.request_bytes is not None else "estimated from lengths and sizes"
    said = f"{each / 1e3:.3g} kB a request ({logged})"
    said += f" * {ask.peak_rps:.3g}/s = {load:.3g} Gbit/s" if ask.peak_rps is not None and load is not None else ""
    if told.has is None:
        return _link("network", told, "unknown", f"{said}; what {ask.offer.name} keeps up is not known")
    if told.needed is not None and told.has < told.needed:
        return _link("network", told, "too small", f"{said}, over {figure('busiest'):.0%} of {told.has:g} Gbit/s")
    if told.has >= float(_table()["network"]["rule"]):
        return _link("network", told, "ok", f"{said} of {told.has:g} Gbit/s")
    if load is None:
        return _link("network", told, "unknown", f"{said}; {told.has:g} Gbit/s do, if the peak is small enough")
    if load <= told.has / 3:
        return _link("network", told, "exception", f"{said} of {told.has:g} Gbit/s", exception="little-traffic")
    why = f"{said} of {told.has:g} Gbit/s: below the rule, and more than a third of it is used"
    return _link("network", told, "too small", why)


def _cpu(ask: Question) -> ChainLink:
    asked = ask.profile.requests
    servers = 0.0 if ask.gpu is None else figure("server_vcpu_per_gpu") * max(1, ask.offer.gpu_count)
    if asked.cpu_ms is None or ask.peak_rps is None:
        missing = "requests.cpu_ms" if asked.cpu_ms is None else "the peak"
        why = f"{missing} is not known: measure the CPU time of decoding, resizing and tokenising one request"
        return _link("cpu", _Told(ask.offer.vcpu), "unknown", why)
    load = asked.cpu_ms / 1000 * ask.peak_rps + servers
    told = _Told(ask.offer.vcpu, load=load, needed=load / figure("busiest"))
    said = f"{asked.cpu_ms:g} ms * {ask.peak_rps:.3g}/s + {servers:g} for the GPUs' servers = {load:.3g} vCPU"
    if told.has is None:
        return _link("cpu", told, "unknown", f"{said}; how many {ask.offer.name} has is not known")
    if told.needed is not None and told.has < told.needed:
        why = f"{said}: more than {figure('busiest'):.0%} of {told.has:g}"
        return _link("cpu", told, "too small", why)
    return _link("cpu", told, "ok", f"{said} of {told.has:g}")


def _ram(ask: Question) -> ChainLink:
    if ask.gpu is None:
        held, headroom = ask.need_bytes if ask.need_bytes is not None else ask.weights_bytes, "ram_headroom_cpu_gib"
        what = "the model server's need"
    else:
        held, headroom, what = ask.weights_bytes, "ram_headroom_gib", "the weights while they are loaded"
    needed = held / GIB + figure(headroom)
    told = _Told(ask.offer.ram_gib, load=needed, needed=needed)
    said = f"{what} {held / GIB:.3g} GiB + {figure(headroom):g} GiB headroom = {needed:.3g} GiB"
    if told.has is None:
        return _link("ram", told, "unknown", f"{said}; the memory of {ask.offer.name} is not known")
    if told.has < needed:
        return _link("ram", told, "too small", f"{said} of {told.has:g} GiB")
    if told.has >= float(_table()["ram"]["rule"]):
        return _link("ram", told, "ok", f"{said} of {told.has:g} GiB")
    return _link("ram", told, "exception", f"{said} of {told.has:g} GiB", exception="weights-and-headroom")


def _nvme(ask: Question) -> ChainLink:
    limit, reads = figure("restart_s"), ask.offer.nvme_mb_s
    needed = ask.weights_bytes / 1e6 / limit
    told = _Told(reads, load=None, needed=needed)
    size = f"{ask.weights_bytes / 1e9:.3g} GB of weights"
    rule = float(_table()["nvme"]["rule"])
    if reads is None:
        at_rule, at_gp3 = load_seconds(ask.weights_bytes, rule), load_seconds(ask.weights_bytes, figure("gp3_mb_s"))
        local = "no local drive is known of" if not ask.offer.nvme_gb else f"{ask.offer.nvme_gb:g} GB of local drives"
        why = (
            f"{size} load in {at_rule:.3g} s at {rule:g} MB/s, in {at_gp3:.3g} s from a plain network disk"
            f" ({figure('gp3_mb_s'):g} MB/s); {local}, but how fast they read is not known: measure it"
        )
        return _link("nvme", told, "unknown", why)
    took = load_seconds(ask.weights_bytes, reads)
    said = f"{size} / {reads:g} MB/s = {took:.3g} s, of {limit:g} s that a restart may take"
    if took > limit:
        return _link("nvme", told, "too small", said)
    if reads >= rule:
        return _link("nvme", told, "ok", said)
    return _link("nvme", told, "exception", said, exception="loaded-in-time")


def _pcie(ask: Question) -> ChainLink:
    if ask.gpu is None:
        return _link("pcie", _Told(None), "ok", "nothing crosses a bus: the model runs on the CPU")
    generation, lanes = _pcie_of(ask.gpu)
    if generation is None:
        return _link("pcie", _Told(None), "unknown", f"the bus of {ask.gpu.name} is not in the table")
    each = ask.request_bytes if ask.request_bytes is not None else bytes_of_a_request(ask.profile)
    pixels = (ask.profile.requests.image_width or 0) * (ask.profile.requests.image_height or 0)
    each += pixels * 3 * 4 * ask.profile.requests.images_per_request  # decoded: three values of 4 bytes a pixel
    used = None if ask.peak_rps is None else each * ask.peak_rps / 1e9 / max(1, ask.offer.gpu_count)
    rate, enough = _pcie_rate(generation, lanes), None
    if used is not None:
        carrying = [g for g in _table()["pcie_x16_gb_s"] if used <= figure("busiest") * _pcie_rate(g, lanes)]
        enough = float(min(carrying)) if carrying else None
    start = ask.weights_bytes / ask.layout.gpus / 1e9 / rate
    said = f"PCIe {generation} x{lanes}: {rate:.3g} GB/s; weights cross it in {start:.3g} s"
    said += f"; {used:.3g} GB/s of inputs at the peak" if used is not None else ""
    told = _Told(float(generation), needed=enough, utilisation=None if used is None else used / rate)
    if told.utilisation is not None and told.utilisation > figure("busiest"):
        return _link("pcie", told, "too small", said)
    if generation >= float(_table()["pcie"]["rule"]):
        return _link("pcie", told, "ok", said)
    if ask.layout.gpus == 1:
        return _link("pcie", told, "exception", said, exception="one-gpu-a-copy")
    why = f"{said}; a copy lies on {ask.layout.gpus} GPUs, whose sums cross this bus at every layer"
    return _link("pcie", told, "ok" if ask.gpu.link is not None else "too small", why)


def _vram(ask: Question) -> ChainLink:
    if ask.gpu is None:
        return _link("vram", _Told(None), "ok", "the model runs on the CPU: it takes host memory instead")
    usable = float(ask.offer.vram_mib if ask.offer.vram_mib is not None else ask.gpu.vram_mib) * 2**20
    usable *= ask.offer.gpu_fraction if ask.offer.vram_mib is None else 1.0
    sold = ask.gpu.vram_gb * ask.offer.gpu_fraction
    if ask.need_bytes is None:
        return _link("vram", _Told(sold), "unknown", "the model's need on a GPU was not computed")
    free = figure("vram_free_share")
    needed = ask.need_bytes / usable * sold / (1 - free)
    told = _Told(sold, "declared", load=ask.need_bytes / usable * sold, needed=needed)
    said = f"{ask.need_bytes / GIB:.3g} of {usable / GIB:.3g} GiB usable on the fullest GPU ({sold:g} GB as sold)"
    if ask.need_bytes > usable:
        return _link("vram", told, "too small", said)
    if needed > sold:
        return _link("vram", told, "too small", f"{said}: less than {free:.0%} stays free")
    if sold >= float(_table()["vram"]["rule"]):
        return _link("vram", told, "ok", said)
    return _link("vram", told, "exception", said, exception="fits-a-smaller-card")


def _gpu(ask: Question) -> ChainLink:
    what = "GPUs" if ask.gpu is not None else "model server"
    if ask.busy is None:
        return _link("gpu", _Told(1.0), "unknown", f"how busy the {what} would be is not known")
    told = _Told(1.0, "predicted", load=ask.busy, needed=ask.busy)
    if ask.busy > 1:
        return _link("gpu", told, "too small", f"the {what} would have to work {ask.busy:.0%} of the time")
    return _link("gpu", told, "ok", f"the {what} work {ask.busy:.0%} of the time at the peak")


@dataclass(frozen=True)
class _Told:
    has: float | None
    basis: Basis = "declared"
    load: float | None = None
    needed: float | None = None
    at_most: bool = False  # the figure must not exceed what is needed, as a latency
    utilisation: float | None = None


def _link(
    name: str, told: _Told, verdict: Any, why: str, *, exception: str = "", when: bool | None = None
) -> ChainLink:
    """`exception` is taken where the verdict says so, or where `when` does."""
    entry = _table()[name]
    chosen = exception if (verdict == "exception" if when is None else when) else ""
    if chosen:
        verdict, why = "exception", f"{why}; {chosen}: {entry['exceptions'][chosen]}"
    used = told.utilisation
    if used is None and told.load is not None and told.has:
        used = told.load / told.has
    return ChainLink(
        name=name,
        unit=entry["unit"],
        needed=told.needed,
        rule=entry["rule"],
        has=told.has,
        has_basis="unknown" if told.has is None else told.basis,
        load=told.load,
        utilisation=used,
        verdict=verdict,
        exception=chosen,
        why=why,
        source=entry["source"],
    )


def _pcie_of(gpu: Gpu) -> tuple[int | None, int]:
    """Generation and lanes of "4.0 x16 (guess)" in the GPU table; None where it names none."""
    head, _, rest = gpu.pcie.partition(" ")
    lanes = rest.removeprefix("x").split(" ")[0]
    try:
        generation = int(float(head))
    except ValueError:
        return None, 16
    return (generation if generation in _table()["pcie_x16_gb_s"] else None), int(lanes) if lanes.isdigit() else 16


def _pcie_rate(generation: int, lanes: int) -> float:
    """Gigabytes a second that copies reach, in one direction."""
    return float(_table()["pcie_x16_gb_s"][generation]) * lanes / 16 * figure("pcie_share")


@cache
def _table() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("chain.yaml").read_text(encoding="utf-8"))
    return told
