"""Users who move: resolving clients, keep-alive clients and a resolver that serves stale answers, at more than 20
requests a second, forward, back and forward again.

The endpoint is Triton on either side, with a trivial model that says where it runs, behind nginx as old sides have it.
Name server and resolvers are real too; all on loopback.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inferlift import profile, toolchain
from inferlift.dns import answers, loopback, stubborn
from inferlift.dns.standalone import GateSource, back, standalone
from inferlift.errors import Retryable
from inferlift.report import charts
from inferlift.stages import _users
from inferlift.toolchain import store

pytestmark = pytest.mark.lab

ZONE, NAME = "demo.test.", "ai.demo.test"
OLD, NEW, AUTHORITY, HONEST, STALE = "127.0.43.10", "127.0.43.20", "127.0.0.1", "127.0.43.53", "127.0.43.54"
STALE_S = 6  # how long that resolver keeps what it knows
ASKED = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]})
MODEL = """
import os, sys
sys.path.insert(0, os.environ["SITE"])
import numpy
import triton_python_backend_utils as triton
class TritonPythonModel:
    def execute(self, requests):
        side = numpy.array([os.environ["SIDE"].encode()], dtype=object)
        return [triton.InferenceResponse([triton.Tensor("SIDE", side)]) for _ in requests]
