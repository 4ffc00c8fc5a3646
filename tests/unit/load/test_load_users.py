"""The lab's users: what they count, how they follow the DNS, when they end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from mock_server import Mock

from inferlift.load.users import follow, since, summarise

pytestmark = pytest.mark.programs


class Dns:
    """Stand-in for the resolver: answers with `address`, or SERVFAIL for None, over UDP. Proves nothing on TTLs."""

    def __init__(self, address: str | None) -> None:
        import socket

        self.address, self.asked = address, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.1)
        self.server = "127.0.0.1:%d" % self.socket.getsockname()[1]  # noqa: UP031
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.ended.is_set():
            try:
                data, peer = self.socket.recvfrom(2048)
            except TimeoutError:
                continue
            query = dns.message.from_wire(data)
            self.asked += 1
            response = dns.message.make_response(query)
            if self.address is None:
                response.set_rcode(dns.rcode.SERVFAIL)
            else:
                response.answer.append(dns.rrset.from_text(query.question[0].name, 0, "IN", "A", self.address))
            self.socket.sendto(response.to_wire(), peer)
        self.socket.close()


@pytest.fixture
def resolver() -> Iterator[Dns]:
    server = Dns("127.0.0.1")
    yield server
    server.ended.set()


def config_of(server: Mock, resolver: Dns, out: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "ai.demo.test", "resolver": resolver.server, "port": server.port, "tls": False, "route": "/api/chat",
        "rate": 60, "max_tokens": 4, "out": str(out), "limit_s": 20, "ca": None, **more,
    }  # fmt: skip


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Callable[[Mock, Dns], Path]]:
    """Both clients in a thread of this process."""
    ends: list[Callable[[], None]] = []

    def start(server: Mock, resolver: Dns) -> Path:
        out = tmp_path / "users.jsonl"

        async def work() -> None:
            end, loop = asyncio.Event(), asyncio.get_running_loop()
            ends.append(lambda: loop.call_soon_threadsafe(end.set))
            with out.open("a") as file:
                await follow(config_of(server, resolver, out), file, end)

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        ends.append(lambda: thread.join(10))
        return out

    yield start
    for end in sorted(ends, key=lambda e: "join" in e.__code__.co_names):
        end()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], Path]]]:
    """The real thing: a process of its own."""
    children: list[subprocess.Popen[bytes]] = []

    def start(server: Mock, resolver: Dns, **more: Any) -> tuple[subprocess.Popen[bytes], Path]:
        out, config = tmp_path / "users.jsonl", tmp_path / "users.json"
        config.write_text(json.dumps(config_of(server, resolver, out, **more)))
        children.append(subprocess.Popen([sys.executable, "-m", "inferlift.load.users", str(config)]))
        return children[-1], out

    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def until(path: Path, enough: Callable[[list[dict[str, Any]]], bool], limit_s: float = 10) -> list[dict[str, Any]]:
    give_up = time.monotonic() + limit_s
    while time.monotonic() < give_up:
        if enough(found := since(path, 0)):
            return found
        time.sleep(0.05)
    raise AssertionError(f"not enough records: {since(path, 0)[-3:]}")


def of(records: list[dict[str, Any]], client: str) -> list[dict[str, Any]]:
    return [r for r in records if r["client"] == client]


def test_one_resolves_each_time_the_other_keeps_its_connection(users: Any, resolver: Dns) -> None:
    with Mock() as old:
        new = Mock(port=old.port)  # the same port at another address of this machine
        new_address = "127.0.0.2"
        out = users(old, resolver)
        until(out, lambda r: len(of(r, "keep-alive")) > 4 and len(of(r, "resolving")) > 4)
        with _at(new, new_address):
            resolver.address = new_address
            changed = time.time()
            seen = until(out, lambda r: sum(x.get("side") == new_address for x in r) > 5)
            assert all(r["ok"] for r in seen), [r for r in seen if not r["ok"]]
            keep = [r for r in of(seen, "keep-alive") if r["t"] > changed]
            assert keep
            assert {r["side"] for r in keep} == {"127.0.0.1"}  # its connection is still open
            old.fault = lambda i: "close_after"
            until(out, lambda r: any(x["side"] == new_address for x in of(r, "keep-alive")))
    rows = {row.client: row for row in summarise(out, "127.0.0.1", new_address)}
    assert rows["resolving"].new > 0
    assert rows["resolving"].old > 0
    assert rows["keep-alive"].new > 0


def test_a_connection_closed_before_the_first_byte_is_no_failure(users: Any, resolver: Dns) -> None:
    with Mock(fault=lambda i: "close_kept" if i % 3 == 0 else None) as server:
        out = users(server, resolver)
        seen = until(out, lambda r: sum(bool(x.get("retried")) for x in r) >= 2)
    assert all(r["ok"] for r in seen), [r for r in seen if not r["ok"]]


@pytest.mark.parametrize(("fault", "kind"), [("500", "http_5xx"), ("reset", "reset"), ("truncated", "truncated")])
def test_failures_are_failures(users: Any, resolver: Dns, fault: str, kind: str) -> None:
    with Mock(fault=lambda i: fault, gap_s=0.01) as server:
        out = users(server, resolver)
        seen = until(out, lambda r: len(r) >= 4)
    assert {r["error"] for r in seen} == {kind}
    assert sum(row.failed for row in summarise(out, "127.0.0.1", "127.0.0.2")) >= 4


def test_an_empty_answer_of_the_resolver_is_a_failure(users: Any, resolver: Dns) -> None:
    resolver.address = None
    with Mock() as server:
        out = users(server, resolver)
        seen = until(out, lambda r: len(r) >= 2)
    assert {r["error"] for r in seen} == {"connect"}
    assert "SERVFAIL" in seen[0]["detail"]
    assert server.requests == 0


def test_sigterm_ends_it_after_what_is_in_flight(process: Any, resolver: Dns) -> None:
    with Mock(first_s=0.3) as server:
        child, out = process(server, resolver)
        until(out, lambda r: len(r) >= 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == 0
        assert all(r["ok"] for r in since(out, 0))
        assert len(since(out, 0)) == server.requests


def test_it_ends_by_itself_in_time(process: Any, resolver: Dns) -> None:
    with Mock() as server:
        child, _ = process(server, resolver, limit_s=0.3)
        assert child.wait(10) == 0


def test_it_does_not_outlive_its_parent(resolver: Dns, tmp_path: Path) -> None:
    out, config = tmp_path / "users.jsonl", tmp_path / "users.json"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-m', 'inferlift.load.users', {str(config)!r}])\n"
        "print(child.pid, flush=True)\ntime.sleep(60)"
    )
    with Mock() as server:
        config.write_text(json.dumps(config_of(server, resolver, out)))
        parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert parent.stdout
        pid = int(parent.stdout.readline())
        until(out, lambda r: len(r) > 2)
        parent.kill()
        parent.wait()
        give_up = time.monotonic() + 8
        while time.monotonic() < give_up and _alive(pid):
            time.sleep(0.05)
        assert not _alive(pid)


def test_counts_by_side_and_time(tmp_path: Path) -> None:
    path = tmp_path / "u.jsonl"
    rows = [
        {"t": 1.0, "client": "resolving", "side": "old", "ok": True},
        {"t": 2.0, "client": "resolving", "side": "new", "ok": True},
        {"t": 3.0, "client": "keep-alive", "side": "old", "ok": False, "error": "reset"},
        {"t": 4.0, "client": "keep-alive", "side": "stranger", "ok": True},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"t": 5.0, "cli')
    found = {r.client: (r.old, r.new, r.failed) for r in summarise([path, tmp_path / "none"], "old", "new")}
    assert found == {"resolving": (1, 1, 0), "keep-alive": (0, 0, 2)}
    assert [r["t"] for r in since(path, 2.5)] == [3.0, 4.0]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _at(mock: Mock, address: str) -> Mock:
    mock.address = address
    return mock
