"""Unary gRPC calls beside the epoll loop: grpcio's own threads carry them, their ends are handed back to the loop."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any

from inferlift.load.exchange import Exchange
from inferlift.load.protocols import Protocol
from inferlift.load.target import Target

# grpc.StatusCode names -> the load run's classes; what is not listed is the server's failure
_CLASSES = {
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "connect",
    "CANCELLED": "reset",
    "INVALID_ARGUMENT": "http_4xx",
    "NOT_FOUND": "http_4xx",
    "UNAUTHENTICATED": "http_4xx",
    "PERMISSION_DENIED": "http_4xx",
    "RESOURCE_EXHAUSTED": "http_4xx",
    "UNIMPLEMENTED": "http_4xx",
}
_UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
]


class GrpcCalls:
    """`wake` makes the loop ask for `finished`. The target's route is the full method name."""

    def __init__(self, target: Target, protocol: Protocol, wake: Callable[[], None]) -> None:
        import grpc as _grpc

        grpc: Any = _grpc  # its own functions carry no types

        where = f"{target.address or target.name}:{target.port}"
        self._wake = wake
        self._ended: collections.deque[tuple[Exchange, Any, float]] = collections.deque()
        headers = target.headers()
        drop = {"content-type", "accept", "accept-encoding", "user-agent"}
        self._metadata = [(k.lower(), v) for k, v in headers.items() if k.lower() not in drop]
        if target.tls:
            from pathlib import Path

            roots = Path(target.ca).read_bytes() if target.ca else None
            options = [*_UNLIMITED, ("grpc.ssl_target_name_override", target.name)] if target.address else _UNLIMITED
            self._channel = grpc.secure_channel(where, grpc.ssl_channel_credentials(roots), options=options)
        else:
            self._channel = grpc.insecure_channel(where, options=_UNLIMITED)
        self._method = self._channel.unary_unary(target.route)

    def start(self, exchange: Exchange, timeout_s: float) -> None:
        exchange.on_wire = True
        exchange.sent = time.monotonic()
        call = self._method.future(exchange.body, timeout=timeout_s, metadata=self._metadata)
        call.add_done_callback(lambda done: self._over(exchange, done))

    def finished(self) -> list[tuple[Exchange, tuple[str, str] | None]]:
        """The calls that ended since the last time, each with its problem; for the loop's thread."""
        found: list[tuple[Exchange, tuple[str, str] | None]] = []
        while self._ended:
            exchange, call, at = self._ended.popleft()
            exchange.end = at
            code = call.code()
            if code is not None and code.name == "OK":
                exchange.answer.body(call.result(), at)
                found.append((exchange, exchange.answer.problem()))
            else:
                name = code.name if code is not None else "UNKNOWN"
                found.append((exchange, (_CLASSES.get(name, "http_5xx"), f"{name}: {call.details()}"[:200])))
        return found

    def close(self) -> None:
        self._channel.close()

    def _over(self, exchange: Exchange, call: Any) -> None:
        self._ended.append((exchange, call, time.monotonic()))
        self._wake()