"""
CONFIG = """
name: "side"
backend: "python"
input [{ name: "IN", data_type: TYPE_INT32, dims: [1] }]
output [{ name: "SIDE", data_type: TYPE_STRING, dims: [1] }]
instance_group [{ kind: KIND_CPU }]
"""


class Client(threading.Thread):
    """One user; every request is written down. `keep`: one connection for as long as the server keeps it open."""

    def __init__(self, name: str, resolver: str, dns_port: int, web: int, rate: float, *, keep: bool = False) -> None:
        super().__init__(daemon=True)
        self.what, self.resolver, self.dns_port, self.web, self.every_s, self.keep = (
            name, resolver, dns_port, web, 1 / rate, keep,
        )  # fmt: skip
        self.seen: list[dict[str, Any]] = []
        self.stop = threading.Event()
        self.connection: http.client.HTTPConnection | None = None
        self.side = ""

    def run(self) -> None:
        due = time.monotonic()
        while not self.stop.is_set():
            error = ""
            try:
                self._ask()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                error = self._again() if self.keep else "closed before an answer"
            except (OSError, http.client.HTTPException, Retryable) as wrong:
                error = type(wrong).__name__
            self.seen.append({"t": time.time(), "client": self.what, "side": self.side, "ok": not error, "why": error})
            due = max(due + self.every_s, time.monotonic())
            self.stop.wait(due - time.monotonic())

    def _again(self) -> str:
        """A kept connection that was closed before the first byte is tried once more on a new one, as browsers do."""
        self.connection = None
        try:
            self._ask()
        except (OSError, http.client.HTTPException, Retryable) as wrong:
            return type(wrong).__name__
        return ""

    def _ask(self) -> None:
        if self.connection is None or not self.keep:
            addresses, _ = answers.resolver_answers(self.resolver, NAME, port=self.dns_port)
            if not addresses:
                raise OSError("no address")
            self.side = addresses[0]
            self.connection = http.client.HTTPConnection(addresses[0], self.web, timeout=5)
        self.connection.request("POST", "/infer", ASKED, {"Host": NAME, "User-Agent": f"{self.what}/1"})
        answer = self.connection.getresponse()
        body = answer.read().decode()
        if answer.status != 200 or json.loads(body)["outputs"][0]["data"] != [self.side]:
            raise OSError(f"status {answer.status}, {body} answered")
        if not self.keep or answer.getheader("Connection") == "close":
            self.connection.close()
            self.connection = None


@contextmanager
def triton(folder: Path) -> Iterator[int]:
    """Triton on both sides' addresses, from the wheels that the lab's hosts get."""
    toolchain.ensure(["triton-wheels"], print)
    libraries = loopback.programs(store.cache() / "libpython", ("libpython3.11",)).env()["LD_LIBRARY_PATH"]
    site, model, port = folder / "site", folder / "models" / "side", loopback.free_port()
    for name in ("nvidia_pytriton", "numpy"):
        (wheel,) = toolchain.wheel_folder("triton-wheels").glob(f"{name}-*.whl")
        zipfile.ZipFile(wheel).extractall(site)
    server = site / "pytriton" / "tritonserver"
    stub = server / "backends" / "python" / "triton_python_backend_stub"
    (server / "python_backend_stubs" / "3.11" / stub.name).rename(stub)
    for program in (stub, server / "bin" / "tritonserver"):
        program.chmod(0o755)
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG)
    options = [
        f"--model-repository={model.parent}", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false",
        f"--backend-directory={server}/backends", "--disable-auto-complete-config",
        "--backend-config=python,shm-default-byte-size=1048576",
    ]  # fmt: skip
    env = {**os.environ, "SITE": str(site), "LD_LIBRARY_PATH": f"{site}/nvidia_pytriton.libs:{libraries}"}
    running = []
    try:
        for side in (OLD, NEW):
            with (folder / f"{side}.log").open("w") as log:
                argv = [str(server / "bin" / "tritonserver"), *options, f"--http-address={side}"]
                running.append(subprocess.Popen(argv, env={**env, "SIDE": side}, stdout=log, stderr=log))
        for side in (OLD, NEW):
            ready = answers.wait_visible(lambda s=side: _there(port, s, "/v2/health/ready"), timeout_s=60)  # type: ignore[misc]
            assert ready is not None, (folder / f"{side}.log").read_text()[-3000:]
        yield port
    finally:
        for child in running:
            child.terminate()
        for child in running:
            child.wait(20)


@contextmanager
def sides(found: loopback.Programs, folder: Path, model: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """nginx before each side's model, each with an access log of its own in the combined format."""
    folder.mkdir()
    port = loopback.free_port()
    servers = "\n".join(
        f"server {{ listen {a}:{port}; access_log {folder}/{a}.log combined;\n"
        f"location / {{ proxy_pass http://{a}:{model}/v2/models/side/ready; }}\n"
        f"location /infer {{ proxy_pass http://{a}:{model}/v2/models/side/infer; }} }}"
        for a in (OLD, NEW)
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;\n"
        f"events {{ worker_connections 256; }}\nhttp {{ keepalive_requests 100000; keepalive_timeout 600;\n"
        f"client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n"
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{servers}\n}}\n"
    )
    argv = [found.path("nginx"), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    child = subprocess.Popen(argv, env=found.env())
    try:
        assert answers.wait_visible(lambda: _there(port, NEW, "/"), timeout_s=10) is not None
        yield port, child
    finally:
        child.terminate()
        child.wait(10)


def _there(port: int, address: str, path: str) -> bool:
    try:
        connection = http.client.HTTPConnection(address, port, timeout=1)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False


def test_forward_back_forward_while_users_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = loopback.programs(store.cache() / "name-servers")
    resolvers = loopback.programs(store.cache() / "resolvers", ("unbound",))
    with (
        loopback.powerdns(found, tmp_path / "pdns", ZONE, [(NAME, "A", 2, OLD)]) as pdns,
        loopback.unbound(resolvers, tmp_path / "honest", ZONE, pdns, HONEST),
        loopback.unbound(resolvers, tmp_path / "stale", ZONE, pdns, STALE, stale_s=STALE_S),
        triton(tmp_path / "triton") as model,
        sides(found, tmp_path / "web", model) as (web, nginx),
    ):
        monkeypatch.setenv("DNS_KEY", pdns.secret)
        clients = [
            Client("resolving", HONEST, pdns.port, web, 10),
            Client("keep-alive", HONEST, pdns.port, web, 10, keep=True),
            Client("stale resolver", STALE, pdns.port, web, 6),
        ]
        began = time.monotonic()
        for client in clients:
            client.start()
        named: dict[str, Any] = {
            "authority": [AUTHORITY], "resolver": HONEST, "dns_port": pdns.port, "owner": "lab-test",
        }  # fmt: skip
        settings = {"kind": "powerdns", "url": f"http://{AUTHORITY}:{pdns.api}", "key": "env:DNS_KEY", "zone": ZONE}
        plan = profile.Switch(ttl_s=1, steps=(10, 50, 100), min_samples=6)
        gate = GateSource(url=f"http://{NAME}:{web}/")
        try:
            first = standalone(NAME, OLD, NEW, settings, gate, plan=plan, run="run-1", **named)
            left = first.steps[-1].at
            # the TTL is over, and users are still there: by the old side's own log, by address and agent
            at_once = quiet(tmp_path, left, 3.0)
            nginx.send_signal(signal.SIGHUP)  # a reload ends kept connections: they do not end by themselves
            gone = answers.wait_visible(lambda: quiet(tmp_path, left, 1.5).quiet is True, timeout_s=40, every_s=0.3)
            times = back(NAME, OLD, NEW, settings, **named)
            nginx.send_signal(signal.SIGHUP)
            again = standalone(NAME, OLD, NEW, settings, gate, plan=plan, run="run-2", **named)
        finally:
            for client in clients:
                client.stop.set()
            for client in clients:
                client.join(10)
        took = time.monotonic() - began
    seen = sorted((r for c in clients for r in c.seen), key=lambda r: r["t"])
    failed = [r for r in seen if not r["ok"]]
    print(f"{len(seen)} requests in {took:.1f} s ({len(seen) / took:.1f}/s), {len(failed)} failed: {failed[:3]}")
    print(f"back at the authority after {times.authority_s:.3f} s, at the resolver after {times.resolver_s} s")
    print(f"still there at once: {at_once.why}: {at_once.clients}; quiet after {gone} s")
    assert not first.rolled_back
    assert not again.rolled_back
    assert first.rehearsed_rollback_s is not None
    assert failed == []
    assert len(seen) / took > 20
    assert at_once.quiet is not True
    assert "keep-alive/1" in {c.agent for c in at_once.clients}
    assert {c.address for c in at_once.clients} == {AUTHORITY}
    assert gone is not None  # nobody is left for good: a kept connection ends, a stale answer too
    shares = _users.by_side(seen, OLD, NEW)
    assert {s.name for s in shares} == {"resolving", "keep-alive", "stale resolver"}
    for series in shares:
        assert {0.0, 1.0} <= {value for _, value in series.points}, series.name  # each was on either side alone
    drawn = charts.sides(shares)
    assert drawn is not None
    (tmp_path / "sides.svg").write_text(str(drawn.svg()))
    print(f"share by side over time: {tmp_path / 'sides.svg'}")
    assert [k.label for k in drawn.series] == ["keep-alive", "resolving", "stale resolver"]


def quiet(folder: Path, since: datetime, window_s: float) -> Any:
    lines = (folder / "web" / f"{OLD}.log").read_text().splitlines()
    return stubborn.quiet(lines, since=since, now=datetime.now(UTC), window_s=window_s, ours=["Python", "inferlift"])
