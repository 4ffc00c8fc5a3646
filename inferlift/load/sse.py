"""Server-sent events from bytes as they arrive (WHATWG HTML, section 9.2.6), in any division into reads."""

from __future__ import annotations

from typing import NamedTuple

LIMIT_BYTES = 16 * 1024 * 1024  # of one unfinished event: a server that never ends a line must not fill memory


class Event(NamedTuple):
    name: bytes  # b"" where the server gave none
    data: bytes


class SseParser:
    """Feed bytes, get the events completed by them.

    Splitting happens on bytes, before any decoding: a character cut between two reads stays whole, and U+2028
    or U+0085 inside a JSON string end no line. Raises ValueError when one event exceeds LIMIT_BYTES.
    """

    __slots__ = ("_after_cr", "_data", "_first", "_name", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""
        self._after_cr = False
        self._first = True

    @property
    def idle(self) -> bool:
        """Between two events: the next byte begins one."""
        return not (self._rest or self._data or self._name or self._after_cr or self._first)

    def feed(self, chunk: bytes) -> list[Event]:
        if not chunk:
            return []
        if self.idle:
            quick = _whole_events(chunk)
            if quick is not None:
                return quick
        if self._after_cr and chunk[0] == 10:
            chunk = chunk[1:]  # the LF of a CRLF cut between two reads
        self._after_cr = chunk.endswith(b"\r") if chunk else False
        text = self._rest + chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._first:
            if len(text) < 3 and b"\xef\xbb\xbf".startswith(text):
                self._rest = text
                return []
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        *lines, self._rest = text.split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > LIMIT_BYTES:
            raise ValueError(f"one event is longer than {LIMIT_BYTES} bytes")
        events: list[Event] = []
        for line in lines:
            self._line(line, events)
        return events

    def finish(self) -> list[Event]:
        """What stands unfinished at the end of the stream: a last event that no empty line closed."""
        events: list[Event] = []
        if self._rest:
            self._line(self._rest, events)
            self._rest = b""
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._name, b"\n".join(self._data)))
            self._data, self._name = [], b""
            return
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        # a comment (empty field name), id, retry and unknown fields carry nothing for us


def _whole_events(chunk: bytes) -> list[Event] | None:
    """The usual read: whole one-line data events, LF only. None where the careful way is needed."""
    if not chunk.endswith(b"\n\n") or b"\r" in chunk:
        return None
    events = []
    for block in chunk[:-2].split(b"\n\n"):
        if not block.startswith(b"data: ") or b"\n" in block:
            return None
        events.append(Event(b"", block[6:]))
    return events
