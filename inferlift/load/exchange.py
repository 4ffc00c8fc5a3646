"""A request under way: its answer as it comes in, and the record made of it at the end."""

from __future__ import annotations

import ssl

from inferlift.load.answer import Answer
from inferlift.load.http1 import Response
from inferlift.load.link import Link
from inferlift.load.protocols import Protocol
from inferlift.load.samples import Sample
from inferlift.load.sse import SseParser

DETAIL_BYTES = 300


class Exchange:
    """Times are the loop's clock in seconds; `scheduled` is where latencies begin."""

    __slots__ = (
        "answer", "begun", "blur", "blur_first", "body", "end", "limit", "link", "on_wire", "parser", "response",
        "sample", "scheduled", "sent", "whole",
    )  # fmt: skip

    def __init__(self, answer: Answer, sample: Sample, scheduled: float) -> None:
        self.answer = answer
        self.sample = sample
        self.scheduled = scheduled
        self.response = Response()
        self.parser: SseParser | None = None
        self.whole: list[bytes] = []
        self.body = b""
        self.link: Link | None = None
        self.on_wire = self.begun = False
        self.sent = 0.0
        self.limit = 0.0
        self.end: float | None = None
        self.blur = 0.0  # by how much the end may have been seen too late, in seconds
        self.blur_first = 0.0

    def text_only(self, data: bytes, now: float) -> bool:
        """True where `data` is one whole chunk with one more text of the stream and nothing else: counted."""
        answer = self.answer
        framed = answer.framed
        if framed is None or not self.parser.idle or not self.response.between_chunks:  # type: ignore[union-attr]
            return False
        before, after = framed
        cut = data.find(b"\r\n", 1, 18) + 2
        if not (cut > 1 and data.startswith(before, cut) and data.endswith(after)):
            return False
        start, end = cut + len(before), len(data) - len(after)
        if end <= start or data.find(b'"', start, end) >= 0:
            return False
        try:
            if int(data[: cut - 2], 16) != len(data) - cut - 2:
                return False
        except ValueError:
            return False
        answer.text_came(now)
        return True

    def arrived(self, data: bytes, now: float, polled: float, unstamped: bool) -> None:
        """As `feed`; no bytes: the server closed. Raises OSError where that cuts the answer."""
        if data:
            self.feed(data, now, polled, unstamped)
            return
        if self.response.status is None:
            raise ConnectionResetError("the connection was closed before an answer")
        if not self.response.end():
            raise ConnectionResetError("the connection was closed in the middle of an answer")
        self.closed(now)

    def feed(self, data: bytes, now: float, polled: float, unstamped: bool) -> None:
        """Bytes of the answer, arrived at `now`. Raises ValueError for what is no answer.

        `polled` is when the sockets were asked the last time: nothing in `data` is older.
        """
        self.begun = True
        response, answer = self.response, self.answer
        body = response.feed(data)
        if not body:
            if response.complete and self.end is None:
                self.closed(now)
            return
        if self.parser is None:
            if response.content_type != "text/event-stream" or response.status != 200:
                self.whole.append(body)
                if response.complete:
                    self.closed(now)
                return
            self.parser = SseParser()
        waiting, chunks = answer.first is None, answer.chunks
        for event in self.parser.feed(body):
            answer.event(event, now)
        if waiting and answer.first is not None and (unstamped or answer.chunks > chunks + 1):
            self.blur_first = max(0.0, now - polled)
        if (answer.done or response.complete) and self.end is None:
            self.end = now
            if unstamped:
                self.blur = max(0.0, now - polled)

    def closed(self, now: float) -> None:
        """The answer's last byte has come."""
        if self.end is None:
            self.end = now
        if self.parser is not None:
            for event in self.parser.finish():
                self.answer.event(event, now)

    def problem(self, protocol: Protocol) -> tuple[str, str] | None:
        """(error class, detail) of an answer that came to its end; None when it is good."""
        response, status = self.response, self.response.status or 0
        self.sample.status = status or None
        if not protocol.accepts(status):
            text = b"".join(self.whole)[:DETAIL_BYTES].decode(errors="replace")
            return status_class(status), f"status {status}: {text[:120]}"
        if self.parser is None:
            if protocol.streams and response.content_type != "text/event-stream":
                return "content", f"asked for a stream, got {response.content_type or 'no type'}"
            if not protocol.streams:
                self.answer.body(b"".join(self.whole), self.end or 0.0)
        return self.answer.problem()

    def fill(self, problem: tuple[str, str] | None, now: float) -> None:
        """Complete the sample; latencies count from the scheduled time."""
        sample, answer, scheduled = self.sample, self.answer, self.scheduled
        if self.response.status is not None:
            sample.status = self.response.status
        if problem is not None:
            sample.error, sample.detail = problem
        sample.total_ms = ((self.end or now) - scheduled) * 1000
        sample.chunks, sample.tokens, sample.prompt_tokens = answer.chunks, answer.tokens, answer.prompt_tokens
        if answer.first is not None:
            sample.ttft_ms = (answer.first - scheduled) * 1000
            if answer.first_content is not None:
                sample.first_content_ms = (answer.first_content - scheduled) * 1000
            if answer.last is not None:
                sample.last_token_ms = (answer.last - scheduled) * 1000
        sample.blur_ms, sample.blur_first_ms = self.blur * 1000, self.blur_first * 1000


def broken(exchange: Exchange, link: Link, error: Exception) -> tuple[str, str] | None:
    """(error class, detail) of a request whose connection failed before its answer was whole.

    None: a kept connection that the server had closed, and nothing of an answer was seen: once more on a new one.
    """
    text = f"{type(error).__name__}: {error}"[:200]
    if isinstance(error, ssl.SSLError) or (not link.established and link.tls is not None and link.connected):
        return "tls", text
    if not link.established:
        return "connect", text
    if not isinstance(error, OSError):
        return "content", text
    if exchange.response.status is None and not exchange.begun and link.kept and not exchange.sample.retried:
        return None
    return "reset", text


def status_class(status: int) -> str:
    if 400 <= status < 500:
        return "http_4xx"
    return "http_5xx" if status >= 500 else "content"
