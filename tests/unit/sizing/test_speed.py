"""Predictions: against figures that others published, in what must always hold, in what they say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.profile import Model
from inferlift.sizing import roofline, speed
from inferlift.sizing.hardware import Gpu, Layout, gpus
from inferlift.sizing.roofline import Run

CASES = yaml.safe_load(Path(__file__).with_name("speed_cases.yaml").read_text(encoding="utf-8"))
LLAMA_8B = CASES[4]["model"]
LLAMA_70B = CASES[0]["model"]
# Llama 2 13B, https://arxiv.org/abs/2307.09288
LLAMA_13B = {
    "parameters_total": 13015864320, "layers": 40, "heads": 40, "kv_heads": 40, "head_dim": 128, "hidden": 5120,
    "vocab": 32000, "weight_format": "fp16",
}  # fmt: skip
R1 = {
    "parameters_total": 670918967296, "parameters_active": 37444845568, "layers": 61, "heads": 128, "kv_heads": 128,
    "head_dim": 128, "hidden": 7168, "vocab": 129280, "experts": 256, "experts_per_token": 8, "attention": "latent",
    "kv_lora_rank": 512, "rope_dim": 64, "weight_bits": 8, "weight_format": "fp8", "kv_bits": 8,
}  # fmt: skip


def model(figures: dict[str, Any], **changed: Any) -> Model:
    return Model.model_validate({"name": "a model", "source": "hf://a/model", "context": 131072, **figures, **changed})


def gpu(name: str) -> Gpu:
    return next(gpu for gpu in gpus() if gpu.name == name)


def predict(figures: dict[str, Any], on: str, layout: Layout, engine: str, ask: Sequence[float], **changed: Any) -> Any:
    found = speed.predict(
        model(figures, **changed), gpu(on), layout, engine=engine,
        input_tokens=ask[0], output_tokens=ask[1], concurrency=int(ask[2]),
    )  # fmt: skip
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_published_figures(case: dict[str, Any]) -> None:
    layout = Layout(case.get("tensor", 1), case.get("pipeline", 1))
    found = predict(case["model"], case["gpu"], layout, case["engine"], case["ask"])
    for figure in ("tpot_ms", "tokens_per_s"):
        if figure in case:
            said = getattr(found, figure)
            assert said.value == pytest.approx(case[figure], rel=case["within"])
            assert said.low <= case[figure] <= said.high


def test_one_request_alone_is_bounded_by_the_bandwidth() -> None:
    """15.0 GB of weights (the token embeddings are not read) over 600 GB/s: 25 ms; nothing is faster than that."""
    found = predict(LLAMA_8B, "A10G", Layout(), "vllm", [512, 128, 1])
    assert 25.0 < found.tpot_ms.value < 25.0 / 0.7


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from([g.name for g in gpus() if g.bandwidth and g.flops]),
    tensor=st.sampled_from([1, 2, 4, 8]),
    bits=st.sampled_from(["bf16", "fp8", "awq-int4"]),
    lengths=st.tuples(st.integers(1, 20000), st.integers(8, 4000)),
    requests=st.integers(1, 2000),
)
def test_what_always_holds(name: str, tensor: int, bits: str, lengths: tuple[int, int], requests: int) -> None:
    figures = {**LLAMA_13B, "weight_format": bits}
    one = predict(figures, name, Layout(tensor), "vllm", [*lengths, requests])
    more = predict(figures, name, Layout(tensor), "vllm", [*lengths, requests * 2])
    for figure in (one.ttft_ms, one.tpot_ms, one.tokens_per_s):
        assert 0 < figure.low <= figure.value <= figure.high < float("inf")
    # a model that was not measured has no correction: more requests are never faster, each or all together
    assert more.tpot_ms.value >= one.tpot_ms.value
    assert more.ttft_ms.value >= one.ttft_ms.value
    assert more.tokens_per_s.value >= 0.95 * one.tokens_per_s.value


def test_fewer_bits_are_faster_where_memory_bounds() -> None:
    times = [
        predict(LLAMA_8B, "A10G", Layout(), "vllm", [512, 128, 1], weight_format=name).tpot_ms.value
        for name in ("bf16", "int8", "awq-int4")
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[2] > 2


def test_a_mixture_of_experts_reads_what_its_tokens_touch() -> None:
    one = roofline.terms(Run(model(R1), gpu("H200 SXM"), Layout(8), "vllm", 1024, 1024, 1))
    many = roofline.terms(Run(model(R1), gpu("H200 SXM"), Layout(8), "vllm", 1024, 1024, 512))
    # 37.4 B active parameters less 0.9 B of embeddings at about a byte, over 8 GPUs of 4.8 TB/s
    assert one["t_weights"] == pytest.approx(37.5e9 / 8 / 4.8e12, rel=0.05)
    # all 256 experts of the layers: the whole model but the embeddings
    assert many["t_weights"] == pytest.approx(670e9 / 8 / 4.8e12, rel=0.02)
    assert many["touched"] == pytest.approx(1.0, abs=1e-6)


def test_latent_attention_keeps_576_values_a_layer_and_does_not_split_them() -> None:
    r1 = model(R1, kv_bits=16)
    assert roofline.kv_bytes(r1, 1, 1) == 70272
    assert roofline.kv_bytes(r1, 1, 8) == 70272
    assert roofline.kv_bytes(model(LLAMA_8B), 1, 1) == 131072
    assert roofline.kv_bytes(model(LLAMA_8B), 1, 8) == 131072 / 8
    assert roofline.kv_bytes(model(LLAMA_8B), 1, 16) == 131072 / 8  # kv heads are not split further


def test_a_window_is_all_that_windowed_layers_keep() -> None:
    half = model(LLAMA_8B, attention="sliding", window=1024, window_layers=16)
    assert roofline.kv_bytes(half, 8192, 1) == 131072 / 2 * (8192 + 1024)


def test_requests_beyond_the_memory_wait_for_room() -> None:
    fits = predict(LLAMA_8B, "A10G", Layout(), "vllm", [4096, 512, 4])
    waits = predict(LLAMA_8B, "A10G", Layout(), "vllm", [4096, 512, 64])
    assert any("the rest wait for room" in line for line in waits.explain)
    assert not any("wait for room" in line for line in fits.explain)
    assert waits.ttft_ms.value > 10 * fits.ttft_ms.value


def test_gpus_without_nvlink_pay_for_sharing_layers() -> None:
    ask = [2048, 256, 16]
    linked, bridged = (predict(LLAMA_70B, name, Layout(4), "vllm", ask) for name in ("A100-80GB SXM", "A100-80GB PCIe"))
    assert bridged.tpot_ms.value > 1.1 * linked.tpot_ms.value


def test_what_was_measured_is_corrected_and_narrow() -> None:
    inside = predict(LLAMA_70B, "H200 SXM", Layout(4), "vllm", [1024, 1024, 32])
    assert inside.beyond == ""
    assert any("corrected by measurements" in line for line in inside.explain)
    half_width = (inside.tpot_ms.high - inside.tpot_ms.low) / 2 / inside.tpot_ms.value
    assert half_width <= 0.3
    # another model, another GPU type, another kind of GPU: said, and never narrower
    for figures, name in ((LLAMA_8B, "H200 SXM"), (LLAMA_70B, "B300 SXM"), (LLAMA_70B, "A100-80GB SXM")):
        outside = predict(figures, name, Layout(4), "vllm", [1024, 1024, 32])
        assert outside.beyond
        assert (outside.tpot_ms.high - outside.tpot_ms.low) / 2 / outside.tpot_ms.value > half_width


def test_beyond_names_what_was_not_measured() -> None:
    found = predict(LLAMA_8B, "T4", Layout(1, 2), "vllm", [512, 128, 100000], weight_format="awq-int4")
    for words in ("T4 is of a kind that was not measured", "pipeline stages", "requests in flight", "not among"):
        assert words in found.beyond


def test_no_prediction_without_a_data_sheet_or_without_attention() -> None:
    unknown = next(g for g in gpus() if not g.bandwidth)
    told = {"engine": "vllm", "input_tokens": 100.0, "output_tokens": 100.0, "concurrency": 1}
    assert speed.predict(model(LLAMA_8B), unknown, Layout(), **told) is None  # type: ignore[arg-type]
    image = model({"parameters_total": 10**7, "flops_per_item": 1e9, "weight_bits": 32})
    assert speed.predict(image, gpu("T4"), Layout(), **told) is None  # type: ignore[arg-type]


def test_prompts_of_others_slow_down_each_token() -> None:
    short, long = (predict(LLAMA_8B, "L40S", Layout(), "vllm", [n, 256, 16]).tpot_ms.value for n in (128, 4096))
    assert long > 1.5 * short
