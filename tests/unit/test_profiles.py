"""The shipped profiles: each use case with its targets, figures that add up, and sources where figures come from."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from inferlift.declaration import load, names, schema
from inferlift.profile import ROOT, Profile

TASKS = {
    "batch": "batch",
    "demo": "chat",
    "demo-aws": "chat",
    "demo-image": "image",
    "demo-image-small": "image",
    "demo-small": "chat",
    "image-edge": "image",
    "llm-13b": "chat",
    "llm-70b": "chat",
    "multimodal": "multimodal",
    "on-prem": "chat",
}
GB = 1e9


def profile(name: str) -> Profile:
    return load(name, ROOT).profile


@pytest.mark.parametrize("name", sorted(TASKS))
def test_it_loads_with_its_task(name: str) -> None:
    assert profile(name).task == TASKS[name]


def test_none_is_missing_here() -> None:
    assert set(names(ROOT)) >= set(TASKS)


@pytest.mark.parametrize(
    ("name", "target", "limit", "cost"),
    [
        ("image-edge", "p95_total_ms", 200, 0.40),
        ("llm-13b", "p95_ttft_ms", 500, 1.10),
        ("multimodal", "p95_total_ms", 800, 2.50),
        ("batch", "p95_total_ms", None, 0.08),
    ],
)
def test_the_use_cases_have_their_targets(name: str, target: str, limit: float | None, cost: float) -> None:
    targets, budget = profile(name).targets, profile(name).budget
    assert getattr(targets, target) == limit
    assert (targets.max_cost_per_1000, budget.currency) == (cost, "EUR")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_money_has_a_dated_rate(name: str) -> None:
    budget = profile(name).budget
    assert budget.usd_rate_source
    assert re.fullmatch(r"2026-\d\d-\d\d", budget.usd_rate_date)


def weights_at(name: str, bits: float) -> float:
    return profile(name).model.parameters_total * bits / 8


def test_13b_does_not_fit_an_a10g_at_16_bit_and_does_at_4() -> None:
    assert weights_at("llm-13b", 16) > 24 * GB
    assert 6.5 * GB < weights_at("llm-13b", profile("llm-13b").model.weight_bits) < 8 * GB
    model = profile("llm-13b").model
    assert 2 * model.layers * model.kv_heads * model.head_dim * 2 == 819_200  # as its comment says


def test_70b_needs_several_80_gb_cards_and_the_multimodal_model_one() -> None:
    assert weights_at("llm-70b", 16) == pytest.approx(141.1 * GB, rel=0.001)
    large = weights_at("llm-70b", profile("llm-70b").model.weight_bits)
    assert large == pytest.approx(72.7 * GB, rel=0.005)  # the comment's figure: embeddings and head at 16 bit
    assert large > 80 * GB * 0.9
    assert weights_at("multimodal", 16) == pytest.approx(17.53 * GB, rel=0.001)


@pytest.mark.parametrize(
    ("name", "norms"),
    [("llm-13b", 0), ("llm-70b", 0), ("on-prem", 2 * 128 * 64)],  # Qwen3 has norms of queries and keys in each layer
)
def test_parameters_are_those_of_the_architecture(name: str, norms: int) -> None:
    model = profile(name).model
    hidden, intermediate, vocab = model.hidden or 0, model.intermediate or 0, model.vocab or 0
    attention = 2 * hidden * model.heads * model.head_dim + 2 * hidden * model.kv_heads * model.head_dim
    layers = model.layers * (attention + 3 * hidden * intermediate + 2 * hidden)
    assert layers + 2 * vocab * hidden + hidden + norms == model.parameters_total


def test_the_encoder_of_the_batch_needs_the_operations_that_it_says() -> None:
    tokens, width, layers = profile("batch").requests.input_tokens_p50, 768, 12
    weights = layers * (4 * width**2 + 2 * width * 3072)
    operations = 2 * weights * tokens + 4 * layers * tokens**2 * width
    assert profile("batch").model.flops_per_item == pytest.approx(operations, rel=0.005)


def test_only_the_batch_may_be_interrupted() -> None:
    assert [name for name in TASKS if profile(name).interruptible] == ["batch"]


OBSERVED = {"demo", "demo-aws", "demo-small", "demo-image", "demo-image-small"}  # the lab's own traffic is audited


@pytest.mark.parametrize("name", sorted(set(TASKS) - OBSERVED))
def test_assumed_traffic_says_so(name: str) -> None:
    text = (ROOT / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    assert "assumption" in text.partition("requests:")[2].partition("\n\n")[0]
    model = text.partition("model:")[2].partition("\n\n")[0]
    assert "https://" in model or "pypi://" in model


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_editors_schema_takes_it(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    plain = yaml.safe_load((ROOT / "profiles" / f"{name}.yaml").read_text(encoding="utf-8"))
    checker: Any = jsonschema.Draft202012Validator(schema())
    assert [error.message for error in checker.iter_errors(json.loads(json.dumps(plain)))] == []


def test_the_editors_schema_sees_a_mistake() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    plain = yaml.safe_load((ROOT / "profiles" / "demo.yaml").read_text(encoding="utf-8"))
    plain["requests"]["in_flight_peak"] = "many"
    checker: Any = jsonschema.Draft202012Validator(schema())
    assert not checker.is_valid(plain)
