"""The JSON-schema subset, and the kinds of checkable answers that need more than a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.artifacts import Quality
from inferlift.errors import DeclarationError
from inferlift.load import schema
from inferlift.load.quality import Case, assess, change, distance, load_cases
from inferlift.load.target import Target

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}, "maxItems": 2},
        "left": {"type": ["string", "null"]},
    },
}


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({"name": "Ada", "age": 36}, True),
        ({"name": "Ada", "age": 36.0}, True),
        ({"name": "Ada", "age": True}, False),
        ({"name": "Ada", "age": 36.5}, False),
        ({"name": "Ada", "age": 151}, False),
        ({"name": "ada", "age": 1}, False),
        ({"name": "", "age": 1}, False),
        ({"name": "Ada"}, False),
        ({"name": "Ada", "age": 1, "more": 1}, False),
        ({"name": "Ada", "age": 1, "tags": ["a", 1]}, True),
        ({"name": "Ada", "age": 1, "tags": [True]}, False),
        ({"name": "Ada", "age": 1, "tags": ["a", "a", "a"]}, False),
        ({"name": "Ada", "age": 1, "left": None}, True),
        ({"name": "Ada", "age": 1, "left": 3}, False),
        ([], False),
        ("Ada", False),
    ],
)
def test_allows(value: Any, good: bool) -> None:
    assert schema.allows(PERSON, value) == good
    assert Case("?", "schema", PERSON).right(json.dumps(value)) == good


def test_a_fenced_block_counts_and_prose_does_not() -> None:
    text = '{"name": "Ada", "age": 1}'
    assert schema.fits(f"Here you are:\n```json\n{text}\n```", PERSON)
    assert not schema.fits(f"Here you are: {text}", PERSON)


@pytest.mark.parametrize(
    "wrong", [{"oneOf": []}, {"type": "text"}, {"items": {"format": "date"}}, [], {"properties": {"a": 1}}]
)
def test_a_word_that_is_not_checked_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"schema|unknown"):
        schema.check(wrong)


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Positive.", True),
        ("It is positive, not negative", True),
        ("negative", False),
        ("none", False),
        ("positively", False),
    ],
)
def test_labels(reply: str, right: bool) -> None:
    assert Case("?", "label", "positive", labels=("positive", "negative")).right(reply) is right


def test_the_longer_label_wins_at_the_same_place() -> None:
    assert Case("?", "label", "very good", labels=("very", "very good")).right("Very good!")


def test_cosine_distance() -> None:
    assert distance([1, 0], [2, 0]) == pytest.approx(0)
    assert distance([1, 0], [0, 1]) == pytest.approx(1)
    assert distance([1, 0], [-1, 0]) == pytest.approx(2)
    assert distance([1, 0], [1, 0, 0]) == 2
    assert distance([0, 0], [1, 0]) == 2


def test_embeddings_are_asked_on_their_own_route(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"prompt": "cat", "check": "embedding", "answer": [1, 0], "tolerance": 0.1}\n'
                    '{"prompt": "dog", "check": "embedding", "answer": [0, 1]}\n')  # fmt: skip
    answer = json.dumps({"data": [{"embedding": [1.0, 0.1]}]}).encode()
    with Mock(raw=lambda head, body: (200, "application/json", answer)) as server:
        found = assess(Target("127.0.0.1", port=server.port, tls=False), load_cases(path))
    assert b"POST /v1/embeddings HTTP/1.1" in server.heads[0]
    assert (found.n, found.correct, found.kinds) == (2, 1, {"embedding": (1, 2)})
    assert found.range == pytest.approx((0.0945, 0.9055), abs=1e-3)
    with Mock(raw=lambda head, body: (200, "application/json", b"{}")) as server:
        assert assess(Target("127.0.0.1", port=server.port, tls=False), load_cases(path)).n == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"prompt": "a", "check": "label", "answer": "x", "labels": ["y"]}', "one of its labels"),
        ('{"prompt": "a", "check": "schema", "answer": {"anyOf": []}}', "anyOf"),
        ('{"prompt": "a", "check": "embedding", "answer": "x"}', "list of numbers"),
    ],
)
def test_wrong_cases_are_refused_by_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(DeclarationError, match=told) as error:
        load_cases(tmp_path / "c")
    assert "c:1" in str(error.value)


def quality(correct: int, n: int) -> Quality:
    from inferlift.load.figures import share_range

    return Quality(n=n, correct=correct, share=correct / n if n else None, range=share_range(correct, n))


def test_before_and_after_quantisation() -> None:
    worse = change(quality(95, 100), quality(60, 100))
    alike = change(quality(18, 20), quality(17, 20))
    assert worse is not None
    assert worse.value == pytest.approx(-0.35)
    assert worse.sure
    assert worse.low < worse.value < worse.high
    assert alike is not None
    assert not alike.sure
    assert change(quality(0, 0), quality(1, 2)) is None
