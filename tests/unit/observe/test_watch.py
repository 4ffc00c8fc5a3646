"""The judgement and the client, against a stand-in of Prometheus' HTTP API over TLS. It answers what each test gives;
it does not prove that the queries are right: the lab's watch runs them against the real server."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import re
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import Figure, Host, Jump
from inferlift.errors import CheckFailed, Retryable
from inferlift.observe import Prometheus, judge, up, watch
from inferlift.profile import Budget, Lab, Model, Profile, Requests, Targets

pytestmark = pytest.mark.programs

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
END = START + dt.timedelta(seconds=600)
SECRET = "a-planted-password"
COST = Figure(value=0.36, unit="EUR/h", basis="assumed", source="the lab's price")


def profile(**targets: float) -> Profile:
    return Profile(
        name="demo",
        model=Model(
            name="m", source="pypi://m==1/m", parameters_total=10, layers=1, heads=1, kv_heads=1, head_dim=1,
            weight_bits=4, context=100, parameters_active=None, kv_bits=16, sha256=None,
        ),
        requests=Requests(
            input_tokens_p50=1, input_tokens_p95=2, output_tokens=3, per_minute_peak=None, in_flight_peak=10,
            growth_per_month=0,
        ),
        targets=Targets(**targets),  # type: ignore[arg-type]
        budget=Budget(usd_rate=1.1, usd_rate_source="x", usd_rate_date="2026-01-01"),
        lab=Lab(),  # type: ignore[call-arg]
    )  # fmt: skip


class Canned:
    """A client that answers by the first word of a query's metric that it knows."""

    def __init__(self, coverage: float = 1.0, **values: float | None) -> None:
        self.coverage = coverage
        self.values: dict[str, float | None] = {
            "5xx": 0.0, "4xx": 0.0, "haproxy_frontend_http_responses_total": 1000.0, "queue": 3.0,
            "app_request_seconds_bucket": 800.0, "app_ttft_seconds_bucket": 200.0, "app_request_seconds_count": 1000.0,
            "app_ttft_seconds_count": 990.0, "tokens_predicted": 40.0, "node_cpu": 0.5, "MemAvailable": 0.3, "up[": 1.0,
            "GR_ENGINE": None, "DRAM_ACTIVE": None, "requests:rate": 2.0, "kv_cache": None, "engine:waiting": 1.0,
            "memory_bandwidth": None, "gpu:memory_used": None, "joules": None, "filesystem": 0.5, "cert_expiry": 80.0,
            **values,
        }  # fmt: skip

    def scalar(self, expression: str, at: dt.datetime) -> float | None:
        assert at == END
        return next(value for key, value in self.values.items() if key in expression)

    def query_range(self, expression: str, start: dt.datetime, end: dt.datetime, step_s: float) -> list[Any]:
        from inferlift.observe.prometheus import Line

        if "count_over_time" not in expression:
            return [Line({}, ((START.timestamp(), 1.0), (END.timestamp(), 2.0)))]
        slices = round((end - start).total_seconds() / step_s) + 1
        kept = round(slices * self.coverage)
        return [Line({}, tuple((start.timestamp() + n * step_s, 5.0) for n in range(kept)))]


def _judge(client: Canned, gpu: bool = False, cost: Figure | None = COST, **targets: float) -> Any:
    given_ = {"p95_total_ms": 1000.0, "p95_ttft_ms": 300.0, "error_share": 0.01, **targets}
    return judge(client, profile(**given_), START, END, cost_per_hour=cost, gpu=gpu)  # type: ignore[arg-type]


def test_a_good_hour_passes_with_figures_and_series() -> None:
    w = _judge(Canned())
    assert w.verdict == "pass"
    assert {g.name for g in w.gates} == {"history", "targets up", "errors", "P95 total", "P95 TTFT"}
    assert w.figures["p95_total_ms"].n == 1000
    assert w.figures["error_share"].value == 0
    assert w.figures["rate_rps"].value == pytest.approx(1000 / 600)
    assert len(w.series) == 4


def test_without_a_gpu_its_figures_are_unknown_and_say_why() -> None:
    w = _judge(Canned())
    for name in ("gpu_used_share", "memory_bandwidth_share"):
        assert (w.figures[name].value, w.figures[name].basis) == (None, "unknown")
        assert w.figures[name].source == "no GPU on these hosts"


def test_gpu_hosts_without_gpu_metrics_do_not_pass() -> None:
    w = _judge(Canned(), gpu=True)
    assert w.verdict == "inconclusive"
    assert "missing" in w.why
    assert _judge(Canned(DRAM_ACTIVE=0.6), gpu=True).verdict == "pass"


