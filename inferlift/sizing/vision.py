"""Images and embeddings a second on GPUs and CPUs: FLOP an item over what measured machines reach (vision.csv)."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from inferlift.artifacts import Interval, ItemRate, Offer
from inferlift.profile import Model, Profile
from inferlift.sizing.hardware import Gpu

Stack = Literal["served", "framework", "tuned"]
STACK_OF_SERVER: dict[str, Stack] = {"triton": "served", "container": "framework"}
MEASURED_FLOPS = (2.8e9, 2.5e11)  # an item, of the models in vision.csv
ROWS_FOR_A_FACTOR = 6  # measured on a GPU before it is told apart from the others of its class
_HERE = Path(__file__).parent


def item_rate(
    profile: Profile, offer: Offer, gpu: Gpu | None, *, batch: int = 1, tokens: int | None = None
) -> ItemRate | None:
    """Items a second of one GPU of the offer (a slice of one where it is a slice), or of the whole host without GPU.

    None: the FLOP of an item are unknown (`flops_per_item`), or the host's size is. One request may hold several
    items: `requests.images_per_request`. `tokens`: of a text that is not as long as the median.
    """
    flops = flops_per_item(profile, tokens)
    if flops is None:
        return None
    if gpu is not None:
        stack = STACK_OF_SERVER.get(profile.server.engine, "framework")
        share = offer.gpu_fraction
        return on_gpu(gpu, flops, batch=batch, stack=stack, weight_format=profile.model.weight_format, share=share,
                      item_bytes=item_bytes(profile))  # fmt: skip
    if offer.vcpu is None:
        return None
    return on_cpu(offer.vcpu, flops, batch=batch, weight_format=profile.model.weight_format)


def flops_per_item(profile: Profile, tokens: int | None = None) -> float | None:
    """FLOP of one image or text: as declared, else of a text encoder with `tokens`, or the profile's median input."""
    model, asked = profile.model, profile.requests
    if model.flops_per_item is not None:
        return model.flops_per_item
    if profile.task == "image" or not model.layers or not asked.input_tokens_p50:
        return None
    return text_flops(model, tokens or asked.input_tokens_p50)


def text_flops(model: Model, tokens: int) -> float:
    """FLOP to read `tokens` once: 2 a weight and token without the embedding table, and attention 4 L n^2 d.

    Source: https://arxiv.org/abs/2001.08361 section 2.1. Without `hidden`, d = heads * head_dim; without `vocab`
    the table is counted too, which is too much.
    """
    width = model.hidden or model.heads * model.head_dim
    weights = (model.parameters_active or model.parameters_total) - (model.vocab or 0) * width
    return 2.0 * max(weights, 0) * tokens + 4.0 * model.layers * tokens**2 * width


def item_bytes(profile: Profile) -> float:
    """Bytes that reach the GPU for one item: a text's token numbers (three fields of 8 bytes), else an image."""
    if profile.requests.image_width is None and profile.requests.input_tokens_p50:
        return 24.0 * profile.requests.input_tokens_p50
    return float(_constants()["image_bytes"])


def on_gpu(
    gpu: Gpu,
    flops: float,
    *,
    batch: int = 1,
    stack: Stack = "served",
    weight_format: str | None = None,
    item_bytes: float | None = None,
    share: float = 1.0,
) -> ItemRate | None:
    """Of one GPU (of `share` of one). `flops` an item. None: the data sheet's FLOP/s are not known.

    Items/s under full load = 1 / (flops / (efficiency * peak) + bytes / transfer); P95 of a batch that is alone =
    fixed cost + batch * (flops / (efficiency * peak) + bytes / transfer). Raises ValueError for a batch below 1.
    """
    if batch < 1 or flops <= 0 or share <= 0:
        raise ValueError("batch, flops and share must be above 0")
    eight_bit = _is_8_bit_compute(weight_format)
    peak = gpu.ops_int8 if eight_bit else gpu.flops
    if peak is None:
        return None
    told = _constants()
    size = float(told["image_bytes"]) if item_bytes is None else item_bytes
    known = _device(gpu.name, stack)
    fitted = told["stacks"][stack]
    compute = flops / (float(fitted["efficiency"]) * peak * share)
    alone = _transfer(size, "alone", stack)
    full = _transfer(size, "full", stack)
    rate = known.factor / (compute + full)
    latency = (float(fitted["batch_ms"]) / 1000 + batch * (compute + alone)) / known.factor
    beyond = _beyond(gpu, stack, flops, weight_format, eight_bit)
    return ItemRate(
        device=gpu.name,
        batch=batch,
        items_per_s=Interval(value=rate, low=rate * known.low, high=rate * known.high, unit="items/s"),
        latency_ms=Interval(
            value=latency * 1000, low=latency * 1000 / known.high, high=latency * 1000 / known.low, unit="ms"
        ),
        basis="predicted",
        source=f"{fitted['source']}; {known.said}",
        explain=(
            f"compute an item: {flops / 1e9:.3g} GFLOP / ({float(fitted['efficiency']):g} * {peak * share / 1e12:g}"
            f" TFLOP/s) = {compute * 1000:.3g} ms",
            f"transfer an item: {size / 1e6:.3g} MB = {full * 1000:.3g} ms among many, {alone * 1000:.3g} ms alone",
            f"items/s: {known.factor:.2f} / ({compute * 1000:.3g} + {full * 1000:.3g} ms) = {rate:.3g}"
            f" ({rate * known.low:.3g} to {rate * known.high:.3g} in 9 of 10 cases)",
            f"batch of {batch}, alone: ({float(fitted['batch_ms']):g} + {batch} * {(compute + alone) * 1000:.3g} ms)"
            f" / {known.factor:.2f} = {latency * 1000:.3g} ms",
        ),
        beyond=beyond,
    )


