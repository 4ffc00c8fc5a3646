"""What happens to the words, and the data folder that comes and changes while the app runs."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import app as chat_app  # noqa: F401 - conftest.py put the workload on the path
import make_data
import wording
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def _stream(texts: list[str]) -> bytes:
    events = [json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False) for text in texts]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _texts(stream: bytes) -> str:
    events = [e.removeprefix(b"data: ") for e in stream.split(b"\n\n") if e]
    assert events.pop() == b"[DONE]"
    return "".join(json.loads(e)["choices"][0]["delta"]["content"] for e in events)


@given(st.lists(TEXTS, max_size=5), st.lists(st.integers(0, 400), max_size=8))
def test_trimmer_gives_the_same_however_the_bytes_are_cut(texts: list[str], cuts: list[int]) -> None:
    whole = _stream(texts)
    places = sorted({0, len(whole), *(c for c in cuts if c < len(whole))})
    trimmer = wording.Trimmer()
    passed = b"".join(trimmer.feed(whole[a:b]) for a, b in itertools.pairwise(places))
    assert _texts(passed) == "".join(texts).lstrip()
    assert trimmer.done
    assert trimmer.pending == b""


def test_trimmer_passes_comments_usage_and_errors_as_they_are() -> None:
    raw = b': ping\n\ndata: {"choices":[],"usage":{"completion_tokens":1}}\n\nerror: {"code":500}\n\n'
    trimmer = wording.Trimmer()
    assert trimmer.feed(raw) == raw
    assert not trimmer.done
    assert not trimmer.text_seen


@given(st.lists(st.sampled_from(["DNS", "TTL", "x", "DNSSEC", ",", "(", "ü"]), max_size=12))
def test_expand_adds_explanations_and_changes_nothing_else(words: list[str]) -> None:
    terms = {"DNS": "#1", "TTL": "#2"}
    pattern = re.compile(r"\b(?:DNS|TTL)\b")
    expanded = wording.expand(" ".join(words), pattern, terms)
    for term, meaning in terms.items():
        assert expanded.count(f"{term} ({meaning})") == (term in words)
        expanded = expanded.replace(f"{term} ({meaning})", term)
    assert expanded == " ".join(words)


def test_abbreviations_are_explained_once_and_only_as_words(data: Path) -> None:
    pattern, terms = wording.Data(data).glossary()
    assert wording.expand("DNS, DNS and DNSSEC; TTL?", pattern, terms) == (
        "DNS (domain name system), DNS and DNSSEC; TTL (time to live)?"
    )


def test_data_that_comes_later_and_changes_is_seen(tmp_path: Path) -> None:
    folder = wording.Data(tmp_path / "data")
    ask = {"messages": [{"role": "user", "content": "What is DNS?"}]}
    assert wording.prepare(ask, folder)["messages"] == ask["messages"]
    (tmp_path / "data" / "prompts").mkdir(parents=True)
    (tmp_path / "data" / "glossary.json").write_text('{"DNS": "one"}')
    (tmp_path / "data" / "prompts" / "system.txt").write_text("Be brief.")
    first = wording.prepare(ask, folder)["messages"]
    assert first == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is DNS (one)?"}]
    (tmp_path / "data" / "glossary.json").write_text('{"DNS": "two"}')
    os.utime(tmp_path / "data" / "glossary.json", ns=(1, 1))
    assert wording.prepare(ask, folder)["messages"][1]["content"] == "What is DNS (two)?"  # type: ignore[index]


def test_a_document_becomes_context_and_an_own_system_prompt_is_kept(data: Path) -> None:
    folder = wording.Data(data)
    ask = {"messages": [{"role": "user", "content": "When?"}], "document": "kb-0001"}
    ready = wording.prepare(ask, folder)
    assert ready["messages"][0]["content"] == "Answer briefly.\n# Note 1\nThe queue fills up.\n".strip()  # type: ignore[index]
    assert "document" not in ready
    own = {"messages": [{"role": "system", "content": "Mine."}, {"role": "user", "content": "Hi"}]}
    assert wording.prepare(own, folder)["messages"] == own["messages"]


def test_data_folder_is_the_same_every_time(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        subprocess.run([sys.executable, make_data.__file__, tmp_path / name], check=True, timeout=30)
        files = sorted(p for p in (tmp_path / name).rglob("*") if p.is_file())
        made.append({str(p.relative_to(tmp_path / name)): p.read_bytes() for p in files})
    assert made[0] == made[1]
    assert len(made[0]) > 300
    assert 3_000_000 < sum(map(len, made[0].values())) < 5_000_000
    assert json.loads(made[0]["glossary.json"])["GPU"] == "graphics processing unit"
    assert made[0]["documents/kb-0300.md"].startswith(b"# Note 300\n")
