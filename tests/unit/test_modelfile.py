"""A model's figures from real config.json files, GGUF headers, and files that are hostile or cut short."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift.declaration import load
from inferlift.errors import DeclarationError
from inferlift.modelfile import read, task_of
from inferlift.modelfile.filling import fill
from inferlift.profile import Model

HERE = Path(__file__).parent
CASES: dict[str, Any] = yaml.safe_load((HERE / "modelfile.yaml").read_text(encoding="utf-8"))
LAB = HERE / "declaration_cases" / "root"


def written(folder: Path, config: object, beside: object = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    return folder / "config.json"


@pytest.mark.parametrize("name", CASES)
def test_published_config(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    found = read(written(tmp_path, case["config"], case.get("beside")))
    expect = dict(case["expect"])
    if "parameters_total" in expect:
        assert found["parameters_total"] == pytest.approx(expect.pop("parameters_total"), rel=case["loose"])
        Model.model_validate({"name": "m", "source": "s", **found})
    assert {key: found.get(key) for key in expect} == expect
    assert read(tmp_path) == found  # a folder stands for its config.json


@pytest.mark.parametrize(
    ("config", "task"),
    [
        (CASES["bert-base"]["config"], "embeddings"),
        (CASES["vit-b16"]["config"], "image"),
        (CASES["llama-3.1-8b"]["config"], "chat"),
        (CASES["qwen3-vl-8b"]["config"], "multimodal"),
        ({"model_type": "resnet"}, "image"),
    ],
)
def test_a_config_tells_the_task(tmp_path: Path, config: dict[str, Any], task: str) -> None:
    assert task_of(written(tmp_path, config)) == task


def test_an_image_model_without_sizes_is_told_what_to_declare(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="'resnet' is an image model") as caught:
        read(written(tmp_path, {"model_type": "resnet", "depths": [3, 4, 6, 3]}))
    assert "model.flops_per_item" in caught.value.next_command


def test_awq_weighs_what_is_published(tmp_path: Path) -> None:
    """Llama-3.1-8B AWQ: 5.73 GB of safetensors, embeddings and head at 16 bit."""
    found = read(written(tmp_path, CASES["llama-3.1-8b-awq"]["config"]))
    assert float(found["weight_bits"]) * float(found["parameters_total"]) / 8 / 1e9 == pytest.approx(5.73, abs=0.005)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": None}, "lacks num_hidden_layers (or n_layer, num_layers)"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"intermediate_size": None}, "lacks intermediate_size"),
        ({"hidden_size": "4096"}, "hidden_size: expected a whole number from 1, got '4096'"),
        ({"num_hidden_layers": True}, "num_hidden_layers: expected a whole number"),
        ({"num_attention_heads": -1}, "num_attention_heads: expected"),
        ({"vocab_size": 10**30}, "vocab_size: expected"),
        ({"model_type": "lama"}, "did you mean 'llama'?"),
        ({"model_type": "rwkv"}, "declare its figures: parameters_total, layers"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantization_config.quant_method: aqlm is not known"),
        ({"quantization_config": {"quant_method": "awq"}}, "lacks quantization_config.bits"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: expected true or false"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        read(written(tmp_path, {**CASES["llama-3.1-8b"]["config"], **change}))
    assert said in caught.value.what
    assert "config.json" in caught.value.what


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"a": ' + b"9" * 10_000 + b"}", b"\xff"])
def test_no_config(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(DeclarationError, match=r"config\.json: "):
        read(tmp_path / "config.json")


def test_not_there_a_pipe_and_a_huge_file(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no such file"):
        read(tmp_path / "config.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(5 * 2**20)
    with pytest.raises(DeclarationError, match="larger than 4 MB"):
        read(tmp_path / "huge.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DeclarationError, match=r"pipe\.json: is not a regular file"):
        read(tmp_path / "pipe.json")
    Path(tmp_path / "folder").mkdir()
    with pytest.raises(DeclarationError, match="no such file"):
        read(tmp_path / "folder")


# --- GGUF ----------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def gguf(keys: list[bytes], tensors: list[tuple[str, list[int], int]], version: int = 3) -> bytes:
    """A header as llama.cpp writes it."""
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(keys)), *keys]
    for name, dims, kind in tensors:
        parts.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0))
    return b"".join(parts)


def number(name: str, value: int) -> bytes:
    return key(name, 4, struct.pack("<I", value))


LLAMA = [
    key("general.architecture", 8, text("llama")), number("llama.block_count", 2), number("general.file_type", 2),
    number("llama.embedding_length", 64), number("llama.context_length", 512), number("llama.feed_forward_length", 128),
    number("llama.attention.head_count", 4), number("llama.attention.head_count_kv", 2),
    key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("b") + text("c")),
    key("tokenizer.ggml.scores", 9, struct.pack("<IQ3f", 6, 3, 0, 1, 2)),
]  # fmt: skip
TENSORS: list[tuple[str, list[int], int]] = [
    ("token_embd.weight", [64, 3], 8),
    ("blk.0.ffn_up.weight", [64, 128], 2),
    ("n", [64], 0),
]


def test_gguf_header(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LLAMA, TENSORS))
    found = read(path)
    stored = 192 // 32 * 34 + 8192 // 32 * 18 + 64 * 4
    assert found["parameters_total"] == 192 + 8192 + 64
    assert found["weight_bits"] == pytest.approx(stored * 8 / (192 + 8192 + 64))
    wanted = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden": 64, "vocab": 3, "context": 512}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["tied_embeddings"], found["weight_format"]) == (True, "q4_0")


def test_gguf_experts_latent_and_windows(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    more = [number("llama.expert_count", 8), number("llama.expert_used_count", 2)]
    path.write_bytes(gguf(LLAMA + more, [*TENSORS, ("blk.0.ffn_up_exps.weight", [64, 32, 8], 0)]))
    found = read(path)
    assert int(found["parameters_total"]) - int(found["parameters_active"]) == 64 * 32 * 6
    latent = [number("llama.attention.kv_lora_rank", 32), number("llama.rope.dimension_count", 8)]
    path.write_bytes(gguf(LLAMA + latent, TENSORS))
    found = read(path)
    assert (found["attention"], found["kv_lora_rank"], found["rope_dim"]) == ("latent", 32, 8)
    window = [number("llama.attention.sliding_window", 64), number("llama.attention.sliding_window_pattern", 2)]
    path.write_bytes(gguf(LLAMA + window, TENSORS))
    found = read(path)
    assert (found["attention"], found["window"], found["window_layers"]) == ("sliding", 64, 1)


def test_gguf_in_parts(tmp_path: Path) -> None:
    first, second = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    first.write_bytes(gguf([*LLAMA, key("split.count", 2, struct.pack("<H", 2))], TENSORS[:1]))
    with pytest.raises(DeclarationError, match=r"m-00002-of-00002\.gguf is not there"):
        read(first)
    second.write_bytes(gguf([], TENSORS[1:]))
    assert read(first)["parameters_total"] == 192 + 8192 + 64


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gguf(LLAMA, TENSORS)[:-3], "cut short"),
        (gguf(LLAMA, TENSORS, version=9), "version"),
        (gguf([], TENSORS), "lacks general.architecture"),
        (gguf(LLAMA, []), "0 are listed"),
        (gguf(LLAMA[:-3], TENSORS)[:4] + struct.pack("<IQQ", 3, 2**60, 1), "tensor count"),
        (gguf(LLAMA, [("t", [2**40, 2**40], 0)]), "has 1.21e+24 values"),
        (gguf(LLAMA, [("t", [0], 0)]), "has 0 values"),
        (gguf(LLAMA, [("t", [1], 99)]), "type 99"),
        (gguf([key("a", 8, struct.pack("<Q", 2**62))], TENSORS), "length of a text"),
        (gguf([key("a", 9, struct.pack("<IQ", 4, 2**40))], TENSORS), "length of a list"),
        (gguf([key("a", 9, struct.pack("<IQ", 9, 1))], TENSORS), "list of the type 9"),
        (gguf([key("a", 77, b"")], TENSORS), "type 77"),
        (gguf([one for one in LLAMA if b"head_count" not in one], TENSORS), "lacks llama.attention.head_count"),
    ],
)
def test_hostile_gguf(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(DeclarationError) as caught:
        read(tmp_path / "m.gguf")
    assert said in caught.value.what


def many(kind: int, each: int, count: int) -> bytes:
    return key("many", 9, struct.pack("<IQ", kind, count) + bytes(each * count))


@pytest.mark.parametrize(
    "keys",
    [
        [many(0, 1, 3_000_000)] * 4,  # numbers of a byte
        [many(10, 8, 90_000)] * 8,
        [many(8, 8, 300_000)],  # empty texts
        [key("k" * 100_000, 8, text("v" * 100_000))] * 50,
        [key(f"key{number:04}" + "n" * 180, 8, text("v" * 190)) for number in range(9_000)],
    ],
    ids=["bytes", "numbers", "texts", "long texts", "many keys"],
)
def test_no_gguf_header_takes_more_than_some_tens_of_megabytes(tmp_path: Path, keys: list[bytes]) -> None:
    path = tmp_path / "m.gguf"
    tensors = [(f"blk.{number}.attn_norm.weight", [64], 0) for number in range(5_000)]
    path.write_bytes(gguf([*keys, *LLAMA], [*TENSORS, *tensors]))
    tracemalloc.start()
    try:
        assert read(path)["layers"] == 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


def test_what_a_gguf_header_claims_is_held_against_the_files_size(tmp_path: Path) -> None:
    """A thousand bytes cannot hold what these counts say; nothing is read or made for them."""
    path = tmp_path / "m.gguf"
    claims = {
        "tensors": struct.pack("<IQQ", 3, 90_000, 0),
        "keys": struct.pack("<IQQ", 3, 0, 9_000),
        "numbers": struct.pack("<IQQ", 3, 0, 1) + key("a", 9, struct.pack("<IQ", 12, 3_000_000)),
        "texts": struct.pack("<IQQ", 3, 0, 1) + key("a", 9, struct.pack("<IQ", 8, 3_000_000)),
        "text": struct.pack("<IQQ", 3, 0, 1) + key("a", 8, struct.pack("<Q", 100_000_000)),
    }
    for claim in claims.values():
        path.write_bytes((b"GGUF" + claim).ljust(1000, b"\0"))
        with pytest.raises(DeclarationError, match="cut short"):
            read(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(gguf(LLAMA, TENSORS)) - 1), st.binary(min_size=1, max_size=8))
def test_mutated_gguf_is_read_or_refused(tmp_path: Path, at: int, junk: bytes) -> None:
    whole = gguf(LLAMA, TENSORS)
    (tmp_path / "m.gguf").write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    said = "m.gguf: "
    try:
        assert read(tmp_path / "m.gguf")
    except DeclarationError as error:
        said = error.what
    assert "m.gguf: " in said


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CASES)), st.integers(0, 40), _JSON)
def test_mutated_config_is_read_or_refused(tmp_path: Path, name: str, at: int, value: object) -> None:
    config = dict(CASES[name]["config"])
    config[sorted(config)[at % len(config)]] = value
    said = "config.json: "
    try:
        found = read(written(tmp_path, config))
        assert found.get("layers") or found["flops_per_item"]
    except DeclarationError as error:
        said = error.what
    assert "config.json: " in said


# --- in a profile --------------------------------------------------------------------------------------------

BARE = {"name": "m", "source": "s", "config": "config.json"}


def test_config_fills_what_is_not_declared(tmp_path: Path) -> None:
    written(tmp_path, CASES["deepseek-r1"]["config"])
    plain = {"model": {**BARE, "context": 8192}}
    assert fill(plain, tmp_path) == []
    model = Model.model_validate(plain["model"])
    assert (model.layers, model.attention, model.context, model.kv_lora_rank) == (61, "latent", 8192, 512)
    assert model.weight_bits == pytest.approx(8.023, abs=1e-3)


@pytest.mark.parametrize(
    ("declared", "key", "said"),
    [
        ({"layers": 31}, "model.layers", "31 is declared, config.json says 32"),
        ({"context": 200_000}, "model.context", "200000 is declared, config.json says 131072"),
        ({"parameters_total": 7_000_000_000}, "model.parameters_total", "is declared, config.json says 8030261248"),
        ({"tied_embeddings": True}, "model.tied_embeddings", "True is declared, config.json says False"),
        ({"config": "nowhere.json"}, "model.config", "no such file"),
    ],
)
def test_a_contradiction_is_an_error(tmp_path: Path, declared: dict[str, Any], key: str, said: str) -> None:
    written(tmp_path, CASES["llama-3.1-8b"]["config"])
    [(where, why)] = fill({"model": {**BARE, **declared}}, tmp_path)
    assert where == key
    assert said in why


def test_a_config_that_is_not_there_comes_first_and_what_it_would_supply_is_not_asked_for(tmp_path: Path) -> None:
    text = """
