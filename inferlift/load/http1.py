"""HTTP/1.1 from the client's side, bytes only: the request as it goes out, the answer in any division into reads."""

from __future__ import annotations

from collections.abc import Mapping

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 256 * 1024 * 1024  # a server that never ends a body must not fill memory
_HEAD, _CHUNKS, _LENGTH, _CLOSE, _DONE = range(5)


class BadAnswer(ValueError):
    """What came is not HTTP/1.x, or longer than any answer can be."""


def request(method: str, host: str, route: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """One whole request. Raises ValueError where a header or the route would break out of its line."""
    lines = [f"{method} {route} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any(c in line for line in lines for c in "\r\n\0") or " " in route:
        raise ValueError("a header or the route holds a line break or a space")
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}"])
    return head.encode("latin-1") + b"\r\n\r\n" + body


class Response:
    """Feed bytes, get the body's bytes among them. `complete` once the answer has ended by its own rules."""

    __slots__ = ("_left", "_rest", "_state", "_trailer", "content_type", "headers", "keep", "status")

    def __init__(self) -> None:
        self._state = _HEAD
        self._rest = b""
        self._left = 0
        self._trailer = False
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.content_type = ""
        self.keep = True

    @property
    def complete(self) -> bool:
        return self._state == _DONE

    @property
    def between_chunks(self) -> bool:
        return self._state == _CHUNKS and not (self._rest or self._left or self._trailer)

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`, freed of chunk marks. Raises BadAnswer."""
        if self.between_chunks:
            cut = data.find(b"\r\n", 0, 18)  # the usual read of a stream: one whole chunk
            if cut > 0 and data.endswith(b"\r\n"):
                size = _hex(data[:cut])
                if size and len(data) == cut + size + 4:
                    return data[cut + 2 : -2]
        if self._state == _HEAD:
            data = self._rest + data
            self._rest = b""
            rest = self._head(data)
            if rest is None:
                return b""
            data = rest
        if self._state == _CHUNKS:
            return self._chunks(data)
        if self._state == _LENGTH:
            body = data[: self._left]
            self._left -= len(body)
            if self._left == 0:
                self._state = _DONE
                self.keep = self.keep and len(data) == len(body)
            return body
        if self._state == _DONE and data:
            self.keep = False  # bytes that nobody asked for: nothing after them can be trusted
            return b""
        return data

    def end(self) -> bool:
        """The connection was closed: True where that is how this answer ends, False where it was cut."""
        self.keep = False
        if self._state == _CLOSE:
            self._state = _DONE
        return self._state == _DONE

    def _head(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > HEAD_LIMIT:
                raise BadAnswer("a head without an end")
            if data and not data.startswith(b"HTTP/1."[: len(data)]):
                raise BadAnswer(f"not HTTP: {data[:40]!r}")
            self._rest = data
            return None
        first, *lines = data[:end].split(b"\r\n")
        version, _, status = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
            raise BadAnswer(f"not HTTP: {first[:40]!r}")
        self.status = int(status[:3])
        rest = data[end + 4 :]
        if 100 <= self.status < 200:  # 100 Continue, 103 Early Hints: the answer is still to come
            self.status = None
            return self._head(rest)
        for line in lines:
            name, _, value = line.partition(b":")
            self.headers[name.strip().lower()] = value.strip()
        get = self.headers.get
        self.content_type = get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
        connection = get(b"connection", b"").lower()
        self.keep = connection != b"close" and (version != b"HTTP/1.0" or connection == b"keep-alive")
        if get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            self._state = _CHUNKS
        elif b"content-length" in self.headers:
            length = self.headers[b"content-length"]
            if not length.isdigit() or int(length) > BODY_LIMIT:
                raise BadAnswer(f"a body of {length[:20]!r} bytes")
            self._left = int(length)
            self._state = _LENGTH if self._left else _DONE
        elif self.status in (204, 304):
            self._state = _DONE
        else:
            self._state = _CLOSE
            self.keep = False
        return rest

    def _chunks(self, data: bytes) -> bytes:
        """`_left` counts the bytes missing of the chunk under way, its closing CRLF among them."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        found: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                body = self._left - 2
                if body > 0:
                    found.append(piece[:body])
                at += len(piece)
                self._left -= len(piece)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > HEAD_LIMIT:
                    raise BadAnswer("a chunk size without an end")
                break
            line, at = data[at:end], end + 2
            if self._trailer:
                if not line:
                    self._state = _DONE
                    self.keep = self.keep and at == len(data)
                    break
                continue
            size = _hex(line.partition(b";")[0].strip())
            if size is None or size > BODY_LIMIT:
                raise BadAnswer(f"not a chunk size: {line[:20]!r}")
            if size:
                self._left = size + 2
            else:
                self._trailer = True
        return b"".join(found)


def _hex(text: bytes) -> int | None:
    try:
        value = int(text, 16)
    except ValueError:
        return None
    return value if value >= 0 else None
