"""What holds of memory for any model, engine and GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from memory_models import LLAMA, VLLM, card, model
from pydantic import ValidationError

from inferlift.profile import Model, Server
from inferlift.profile.formats import weight_formats
from inferlift.sizing.engines import engine, engines
from inferlift.sizing.footprint import keeping, tiles
from inferlift.sizing.hardware import Layout
from inferlift.sizing.memory import longest_context, most_sessions, need, weights_bytes


@given(
    st.sampled_from([LLAMA, "qwen3-30b-a3b", "deepseek-r1", "gpt-oss-20b", "gemma-3-4b"]),
    st.sampled_from(sorted(engines())),
    st.sampled_from([Layout(), Layout(2), Layout(4), Layout(1, 2), Layout(2, 2)]),
    st.integers(1, 300),
    st.integers(1, 40_000),
    st.booleans(),
)
def test_more_sessions_or_tokens_never_need_less(
    name: str, engine_name: str, layout: Layout, sessions: int, context: int, hybrid: bool
) -> None:
    subject, server = model(name), Server(hybrid_kv=hybrid)

    def total(count: int, tokens: int) -> int:
        found = need(
            subject,
            server,
            gpu=card("H200 SXM"),
            layout=layout,
            sessions=count,
            context=tokens,
            engine_name=engine_name,
        )
        assert found.total == found.fixed + found.kv
        assert min(found.weights, found.kv, found.runtime) > 0
        return found.total

    assert total(sessions, context) <= total(sessions + 1, context)
    assert total(sessions, context) <= total(sessions, context + 1)


@given(
    st.sampled_from([LLAMA, "qwen3-8b", "gpt-oss-20b"]), st.sampled_from(["L40S", "H100 SXM"]), st.integers(1, 32_000)
)
def test_what_is_said_to_fit_fits_and_one_more_does_not(name: str, on: str, context: int) -> None:
    subject, where = model(name), card(on)
    count = most_sessions(subject, VLLM, where, Layout(), context)

    def fits(sessions: int, tokens: int) -> bool:
        return need(subject, VLLM, gpu=where, layout=Layout(), sessions=sessions, context=tokens).fits

    assert count == 0 or fits(count, context)
    assert not fits(count + 1, context) or count == 2**16
    longest = longest_context(subject, VLLM, where, Layout(), 4)
    assert longest == 0 or fits(4, longest)
    assert longest == subject.context or not fits(4, longest + 1)


def formatted(form: str | None, bits: float | None, **shape: Any) -> Model | None:
    """A small model in that format; None where its embeddings and encoder would be all of it."""
    told = {"layers": 30, "heads": 16, "kv_heads": 4, "head_dim": 64, "context": 8192, **shape}
    try:
        return model({**told, "weight_format": form, "weight_bits": bits})
    except ValidationError:
        return None


SHAPES = st.fixed_dictionaries(
    {
        "parameters_total": st.integers(60_000_000, 3_000_000_000),
        "hidden": st.sampled_from([512, 1024, 2880]),
        "vocab": st.sampled_from([1000, 32_000, 150_000]),
        "tied_embeddings": st.booleans(),
        "vision_parameters": st.sampled_from([None, 1_000_000, 40_000_000, 59_000_000]),
        "experts": st.sampled_from([None, 8]),
        "experts_per_token": st.just(2),
        "expert_intermediate": st.sampled_from([700, 2880]),
    }
)
ANY_ENGINE, ANY_GPU = (
    st.sampled_from(sorted(engines())),
    st.sampled_from(["T4", "A10G", "L40S", "H100 SXM", "B200 SXM"]),
)


@given(
    SHAPES, st.sampled_from([None, *weight_formats()]), st.floats(2, 32), st.floats(0, 20), ANY_ENGINE, ANY_GPU,
    st.sampled_from([Layout(), Layout(2), Layout(1, 2), Layout(1, 3), Layout(4, 5), Layout(1, 30)]),
)  # fmt: skip
def test_more_bits_in_a_format_never_need_less(
    shape: dict[str, Any], form: str | None, bits: float, more: float, engine_name: str, on: str, layout: Layout
) -> None:
    few = formatted(None, bits, **shape)
    assert few is not None
    # the declared bits of a named format are bounded; the formulas hold for any
    found = [
        need(few.model_copy(update={"weight_format": form, "weight_bits": each}), VLLM, gpu=card(on), layout=layout,
             sessions=2, context=512, engine_name=engine_name)
        for each in (bits, bits + more)
    ]  # fmt: skip
    assert min(found[0].weights, found[1].weights) >= 0
    assert found[0].total <= found[1].total + 4  # parts are rounded up one by one


@given(SHAPES, ANY_ENGINE, ANY_GPU)
def test_of_two_formats_the_one_that_stores_more_never_needs_less(
    shape: dict[str, Any], engine_name: str, on: str
) -> None:
    """On one GPU. What is stored counts: MXFP4 experts rounded up to whole tiles are more than 4.25 bits a weight."""
    rows = []
    for name in weight_formats():
        if (found := formatted(name, None, **shape)) is not None:
            asked = need(found, VLLM, gpu=card(on), layout=Layout(), sessions=2, context=512, engine_name=engine_name)
            rows.append((weights_bytes(found) + tiles(found, engine(engine_name), card(on), 1), asked.total))
    rows.sort()
    assert all(less[1] <= more[1] + 4 for less, more in pairwise(rows))


@given(
    st.integers(1, 64), st.integers(0, 64), st.integers(1, 64), st.sampled_from(["spread", "first", "last"]),
    st.integers(1, 16), st.integers(1, 40_000),
)  # fmt: skip
def test_windows_are_counted_stage_by_stage(
    layers: int, fewer: int, windowed: int, place: str, stages: int, context: int
) -> None:
    kept = max(layers - fewer, 0)
    stages = min(stages, layers)
    told = {"parameters_total": 1000, "layers": layers, "heads": 8, "kv_heads": 8, "head_dim": 64, "weight_bits": 16,
            "context": 40_000, "kv_layers": kept}  # fmt: skip
    if kept:
        told |= {"attention": "sliding", "window": 128, "window_layers": min(windowed, kept), "window_place": place}
    subject = model(told)
    found = keeping(subject, stages)
    assert len(found) == stages
    assert sum(full + some for full, some in found) == kept
    assert sum(some for _, some in found) == (min(windowed, kept) if kept else 0)
    # weights of next to nothing: the fullest stage is the one that keeps most, and no less than an even share
    one, split = (
        need(subject, Server(hybrid_kv=True), gpu=card("H200 SXM"), layout=Layout(1, pp), sessions=3, context=context,
             engine_name="vllm").kv for pp in (1, stages)
    )  # fmt: skip
    assert one <= stages * split
    assert split <= one
