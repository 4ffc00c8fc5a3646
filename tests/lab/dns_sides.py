"""What the tests of the back ends share: two sides and name servers on loopback, somebody who asks without pause.

Debian's packages, unpacked into a folder of the tests; nothing is installed, no host is made.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inferlift import profile
from inferlift.artifacts import Figure, Gate
from inferlift.dns import answers, loopback
from inferlift.dns.eyes import Net
from inferlift.dns.rfc2136 import Rfc2136
from inferlift.dns.switch import Switch
from inferlift.errors import Retryable
from inferlift.toolchain import store

ZONE, NAME, OWNER = "demo.test.", "ai.demo.test", "lab-test"
OLD, NEW, AUTHORITY = "127.0.42.10", "127.0.42.20", "127.0.0.1"
NAMES = ["ai", "_inferlift.ai"]
SPEED = 8  # of the clock, where nothing but the switch itself waits: these servers cache nothing
BEGAN = time.time()
FAST: dict[str, Any] = {
    "clock": lambda: BEGAN + SPEED * (time.time() - BEGAN),
    "sleep": lambda seconds: time.sleep(seconds / SPEED),
}


@pytest.fixture(scope="module")
def found() -> loopback.Programs:
    return loopback.programs(store.cache() / "name-servers")


@contextlib.contextmanager
def no_intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
    yield


def gates(weight: int, verdict: str = "pass") -> tuple[Gate, ...]:
    """A stand-in for measured gates."""
    figure = Figure(value=0.0, unit="share", basis="assumed", source="stand-in")
    return (Gate(name="stand-in", verdict=verdict, target=0.0, figure=figure, why="stand-in"),)  # type: ignore[arg-type]


class Asker(threading.Thread):
    """Asks without pause; what it saw is counted, what failed is kept."""

    def __init__(self, ask: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self.ask, self.seen, self.failed, self.stop = ask, Counter[str](), list[str](), threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self.seen[self.ask()] += 1
            except (Retryable, OSError) as error:
                self.failed.append(str(error))
            time.sleep(0.002)

    def __enter__(self) -> Asker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join(10)


def rfc2136(server: loopback.Server, run: str = "run-1", **more: Any) -> Rfc2136:
    named: dict[str, Any] = {"names": [NAME], "addresses": [OLD, NEW], "owner": OWNER, "run": run, **more}
    return Rfc2136(AUTHORITY, "inferlift", "env:TSIG", ZONE, port=server.port, **named)


def switch(backend: Any, net: Net, **more: Any) -> Switch:
    named: dict[str, Any] = {
        "gates": gates, "on_intent": no_intent, "say": print,
        "plan": profile.Switch(ttl_s=1, steps=(1, 10, 50, 100), failures_to_roll_back=2), **more,
    }  # fmt: skip
    return Switch(
        backend=backend, name=NAME, old=OLD, new=NEW, authority=AUTHORITY, resolver=AUTHORITY, net=net, **named
    )


def answered(server: loopback.Server) -> str:
    got = answers.authority_share(AUTHORITY, NAME, 1, port=server.port)
    return "+".join(next(iter(got.sets))) if got.sets else "nothing"


class Web(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


class Side(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = str(self.connection.getsockname()[0]).encode()
        if self.path.endswith("/slow") and body == NEW.encode():
            time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextlib.contextmanager
def sides() -> Iterator[int]:
    port = loopback.free_port()
    servers = [Web((address, port), Side) for address in (OLD, NEW)]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def get(port: int, address: str = AUTHORITY) -> str:
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status != 200:
            raise OSError(f"status {answer.status}")
        return body
    finally:
        connection.close()
