"""The plain app's wording: every byte passes, and the end of a stream and its first text are seen however it is cut."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from inferlift.profile import ROOT

STREAM = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":" Hi"}}]}\n\n'
    b'data: {"choices":[],"usage":{"total_tokens":3}}\n\ndata: [DONE]\n\n'
)


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    path = ROOT / "templates/workloads/chat/plain/wording.py"
    spec = importlib.util.spec_from_file_location("plain_wording", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("stream", [STREAM, STREAM.replace(b"\n", b"\r\n")])
def test_a_stream_passes_as_it_came(plain: ModuleType, stream: bytes, size: int) -> None:
    if size == 1 and b"\r\n" in stream:
        size = 2
    trimmer = plain.Trimmer()
    pieces = [stream[k : k + size] for k in range(0, len(stream), size)]
    assert b"".join(trimmer.feed(piece) for piece in pieces) == stream
    assert (trimmer.text_seen, trimmer.done) == (True, True)


def test_a_cut_stream_is_not_whole_and_one_without_text_has_none(plain: ModuleType) -> None:
    cut, silent = plain.Trimmer(), plain.Trimmer()
    cut.feed(STREAM[:-4])
    silent.feed(STREAM[:64])
    assert not cut.done
    assert not silent.text_seen


def test_requests_and_answers_pass_as_they_are(plain: ModuleType) -> None:
    body = {"messages": [{"role": "tool", "content": [{"type": "text"}]}], "tools": [], "max_tokens": 9999}
    assert plain.prepare(body, plain.Data(Path("/nowhere"))) == body
    assert plain.trim(b' {"a": 1}') == b' {"a": 1}'
    with pytest.raises(ValueError, match="JSON object"):
        plain.prepare([], plain.Data(Path("/nowhere")))
