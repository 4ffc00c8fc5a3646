"""The PowerDNS back end against a stand-in API on loopback: the requests asserted, every kind of failed read.

The stand-in does not prove what PowerDNS does with them: tests/lab/test_dns.py does.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from dns_standins import NAME, NEW, OLD, OWNER, journal

from inferlift.dns.backend import Change, Desired
from inferlift.dns.powerdns import PowerDns
from inferlift.errors import CheckFailed, DeclarationError, InferliftError, Refusal, Retryable, Uncertain

KEY = "planted-key-8d1f"
OTHERS: list[dict[str, Any]] = [
    {"name": name, "type": type_, "ttl": 60, "records": [{"content": content, "disabled": False}]}
    for name, type_, content in (
        ("ai.demo.test.", "MX", "10 mx.demo.test."),
        ("www.demo.test.", "A", "192.0.2.99"),
        ("_inferlift.ai.demo.test.", "A", "192.0.2.9"),
    )
]


class StandInApi(ThreadingHTTPServer):
    """Keeps RRsets; `fail` makes a method answer otherwise; `patches` are the bodies as they came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        address = {"name": "ai.demo.test.", "type": "A", "ttl": 10, "records": [{"content": OLD, "disabled": False}]}
        self.rrsets: list[dict[str, Any]] = [address, *OTHERS]
        self.patches: list[dict[str, Any]] = []
        self.fail: dict[str, tuple[int, bytes]] = {}
        self.lua = "yes"
        self.serial = 1
        self.meddle = 0  # reads during which someone else bumps the serial
        self.slow_s = 0.0


class Handler(BaseHTTPRequestHandler):
    server: StandInApi

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        if not self._allowed("GET"):
            return None
        api, parts = self.server, urlsplit(self.path)
        if parts.path.endswith("/config"):
            return self._json([{"name": "enable-lua-records", "value": api.lua}])
        (name,) = parse_qs(parts.query)["rrset_name"]
        if api.meddle:
            api.meddle, api.serial = api.meddle - 1, api.serial + 1
        return self._json({"edited_serial": api.serial, "rrsets": [r for r in api.rrsets if r["name"] == name]})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api = self.server
        if self._allowed("PATCH"):
            api.patches.append(body)
            api.serial += 1
            for change in body["rrsets"]:
                at = (change["name"], change["type"])
                api.rrsets = [r for r in api.rrsets if (r["name"], r["type"]) != at]
                if change["changetype"] == "REPLACE":
                    api.rrsets.append({k: v for k, v in change.items() if k != "changetype"})
            self.send_response(204)
            self.end_headers()

    def _allowed(self, method: str) -> bool:
        time.sleep(self.server.slow_s)
        status, body = self.server.fail.get(method, (0, b""))
        if self.headers["X-API-Key"] != KEY:
            status = 401
        if status:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        return not status

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def api() -> Iterator[StandInApi]:
    server = StandInApi()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def backend(api: StandInApi, monkeypatch: pytest.MonkeyPatch) -> PowerDns:
    monkeypatch.setenv("DNS_KEY", KEY)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not be asked
    return at(f"http://127.0.0.1:{api.server_port}")


def at(url: str, **more: Any) -> PowerDns:
    named: dict[str, Any] = {"names": [NAME], "addresses": [OLD, NEW], "owner": OWNER, "run": "run-1", "timeout_s": 1}
    return PowerDns(url, "env:DNS_KEY", "demo.test.", **{**named, **more})


def to_weighted(backend: PowerDns) -> Change:
    state = backend.read(NAME)
    book = journal(sequence=1, phase="weighted", intended={OLD: 100, NEW: 0}, before=state.raw)
    return backend.propose(state, Desired(kind="weighted", weights={OLD: 100, NEW: 0}, ttl_s=2, journal=book))


def test_simple_to_weighted_is_one_batch_with_the_journal_in_it(backend: PowerDns, api: StandInApi) -> None:
    change = to_weighted(backend)
    assert api.patches == []  # proposing changes nothing
    assert "simple 192.0.2.10 100% ttl 10 s -> weighted 192.0.2.10 100% ttl 2 s" in change.text
    backend.apply(change)
    (patch,) = api.patches
    sent = [(r["changetype"], r["type"], r["name"]) for r in patch["rrsets"]]
    assert sent[0] == ("DELETE", "A", "ai.demo.test.")
    assert sorted(sent[1:]) == [
        ("REPLACE", "LUA", "ai.demo.test."),
        ("REPLACE", "TXT", "_inferlift.ai.demo.test."),
    ]
    (lua,) = [r for r in patch["rrsets"] if r["type"] == "LUA"]
    assert lua["ttl"] == 2
    assert lua["records"] == [{"content": f"A \"pickwrandom({{{{100,'{OLD}'}}}})\"", "disabled": False}]
    assert backend.verify(change) == backend.read(NAME) == change.after
    assert [r for r in api.rrsets if r in OTHERS] == OTHERS


def test_and_back_is_one_batch_too(backend: PowerDns, api: StandInApi) -> None:
    found = list(api.rrsets)
    change = to_weighted(backend)
    backend.apply(change)
    back = backend.propose(backend.read(NAME), change.inverse)
    backend.apply(back)
    sent = [(r["changetype"], r["type"]) for r in api.patches[1]["rrsets"]]
    assert sorted(sent) == [("DELETE", "LUA"), ("DELETE", "TXT"), ("REPLACE", "A")]
    assert sent[-1] == ("REPLACE", "A")  # deletes come first
    assert backend.read(NAME) == change.before
    key = lambda r: (r["name"], r["type"])  # noqa: E731
    assert sorted(api.rrsets, key=key) == sorted(found, key=key)


