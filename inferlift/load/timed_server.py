"""The built-in echo server of the self-check and the bench: one epoll loop, bytes made ahead, known timing.

A stand-in for a streaming model server, as cheap as it can be. Its record begins at the kernel's time of arrival of
the request and ends when a piece has been handed to the kernel: what it tells is what a client on the same machine can
see at best. It does not parse what it is asked, and proves nothing about a real server's speed, queueing or text.

    python -m inferlift.load.timed_server PORT FIRST_S GAP_S TOKENS

It prints its port, and its record as one JSON object when stdin ends.
"""

from __future__ import annotations

import collections
import json
import os
import select
import socket
import struct
import sys
import threading
import time

SO_TIMESTAMPNS = 35
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n\r\n"
)
EVENT = (
    b'data: {"id":"chatcmpl-0000","object":"chat.completion.chunk","created":1796078056,"model":"mock",'
    b'"choices":[{"index":0,"delta":{%s"content":"%s"},"finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"id":"chatcmpl-0000","object":"chat.completion.chunk","created":1796078056,"model":"mock",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"chatcmpl-0000","object":"chat.completion.chunk","created":1796078056,"model":"mock",'
    b'"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class TimedServer:
    """`first_s` to the first token, `gap_s` between tokens. Both 0: the whole answer in one piece."""

    def __init__(self, first_s: float, gap_s: float, tokens: int, port: int = 0, address: str = "127.0.0.1") -> None:
        self.first_s, self.gap_s, self.tokens = first_s, gap_s, tokens
        pieces = [EVENT % (b"", b"word%d " % k) for k in range(1, tokens)]
        first = HEAD + chunk(EVENT % (b'"role":"assistant",', b"")) + chunk(EVENT % (b"", b"word0 "))
        last = chunk(LAST % (tokens, 7 + tokens)) + b"0\r\n\r\n"
        if gap_s:
            self.pieces = [first, *map(chunk, pieces[:-1]), chunk(pieces[-1]) + last]
        else:
            self.pieces = [first + b"".join(map(chunk, pieces)) + last]
        text = b'{"id":"x","object":"chat.completion","model":"mock","choices":[{"index":0,"message":{"role":' \
               b'"assistant","content":"word"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,' \
               b'"completion_tokens":1,"total_tokens":8}}'  # fmt: skip
        self.plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            len(text), text,
        )  # fmt: skip
        self.listener = socket.create_server((address, port), backlog=8192)
        self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.peak = self.accepted = self.requests = self.in_flight = 0
        self.peers: dict[str, int] = {}  # connections by the address they came from
        self.ttfts_s: list[float] = []
        self.totals_s: list[float] = []
        self._end, self._wake = os.pipe()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> TimedServer:
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._wake, b"x")
        if self._thread is not None:
            self._thread.join(5)

    def serve(self) -> None:
        poll = select.epoll()
        poll.register(self.listener.fileno(), select.EPOLLIN)
        poll.register(self._end, select.EPOLLIN)
        sockets: dict[int, socket.socket] = {}
        rest: dict[int, bytes] = {}
        # all waits of one kind are equally long, so that each kind is a queue: (due, fd, piece, arrived)
        firsts: collections.deque[tuple[float, int, int, float]] = collections.deque()
        nexts: collections.deque[tuple[float, int, int, float]] = collections.deque()
        clock, pieces, count = time.time, self.pieces, len(self.pieces)
        while True:
            now = clock()
            for queue in (firsts, nexts):
                while queue and queue[0][0] <= now:
                    due, fd, k, arrived = queue.popleft()
                    if fd not in sockets:
                        continue
                    try:
                        sockets[fd].send(pieces[k])
                    except OSError:
                        sockets.pop(fd).close()
                        self.in_flight -= 1
                        continue
                    if k == 0:
                        self.ttfts_s.append(clock() - arrived)
                    if k + 1 < count:
                        nexts.append((due + self.gap_s, fd, k + 1, arrived))
                    else:
                        self.totals_s.append(clock() - arrived)
                        self.in_flight -= 1
                    now = clock()
            due = min((q[0][0] for q in (firsts, nexts) if q), default=now + 1)
            wait = due - clock()
            if wait > 0 and poll.fileno() < 1024:
                select.select([poll.fileno()], (), (), wait)
            for fd, _ in poll.poll(0, 2048):
                if fd == self.listener.fileno():
                    for _ in range(64):
                        try:
                            peer, came_from = self.listener.accept()
                        except BlockingIOError:
                            break
                        peer.setblocking(False)
                        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        peer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                        sockets[peer.fileno()] = peer
                        self.accepted += 1
                        self.peers[came_from[0]] = self.peers.get(came_from[0], 0) + 1
                        poll.register(peer.fileno(), select.EPOLLIN)
                    continue
                if fd == self._end:
                    for peer in sockets.values():
                        peer.close()
                    self.listener.close()
                    return
                try:
                    data, extra, _, _ = sockets[fd].recvmsg(65536, 64)
                except OSError:
                    data, extra = b"", []
                if not data:
                    sockets.pop(fd).close()
                    rest.pop(fd, None)
                    continue
                if fd in rest:
                    data = rest.pop(fd) + data
                end = data.find(b"\r\n\r\n")
                at = data.find(b"ontent-", 0, end)
                while at >= 0 and data[at + 7 : at + 14].lower() != b"length:":
                    at = data.find(b"ontent-", at + 1, end)
                if end < 0 or (at >= 0 and len(data) < end + 4 + int(data[at + 14 : data.find(b"\r\n", at)])):
                    rest[fd] = data
                    continue
                self.requests += 1
                if b'"stream":true' not in data and b'"stream": true' not in data:
                    sockets[fd].send(self.plain)
                    continue
                arrived = clock()
                if extra:
                    seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                    arrived = seconds + nanoseconds * 1e-9
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                if not self.first_s and count == 1:
                    sockets[fd].send(pieces[0])
                    self.in_flight -= 1
                    continue
                firsts.append((arrived + self.first_s, fd, 0, arrived))

    def record(self) -> dict[str, object]:
        return {"peak": self.peak, "accepted": self.accepted, "requests": self.requests,
                "ttfts": sorted(self.ttfts_s), "totals": sorted(self.totals_s)}  # fmt: skip


if __name__ == "__main__":
    server = TimedServer(float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[1]))
    with server:
        print(server.port, flush=True)
        sys.stdin.read()
    print(json.dumps(server.record()))