def test_cost_so_far_keeps_the_basis_of_the_price() -> None:
    w = _judge(Canned())
    assert w.figures["cost_so_far"].value == pytest.approx(0.06)
    assert (w.figures["cost_so_far"].unit, w.figures["cost_so_far"].basis) == ("EUR", "assumed")
    assert w.figures["cost_per_1000_at_this_rate"].value == pytest.approx(0.06)
    assert _judge(Canned(), cost=None).figures["cost_so_far"].value is None


@pytest.mark.parametrize(
    ("values", "verdict", "gate"),
    [
        ({"5xx": 20.0}, "fail", "errors"),
        ({"app_request_seconds_bucket": 1001.0}, "fail", "P95 total"),
        ({"app_ttft_seconds_bucket": 301.0}, "fail", "P95 TTFT"),
        ({"up[": 0.5}, "fail", "targets up"),
        ({"haproxy_frontend_http_responses_total": None}, "inconclusive", "errors"),
        ({"haproxy_frontend_http_responses_total": 0.0}, "inconclusive", "errors"),
        ({"5xx": None}, "inconclusive", "errors"),
        ({"app_request_seconds_count": 19.0}, "inconclusive", "P95 total"),
        ({"app_ttft_seconds_bucket": None}, "inconclusive", "P95 TTFT"),
        ({"up[": None}, "inconclusive", "targets up"),
    ],
)
def test_each_gate_can_say_no_and_no_data_never_passes(values: dict[str, Any], verdict: str, gate: str) -> None:
    w = _judge(Canned(**values))
    assert w.verdict == verdict
    assert [g.name for g in w.gates if g.verdict != "pass"] == [gate]
    assert w.why.startswith(gate)


def test_holes_in_the_history_do_not_decide() -> None:
    assert _judge(Canned(coverage=0.8)).verdict == "inconclusive"
    assert _judge(Canned(coverage=0.95)).verdict == "pass"


def test_a_failure_outweighs_missing_data() -> None:
    assert _judge(Canned(coverage=0.1, **{"5xx": 500.0})).verdict == "fail"


@given(
    st.dictionaries(
        st.sampled_from(["5xx", "haproxy_frontend_http_responses_total", "app_request_seconds_bucket", "up["]),
        st.one_of(st.none(), st.floats(0, 1e6)),
    )
)
def test_whatever_is_missing_there_is_a_verdict_and_unknown_is_not_zero(values: dict[str, Any]) -> None:
    w = _judge(Canned(**values))
    for key, name in (("app_request_seconds_bucket", "p95_total_ms"), ("5xx", "errors")):
        if key in values:
            assert w.figures[name].value == values[key]
    if None in values.values():
        assert w.verdict != "pass"


def test_the_table_of_metrics_is_sound() -> None:
    table = yaml.safe_load(Path(watch.__file__).with_name("metrics.yaml").read_text())
    for row in [*table["figures"].values(), *table["series"].values()]:
        assert re.fullmatch(r"[^{}]*(\{[^{}]*\}[^{}]*)*", row["query"].format(window="60s", step="30s"))
    assert all(row["source"] for row in table["figures"].values())


# --- the client ----------------------------------------------------------------------------------------------

Answer = Callable[[str, dict[str, str]], tuple[int, str]]


class StandIn:
    def __init__(self, folder: Path) -> None:
        self.answer: Answer = lambda what, given_: (200, vector([]))
        self.before_body: Callable[[], object] = lambda: None
        self.seen: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                parameters = dict(urllib.parse.parse_qsl(body))
                outer.seen.append(parameters)
                wanted = base64.b64encode(f"watcher:{SECRET}".encode()).decode()
                status, text = 401, "no"
                if self.headers.get("Authorization") == f"Basic {wanted}":
                    status, text = outer.answer(self.path.rsplit("/", 1)[-1], parameters)
                self.send_response(status)
                self.end_headers()
                outer.before_body()
                self.wfile.write(text.encode())

            def log_message(self, *arguments: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate(folder))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        (folder / "password").write_text(SECRET + "\n")
        self.client = Prometheus(
            f"https://127.0.0.1:{self.server.server_port}/", str(folder / "cert.pem"), "watcher",
            f"file:{folder / 'password'}",
        )  # fmt: skip


def certificate(folder: Path, name: str = "cert") -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(paths[0]), str(paths[1])


