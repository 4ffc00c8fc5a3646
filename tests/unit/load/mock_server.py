"""Stand-in for a model server: known timing, planned faults, odd streams, and its own record of what happened.

What it does not prove: anything about a real server's speed, queueing or text.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(delta: dict[str, Any] | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": more.pop("finish_reason", None)}
    return b"data: " + json.dumps({"choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n'
DONE = b"data: [DONE]\n\n"


@dataclass
class Mock:
    """`fault(i)` names what goes wrong with request i (None: nothing): 400, 401, 429, 500, error_event, truncated,
    reset, hang, empty, close_kept (the first request on a kept connection is dropped before the first byte),
    wrong_type, close_after. `script` replaces the stream: (seconds to wait, raw bytes of the body)."""

    first_s: float = 0.0
    gap_s: float = 0.0
    tokens: int = 4
    usage_tokens: int | None = None
    fault: Callable[[int], str | None] = lambda i: None
    script: list[tuple[float, bytes]] | None = None
    reply: Callable[[dict[str, Any]], str] | None = None
    raw: Callable[[bytes, bytes], tuple[int, str, bytes]] | None = None  # (head, body) -> (status, type, answer)
    slots: int | None = None
    key: str | None = None  # X-Api-Key expected
    tls: ssl.SSLContext | None = None
    accepted: int = 0
    requests: int = 0
    in_flight: int = 0
    peak: int = 0
    ttfts_s: list[float] = field(default_factory=list)
    totals_s: list[float] = field(default_factory=list)
    transports: list[Any] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    port: int = 0
    address: str = "127.0.0.1"

    def __enter__(self) -> Mock:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(5)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._gate = asyncio.Semaphore(self.slots) if self.slots else None
        listener = socket.create_server((self.address, self.port), backlog=4096)
        server = await self._loop.create_server(lambda: _Connection(self), sock=listener, ssl=self.tls)
        self.port = listener.getsockname()[1]
        ready.set()
        await self._end.wait()
        server.close()
        for transport in self.transports:
            transport.abort()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def stream(self) -> list[tuple[float, bytes]]:
        if self.script is not None:
            return self.script
        parts = [(self.first_s, event({"role": "assistant", "content": ""}) + event({"content": "w0 "}))]
        parts += [(self.gap_s, event({"content": f"w{k} "})) for k in range(1, self.tokens)]
        count = self.tokens if self.usage_tokens is None else self.usage_tokens
        return [*parts, (0.0, event(finish_reason="stop") + USAGE % (7, count) + DONE)]


class _Connection(asyncio.Protocol):
    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.data = b""
        self.served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.mock.accepted += 1
        self.transport = transport
        self.mock.transports.append(transport)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(rest) < length:
            return
        self.data = rest[length:]
        self.task = asyncio.ensure_future(self.answer(head, rest[:length]))

    async def answer(self, head: bytes, body: bytes) -> None:
        mock, began = self.mock, time.perf_counter()
        index, mock.requests = mock.requests, mock.requests + 1
        kept, self.served = self.served, self.served + 1
        mock.heads.append(head)
        mock.bodies.append(body)
        mock.in_flight += 1
        mock.peak = max(mock.peak, mock.in_flight)
        try:
            if mock._gate:
                async with mock._gate:
                    await self.reply(head, body, mock.fault(index), kept, began)
            else:
                await self.reply(head, body, mock.fault(index), kept, began)
        finally:
            mock.in_flight -= 1

    async def reply(self, head: bytes, body: bytes, fault: str | None, kept: int, began: float) -> None:
        mock, write = self.mock, self.transport.write
        if mock.key is not None and f"x-api-key: {mock.key}" not in head.decode().replace("X-Api-Key", "x-api-key"):
            fault = "401"
        if fault == "close_kept" and kept:
            self.transport.close()
            return
        if mock.raw is not None and fault is None:
            status, kind, text = mock.raw(head, body)
            write(b"HTTP/1.1 %d Raw\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
                  % (status, kind.encode(), len(text), text))  # fmt: skip
            return
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault and fault.isdigit():
            await asyncio.sleep(mock.first_s)
            text = b'{"error":{"message":"planned"}}'
            write(b"HTTP/1.1 %s Planned\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                  % (fault.encode(), len(text), text))  # fmt: skip
            return
        wanted = json.loads(body) if body else {}
        if mock.reply is not None or not wanted.get("stream", False):
            text = mock.reply(wanted) if mock.reply else " ".join(f"w{k}" for k in range(mock.tokens))
            if not wanted.get("stream", False):
                await asyncio.sleep(mock.first_s)
                usage = {"prompt_tokens": 7, "completion_tokens": mock.tokens}
                choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                raw = json.dumps({"choices": [choice], "usage": usage}).encode()
                write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                      % (len(raw), raw))  # fmt: skip
                return
            parts = [(mock.first_s, event({"content": text})), (0.0, event(finish_reason="stop") + DONE)]
        else:
            parts = mock.stream()
        if fault == "error_event":
            parts = [parts[0], (0.0, b'data: {"error":{"message":"out of memory"}}\n\n' + DONE)]
        elif fault == "truncated":
            parts = parts[:2]
        elif fault == "empty":
            parts = [(0.0, event({"role": "assistant", "content": ""}) + event(finish_reason="stop") + DONE)]
        write(HEAD.replace(b"text/event-stream", b"text/plain") if fault == "wrong_type" else HEAD)
        for k, (wait, data) in enumerate(parts):
            if wait:
                await asyncio.sleep(wait)
            if fault == "reset" and k == 1:
                raw = self.transport.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()
                return
            write(b"%x\r\n%s\r\n" % (len(data), data))
            if k == 0:
                mock.ttfts_s.append(time.perf_counter() - began)
        write(b"0\r\n\r\n")
        mock.totals_s.append(time.perf_counter() - began)
        if fault == "close_after":
            self.transport.close()


if __name__ == "__main__":  # a server of its own process, for measurements: PORT FIRST_S GAP_S TOKENS
    port, first_s, gap_s, tokens = sys.argv[1:]
    with Mock(first_s=float(first_s), gap_s=float(gap_s), tokens=int(tokens), port=int(port)) as server:
        sys.stdin.read()
        print(json.dumps({"peak": server.peak, "accepted": server.accepted, "requests": server.requests,
                          "ttfts": sorted(server.ttfts_s), "totals": sorted(server.totals_s)}))  # fmt: skip
