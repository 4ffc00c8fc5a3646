"""Memory against what engines logged, worked examples, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from memory_models import LLAMA, VLLM, card, model
from pydantic import ValidationError

from inferlift.errors import DeclarationError
from inferlift.profile import Model, Server
from inferlift.profile.formats import weight_formats
from inferlift.sizing.engines import engine, engines
from inferlift.sizing.footprint import keeping
from inferlift.sizing.hardware import Layout
from inferlift.sizing.memory import (
    GIB,
    Need,
    kv_bytes_per_token,
    layouts,
    most_sessions,
    need,
    weights_bytes,
)

HERE = Path(__file__).parent
LOGS: list[dict[str, Any]] = yaml.safe_load((HERE / "engine_logs.yaml").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "memory_cases.yaml").read_text(encoding="utf-8"))


# --- what engines logged -------------------------------------------------------------------------------------


def needed(row: dict[str, Any]) -> tuple[Model, Layout, Need]:
    subject, flags = model(row["model"]), row["flags"]
    layout = Layout(flags["tensor"])
    server = Server.model_validate(
        {
            "max_batched_tokens": flags.get("chunk"),
            "graphs": flags.get("graphs", True),
            "hybrid_kv": flags.get("hybrid", False),
        }
    )
    sessions = flags.get("sessions", 1)
    context = flags.get("context", min(flags.get("chunk", 1) * 2, subject.context))
    some = replace(card("H100 SXM"), compute_capability=9.0)
    return (
        subject,
        layout,
        need(subject, server, gpu=some, layout=layout, sessions=sessions, context=context, engine_name=row["engine"]),
    )


def errors(row: dict[str, Any]) -> dict[str, float]:
    """Relative error of each figure of the row that is predicted."""
    subject, layout, found = needed(row)
    logged = row["logged"]
    told = {
        "weights": (found.weights + found.vision) / GIB,
        "file": weights_bytes(subject) / GIB,
        "kv": kv_bytes_per_token(subject, layout) * logged.get("tokens", 0) / GIB,
        "kv_all": found.kv / GIB,
        "usable": found.fixed / GIB + logged.get("kv", 0),
    }
    return {key: told[key] / logged[key] - 1 for key in told if key in logged and (key != "kv" or "tokens" in logged)}


def test_enough_logs_of_enough_engines_with_their_sources() -> None:
    assert len(LOGS) >= 15
    assert len({row["engine"] for row in LOGS}) >= 3
    assert all(row["source"].startswith("https://github.com/") for row in LOGS)
    assert {row["used"] for row in LOGS} == {"set", "test"}
    assert sum(row["used"] == "test" for row in LOGS) > len(LOGS) / 2


@pytest.mark.parametrize("row", LOGS, ids=lambda row: f"{row['engine']}-{row['name'][:40]}")
def test_each_figure_is_within_five_percent(row: dict[str, Any]) -> None:
    found = errors(row)
    assert found
    outside = {key: round(error, 4) for key, error in found.items() if abs(error) > 0.05}
    assert bool(outside) == ("outside" in row), outside


def test_mean_error_rows_outside_included() -> None:
    """The mean over all figures, those outside included, and over rows that set no constant."""
    every = [abs(error) for row in LOGS for error in errors(row).values()]
    tested = [abs(error) for row in LOGS if row["used"] == "test" for error in errors(row).values()]
    print(
        f"\n{len(every)} figures of {len(LOGS)} logs: mean error {sum(every) / len(every):.2%}, most {max(every):.2%}"
    )
    assert sum(every) / len(every) < 0.025
    assert sum(tested) / len(tested) < 0.03


def test_activation_peaks() -> None:
    """Peaks differ by kernels and versions: within a fifth each, which is at most 2 % of a GPU."""
    peaks = [
        (needed(row)[2].activations / GIB, row["logged"]["activations"])
        for row in LOGS
        if "activations" in row["logged"]
    ]
    assert len(peaks) >= 5
    assert [(told, said) for told, said in peaks if abs(told / said - 1) > 0.2] == []


# --- worked examples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_worked_case(case: dict[str, Any]) -> None:
    subject = model(case["model"])
    layout = Layout(*case.get("layout", [1, 1]))
    expect = case["expect"]
    told = {
        "weights_gib": weights_bytes(subject) / GIB,
        "weights_gb": weights_bytes(subject) / 1e9,
        "kv_bytes_per_token": kv_bytes_per_token(subject, layout),
        "kv_gib": kv_bytes_per_token(subject, layout) * case.get("tokens", 0) / GIB,
    }
    assert {key: told[key] for key in expect} == pytest.approx(expect, rel=case.get("rel", 0.005))


def test_stages_the_fullest_counts() -> None:
    """DeepSeek-R1 Q8_0 on ten 80 GB GPUs: seven layers on the fullest, too much; eleven GPUs have six each."""
    r1 = model("deepseek-r1", weight_format="q8_0", weight_bits=713e9 * 8 / 671026419200, attention="full",
               kv_lora_rank=None, rope_dim=None, head_dim=160)  # fmt: skip
    server = Server(kind="llamacpp")
    ten = need(r1, server, gpu=card("H100 SXM"), layout=Layout(1, 10), sessions=1, context=8192)
    eleven = need(r1, server, gpu=card("H100 SXM"), layout=Layout(1, 11), sessions=1, context=8192)
    assert (ten.weights + ten.kv) / GIB == pytest.approx(7 * 10.9 + 4.4, abs=0.5)
    assert (eleven.weights + eleven.kv) / GIB == pytest.approx(69, abs=0.5)
    assert (ten.fits, eleven.fits) == (False, True)


def test_embeddings_on_the_first_stage_and_the_head_on_the_last() -> None:
    llama = model(LLAMA)
    table = 128256 * 4096 * 2
    body = weights_bytes(llama) - 2 * table
    sizes = [need(llama, VLLM, gpu=card("L4"), layout=Layout(1, n), sessions=1, context=64).weights for n in (1, 2, 3)]
    # 32 layers in three stages: 11, 11 and 10, the last with the head
    assert sizes[0] == weights_bytes(llama)
    assert sizes[1] == body // 2 + table
    assert sizes[2] == pytest.approx(body * 11 / 32 + table, abs=1)


def test_70b_on_two_or_four_a100s() -> None:
    """16 bit does fit two of 80 GB and leaves about 41k tokens before activations; four, or 8 bit, give room."""
    big, a100 = model("llama-3.1-70b"), card("A100-80GB SXM")
    room = 0.9 * 80 * GIB - need(big, VLLM, gpu=a100, layout=Layout(2), sessions=1, context=1).weights
    assert room / kv_bytes_per_token(big, Layout(2)) == pytest.approx(41_000, rel=0.02)
    sessions = [most_sessions(big, VLLM, a100, layout, 8192) for layout in (Layout(2), Layout(4), Layout(8))]
    assert 0 <= sessions[0] < 5 < 20 < sessions[1] < sessions[2]
    quantised = model("llama-3.1-70b", weight_format="fp8", weight_bits=8.238)
    assert most_sessions(quantised, VLLM, a100, Layout(2), 8192) > 20
    with pytest.raises(DeclarationError, match="64 attention heads cannot be split over 3 GPUs") as caught:
        need(big, VLLM, gpu=a100, layout=Layout(3), sessions=1, context=1)
    assert "1, 2, 4, 8, 16" in caught.value.why


def test_longer_unchunked_prompts_leave_less_room() -> None:
    """Unchunked, 29000 tokens on a 24 GB GPU take more activations than leave room for their keys and values."""
    llama, small = model(LLAMA), replace(card("RTX 4090"), vram_mib=int(23.58 * 1024))

    def fits(tokens: int, chunk: int) -> bool:
        server = Server(kind="vllm", max_batched_tokens=chunk, graphs=False)
        return need(llama, server, gpu=small, layout=Layout(), sessions=1, context=tokens).fits

    assert [fits(20_000, 20_000), fits(29_000, 29_000), fits(35_000, 512)] == [True, False, True]


def test_all_experts_must_be_there() -> None:
    """ "33 GB perfect fit" by the active parameters: all 125.1e9 count."""
    told = {"layers": 48, "heads": 32, "kv_heads": 2, "head_dim": 256, "kv_layers": 12, "context": 262144}
    qwen = model(
        {"parameters_total": 125_100_000_000, "parameters_active": 10_000_000_000, "weight_bits": 4.894, **told}
    )
    assert weights_bytes(qwen) / 1e9 == pytest.approx(76.5, abs=0.1)
    assert most_sessions(qwen, VLLM, card("L40S"), Layout(), 4096) == 0


def test_latent_attention_holds_many_more_sessions_than_counted_in_full() -> None:
    r1 = model("deepseek-r1")
    unabsorbed = 61 * 128 * (192 + 128) * 2  # keys and values of every head
    assert kv_bytes_per_token(r1) == 70272
    assert unabsorbed / kv_bytes_per_token(r1) == pytest.approx(71.1, abs=0.1)
    assert kv_bytes_per_token(r1, Layout(8)) == 70272  # not split
    assert kv_bytes_per_token(model("deepseek-r1", kv_format="fp8")) == 35136


def test_windows_are_charged_in_full_unless_the_engine_is_hybrid() -> None:
    oss = model("gpt-oss-20b")
    full, hybrid = (
        need(
            oss, Server(kind="vllm", hybrid_kv=on), gpu=card("H100 SXM"), layout=Layout(), sessions=8, context=65536
        ).kv
        for on in (False, True)
    )
    assert full == kv_bytes_per_token(oss) * 8 * 65536
    assert full / 2 < hybrid < full * 0.52  # half the layers keep 128 tokens and a chunk
    short = [
        need(oss, Server(kind="vllm", hybrid_kv=on), gpu=card("H100 SXM"), layout=Layout(), sessions=8, context=64).kv
        for on in (False, True)
    ]
    assert short[0] == short[1]


def test_vision_encoder_is_counted_once() -> None:
    eyes = model("qwen3-vl-8b")
    found = need(eyes, VLLM, gpu=card("L40S"), layout=Layout(), sessions=1, context=1024)
    assert found.vision == (eyes.vision_parameters or 0) * 2
    assert found.weights + found.vision == pytest.approx(weights_bytes(eyes), abs=2)


def test_experts_are_rounded_up_where_the_gpu_lacks_their_format() -> None:
    def weights(on: str, engine_name: str) -> int:
        oss, layout = model("gpt-oss-120b"), Layout()
        return need(oss, VLLM, gpu=card(on), layout=layout, sessions=1, context=1, engine_name=engine_name).weights

    assert weights("H100 SXM", "vllm") - weights("B200 SXM", "vllm") == pytest.approx(
        36 * 128 * 3 * (2944 * 3072 - 2880 * 2880) * 4.25 / 8, abs=2
    )
    assert weights("H100 SXM", "sglang") == weights("B200 SXM", "sglang")


def test_each_engine_takes_its_share() -> None:
    llama, h100 = model(LLAMA), card("H100 SXM")
    total = h100.vram_mib * 2**20

    def of(name: str, **flags: Any) -> Need:
        server = Server.model_validate(flags)
        return need(llama, server, gpu=h100, layout=Layout(), sessions=4, context=8192, engine_name=name)

    assert of("vllm").available == int(0.9 * total)
    assert of("vllm", gpu_memory_share=0.5).available == int(0.5 * total)
    assert of("llamacpp").available == total
    free = of("trtllm")
    assert free.available == free.fixed + int(0.9 * (total - free.fixed))
    static = of("sglang")
    assert static.available == int(0.88 * total) + static.activations + static.graphs + static.runtime
    assert of("vllm", graphs=False).graphs == 0
    with pytest.raises(DeclarationError, match="unknown engine 'lmdeploy'"):
        of("lmdeploy")


def test_on_a_host_without_gpu() -> None:
    found = need(model(LLAMA), Server(), gpu=None, layout=Layout(), sessions=2, context=1000)
    assert (found.available, found.fits, found.graphs) == (None, True, 0)
    assert found.kv == 131072 * 2 * 1024  # cells in blocks of 256
    assert found.weights == weights_bytes(model(LLAMA))


def test_the_numbers_stand_in_the_formulas() -> None:
    text = "\n".join(need(model(LLAMA), VLLM, gpu=card("L40S"), layout=Layout(), sessions=4, context=8192).lines)
    assert "8030261248 parameters * 16 bits / 8 = 14.958 GiB" in text
    assert "2 * 32 layers * 8 kv heads * 128 head_dim * 16 bits / 8 = 131072 bytes" in text
    assert "131072 bytes * 4 sessions * 8192 tokens in blocks of 16 = 4.000 GiB" in text
    assert "may take 40.233 GiB of 44.70 GiB" in text
    latent = "\n".join(
        need(model("deepseek-r1"), VLLM, gpu=card("H200 SXM"), layout=Layout(8), sessions=1, context=64).lines
    )
    assert "61 layers * (512 latent + 64 rope) * 16 bits / 8 = 70272 bytes on the fullest of 8 GPUs" in latent


# --- what is refused -----------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    llama, t4 = model(LLAMA), card("T4")
    with pytest.raises(DeclarationError, match="beyond the model's 131072") as caught:
        need(llama, VLLM, gpu=card("L4"), layout=Layout(), sessions=1, context=131073)
    assert "context_per_slot" in caught.value.next_command
    with pytest.raises(DeclarationError, match="T4 has no fp8 keys and values") as caught:
        need(model(LLAMA, kv_format="fp8"), VLLM, gpu=t4, layout=Layout(), sessions=1, context=1)
    assert "compute capability 8" in caught.value.why
    with pytest.raises(DeclarationError, match="T4 has no bf16"):
        most_sessions(model(LLAMA, kv_format="bf16"), VLLM, t4, Layout(), 1)
    with pytest.raises(DeclarationError, match="32 layers cannot be split into 33 stages"):
        need(llama, VLLM, gpu=t4, layout=Layout(1, 33), sessions=1, context=1)
    with pytest.raises(DeclarationError, match="count from 1"):
        need(llama, VLLM, gpu=t4, layout=Layout(), sessions=0, context=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weight_format": "fp9", "weight_bits": None}, "did you mean 'fp8'? Expected one of"),
        ({"kv_format": "fp7"}, "Expected one of fp16, bf16, fp8, int8, q8_0, q4_0"),
        ({"attention": "latent"}, "kv_lora_rank: missing"),
        ({"attention": "sliding"}, "window: missing"),
        ({"kv_lora_rank": 4}, "is for attention: latent"),
        ({"kv_layers": 33}, "is more than layers (32)"),
        ({"layers": 0}, "expected a whole number above 0"),
        ({"vision_parameters": 9_000_000_000}, "must be below parameters_total"),
        ({"experts": 2, "experts_per_token": 3}, "is larger than experts (2)"),
    ],
)
def test_impossible_models(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        model(LLAMA, **change)


def test_a_format_that_keeps_embeddings_asks_for_their_size() -> None:
    bare = {"parameters_total": 8030261248, "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "context": 8192}
    with pytest.raises(ValidationError, match="awq-int4 leaves embeddings and head at 16 bit: give hidden and vocab"):
        model({**bare, "weight_format": "awq-int4"})
    whole = model({**bare, "weight_format": "awq-int4", "hidden": 4096, "vocab": 128256})
    assert weights_bytes(whole) / 1e9 == pytest.approx(5.73, abs=0.005)
    assert model({**bare, "weight_format": "q4_k_m"}).weight_bits == 4.8944


def test_a_model_without_attention_needs_its_weights() -> None:
    image = model({"parameters_total": 25_000_000, "weight_bits": 16, "flops_per_item": 4e9})
    found = need(image, Server(kind="triton"), gpu=card("T4"), layout=Layout(), sessions=8, context=0)
    assert (found.kv, found.weights, found.fits) == (0, 50_000_000, True)
    assert layouts(image, 8) == [Layout()]


def test_layouts_fill_a_host_evenly() -> None:
    assert layouts(model(LLAMA), 1) == [Layout()]
    found = layouts(model(LLAMA), 8)
    assert found[0] == Layout()
    assert all(8 % layout.gpus == 0 for layout in found)
    assert {Layout(8, 1), Layout(4, 2), Layout(1, 8)} <= set(found)
    nine = model({"parameters_total": 134515008, "layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64,
                  "weight_bits": 6, "context": 8192})  # fmt: skip
    assert {layout.tensor for layout in layouts(nine, 8)} == {1}


def test_every_second_layer_of_five_stages() -> None:
    """24 layers, every second with a window, in stages of 5 5 5 5 4: some stage has three layers in full."""
    told = {"parameters_total": 10**9, "layers": 24, "heads": 8, "kv_heads": 8, "head_dim": 64, "weight_bits": 16,
            "context": 131072, "attention": "sliding", "window": 128, "window_layers": 12}  # fmt: skip
    assert keeping(model(told), 5) == ((2, 3), (3, 2), (2, 3), (3, 2), (2, 2))
    asked = need(model(told), Server(hybrid_kv=True, max_batched_tokens=16), gpu=card("H100 SXM"), layout=Layout(1, 5),
                 sessions=1, context=131072, engine_name="vllm")  # fmt: skip
    each = 2 * 8 * 64 * 2
    assert asked.kv == each * (3 * 131072 + 2 * (128 + 16))
    last = model({**told, "window_place": "last"})
    assert keeping(last, 5) == ((5, 0), (5, 0), (2, 3), (0, 5), (0, 4))


def test_every_figure_of_engines_and_formats_has_a_source() -> None:
    wanted = {"share", "runtime", "collectives", "graphs", "chunk", "block", "forward", "sampler", "tile"}
    for name in engines():
        sources = engine(name).sources
        assert {key.removesuffix("_source") for key in sources} == wanted
        assert [key for key, text in sources.items() if "http" not in text and not text.startswith(
            ("assumption: ", "logits", "graphs reuse", "none unless", "one GPU", "no "))] == []  # fmt: skip
    for form in weight_formats().values():
        assert form.source
        assert form.quality
        assert 2 < form.bits <= 32
