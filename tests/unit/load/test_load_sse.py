"""The event parser must not care how the bytes are divided into reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.load import sse
from inferlift.load.sse import Event, SseParser

CASES = [
    (b"data: a\n\n", [(b"", b"a")]),
    (b"data:a\r\n\r\n", [(b"", b"a")]),
    (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
    (b":\n\n: ping\n\ndata: {}\n\n", [(b"", b"{}")]),
    (b"event: error\ndata: x\n\ndata: y\n\n", [(b"error", b"x"), (b"", b"y")]),
    (b"\xef\xbb\xbfdata: bom\n\n", [(b"", b"bom")]),
    (b"id: 7\nretry: 10\ndata\n\n", [(b"", b"")]),
    (b"data:  two spaces\n\n", [(b"", b" two spaces")]),
    (b"event: lonely\n\ndata: z\n\n", [(b"", b"z")]),
    ('data: {"x":"a\u2028b\u0085c中"}\n\n'.encode(), [(b"", '{"x":"a\u2028b\u0085c中"}'.encode())]),
    (b"data: [DONE]\n", [(b"", b"[DONE]")]),  # never closed by an empty line
]


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_whole_and_byte_by_byte(stream: bytes, expected: list[tuple[bytes, bytes]]) -> None:
    for size in (len(stream), 1, 2, 3, 7):
        assert parse([stream[k : k + size] for k in range(0, len(stream), size)]) == expected


@settings(max_examples=300, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["", "error"]), st.text(min_size=1).filter(lambda t: not set(t) & {"\r", "\n"})),
        max_size=6,
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    comments=st.booleans(),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
)
def test_any_division_gives_the_same_events(
    events: list[tuple[str, str]], end: str, comments: bool, cuts: list[int]
) -> None:
    text = "" if not comments else f": keep-alive{end}{end}"
    for name, data in events:
        text += (f"event: {name}{end}" if name else "") + f"data: {data}{end}{end}"
    stream = text.encode("utf-8", "surrogatepass")
    edges = sorted({0, len(stream), *(c % (len(stream) + 1) for c in cuts)})
    reads = [stream[a:b] for a, b in itertools.pairwise(edges)]
    wanted = [Event(n.encode(), d.encode("utf-8", "surrogatepass")) for n, d in events]
    assert parse(reads) == wanted


def test_the_quick_way_is_taken_and_agrees() -> None:
    parser = SseParser()
    parser.feed(b"data: 1\n\n")
    assert sse._whole_events(b"data: 2\n\ndata: 3\n\n") == [Event(b"", b"2"), Event(b"", b"3")]
    assert parser.feed(b"data: 2\n\ndata: 3\n\n") == [Event(b"", b"2"), Event(b"", b"3")]
    assert sse._whole_events(b"data: 2\nevent: x\n\n") is None
    assert sse._whole_events(b": ping\n\n") is None


def test_a_line_without_end_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LIMIT_BYTES", 1000)
    parser = SseParser()
    for _ in range(9):
        parser.feed(b"data: " + b"x" * 100)
    with pytest.raises(ValueError, match="longer than"):
        parser.feed(b"x" * 100)


def parse(reads: list[bytes]) -> list[tuple[bytes, bytes]]:
    parser = SseParser()
    return [tuple(e) for read in reads for e in parser.feed(read)] + [tuple(e) for e in parser.finish()]
