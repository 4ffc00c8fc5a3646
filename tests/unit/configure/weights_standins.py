"""A file server on loopback that counts what it sends, and breaks off when told; proves nothing about real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FileServer:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.sent = 0  # bytes of bodies
        self.break_after: int | None = None  # bytes of the next body
        self.ranges = True
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""


@contextmanager
def serving() -> Iterator[FileServer]:
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            state.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            if self.path in state.redirects:
                self.send_response(302)
                self.send_header("Location", state.redirects[self.path])
                self.end_headers()
                return
            data = state.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            wanted = self.headers.get("Range")
            start = int(wanted.split("=")[1].split("-")[0]) if wanted and state.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if not body:
                return
            part = data[start:]
            if state.break_after is not None:
                part, state.break_after = part[: state.break_after], None
                self.close_connection = True
            self.wfile.write(part)
            state.sent += len(part)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