name: p
target: aws
requests: {input_tokens_p50: many, input_tokens_p95: 20, output_tokens: 5}
model: {name: m, source: s, config: none.json}
budget: {usd_rate: 1, usd_rate_source: s, usd_rate_date: "2026-11-01"}
"""
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError) as caught:
        load(str(tmp_path / "p.yaml"), tmp_path)
    said = caught.value.what.splitlines()
    assert said[0] == "2 problems in the profile:"
    assert "p.yaml:5: model.config: none.json: no such file" in said[1]
    assert "requests.input_tokens_p50" in said[2]


@pytest.mark.parametrize(
    ("form", "bits", "fits"),
    [
        ("fp8", 16, False), ("fp8", 8.24, True), ("fp8", 7.9, False), ("bf16", 8, False), ("bf16", 16.02, True),
        ("awq-int4", 5.7, True), ("awq-int4", 4.0, False), ("awq-int4", 16, False), ("mxfp4", 4.6, True),
        ("q8_0", 4.5, False), ("q4_k_m", 4.89, True), ("q4_k_m", 8.5, False), ("fp32", 16, False),
    ],
)  # fmt: skip
def test_bits_that_are_not_of_the_format_are_refused_with_their_line(
    tmp_path: Path, form: str, bits: float, fits: bool
) -> None:
    text = f"""
