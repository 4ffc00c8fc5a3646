"""Items a second against the measured rows, and images to tokens against the families' own processors."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inferlift.sizing.vision as vision
from inferlift.errors import DeclarationError
from inferlift.profile import Model
from inferlift.sizing.hardware import Gpu, gpus
from inferlift.sizing.image_tokens import encoder_flops, family_of, image_families, image_tokens
from tests.unit.sizing.planning import a_profile, g4dn

ROWS = list(csv.DictReader((Path(vision.__file__).parent / "vision.csv").open(encoding="utf-8", newline="")))
RESNET = 8.18e9


def named(name: str) -> Gpu:
    return next(gpu for gpu in gpus() if gpu.name == name)


def test_every_row_says_where_and_when_it_was_measured() -> None:
    for row in ROWS:
        assert row["source"].startswith(("https://", "measured: ")), row["id"]
        assert row["date"][:2] == "20", row["id"]
        assert float(row["items_per_s"]) > 0
    assert len({row["id"] for row in ROWS}) == len(ROWS) > 80
    assert {"T4", "L4", "A100", "H100", "A10", "cpu x86"} <= {row["device"] for row in ROWS}


@pytest.mark.parametrize("stack", ["served", "framework", "tuned"])
def test_ranges_of_a_gpu_left_out_of_the_table_hold_its_rows(stack: vision.Stack) -> None:
    """Each GPU predicted from the other GPUs alone: over all of them at least 85 % of the rows lie in the range."""
    widen = float(vision._constants()["widen_unmeasured_device"])
    inside = total = 0
    for device in sorted({device for device, _ in vision.residuals(stack)}):
        others = [ratio for _, ratio in vision.residuals(stack, without=device)]
        low, high = vision._quantile(others, 0.05) / widen, vision._quantile(others, 0.95) * widen
        own = [ratio for name, ratio in vision.residuals(stack) if name == device]
        inside += sum(low <= ratio <= high for ratio in own)
        total += len(own)
    assert inside / total >= 0.85
    assert total >= 12


def test_median_half_width_is_no_excuse() -> None:
    """A range that holds everything because it is wide would say nothing."""
    for name in ("T4", "A100-80GB SXM"):
        rate = vision.on_gpu(named(name), RESNET)
        assert rate is not None
        wide = (rate.items_per_s.high - rate.items_per_s.low) / 2 / rate.items_per_s.value
        assert wide < 0.3, name


@pytest.mark.parametrize(
    ("name", "stack", "batch", "weight_format", "per_s", "p95_ms"),
    [
        ("T4", "served", 8, "fp16", 2145.3, 9.05),  # the table's rows
        ("A100-80GB SXM", "served", 8, "fp16", 6127.3, 4.195),
        ("L4", "tuned", 1, "int8", 12881.7, 0.35),
        ("T4", "tuned", 1, "int8", 6035.57, 1.101),
    ],
)
def test_measured_figures_lie_in_the_range(
    name: str, stack: vision.Stack, batch: int, weight_format: str, per_s: float, p95_ms: float
) -> None:
    rate = vision.on_gpu(named(name), RESNET, batch=batch, stack=stack, weight_format=weight_format)
    assert rate is not None
    assert rate.items_per_s.low <= per_s <= rate.items_per_s.high
    assert rate.latency_ms.low <= p95_ms <= rate.latency_ms.high
    assert rate.beyond == ""


@pytest.mark.parametrize("name", ["A10G", "L4", "H100 SXM"])
def test_an_unmeasured_gpu_says_so_and_is_less_sure(name: str) -> None:
    rate, known = vision.on_gpu(named(name), RESNET), vision.on_gpu(named("T4"), RESNET)
    assert rate is not None
    assert known is not None
    assert "nothing of the class 'served' was measured" in rate.beyond
    assert rate.items_per_s.low / rate.items_per_s.value < known.items_per_s.low / known.items_per_s.value


def test_a_model_outside_of_the_measured_ones_says_so() -> None:
    small = vision.on_gpu(named("T4"), 6e8)
    assert small is not None
    assert "outside of the measured models" in small.beyond
    assert "outside of the measured models" in vision.on_cpu(4, 6e8).beyond


def test_no_data_sheet_no_prediction() -> None:
    assert vision.on_gpu(named("RTX PRO 4500 Blackwell"), RESNET) is None
    assert vision.on_gpu(named("A100-80GB SXM"), RESNET, weight_format="int8") is not None


@pytest.mark.parametrize(("vcpus", "per_s"), [(4, 27.9115), (8, 64.5665), (4, 24.31), (1, 28.75)])
def test_cpu_range_holds_the_measured_hosts(vcpus: float, per_s: float) -> None:
    rate = vision.on_cpu(vcpus, RESNET)
    assert rate.items_per_s.low <= per_s <= rate.items_per_s.high
    assert rate.basis == "predicted"


@given(
    flops=st.floats(1e9, 1e12),
    batch=st.integers(1, 256),
    name=st.sampled_from(["T4", "A10G", "L4", "A100-40GB SXM", "H100 SXM"]),
    stack=st.sampled_from(["served", "framework"]),
)
def test_larger_batches_take_longer_and_heavier_items_are_fewer(
    flops: float, batch: int, name: str, stack: vision.Stack
) -> None:
    one = vision.on_gpu(named(name), flops, batch=batch, stack=stack)
    more = vision.on_gpu(named(name), flops, batch=batch + 1, stack=stack)
    heavy = vision.on_gpu(named(name), flops * 2, batch=batch, stack=stack)
    half = vision.on_gpu(named(name), flops, batch=batch, stack=stack, share=0.5)
    assert one is not None
    assert more is not None
    assert heavy is not None
    assert half is not None
    assert more.latency_ms.value > one.latency_ms.value
    assert heavy.items_per_s.value < one.items_per_s.value
    assert half.items_per_s.value < one.items_per_s.value
    assert one.items_per_s.low <= one.items_per_s.value <= one.items_per_s.high


def test_service_time_is_what_a_batch_takes() -> None:
    rate = vision.on_gpu(named("T4"), RESNET)
    assert rate is not None
    middle, slow = vision.service_time(rate), vision.service_time(rate, slow=True)
    assert middle is not None
    assert slow is not None
    assert middle(1) == pytest.approx(rate.latency_ms.value)
    assert middle(9) - middle(8) == pytest.approx(1000 / rate.items_per_s.value)
    assert slow(8) > middle(8)
    assert vision.service_time(None) is None
    with pytest.raises(ValueError, match="batch of 1"):
        vision.service_time(vision.on_gpu(named("T4"), RESNET, batch=2))


def test_flops_of_a_text_encoder() -> None:
    """BERT-large with 384 tokens: 2 * 302 M * 384 + 4 * 24 * 384^2 * 1024 = 246 GFLOP."""
    bert = Model.model_validate(
        {"name": "bert-large", "source": "s", "parameters_total": 333_245_440, "layers": 24, "heads": 16,
         "kv_heads": 16, "head_dim": 64, "weight_bits": 16, "context": 512, "vocab": 30522, "hidden": 1024}
    )  # fmt: skip
    assert vision.text_flops(bert, 384) / 1e9 == pytest.approx(246.4, rel=0.01)


def test_item_rate_of_a_profile() -> None:
    images = a_profile("image", server={"kind": "triton"})
    rate, on_host = vision.item_rate(images, g4dn(), named("T4")), vision.item_rate(images, g4dn(), None)
    assert rate is not None
    assert on_host is not None
    assert rate.device == "T4"
    assert on_host.items_per_s.value < rate.items_per_s.value / 10
    slice_of = vision.item_rate(images, g4dn(gpu_fraction=0.5), named("T4"))
    assert slice_of is not None
    assert slice_of.items_per_s.value < rate.items_per_s.value
    assert vision.item_rate(images, g4dn(vcpu=None), None) is None


def test_embeddings_follow_from_the_models_own_figures() -> None:
    texts = a_profile("embeddings", server={"kind": "triton"})
    assert vision.flops_per_item(texts) == pytest.approx(vision.text_flops(texts.model, 300))
    assert vision.item_bytes(texts) == 24 * 300
    rate = vision.item_rate(texts, g4dn(), named("T4"))
    assert rate is not None
    assert "outside of the measured models" in rate.beyond  # 8 billion parameters are no small encoder


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("qwen2-vl", 224, 224, 64),  # (224 / 28)^2
        ("qwen2-vl", 1000, 1000, 1296),  # 36 x 36
        ("qwen2-vl", 20, 20, 4),  # never below 4
        ("qwen2-vl", 4000, 3000, 15301),  # 143 x 107
        ("llava-1.5", 4000, 3000, 576),
        ("llava-next", 336, 336, 1176),  # 24 x 24, 24 newlines, and 576 of the whole image
        ("llava-next", 672, 672, 2928),  # 48 x 48 + 48 + 576: the most there can be
        ("llava-next", 488, 183, 1458),  # 18 rows of 48 left after the padding is cut: 864 + 18 + 576
        ("internvl", 448, 448, 256),
        ("internvl", 896, 896, 1280),  # 4 tiles and the thumbnail
        ("pixtral", 1024, 1024, 4160),  # 64 rows of 64 and a break
        ("llama-3.2-vision", 560, 560, 1601),
        ("llama-3.2-vision", 1120, 1120, 6404),
        ("gemma-3", 1, 1, 256),
    ],
)
def test_image_tokens(family: str, width: int, height: int, tokens: int) -> None:
    assert image_tokens(width, height, family).tokens == tokens


@given(width=st.integers(1, 8000), height=st.integers(1, 8000), family=st.sampled_from(image_families()))
def test_any_image_becomes_some_tokens(width: int, height: int, family: str) -> None:
    if family in ("qwen2-vl", "qwen3-vl") and max(width, height) / min(width, height) > 200:
        with pytest.raises(DeclarationError, match="pixels"):
            image_tokens(width, height, family)
        return
    told = image_tokens(width, height, family)
    assert 0 < told.tokens <= 16384
    assert told.patches >= 1


def test_cross_attention_takes_no_context() -> None:
    assert not image_tokens(560, 560, "llama-3.2-vision").in_context
    assert image_tokens(560, 560, "qwen2-vl").in_context


def test_unknown_family_names_the_known_ones() -> None:
    with pytest.raises(DeclarationError) as caught:
        image_tokens(1, 1, "kosmos")
    assert "qwen2-vl" in caught.value.why
    assert family_of("Qwen2.5-VL-7B-Instruct") == "qwen2-vl"
    assert family_of("meta-llama/Llama-3.2-11B-Vision") == "llama-3.2-vision"
    assert family_of("Llama-3.1-8B") is None


def test_encoder_flops() -> None:
    """A 675 M encoder on the 256 patches of a 224 x 224 image: 0.35 TFLOP."""
    assert encoder_flops(675_000_000, image_tokens(224, 224, "qwen2-vl").patches) == pytest.approx(3.456e11)
