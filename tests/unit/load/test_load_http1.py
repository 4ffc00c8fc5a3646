"""Answers in any division into reads, and the request as it goes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.load.http1 import BadAnswer, Response, request

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def fed(data: bytes, cuts: list[int]) -> tuple[Response, bytes]:
    response, body, at = Response(), b"", 0
    for cut in [*sorted(c % (len(data) + 1) for c in cuts), len(data)]:
        if cut > at:
            body += response.feed(data[at:cut])
            at = cut
    return response, body


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 2000), max_size=12))
def test_chunks_in_any_division(pieces: list[bytes], cuts: list[int]) -> None:
    response, body = fed(CHUNKED + chunked(*pieces), cuts)
    assert body == b"".join(pieces)
    assert (response.complete, response.keep, response.content_type) == (True, True, "text/event-stream")


@given(st.binary(max_size=60), st.lists(st.integers(0, 2000), max_size=8))
def test_a_length_in_any_division(text: bytes, cuts: list[int]) -> None:
    head = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\nConnection: close\r\n\r\n" % len(text)
    response, body = fed(head + text, cuts)
    assert (body, response.complete, response.status, response.keep) == (text, True, 404, False)


@given(st.binary(max_size=80), st.lists(st.integers(0, 2000), max_size=8))
def test_what_is_no_answer_raises_or_waits_and_never_hangs(data: bytes, cuts: list[int]) -> None:
    try:
        response, _ = fed(data, cuts)
    except BadAnswer:
        return
    assert not response.complete or data.startswith(b"HTTP/1.")


def test_extensions_trailers_and_early_hints() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    response, body = fed(hints + CHUNKED + b"3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", [])
    assert (body, response.complete, response.status, response.keep) == (b"abc", True, 200, True)


def test_an_answer_that_ends_with_the_connection() -> None:
    response, body = fed(b"HTTP/1.0 200 OK\r\n\r\nabc", [])
    assert (body, response.complete) == (b"abc", False)
    assert response.end()
    assert not response.keep


def test_a_cut_answer_is_not_ended_by_the_connection() -> None:
    response, _ = fed(CHUNKED + b"5\r\nab", [])
    assert not response.end()


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-OpenSSH", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
     CHUNKED + b"xyz\r\n", CHUNKED + b"-5\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000],
)  # fmt: skip
def test_not_http(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        fed(data, [])


def test_bytes_after_the_end_forbid_keeping_the_connection() -> None:
    response, body = fed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", [])
    assert (body, response.complete, response.keep) == (b"a", True, False)


def test_no_header_breaks_out_of_its_line() -> None:
    assert (
        request("POST", "h", "/x", {"A": "b"}, b"cd")
        == b"POST /x HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 2\r\n\r\ncd"
    )
    for route, headers in (("/a b", {}), ("/x", {"A": "b\r\nC: d"})):
        with pytest.raises(ValueError, match="line break or a space"):
            request("POST", "h", route, headers, b"")