name: p
target: aws
requests: {{input_tokens_p50: 10, input_tokens_p95: 20, output_tokens: 5}}
model:
  {{name: m, source: s, parameters_total: 8030261248, layers: 32, heads: 32, kv_heads: 8, head_dim: 128, hidden: 4096,
  vocab: 128256, context: 8192, weight_format: {form},
  weight_bits: {bits}}}
budget: {{usd_rate: 1, usd_rate_source: s, usd_rate_date: "2026-11-01"}}
"""
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    if fits:
        assert load(str(tmp_path / "p.yaml"), tmp_path).profile.model.weight_bits == bits
        return
    with pytest.raises(DeclarationError, match=rf"p\.yaml:8: model.weight_bits: {bits:g} bits a weight are not {form}"):
        load(str(tmp_path / "p.yaml"), tmp_path)


def test_what_a_mixed_file_stores_counts_and_not_what_it_is_called(tmp_path: Path) -> None:
    """A GGUF of experts in a 4-bit format that is called Q2_K: its bits are kept, the name is not."""
    called = [one for one in LLAMA if b"file_type" not in one] + [number("general.file_type", 10)]
    (tmp_path / "m.gguf").write_bytes(gguf(called, [*TENSORS, ("blk.0.ffn_up_exps.weight", [64, 32, 64], 8)]))
    plain: dict[str, Any] = {"model": {"config": "m.gguf"}}
    assert fill(plain, tmp_path) == []
    assert "weight_format" not in plain["model"]
    assert plain["model"]["weight_bits"] == pytest.approx(8.27, abs=0.05)


def test_an_unquantised_model_may_be_declared_quantised(tmp_path: Path) -> None:
    written(tmp_path, CASES["llama-3.1-8b"]["config"])
    plain = {"model": {**BARE, "weight_format": "awq-int4"}}
    assert fill(plain, tmp_path) == []
    assert Model.model_validate(plain["model"]).weight_bits == pytest.approx(5.7058, abs=1e-3)
    quantised = {"model": {**BARE, "weight_format": "fp8"}}
    written(tmp_path, CASES["llama-3.1-8b-awq"]["config"])
    assert fill(quantised, tmp_path)[0][0] == "model.weight_format"


def test_a_profile_is_filled_before_it_is_checked(tmp_path: Path) -> None:
    base = (LAB / "profiles" / "base.yaml").read_text(encoding="utf-8")
    written(tmp_path, CASES["qwen3-8b"]["config"])
    lines = [line for line in base.splitlines() if not line.startswith("  ") or "model" not in line]
    start = next(index for index, line in enumerate(lines) if line.startswith("model:"))
    end = next(index for index in range(start + 1, len(lines)) if not lines[index].startswith((" ", "#")))
    block = ["model:", "  name: m", "  source: s", f"  config: {tmp_path / 'config.json'}"]
    (tmp_path / "p.yaml").write_text("\n".join([*lines[:start], *block, *lines[end:]]), encoding="utf-8")
    declared = load(str(tmp_path / "p.yaml"), LAB)
    assert (declared.profile.model.layers, declared.profile.model.weight_bits) == (36, 16)
    written(tmp_path, {**CASES["qwen3-8b"]["config"], "vocab_size": None})
    with pytest.raises(DeclarationError, match=r"p\.yaml:\d+: model\.config: config\.json: lacks vocab_size"):
        load(str(tmp_path / "p.yaml"), LAB)
