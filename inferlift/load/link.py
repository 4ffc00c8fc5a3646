"""One connection of the load client: a socket that never blocks, TLS by memory, arrival times from the kernel.

With SO_TIMESTAMPNS the kernel stamps what arrives, so that a latency is true also where this process reads late.
(man 7 socket; on TCP the stamp is that of the last segment read.)
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferlift.load.exchange import Exchange

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python names it from 3.14 on
READ_BYTES = 65536
STAMP = struct.Struct("qq")
_STAMPED = sys.platform == "linux" and struct.calcsize("l") == 8


class Link:
    """A connection. `open` begins it, `ready_to_send` once `established`. OSError and ssl.SSLError pass through."""

    __slots__ = (
        "began", "connect_ms", "connected", "established", "exchange", "fd", "incoming", "kept", "outgoing", "pending",
        "quick", "receive", "sock", "stamped", "tls", "tls_ms", "wants_write",
    )  # fmt: skip

    def __init__(self, address: str, port: int, context: ssl.SSLContext | None, name: str, now: float) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.sock.fileno()
        self.stamped = False
        if _STAMPED:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self.stamped = True
        self.receive = self.sock.recvmsg
        self.quick = False  # plain TCP with stamps, established: the worker reads it without a detour
        self.began = now
        self.connected = self.established = False
        self.connect_ms: float | None = None
        self.tls_ms: float | None = None
        self.kept = False  # it was idle before its request: the server may have closed it meanwhile
        self.exchange: Exchange | None = None
        self.pending = b""
        self.wants_write = True
        self.tls: ssl.SSLObject | None = None
        if context is not None:
            self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        try:
            code = self.sock.connect_ex((address, port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, f"{errno.errorcode.get(code, code)} on connect to {address}:{port}")
        except BaseException:
            self.sock.close()
            raise

    def writable(self, now: float) -> None:
        """The socket can be written: the end of connecting, or of a full send buffer."""
        if not self.connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, f"{errno.errorcode.get(code, code)} on connect")
            self.connected = True
            self.connect_ms = (now - self.began) * 1000
            if self.tls is None:
                self.established = True
                self.quick = self.stamped
            else:
                self._shake(now)
        self.flush()

    def read(self) -> tuple[bytes | None, float]:
        """(bytes, wall-clock seconds of their arrival or 0.0). b"": the peer closed. None: nothing to hand on yet."""
        at = 0.0
        try:
            if self.stamped:
                data, extra, _, _ = self.sock.recvmsg(READ_BYTES, 64)
                if extra:
                    seconds, nanoseconds = STAMP.unpack(extra[0][2])
                    at = seconds + nanoseconds * 1e-9
            else:
                data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None, 0.0
        if self.tls is None:
            return data, at
        return self._decrypt(data), at

    def handshake(self, now: float) -> None:
        """Go on with a handshake after a read."""
        self._shake(now)
        self.flush()

    def send(self, data: bytes) -> None:
        """Send, or keep what the socket does not take now: `wants_write` then."""
        if self.tls is not None:
            self.tls.write(data)
            data = self.outgoing.read()
        if self.pending:
            self.pending += data
            return
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent != len(data):
            self.pending = data[sent:]
            self.wants_write = True

    def flush(self) -> None:
        if self.tls is not None and self.outgoing.pending:
            self.pending += self.outgoing.read()
        if self.pending:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                self.pending = self.pending[self.sock.send(self.pending) :]
        self.wants_write = bool(self.pending) or not self.connected

    def close(self) -> None:
        self.sock.close()

    def _shake(self, now: float) -> None:
        assert self.tls is not None  # noqa: S101
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            self.established = True
            self.tls_ms = (now - self.began) * 1000 - (self.connect_ms or 0.0)

    def _decrypt(self, data: bytes) -> bytes | None:
        assert self.tls is not None  # noqa: S101
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()
        if not self.established:
            if data:
                return None
            raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
        pieces: list[bytes] = []
        while True:
            try:
                piece = self.tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                piece = b""
            if not piece:
                if not pieces:
                    return b""
                break  # what came is handed on first; the next read finds the end again
            pieces.append(piece)
        return b"".join(pieces) or None