def on_cpu(
    vcpus: float, flops: float, *, batch: int = 1, weight_format: str | None = None, arch: Literal["x86", "arm"] = "x86"
) -> ItemRate:
    """Of a host of that many vCPUs (hyper-threads, as clouds count). `flops` an item.

    The range is as wide as the machines of vision.csv differ: what a vCPU is worth must be measured.
    """
    if batch < 1 or flops <= 0 or vcpus <= 0:
        raise ValueError("batch, flops and vcpus must be above 0")
    told = _constants()
    eight_bit = _is_8_bit_compute(weight_format)
    factor = float(told["cpu_int8_factor"]) if eight_bit else 1.0
    each = float(told["cpu"][arch]["flops"]) * factor
    low, high = _cpu_span()
    rate = vcpus * each / flops
    latency = batch / rate * 1000
    source = str(told["cpu"][arch]["source"]) + (f"; 8 bit: {told['cpu_int8_source']}" if eight_bit else "")
    return ItemRate(
        device=f"cpu {arch}, {vcpus:g} vCPU",
        batch=batch,
        items_per_s=Interval(value=rate, low=rate * low, high=rate * high, unit="items/s"),
        latency_ms=Interval(value=latency, low=latency / high, high=latency / low, unit="ms"),
        basis="predicted",
        source=source,
        explain=(
            f"{vcpus:g} vCPU * {each / 1e9:g} GFLOP/s / {flops / 1e9:.3g} GFLOP an item = {rate:.3g} items/s"
            f" ({rate * low:.3g} to {rate * high:.3g}: the spread of the measured machines)",
        ),
        beyond="" if MEASURED_FLOPS[0] <= flops <= MEASURED_FLOPS[1] else _outside_flops(flops),
    )


def service_time(rate: ItemRate | None, *, slow: bool = False) -> Callable[[int], float] | None:
    """Milliseconds of a batch by its size, for `batching.choose`, from the rate of a batch of 1.

    The first item takes the latency of a batch of 1; each further one what it takes under full load, where inputs
    travel while others are computed. `slow`: the slow ends of the ranges instead of their middles. Raises ValueError
    for a rate at another batch size.
    """
    if rate is None:
        return None
    if rate.batch != 1:
        raise ValueError(f"expected the rate of a batch of 1, got one of {rate.batch}")
    first = rate.latency_ms.high if slow else rate.latency_ms.value
    each = 1000 / (rate.items_per_s.low if slow else rate.items_per_s.value)
    return lambda batch: first + each * (batch - 1)


@dataclass(frozen=True)
class Row:
    """One measured line of vision.csv."""

    model: str
    flops: float | None  # an item
    input_bytes: float
    device: str
    vcpus: float | None
    peak: float | None  # FLOP/s of one device
    stack: Stack
    load: Literal["alone", "full"]
    batch: int | None
    items_per_s: float  # of one device

    @property
    def predicted(self) -> float | None:
        """Items/s by the class's constants, without the device's own factor."""
        if self.flops is None or self.peak is None:
            return None
        fitted = _constants()["stacks"][self.stack]
        each = self.flops / (float(fitted["efficiency"]) * self.peak) + _transfer(
            self.input_bytes, self.load, self.stack
        )
        if self.load == "full" or self.batch is None:
            return 1 / each
        return self.batch / (float(fitted["batch_ms"]) / 1000 + self.batch * each)


