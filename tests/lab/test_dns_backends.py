"""The other back ends for real, on loopback: Knot (RFC 2136, TSIG), HAProxy's runtime API, and the switch alone.

Debian's packages, unpacked into a folder of the tests; nothing is installed, no host is made.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from inferlift import profile
from inferlift.artifacts import Figure, Gate
from inferlift.dns import answers, guard, loopback, shadow
from inferlift.dns.backend import Desired
from inferlift.dns.eyes import Net
from inferlift.dns.gateway import Gateway
from inferlift.dns.gating import MetricGate
from inferlift.dns.proof import Proof, prover
from inferlift.dns.record import Journal, RecordState, shares
from inferlift.dns.rfc2136 import Rfc2136
from inferlift.dns.settings import backend
from inferlift.dns.standalone import GateSource, back, standalone
from inferlift.dns.switch import Switch
from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.toolchain import store

pytestmark = pytest.mark.lab

ZONE, NAME, OWNER = "demo.test.", "ai.demo.test", "lab-test"
OLD, NEW, AUTHORITY = "127.0.42.10", "127.0.42.20", "127.0.0.1"
NAMES = ["ai", "_inferlift.ai", "_acme-challenge.ai"]
PROOF_AT = f"_acme-challenge.{NAME}"


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


# ---- Knot


@pytest.fixture
def knot(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[loopback.Server]:
    with loopback.knot(found, tmp_path / "knot", ZONE, [f"ai 2 A {OLD}", "www 60 A 192.0.2.9"], names=NAMES) as server:
        monkeypatch.setenv("TSIG", server.secret)
        yield server


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


@pytest.mark.parametrize("both", [True, False])
def test_knot_forward_back_and_given_back_without_an_empty_answer(knot: loopback.Server, both: bool) -> None:
    net = Net.real(knot.port)
    before = rfc2136(knot).read(NAME)
    said: list[str] = []
    with Asker(lambda: answered(knot)) as asker:
        result = switch(rfc2136(knot, both=both), net, say=said.append).run()
        times = switch(rfc2136(knot, both=both), net).rollback()
        switch(rfc2136(knot, both=both), net).restore()
    print(f"{dict(asker.seen)}; back at the authority after {times.authority_s:.3f} s; {result}")
    assert asker.failed == []
    wanted = {OLD, NEW, f"{OLD}+{NEW}"} if both else {OLD, NEW}
    assert set(asker.seen) == wanted  # never nothing
    assert [s.weight for s in result.steps] == ([0, 50, 100] if both else [0, 100])
    assert any("has no weights" in line for line in said)
    assert result.rehearsed_rollback_s is not None  # the journal went out and back
    assert times.authority_s < 2
    assert rfc2136(knot).read(NAME) == before


def test_knot_a_side_that_fails_is_left(knot: loopback.Server) -> None:
    net = Net.real(knot.port)
    result = switch(rfc2136(knot), net, gates=lambda w: gates(w, "fail" if w == 50 else "pass")).run()
    assert result.rolled_back
    assert answered(knot) == OLD


def test_knot_compares_and_sets_by_prerequisites(knot: loopback.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer between our last look and the write: the server itself refuses."""
    backend, other = rfc2136(knot), rfc2136(knot, run="another")
    state = backend.read(NAME)
    change = backend.propose(state, desired(state, {OLD: 50, NEW: 50}, "run-1"))
    meddled = []

    def message(self: Rfc2136, change: Any, found: Any) -> Any:
        made = real(self, change, found)
        if self is backend:
            other.apply(other.propose(state, desired(state, {OLD: 0, NEW: 100}, "another")))
            meddled.append(1)
        return made

    real = Rfc2136.message
    monkeypatch.setattr(Rfc2136, "message", message)
    with pytest.raises(Refusal, match="changed since it was reviewed"):
        backend.apply(change)
    assert meddled
    assert answered(knot) == NEW  # the other's write stands


def desired(state: RecordState, weights: dict[str, int], run: str) -> Desired:
    book = Journal(
        owner=OWNER, run=run, sequence=1, phase="stepping", intended=weights, ttl_s=2, ttl_before_s=2, before=state.raw
    )
    return Desired(kind="simple", weights=weights, ttl_s=2, journal=book)