def vector(rows: list[tuple[dict[str, str], str]]) -> str:
    result = [{"metric": metric, "value": [START.timestamp(), value]} for metric, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandIn]:
    made = StandIn(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_values_come_with_labels_and_nan_is_no_value(server: StandIn) -> None:
    server.answer = lambda what, given_: (200, vector([({"job": "a"}, "1.5"), ({}, "NaN"), ({}, "+Inf")]))
    found = server.client.query("x", START)
    assert [(s.labels, s.value) for s in found] == [({"job": "a"}, 1.5)]
    assert server.seen == [{"query": "x", "time": str(START.timestamp())}]


def test_a_scalar_is_one_value_or_none(server: StandIn) -> None:
    assert server.client.scalar("x", START) is None
    server.answer = lambda what, given_: (200, vector([({"a": "1"}, "1"), ({"a": "2"}, "2")]))
    with pytest.raises(CheckFailed, match="2 series"):
        server.client.scalar("x", START)


def test_each_target_is_a_check_and_none_is_no_proof(server: StandIn) -> None:
    assert [c.ok for c in up(server.client)] == [False]
    rows = [({"job": "node", "instance": "m-1"}, "1"), ({"job": "app", "instance": "m-1"}, "0")]
    server.answer = lambda what, given_: (200, vector(rows))
    assert [(c.name, c.ok) for c in up(server.client)] == [
        ("metrics of node on m-1", True),
        ("metrics of app on m-1", False),
    ]


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (400, json.dumps({"status": "error", "error": "parse error"}), CheckFailed),
        (503, "Service Unavailable", Retryable),
        (200, "<html>another server</html>", CheckFailed),
        (200, "[]", CheckFailed),
    ],
)
def test_what_is_no_answer_is_an_error(server: StandIn, status: int, text: str, error: type[Exception]) -> None:
    server.answer = lambda what, given_: (status, text)
    with pytest.raises(error):
        server.client.query("x", START)


def test_wrong_password_certificate_or_address(server: StandIn, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{server.server.server_port}"
    (tmp_path / "wrong").write_text("wrong")
    good = f"file:{tmp_path / 'password'}"
    with pytest.raises(CheckFailed, match="refuses the user"):
        Prometheus(url, str(tmp_path / "cert.pem"), "watcher", f"file:{tmp_path / 'wrong'}").query("x", START)
    other, _ = certificate(tmp_path, "other")
    with pytest.raises(CheckFailed, match="certificate") as caught:
        Prometheus(url, other, "watcher", good).query("x", START)
    assert SECRET not in str(caught.value)
    server.server.shutdown()
    server.server.server_close()
    with pytest.raises(Retryable, match="does not answer"):
        Prometheus(url, str(tmp_path / "cert.pem"), "watcher", good).query("x", START)


CARRY = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sends = lambda: [there.sendall(data) for data in iter(lambda: os.read(0, 65536), b"")]
threading.Thread(target=sends, daemon=True).start()
[os.write(1, data) for data in iter(lambda: there.recv(65536), b"")]
"""
BEHIND = Host(
    name="monitor-1", role="monitor", address="127.0.0.1", ssh_key="", host_key="ssh-ed25519 AAAAown",
    jump=Jump(address="192.0.2.1", host_key="ssh-ed25519 AAAAjump"),
)  # fmt: skip


@pytest.fixture
def ssh_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An `ssh` on PATH that runs these lines of bash: firewalls and host keys are not shown."""

    def put(lines: str) -> None:
        path = tmp_path / "bin" / "ssh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/asked\n{lines}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return put


def test_behind_a_bastion_it_is_asked_over_one_ssh_connection(
    server: StandIn, tmp_path: Path, ssh_stand_in: Callable[[str], None]
) -> None:
    port = server.server.server_port
    ssh_stand_in(f"exec {sys.executable} -Sc '{CARRY}' {port}")
    behind = BEHIND.model_copy(update={"ssh_key": str(tmp_path / "key")})
    client = Prometheus(
        f"https://127.0.0.1:{port}", str(tmp_path / "cert.pem"), "watcher", f"file:{tmp_path / 'password'}", behind
    )
    server.answer = lambda what, given_: (200, vector([({"job": "a"}, "1.5")]))
    heard = threading.Event()  # the body, which lasts until the connection ends, comes when its head has been read
    server.before_body = lambda: heard.wait(10)
    client._session.hooks["response"].append(lambda *_, **__: heard.set())
    assert client.scalar("x", START) == 1.5
    asked = (tmp_path / "asked").read_text()
    assert "-J jump" in asked
    assert "StrictHostKeyChecking=yes" in asked
    assert asked.endswith(f"-p 22 -W 127.0.0.1:{port} root@127.0.0.1\n")


def test_a_bastion_that_says_no_is_named_with_its_words(tmp_path: Path, ssh_stand_in: Callable[[str], None]) -> None:
    ssh_stand_in("echo 'Host key verification failed.' >&2; exit 255")
    (tmp_path / "password").write_text(SECRET)
    certificate(tmp_path)
    behind = BEHIND.model_copy(update={"ssh_key": str(tmp_path / "key")})
    client = Prometheus(
        "https://127.0.0.1:1", str(tmp_path / "cert.pem"), "watcher", f"file:{tmp_path / 'password'}", behind
    )
    with pytest.raises(Retryable, match="does not answer") as caught:
        client.query("x", START)
    assert "monitor-1 is not reached over SSH: Host key verification failed." in caught.value.why
