"""Checkable answers, and a model that gives worse ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.errors import DeclarationError
from inferlift.load.gates import verdict
from inferlift.load.quality import Case, assess, load_cases, normal
from inferlift.load.target import Target

pytestmark = pytest.mark.programs

DEMO = Path(__file__).parents[3] / "profiles" / "demo" / "quality.jsonl"


@pytest.mark.parametrize(
    ("check", "answer", "reply", "right"),
    [
        ("exact", "4", "4", True),
        ("exact", "4", "4.", False),
        ("text", "The cat sat on the mat", "the cat  sat on the mat.", True),
        ("text", "The cat sat", "The cat sat down", False),
        ("contains", "Paris", "The capital is Paris.", True),
        ("contains", "Paris", "Parisian life", False),
        ("contains", "H2O", "It is H2O!", True),
        ("contains", "Zürich", "zu\u0308rich", True),
        ("regex", r"\bAu\b", "The symbol is Au.", True),
        ("regex", r"\bAu\b", "Australia", False),
        ("number", 4, "The answer is 4.", True),
        ("number", 1000, "about 1,000 of them", True),
        ("number", 4, "five", False),
        ("number", 4, "-4", False),
    ],
)
def test_checks(check: str, answer: str | float, reply: str, right: bool) -> None:
    assert Case("?", check, answer).right(reply) is right


def test_number_tolerance() -> None:
    assert Case("?", "number", 3.14159, tolerance=0.01).right("3.15")
    assert not Case("?", "number", 3.14159, tolerance=0.001).right("3.15")


def test_normal() -> None:
    assert normal("  A,b\tC! ") == "a b c"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"prompt": "a"', ":1: not JSON"),
        ('{"prompt": "a", "answer": "b"}\n{"answer": 1}', ":2: a case needs"),
        ('{"prompt": "a", "answer": "b", "chekc": "exact"}', "unknown key 'chekc'"),
        ('{"prompt": "a", "answer": "b", "check": "vibes"}', "unknown check"),
        ('{"prompt": "a", "answer": "b", "check": "number"}', "could not convert"),
        ('{"prompt": "a", "answer": "(", "check": "regex"}', "unterminated"),
        ('{"prompt": "a", "answer": "."}', "fits every reply"),
        ('{"prompt": "a", "answer": 3}', "is a text"),
        ('{"prompt": "a", "answer": "b", "max_tokens": 0}', "max_tokens"),
        ("", "holds no quality prompt"),
    ],
)
def test_a_wrong_file_is_refused_by_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(DeclarationError) as raised:
        load_cases(path)
    assert told in str(raised.value)


def test_a_missing_file_and_a_binary_one(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_cases(tmp_path / "none")
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_cases(tmp_path / "bin")


def test_the_demos_prompts_are_enough_for_the_gate() -> None:
    assert len(load_cases(DEMO)) >= 20


def test_a_worse_model_fails_the_gate() -> None:
    """The stand-in knows all answers, or only some. (The real model and a really damaged one: tests/lab.)"""
    cases = load_cases(DEMO)
    answers = {case.prompt: case.answer for case in cases}
    known = set(list(answers)[: len(answers) // 2])

    def good(body: dict[str, Any]) -> str:
        assert body["temperature"] == 0
        answer = answers[body["messages"][0]["content"]]
        return {r"\bAu\b": "Au", r"= ?8\b": "5+3 = 8"}.get(str(answer), str(answer))

    def worse(body: dict[str, Any]) -> str:
        return good(body) if body["messages"][0]["content"] in known else "Maybe."

    for reply, expected in ((good, "pass"), (worse, "fail")):
        with Mock(reply=reply) as server:
            quality = assess(Target("127.0.0.1", port=server.port, tls=False), cases, users=3)
        assert quality.n == len(cases)
        assert verdict((_gate(quality),)) == expected
    assert "expected" in quality.wrong[0]


def test_an_empty_answer_is_wrong_and_an_error_is_none() -> None:
    cases = [Case(f"p{k}", "contains", "w1") for k in range(12)]
    with Mock(fault=lambda i: "empty" if i % 2 else None) as server:
        quality = assess(Target("127.0.0.1", port=server.port, tls=False), cases, users=1)
    assert (quality.n, quality.correct) == (12, 6)
    with Mock(fault=lambda i: "500") as server:
        quality = assess(Target("127.0.0.1", port=server.port, tls=False), cases, users=1)
        assert server.requests == 24  # each asked twice
    assert (quality.n, quality.share) == (0, None)
    assert "not answered (http_5xx" in quality.wrong[0]
    assert verdict((_gate(quality),)) == "inconclusive"


def _gate(quality: Any) -> Any:
    from test_load_gates import load_run

    from inferlift.load.gates import gates
    from inferlift.profile import Targets

    return gates(Targets(quality=0.8), load_run(), quality)[-1]


def test_json_lines_of_the_demo_are_plain() -> None:
    for line in DEMO.read_text(encoding="utf-8").splitlines():
        assert set(json.loads(line)) <= {"prompt", "check", "answer", "max_tokens", "tolerance"}
