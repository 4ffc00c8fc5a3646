"""TTFT, tokens, errors: what an OpenAI stream says, with the odd forms that misled other tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferlift.load.answer import GAP_S, Answer
from inferlift.load.sse import Event


def chunk(delta: dict[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"choices": [{"delta": delta or {}, "finish_reason": more.pop("finish", None)}], **more}).encode()


def compact(text: str) -> bytes:
    return json.dumps({"choices": [{"delta": {"content": text}}]}, separators=(",", ":")).encode()


def read(*events: tuple[float, bytes], keep: bool = False) -> Answer:
    answer = Answer(keep=keep)
    for now, data in events:
        answer.event(Event(b"", data), now)
    return answer


def test_the_role_only_opener_moves_no_clock_and_reasoning_does() -> None:
    answer = read(
        (0, chunk({"role": "assistant", "content": ""})), (1, chunk({"reasoning": "a"})), (9, chunk({"content": "b"}))
    )  # fmt: skip
    assert (answer.first, answer.first_content) == (1, 9)


@pytest.mark.parametrize("delta", [{"reasoning_content": "x"}, {"tool_calls": [{"index": 0}]}, {"content": "x"}])
def test_each_kind_of_output_is_a_first_token(delta: dict[str, Any]) -> None:
    assert read((0, chunk({"role": "assistant"})), (2, chunk(delta))).first == 2


def test_usage_and_done_are_no_tokens() -> None:
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 16}}).encode()
    answer = read(
        (1, compact("a")), (1.1, compact("b")), (1.2, compact("c")), (1.3, compact("d")), (4, chunk(finish="stop")),
        (5, usage), (6, b"[DONE]"),
    )  # fmt: skip
    assert answer.last == 1.3
    assert answer.chunks == 4
    assert answer.tokens == 16
    assert answer.prompt_tokens == 3
    assert answer.problem() is None


def test_no_usage_record_means_unknown_tokens() -> None:
    assert read((1, compact("a")), (2, b"[DONE]")).tokens is None


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([compact("a")], "truncated"),
        ([], "truncated"),
        ([chunk({"content": None}), chunk({}, finish="stop"), b"[DONE]"], "content"),
        ([compact("a"), b'{"error":{"message":"out of memory"}}', b"[DONE]"], "error_event"),
        ([compact("a"), b'{"choices":[{"del', b"[DONE]"], "content"),
        ([compact("a"), b'{"error": null, "choices": []}', b"", b"[DONE]"], None),
    ],
)
def test_problems(events: list[bytes], kind: str | None) -> None:
    problem = read(*enumerate(events)).problem()
    assert (problem[0] if problem else None) == kind


def test_an_event_named_error_is_one() -> None:
    answer = Answer()
    answer.event(Event(b"error", b"plain words"), 0)
    assert answer.problem() == ("error_event", "plain words")


def test_the_quick_way_sees_what_the_careful_way_sees() -> None:
    """Without keeping text most events are not parsed: finish reasons, usage and errors must not be lost."""
    last = json.dumps(
        {"choices": [{"delta": {"content": "z"}, "finish_reason": "length"}], "usage": {"completion_tokens": 5}},
        separators=(",", ":"),
    ).encode()
    trap = compact('say "error" and {"usage":1} and "finish_reason":"x"')
    events = list(enumerate([compact("a"), compact("b"), trap, last, b"[DONE]"]))
    quick, careful = read(*events), read(*events, keep=True)
    for name in ("first", "last", "chunks", "tokens", "finish_reason", "done", "error"):
        assert getattr(quick, name) == getattr(careful, name), name
    assert quick.finish_reason == "length"
    assert careful.text.startswith("absay")


def test_whole_documents() -> None:
    answer = Answer(keep=True)
    answer.body(json.dumps({"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}]}).encode(), 3.0)
    assert (answer.text, answer.problem(), answer.first) == ("Paris", None, None)
    broken = Answer()
    broken.body(b"<html>", 0)
    problem = broken.problem()
    assert problem
    assert problem[0] == "content"


def gaps_of(*events: tuple[float, bytes]) -> dict[float, int]:
    answer = Answer(gaps={})
    for now, data in events:
        answer.event(Event(b"", data), now)
    assert answer.gaps is not None
    found: dict[float, int] = {}
    for step, n in answer.gaps.items():
        found[round(step * GAP_S, 3)] = found.get(round(step * GAP_S, 3), 0) + n
    return found


def test_n_texts_have_one_gap_less() -> None:
    assert gaps_of((1.0, compact("a")), (1.1001, compact("b")), (1.2002, compact("c")), (5, b"[DONE]")) == {0.1: 2}


def test_reasoning_and_content_are_one_stream_of_texts() -> None:
    assert gaps_of((1.0, chunk({"reasoning": "a"})), (1.2001, chunk({"content": "b"}))) == {0.2: 1}


def test_a_gap_is_spread_over_the_tokens_that_came_in_it() -> None:
    """Where the server counts as it goes: 4 tokens in 0.4 s are 4 gaps of 0.1 s."""
    events = [
        (1.0 + k * 0.4001, json.dumps({"choices": [{"delta": {"content": "abcd"}}],
         "usage": {"completion_tokens": 4 * (k + 1)}}).encode()) for k in range(3)
    ]  # fmt: skip
    assert gaps_of(*events) == {0.1: 8}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_was_learnt_of_one_event_counts_only_its_like(separators: tuple[str, str]) -> None:
    """The quick way: an event is counted unparsed only where nothing but its text differs."""

    def form(text: str | None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": more.pop("finish", None)}
        return json.dumps({"id": "1", "choices": [choice], **more}, separators=separators).encode()

    events = [
        (1, form("a")), (2, form("b")), (3, form('say "x"')), (4, form("\\")), (5, form("")), (6, form(None)),
        (7, form("c", finish="length")), (8, form("", usage={"completion_tokens": 9})), (9, b"[DONE]"),
    ]  # fmt: skip
    quick, careful = read(*events), read(*events, keep=True)
    for name in ("first", "first_content", "last", "chunks", "tokens", "finish_reason", "done", "error"):
        assert getattr(quick, name) == getattr(careful, name), name
    assert (quick.chunks, quick.last, quick.finish_reason, quick.tokens) == (5, 7, "length", 9)