def test_knot_a_narrow_key_moves_this_name_only(knot: loopback.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    www = Rfc2136(
        AUTHORITY, "inferlift", "env:TSIG", ZONE, names=["www.demo.test"], addresses=["192.0.2.9", NEW], owner=OWNER,
        run="run-1", port=knot.port,
    )  # fmt: skip
    state = www.read("www.demo.test")
    with pytest.raises(CheckFailed, match="refused the update"):
        www.apply(www.propose(state, desired(state, {"192.0.2.9": 0, NEW: 100}, "run-1")))
    monkeypatch.setenv("TSIG", "d3Jvbmc=")
    with pytest.raises(Refusal, match="does not take the key") as refused:
        rfc2136(knot).read(NAME)
    assert "env:TSIG" in str(refused.value)
    assert "d3Jvbmc=" not in str(refused.value)


def test_knot_stopped_is_unknown_not_empty(found: loopback.Programs, tmp_path: Path) -> None:
    os.environ["TSIG"] = "c2VjcmV0"
    with loopback.knot(found, tmp_path / "knot", ZONE, [f"ai 2 A {OLD}"]) as server:
        pass
    with pytest.raises(Retryable, match="does not answer"):
        rfc2136(server).read(NAME)


# ---- HAProxy


class Web(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


class Side(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = str(self.connection.getsockname()[0]).encode()
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
    import http.client

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


def test_haproxy_forward_back_and_forward_without_a_failed_request(found: loopback.Programs, tmp_path: Path) -> None:
    def execute(host: Any, command: str) -> str:
        env = {**found.env(), "PATH": f"{found.root}/usr/bin:{os.environ['PATH']}"}
        done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with sides() as web:
        servers = {"old": (OLD, web), "new": (NEW, web)}
        with loopback.haproxy(found, tmp_path / "gw", servers, backend="users") as gw:

            def gateway(run: str = "run-1") -> Gateway:
                return Gateway(
                    "gw", execute, backend="users", servers={OLD: "old", NEW: "new"}, names=[NAME], owner=OWNER,
                    run=run, socket=f"{gw.folder}/admin.sock", journal=f"{gw.folder}/switch.json",
                    state_file=f"{gw.folder}/servers",
                )  # fmt: skip

            def probe(n: int) -> None:
                for _ in range(n):
                    get(gw.port)

            net = gateway().net(probe)
            before = gateway().read(NAME)
            assert before.weights == {OLD: 100}
            with Asker(lambda: get(gw.port)) as asker:
                first = switch(gateway(), net).run()
                times = switch(gateway(), net).rollback()
                assert shares(gateway().read(NAME).weights) == {OLD: 1.0}
                # killed between the weights and the journal: the next look finishes it
                stands = gateway().read(NAME)
                (gw.folder / "switch.json").rename(gw.folder / "switch.json.next")
                (gw.folder / "switch.json.meant").write_text((gw.folder / "switch.json.now").read_text())
                assert gateway().read(NAME) == stands
                again = switch(gateway("run-2"), net).run()
            print(
                f"{dict(asker.seen)}, back after {times.authority_s:.3f} s; {[s.authority_share for s in first.steps]}"
            )
            assert asker.failed == []
            assert set(asker.seen) == {OLD, NEW}
            assert [s.weight for s in first.steps] == [0, 1, 10, 50, 100]
            assert not again.rolled_back
            assert times.authority_s < 2
            # someone else's weight is found and named
            execute("gw", f"printf 'set server users/old weight 40\\n' | socat - UNIX-CONNECT:{gw.folder}/admin.sock")
            with pytest.raises(Refusal) as refused:
                switch(gateway("run-3"), net).run()
            assert OLD in refused.value.why
            switch(gateway("run-3"), net).rollback()
            switch(gateway("run-3"), net).restore()
            assert gateway().read(NAME) == before
        # the state file keeps the weights over a restart
        assert "users" in (tmp_path / "gw" / "servers").read_text()


# ---- the switch alone, and the guard, on PowerDNS


@pytest.fixture
def pdns(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[loopback.Server]:
    with loopback.powerdns(found, tmp_path / "pdns", ZONE, [("ai.demo.test", "A", 2, OLD)]) as server:
        monkeypatch.setenv("DNS_KEY", server.secret)
        yield server


@pytest.mark.parametrize("kind", ["rfc2136", "powerdns"])
def test_a_proof_is_answered_beside_another_and_gone_alone(
    kind: str, found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"kind": kind, "zone": ZONE, "key": "env:PROOF_KEY"}
    with contextlib.ExitStack() as stack:
        if kind == "powerdns":
            at = stack.enter_context(loopback.powerdns(found, tmp_path / "dns", ZONE, [(NAME, "A", 2, OLD)]))
            given |= {"url": f"http://{AUTHORITY}:{at.api}"}
        else:
            at = stack.enter_context(loopback.knot(found, tmp_path / "dns", ZONE, [f"ai 2 A {OLD}"], names=NAMES))
            given |= {"server": AUTHORITY, "port": at.port, "key_name": "inferlift"}
        monkeypatch.setenv("PROOF_KEY", at.secret)
        ask = partial(answers.texts_at, port=at.port)
        made = backend(given, names=(NAME,), addresses=(), owner=OWNER, run="r")
        proof = Proof(prover(made), (AUTHORITY,), print, ask)
        for value in ("first", "second", "second"):
            proof.publish(PROOF_AT, value)
        assert sorted(ask(AUTHORITY, PROOF_AT)) == ["first", "second"]
        for value, left in (("first", ("second",)), ("second", ())):
            proof.withdraw(PROOF_AT, value)
            assert ask(AUTHORITY, PROOF_AT) == left


def test_the_switch_alone_with_a_url_and_a_command(pdns: loopback.Server, tmp_path: Path) -> None:
    settings = {"kind": "powerdns", "url": f"http://{AUTHORITY}:{pdns.api}", "key": "env:DNS_KEY", "zone": ZONE}
    named: dict[str, Any] = {"authority": [AUTHORITY], "resolver": AUTHORITY, "dns_port": pdns.port, "owner": OWNER}
    plan = profile.Switch(ttl_s=1, steps=(10, 100), min_samples=6)
    with sides() as web:
        gate = GateSource(url=f"http://{NAME}:{web}/", command='test "$WEIGHT" -le 100')
        log = tmp_path / "log" / "intents.jsonl"
        result = standalone(NAME, OLD, NEW, settings, gate, plan=plan, log=log, **named)
        assert not result.rolled_back
        names = {g.name for s in result.steps for g in s.gates}
        against = "new side P95 against the old side"
        assert names == {
            "dns: answers",
            "new side errors",
            against,
            "old side errors",
            "client by name",
            "gate command",
        }
        assert answered(pdns) == NEW
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [next(iter(sorted(set(line) & {"intent", "done"}))) for line in lines] == ["intent", "done"] * (
            len(lines) // 2
        )
        assert lines[0]["before"]["inverse"]["weights"] == {OLD: 1}  # the batch that takes it back, written first
        assert back(NAME, OLD, NEW, settings, restore=True, **named).authority_s < 2
        assert answered(pdns) == OLD
        # a new side that nobody serves is never given a user
        dead = GateSource(url=f"http://{NAME}:{loopback.free_port()}/")
        failed = standalone(NAME, OLD, NEW, settings, dead, plan=plan, run="run-9", **named)
        assert failed.rolled_back
        assert [s.weight for s in failed.steps] == [0]


@pytest.mark.parametrize("kind", ["powerdns", "haproxy"])
def test_the_switch_alone_as_it_is_typed(
    found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PATH", f"{found.root}/usr/bin:{os.environ['PATH']}")  # socat, and what it needs
    monkeypatch.setenv("LD_LIBRARY_PATH", found.env()["LD_LIBRARY_PATH"])
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path))
    with sides() as web, contextlib.ExitStack() as stack:
        if kind == "powerdns":
            at = stack.enter_context(loopback.powerdns(found, tmp_path / "dns", ZONE, [(NAME, "A", 2, OLD)]))
            given = {"kind": kind, "url": f"http://{AUTHORITY}:{at.api}", "key": "file:dns-key", "zone": ZONE}
            more = ["--authority", AUTHORITY, "--resolver", AUTHORITY, "--dns-port", str(at.port)]
            url = f"http://{NAME}:{web}/"
        else:
            both = {"old": (OLD, web), "new": (NEW, web)}
            at = stack.enter_context(loopback.haproxy(found, tmp_path / "gw", both, backend="users"))
            given = {
                "kind": kind, "backend": "users", "servers": {OLD: "old", NEW: "new"}, "front": AUTHORITY,
                "socket": f"{at.folder}/admin.sock", "journal": f"{at.folder}/switch.json",
            }  # fmt: skip
            more, url = [], f"http://{NAME}:{web}/"
        (tmp_path / "dns-key").write_text(at.secret)
        (tmp_path / "dns.yaml").write_text(json.dumps(given))
        common = ["--name", NAME, "--old", OLD, "--new", NEW, "--dns", "dns.yaml", "--owner", "team", "--json", *more]
        gate = ["--steps", "10,100", "--ttl", "1", "--samples", "4"]
        gate += ["--url", url] if kind == "powerdns" else ["--url", url.replace(str(web), str(at.port))]
        if kind == "haproxy":  # both sides are asked at the URL's port
            stack.enter_context(also_at(at.port))
        done = typed(tmp_path, "switch", *common, *gate, "--log", "log.jsonl")
        assert done.stdout, done.stderr
        body = json.loads(done.stdout)
        assert (done.returncode, body["ok"], body["verdict"]) == (0, True, "moved"), done.stderr
        assert [s["weight"] for s in body["steps"]] == [0, 10, 100]
        assert body["figures"]["rehearsed_rollback_s"] is not None
        assert (tmp_path / "log.jsonl").is_file()
        stranger = typed(tmp_path, "rollback", *["nobody" if w == "team" else w for w in common])
        assert stranger.returncode == 2
        assert "belongs to another writer" in stranger.stderr
        back_ = typed(tmp_path, "rollback", *common, "--restore")
        assert (back_.returncode, json.loads(back_.stdout)["verdict"]) == (0, "rolled back"), back_.stderr
        held = typed(tmp_path, "switch", *common, "--gate", "exit 3", *(gate if kind == "haproxy" else gate[:-2]))
        assert (held.returncode, json.loads(held.stdout)["ok"]) == (3, None), held.stderr
        assert at.secret == "" or at.secret not in done.stdout + done.stderr + (tmp_path / "log.jsonl").read_text()


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As a user types it, from a folder of their own."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [str(root / "invoke"), *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@contextlib.contextmanager
def also_at(port: int) -> Iterator[None]:
    """Both sides at the gateway's own port too, since a URL has one."""
    servers = [Web((address, port), Side) for address in (OLD, NEW)]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


class StandInPrometheus(http.server.BaseHTTPRequestHandler):
    """Answers every query with `value`: it proves nothing about Prometheus."""

    value: str | None = "0"

    def do_POST(self) -> None:
        counts = self.rfile.read(int(self.headers["Content-Length"])) == b"query=n"
        value = "100" if counts else self.value
        series = [{"metric": {}, "value": [time.time(), value]}] if value is not None else []
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.mark.parametrize("kind", ["powerdns", "rfc2136"])
def test_the_guard_takes_users_back_when_nobody_else_is_there(
    found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The script as it runs on the monitor host, started as a program of its own."""
    metrics = Web((AUTHORITY, 0), StandInPrometheus)
    threading.Thread(target=metrics.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    records: Any = [("ai.demo.test", "A", 2, OLD)] if kind == "powerdns" else [f"ai 2 A {OLD}"]
    start: Any = loopback.powerdns if kind == "powerdns" else loopback.knot
    with start(found, tmp_path / "dns", ZONE, records) as server:
        monkeypatch.setenv("TSIG", server.secret)
        monkeypatch.setenv("DNS_KEY", server.secret)
        (tmp_path / "key").write_text(server.secret)
        backend: Any = rfc2136(server)
        if kind == "powerdns":
            from inferlift.dns.powerdns import PowerDns

            backend = PowerDns(
                f"http://{AUTHORITY}:{server.api}", "env:DNS_KEY", ZONE, names=[NAME], addresses=[OLD, NEW],
                owner=OWNER, run="run-1",
            )  # fmt: skip
        net = Net.real(server.port)
        assert not switch(backend, net, plan=profile.Switch(ttl_s=1, steps=(100,))).run().rolled_back
        proxied = loopback.free_port()
        if kind == "powerdns":
            (tmp_path / "key").write_text("the-guards-own-key")
        where = guard.GuardBackend(
            kind=kind, url=f"http://{AUTHORITY}:{proxied}", key_file=str(tmp_path / "key"), key_name="inferlift",
            server=AUTHORITY, port=server.port,
        )  # type: ignore[arg-type]  # fmt: skip
        files = guard.render(
            NAME, ZONE, OLD, NEW, OWNER, where, [MetricGate("errors", "x", 0.05, count="n", minimum=1)],
            prometheus=f"http://{AUTHORITY}:{metrics.server_port}", failures=2, every_s=0.1,
        )  # fmt: skip
        config = json.loads(files[2].text)
        config["state_file"] = str(tmp_path / "state.json")
        (tmp_path / "guard.py").write_text(files[0].text)
        (tmp_path / "guard_zones.py").write_text(files[1].text)
        (tmp_path / "guard.json").write_text(json.dumps(config))
        (tmp_path / "log").touch()
        aside = contextlib.ExitStack()
        if kind == "powerdns":
            aside.enter_context(proxy(found, tmp_path / "nginx", proxied, server))
        with (tmp_path / "log").open("w") as log:
            child = subprocess.Popen(
                [sys.executable, str(tmp_path / "guard.py"), str(tmp_path / "guard.json")], stdout=log, stderr=log
            )
        try:
            time.sleep(1.0)
            assert answered(server) == NEW  # passes: nothing is done
            StandInPrometheus.value = None
            time.sleep(0.6)
            assert answered(server) == NEW  # no data: nothing is done
            StandInPrometheus.value = "0.5"
            began = time.monotonic()
            assert answers.wait_visible(lambda: answered(server) == OLD, timeout_s=10) is not None
            print(f"{kind}: the guard was there after {time.monotonic() - began:.2f} s, 2 looks 0.1 s apart")
        finally:
            StandInPrometheus.value = "0"
            child.terminate()
            child.wait(10)
            aside.close()
        state = backend.read(NAME)
        assert state.journal is not None
        assert (state.journal.run, state.journal.phase) == ("guard", "rolled-back")
        assert shares(state.weights) == {OLD: 1.0}
        # the operator's own run sees it as its end, not as a stranger's change
        backend.run = "guard"
        assert switch(backend, net).run().rolled_back
    metrics.shutdown()
    metrics.server_close()


@contextlib.contextmanager
def proxy(found: loopback.Programs, folder: Path, port: int, server: loopback.Server) -> Iterator[None]:
    """The narrowing text for PowerDNS, run: a key of its own, one zone, two methods."""
    folder.mkdir()
    (folder / "guard-key.conf").write_text('set $inferlift_guard_key "the-guards-own-key";')
    (folder / "api-key.conf").write_text(f'proxy_set_header X-API-Key "{server.secret}";')
    text = guard.narrowing("powerdns", NAME, ZONE)["proxy"]
    text = text.replace("/etc/nginx/inferlift", str(folder)).replace("127.0.0.1:8081", f"127.0.0.1:{server.api}")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{port};\n{text}\n}} }}"
    )
    argv = [found.path("nginx"), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    child = subprocess.Popen(argv, env=found.env())
    base = f"http://127.0.0.1:{port}/api/v1/servers/localhost"
    own = {"X-API-Key": "the-guards-own-key"}
    try:
        up = answers.wait_visible(lambda: status("GET", base, own) == 404, timeout_s=5)
        assert up is not None, (folder / "error.log").read_text()
        assert status("GET", f"{base}/zones/{ZONE}", own) == 200
        assert status("GET", f"{base}/zones/{ZONE}", {"X-API-Key": "another"}) == 401
        assert status("GET", f"{base}/zones/{ZONE}", {}) == 401
        assert status("DELETE", f"{base}/zones/{ZONE}", own) == 403
        assert status("GET", f"{base}/zones/other.test.", own) == 404
        assert status("GET", f"{base}/zones", own) == 404
        yield
    finally:
        child.terminate()
        child.wait(10)


def status(method: str, url: str, headers: dict[str, str]) -> int:
    with requests.Session() as session, contextlib.suppress(requests.ConnectionError):
        session.trust_env = False
        return session.request(method, url, headers=headers, timeout=5).status_code
    return 0


# ---- shadow


def test_nginx_takes_the_shadow_snippet_and_users_notice_nothing(found: loopback.Programs, tmp_path: Path) -> None:
    from inferlift.dns import pinned

    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem"), "-subj", f"/CN={NAME}",
         "-addext", f"subjectAltName=DNS:{NAME}"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with sides() as web:
        port, tls = loopback.free_port(), loopback.free_port()
        text = shadow.snippet(
            NAME, NEW, share=100, ca=str(tmp_path / "ca.pem"), port=tls, log=str(tmp_path / "shadow.log"),
            own_logs=(str(tmp_path / "access.log"),),
        )  # fmt: skip
        (tmp_path / "nginx.conf").write_text(f"""daemon off;
pid {tmp_path}/pid;
error_log {tmp_path}/error.log info;
worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/f;
    uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
{text.http}
    server {{
        listen 127.0.0.1:{port};
{text.server}
        location / {{
            {text.location}
            proxy_pass http://{OLD}:{web};
        }}
    }}
    server {{
        listen {NEW}:{tls} ssl;
        server_name {NAME};
        ssl_certificate {tmp_path}/ca.pem; ssl_certificate_key {tmp_path}/key.pem;
        location /broken {{ return 500; }}
        location / {{ proxy_pass http://{NEW}:{web}; }}
    }}
}}
""")
        argv = [found.path("nginx"), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        child = subprocess.Popen(argv, env=found.env())
        try:
            up = answers.wait_visible(lambda: listens(port), timeout_s=5)
            assert up is not None, (tmp_path / "error.log").read_text()
            probe = pinned.Probe(f"http://{NAME}:{port}/v1/x")
            assert all(pinned.ask(probe, AUTHORITY).ok for _ in range(20))
            broken = pinned.Probe(f"http://{NAME}:{port}/broken")
            assert pinned.ask(broken, AUTHORITY).ok  # users have the old side's answer
            # nginx logs a request when its copy has ended too; 22 with our own look whether it listens
            whole = answers.wait_visible(
                lambda: len((tmp_path / "access.log").read_text().splitlines()) == 22, timeout_s=5
            )
            assert whole is not None, (tmp_path / "access.log").read_text()
        finally:
            child.terminate()
            child.wait(10)
    print((tmp_path / "error.log").read_text()[-2000:])
    compared = shadow.compare((tmp_path / "shadow.log").read_text().splitlines())
    print(compared)
    assert compared.pairs >= 15
    assert compared.worse == 1
    assert compared.differing == ("1 x /broken: 200 there, 500 here",)
    assert shadow.shadow_gates(compared, minimum=5)[0].verdict == "fail"


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        return get(port) != ""
    return False


# ---- the measurement


def test_bench_switch_counts_kills_and_what_users_saw() -> None:
    from inferlift.bench import switch as bench_switch

    figures = bench_switch.measure(kills=28, rollbacks=1, say=print)
    print(figures)
    assert figures["boundaries_hit"] == figures["boundaries"] == 28
    assert figures["empty_answers"] == figures["failed_requests"] == figures["hand_work"] == 0
    assert figures["rollback_seconds"] < 2
    assert figures["requests_old"] > 0
    assert figures["requests_new"] > 0
