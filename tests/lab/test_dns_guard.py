"""The guard's script as it runs on the monitor host, on PowerDNS behind the narrowing proxy, and on Knot."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from dns_sides import AUTHORITY, FAST, NAME, NEW, OLD, OWNER, ZONE, Web, answered, rfc2136, switch

from inferlift import profile
from inferlift.dns import answers, guard, loopback
from inferlift.dns.eyes import Net
from inferlift.dns.gating import MetricGate
from inferlift.dns.record import shares

pytestmark = pytest.mark.lab


class StandInPrometheus(http.server.BaseHTTPRequestHandler):
    """Answers every query with `value`: it proves nothing about Prometheus."""

    value: str | None = "0"
    queries = 0

    def do_POST(self) -> None:
        type(self).queries += 1
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
        assert not switch(backend, net, plan=profile.Switch(ttl_s=1, steps=(100,)), **FAST).run().rolled_back
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
            looked()
            assert answered(server) == NEW  # passes: nothing is done
            StandInPrometheus.value = None
            looked()
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


def looked() -> None:
    """More looks than it needs to act, each of two queries."""
    enough = StandInPrometheus.queries + 10
    assert answers.wait_visible(lambda: StandInPrometheus.queries >= enough, timeout_s=20) is not None


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