def test_a_second_plan_of_the_same_is_empty(backend: PowerDns, api: StandInApi) -> None:
    change = to_weighted(backend)
    backend.apply(change)
    again = change.model_copy(update={"before": change.after})
    backend.apply(again)
    assert len(api.patches) == 1


def test_compare_and_set(backend: PowerDns, api: StandInApi) -> None:
    change = to_weighted(backend)
    api.rrsets[0] = {**api.rrsets[0], "records": [{"content": NEW, "disabled": False}]}
    with pytest.raises(Refusal, match="changed since it was reviewed") as refused:
        backend.apply(change)
    assert NEW in refused.value.why
    assert api.patches == []


def test_a_write_overtaken_by_someone_else_is_noticed(backend: PowerDns, api: StandInApi) -> None:
    change = to_weighted(backend)
    backend.apply(change)
    api.rrsets = [{**r, "ttl": 99} if r["type"] == "LUA" else r for r in api.rrsets]
    with pytest.raises(Refusal, match="someone else writes it too") as refused:
        backend.verify(change)
    assert "TTL is 99 s" in refused.value.why


def test_a_server_without_lua_is_refused_before_anything_is_written(backend: PowerDns, api: StandInApi) -> None:
    api.lua = "no"
    with pytest.raises(Refusal, match="cannot weight"):
        to_weighted(backend)


def test_disabled_entries_make_a_record_foreign(backend: PowerDns, api: StandInApi) -> None:
    api.rrsets[0]["records"].append({"content": NEW, "disabled": True})
    state = backend.read(NAME)
    assert state.kind == "foreign"
    assert "disabled" in state.why


def test_a_record_and_its_journal_are_read_at_one_serial(backend: PowerDns, api: StandInApi) -> None:
    api.meddle = 3
    assert backend.read(NAME).kind == "simple"
    api.meddle = 99
    with pytest.raises(Retryable, match="faster than"):
        backend.read(NAME)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, b"", Retryable),
        (502, b"<html>", Retryable),
        (200, b"not json", Retryable),
        (200, b'{"rrsets": null}', Retryable),
        (200, b"[]", Retryable),
        (401, b"", Refusal),
        (404, b'{"error": "Could not find domain"}', Refusal),
    ],
)
def test_a_failed_read_is_never_an_empty_set(
    backend: PowerDns, api: StandInApi, status: int, body: bytes, error: type[InferliftError]
) -> None:
    change = to_weighted(backend)
    api.fail["GET"] = status, body
    for call in (lambda: backend.read(NAME), lambda: backend.apply(change)):
        with pytest.raises(error) as failed:
            call()
        assert KEY not in f"{failed.value} {failed.value!r} {failed.value.__cause__!r}"


def test_silence_and_a_closed_port_are_retryable(backend: PowerDns, api: StandInApi) -> None:
    api.slow_s = 1.3
    with pytest.raises(Retryable, match="does not answer"):
        backend.read(NAME)
    with pytest.raises(Retryable, match="does not answer"):
        at("http://127.0.0.1:1").read(NAME)


@pytest.mark.parametrize(("status", "error"), [(503, Uncertain), (422, CheckFailed)])
def test_a_failed_write_says_whether_its_outcome_is_known(
    backend: PowerDns, api: StandInApi, status: int, error: type[InferliftError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    change = to_weighted(backend)
    api.fail["PATCH"] = status, b'{"error": "RRset ai.demo.test. IN LUA: bad"}'
    with pytest.raises(error) as failed:
        backend.apply(change)
    assert KEY not in f"{failed.value} {failed.value!r}"
    assert KEY not in caplog.text
    assert backend.read(NAME) == change.before


def test_the_key_is_read_at_the_last_moment_and_kept_nowhere(
    backend: PowerDns, api: StandInApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_weighted(backend)
    assert KEY not in repr(vars(backend)) + repr(vars(backend._session)) + repr(backend._session.headers)
    monkeypatch.setenv("DNS_KEY", "another")
    with pytest.raises(Refusal, match="refuses the key") as refused:
        backend.read(NAME)
    assert "another" not in str(refused.value)
    assert "env:DNS_KEY" in str(refused.value)


def test_a_certificate_of_another_ca_is_not_trusted(api: StandInApi, tmp_path: Any, backend: PowerDns) -> None:
    import ssl

    for name in ("server", "other"):
        _certificate(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    api.socket = context.wrap_socket(api.socket, server_side=True)
    url = f"https://127.0.0.1:{api.server_port}"
    trusting = at(url, ca=str(tmp_path / "server.pem"))
    trusting.apply(to_weighted(trusting))
    assert len(api.patches) == 1  # octoDNS' own session trusts the same CA
    for ca in (str(tmp_path / "other.pem"), None):
        with pytest.raises(Retryable, match="not signed by"):
            at(url, ca=ca).read(NAME)


def test_a_name_outside_the_zone_is_a_wrong_declaration(backend: PowerDns) -> None:
    with pytest.raises(DeclarationError, match="not in the zone"):
        at("http://127.0.0.1:1", names=["ai.other.test"])


def _certificate(folder: Any, name: str) -> None:
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(private)
