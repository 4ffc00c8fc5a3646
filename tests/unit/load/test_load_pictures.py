"""Pictures in JSON: what goes out, how an answer is read, and what is wrong with a list of them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.errors import DeclarationError
from inferlift.load.pictures import Pictures, Read, load_pictures
from inferlift.load.plan import LoadPlan
from inferlift.load.target import Target
from inferlift.profile import ROOT

SHIPPED = ROOT / "profiles" / "demo-image" / "lines.jsonl"


def test_the_shipped_pictures_have_their_text_and_fit_the_old_contract() -> None:
    cases = load_pictures(SHIPPED)
    assert len(cases) == 40
    assert {case.check for case in cases} == {"exact"}
    bodies = [Pictures([Path(case.prompt)]).body(0) for case in cases]
    assert max(map(len, bodies)) < 65536
    assert all(base64.b64decode(json.loads(body)["image"]).startswith(b"\x89PNG") for body in bodies)


def test_a_run_sends_them_in_turn(tmp_path: Path) -> None:
    files = [Path(case.prompt) for case in load_pictures(SHIPPED)[:3]]
    plan = LoadPlan(Target("t"), 5, [], tmp_path / "s", users=1, protocol=Pictures(files))
    assert [plan.sends.body(i) == plan.sends.body(i + 3) for i in range(3)] == [True] * 3
    assert plan.sends.body(0) != plan.sends.body(1)


@pytest.mark.parametrize(
    ("data", "problem", "text"),
    [
        (b'{"text": "EUR 5", "confidence": 0.9}', None, "EUR 5"),
        (b'{"text": ""}', None, ""),
        (b'{"text": null}', "content", ""),
        (b'{"error": {"message": "no"}}', "content", ""),
        (b"[]", "content", ""),
        (b"<html>", "content", ""),
        (b"", "content", ""),
    ],
)
def test_an_answer_is_its_text(data: bytes, problem: str | None, text: str) -> None:
    answer = Read()
    answer.body(data, 0.0)
    found = answer.problem()
    assert (found[0] if found else None, answer.text) == (problem, text)


@given(st.binary(max_size=200))
def test_no_answer_breaks_the_reader(data: bytes) -> None:
    answer = Read()
    answer.body(data, 0.0)
    assert answer.done


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "expected an object with image and answer"),
        ("[1]", "expected an object"),
        ('{"answer": "x"}', "expected an object"),
        ('{"image": "absent.png", "answer": "x"}', "there is no picture absent.png"),
        ('{"image": "one.png"}', "a case needs a prompt and an answer"),
        ('{"image": "one.png", "answer": "x", "unknown": 1}', "unknown key"),
        ("", "names no picture"),
    ],
)
def test_a_wrong_list_is_told_by_its_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "one.png").write_bytes(b"\x89PNG")
    (tmp_path / "lines.jsonl").write_text(line + "\n")
    with pytest.raises(DeclarationError, match=words):
        load_pictures(tmp_path / "lines.jsonl")


def test_a_list_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_pictures(tmp_path / "absent.jsonl")