@cache
def rows() -> tuple[Row, ...]:
    with (_HERE / "vision.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Row(
                row["model"],
                float(row["gflop_per_item"]) * 1e9 if row["gflop_per_item"] else None,
                float(row["input_bytes"]),
                row["device"],
                float(row["vcpus"]) if row["vcpus"] else None,
                # 32-bit figures stand in the table for reference; the classes are of 16 and 8 bit
                float(row["peak_tops"]) * 1e12 if row["peak_tops"] and row["precision"] != "fp32" else None,
                "served" if row["stack"] == "served" else "tuned" if row["stack"] == "tuned" else "framework",
                "alone" if row["load"] == "alone" else "full",
                int(row["batch"]) if row["batch"] else None,
                float(row["items_per_s"]),
            )
            for row in csv.DictReader(file)
        )


def residuals(stack: Stack, without: str | None = None) -> list[tuple[str, float]]:
    """(device, measured / predicted) of every row of a class that states its FLOP, sorted by the ratio."""
    found = [
        (row.device, row.items_per_s / row.predicted)
        for row in rows()
        if row.stack == stack and row.device != without and row.predicted is not None
    ]
    return sorted(found, key=lambda pair: pair[1])


@dataclass(frozen=True)
class _Known:
    factor: float  # of the device against its class
    low: float  # 5th and 95th percentile of measured / predicted
    high: float
    said: str


@cache
def _device(name: str, stack: Stack) -> _Known:
    """What is known of this GPU in this class: its own factor, if enough rows are of it."""
    told = residuals(stack)
    own = [ratio for device, ratio in told if _same(device, name)]
    if len(own) >= ROWS_FOR_A_FACTOR:
        factors = {device: _geometric_mean([ratio for other, ratio in told if other == device]) for device, _ in told}
        rest = sorted(ratio / factors[device] for device, ratio in told)
        low, high = min(_quantile(rest, 0.05), 1.0), max(_quantile(rest, 0.95), 1.0)
        return _Known(_geometric_mean(own), low, high, f"{len(own)} rows measured on this GPU")
    ratios = [ratio for _, ratio in told]
    widen = float(_constants()["widen_unmeasured_device"])
    low, high = min(_quantile(ratios, 0.05) / widen, 1.0), max(_quantile(ratios, 0.95) * widen, 1.0)
    return _Known(1.0, low, high, f"from the data sheet and other GPUs: {len(own) or 'none'} of the rows of this one")


def _same(device: str, name: str) -> bool:
    """Whether a row's device is this GPU: by its whole name, or an "A100" row for every A100 (PCIe H100s apart)."""
    return device == name or (name != "H100 PCIe" and device == name.replace("-", " ").split(" ")[0])


def _beyond(gpu: Gpu, stack: Stack, flops: float, weight_format: str | None, eight_bit: bool) -> str:
    said = []
    if not any(_same(device, gpu.name) for device, _ in residuals(stack)):
        said.append(f"nothing of the class {stack!r} was measured on {gpu.name}: assumed as efficient as other GPUs")
    if not MEASURED_FLOPS[0] <= flops <= MEASURED_FLOPS[1]:
        said.append(_outside_flops(flops))
    if eight_bit != (stack == "tuned"):
        bits = "8" if eight_bit else "16"
        said.append(f"{bits}-bit compute was not measured in the class {stack!r}: assumed as efficient")
    if weight_format == "fp32":
        said.append("32-bit weights are predicted as computed in 16 bit, which TensorRT does when allowed to")
    return "; ".join(said)


def _outside_flops(flops: float) -> str:
    low, high = (f"{limit / 1e9:g}" for limit in MEASURED_FLOPS)
    return f"{flops / 1e9:.3g} GFLOP an item lie outside of the measured models ({low} to {high})"


def _is_8_bit_compute(weight_format: str | None) -> bool:
    return weight_format in ("int8", "w8a8", "w8a8-int8")


def _transfer(size: float, load: Literal["alone", "full"], stack: Stack) -> float:
    if stack == "tuned":
        return 0.0  # MLPerf's inputs lie in GPU memory already
    return size / float(_constants()["transfer_alone" if load == "alone" else "transfer_full"])


@cache
def _cpu_span() -> tuple[float, float]:
    """Lowest and highest FLOP/s a vCPU of the measured x86 machines, over the constant."""
    middle = float(_constants()["cpu"]["x86"]["flops"])
    found = [
        row.items_per_s * row.flops / row.vcpus / middle
        for row in rows()
        if row.device.startswith("cpu") and row.stack == "framework" and row.flops is not None and row.vcpus
    ]
    return min(found), max(found)


@cache
def _constants() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((_HERE / "vision.yaml").read_text(encoding="utf-8"))
    return told


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _quantile(ordered: list[float], share: float) -> float:
    """Nearest rank, outward: the 5th percentile never above, the 95th never below the exact one."""
    at = math.floor(share * (len(ordered) - 1)) if share < 0.5 else math.ceil(share * (len(ordered) - 1))
    return ordered[at]
