"""A certificate from a real ACME authority on loopback: Pebble, made for tests by Let's Encrypt, from its Go module."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from inferlift import migration, place, process
from inferlift.artifacts import Contract, Host, Status, World
from inferlift.configure import certificates, ensure_ca, issue
from inferlift.configure.acme import Dns, obtain
from inferlift.declaration import load
from inferlift.dns import answers, loopback
from inferlift.errors import Refusal
from inferlift.profile import ROOT
from inferlift.stages import _certifying, _found
from inferlift.toolchain.python_packages import go_from_wheel
from inferlift.toolchain.store import cache

pytestmark = [pytest.mark.lab, pytest.mark.long]

MODULE, VERSION = "github.com/letsencrypt/pebble/v2/cmd", "v2.10.3"
NAMES = ("ocr.demo.test", "chat.demo.test")


def programs() -> Path:
    """Built once into the cache; the Go module's checksum is Go's to check."""
    folder = cache() / "pebble" / VERSION
    if not (folder / "pebble-challtestsrv").exists():
        go = go_from_wheel(print)
        for name in ("pebble", "pebble-challtestsrv"):
            argv = [str(go), "install", f"{MODULE}/{name}@{VERSION}"]
            subprocess.run(argv, env={**os.environ, "GOBIN": str(folder), "GOFLAGS": ""}, check=True, timeout=600)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("acme", "management", "dns", "dns-management")}
        self.ca = ensure_ca(folder / "tls", "the authority's own TLS")
        cert, key = issue(self.ca, folder / "tls", "authority", ips=["127.0.0.1"])
        config = {
            "listenAddress": f"127.0.0.1:{self.ports['acme']}",
            "managementListenAddress": f"127.0.0.1:{self.ports['management']}",
            "certificate": str(cert), "privateKey": str(key), "httpPort": 1, "tlsPort": 1, "ocspResponderURL": "",
            "externalAccountBindingRequired": False, "retryAfter": {"authz": 1, "order": 1},
            "domainBlocklist": ["blocked.example"], "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "usual", "validityPeriod": 7_776_000}},
        }  # fmt: skip
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        self.children: list[subprocess.Popen[bytes]] = []
        self.published: list[str] = []

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.ports['acme']}/dir"

    def start(self, dns: str | None = None) -> None:
        """`dns`: a name server of the caller's, in place of the one made for tests of ACME."""
        where = programs()
        dns = dns or f"127.0.0.1:{self.ports['dns']}"
        off = [f"-{name}=" for name in ("http01", "https01", "tlsalpn01", "doh")]
        management = f"127.0.0.1:{self.ports['dns-management']}"
        zone = [str(where / "pebble-challtestsrv"), f"-dnsserver={dns}", f"-management={management}", *off]
        pebble = [str(where / "pebble"), f"-config={self.folder / 'pebble.json'}", f"-dnsserver={dns}", "-strict"]
        # Some of its answers refuse a good nonce on purpose: every client must cope.
        env = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "20"}
        log = (self.folder / "log").open("wb")
        self.children = [subprocess.Popen(argv, env=env, stdout=log, stderr=log) for argv in (zone, pebble)]
        for port in (self.ports["dns-management"], self.ports["acme"]):
            deadline = time.monotonic() + 20
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.1)

    def tell(self, path: str, **body: str) -> None:
        url = f"http://127.0.0.1:{self.ports['dns-management']}/{path}"
        urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=5).close()

    def publish(self, name: str, value: str) -> None:
        self.published.append(name)
        self.tell("set-txt", host=f"{name}.", value=value)

    def withdraw(self, name: str, value: str) -> None:
        self.published.remove(name)
        self.tell("clear-txt", host=f"{name}.")

    def obtain(self, folder: Path, names: tuple[str, ...] = NAMES, dns: Dns | None = None, days: int = 0) -> Path:
        dns = dns or Dns(self.publish, self.withdraw)
        now = datetime.now(UTC) + timedelta(days=days)
        return obtain(self.directory, folder, names, dns, print, ca=self.ca.cert, now=lambda: now)[0]

    @property
    def root(self) -> str:
        """Of what it issues; new at each start."""
        tls = ssl.create_default_context(cafile=str(self.ca.cert))
        url = f"https://127.0.0.1:{self.ports['management']}/roots/0"
        return str(urllib.request.urlopen(url, timeout=5, context=tls).read().decode())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    made = Authority(tmp_path_factory.mktemp("acme"))
    try:
        made.start()
        yield made
    finally:
        process.end([child.pid for child in made.children])


def test_a_certificate_is_had_kept_and_renewed_in_time(authority: Authority, tmp_path: Path) -> None:
    chain = authority.obtain(tmp_path)
    first = chain.read_text()
    names = x509.load_pem_x509_certificate(first.encode()).extensions
    told = names.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert set(told) == set(NAMES)
    assert first.count("BEGIN CERTIFICATE") > 1  # a chain
    assert chain.with_suffix(".key").stat().st_mode & 0o077 == 0
    assert authority.published == []
    assert authority.obtain(tmp_path, days=50).read_text() == first
    key = chain.with_suffix(".key").read_text()
    assert authority.obtain(tmp_path, days=61).read_text() != first
    assert chain.with_suffix(".key").read_text() == key
    assert authority.obtain(tmp_path, names=(*NAMES, "third.demo.test")).read_text().count("BEGIN") > 1


def test_a_missing_proof_is_told_and_the_next_call_has_it(authority: Authority, tmp_path: Path) -> None:
    silent = Dns(lambda name, value: None, lambda name, value: None)
    with pytest.raises(Refusal, match="no proof"):
        authority.obtain(tmp_path, ("late.demo.test",), silent)
    assert authority.obtain(tmp_path, ("late.demo.test",)).is_file()


def test_a_name_that_the_authority_refuses_is_told_with_its_reason(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        authority.obtain(tmp_path, ("www.blocked.example",))
    assert "blocklist" in caught.value.why or "rejectedIdentifier" in caught.value.why


# --- as poc has it: a profile without certificate files, its zone on a real name server -------------------------------

NAME = "ai.demo.test"
PROFILE = """name: t-acme
extends: demo-small
target: static
lab: null
data: {{state: none}}
origin:
  name: {name}
  ssh: root@192.0.2.10
  logs: /var/log/nginx/access.log
  acme: {{directory: "{directory}", contact: ops@demo.test, ca: {ca}}}
  key: file:{folder}/key
  routes: {{/api/chat: /v1/chat/completions}}
switch:
  dns: {{kind: rfc2136, zone: demo.test, server: 127.0.0.1, port: {port}, key_name: inferlift,
        key: "file:{folder}/tsig", authority: [127.0.0.1], resolver: 127.0.0.1}}
static:
  hosts:
    - {{name: front, role: gateway, addresses: [192.0.2.11], cores: 2, ram_gb: 4}}
    - {{name: m, addresses: [192.0.2.12], cores: 4, ram_gb: 8}}
    - {{name: eye, role: monitor, addresses: [192.0.2.13], cores: 2, ram_gb: 4}}
"""


@pytest.fixture
def zone(tmp_path: Path) -> Iterator[loopback.Server]:
    found = loopback.programs(cache() / "name-servers")
    names = ["ai", "_acme-challenge.ai"]
    with loopback.knot(found, tmp_path / "knot", "demo.test.", ["ai 2 A 192.0.2.10"], names=names) as server:
        yield server


def found_world(contract: Contract) -> World:
    host = Host(name="origin", role="origin", address="192.0.2.10", ssh_key="/none", host_key="ssh-ed25519 AAAA")
    return World(
        origin=host, address="192.0.2.10", contract=contract, zone="demo.test", ttl_s=2, log_glob="/none", body_log="",
        data_path="",
    )  # fmt: skip


def test_a_profile_without_certificate_files_gets_one_and_the_proof_is_gone(
    zone: loopback.Server, tmp_path: Path
) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    (tmp_path / "tsig").write_text(zone.secret)
    (tmp_path / "key").write_text("planted-user-key-5e1f")
    told = {"name": NAME, "directory": authority.directory, "ca": authority.ca.cert, "folder": tmp_path}
    path = tmp_path / "t-acme.yaml"
    path.write_text(PROFILE.format(**told, port=zone.port))
    declared = load(str(path), ROOT)
    where = place.Place(declared.profile, declared.path, tmp_path / "state", "t/acme")
    ask = partial(answers.texts_at, port=zone.port)
    try:
        authority.start(f"127.0.0.1:{zone.port}")
        with migration.session(where, "deploy") as ctx:
            ctx.stage = "poc"
            origin = ctx.profile.origin
            assert origin is not None
            contract = _found._contract(ctx, origin)
            assert not Path(contract.certificate).exists()
            ctx.ledger.begin("world", "k")
            ctx.ledger.finish("world", found_world(contract), Status.DONE, 0.0)
            assert [c.ok for c in _certifying.in_time(ctx)] == [False]
            _certifying.certify(ctx, ask)
            first = Path(contract.certificate).read_text()
            assert [c.ok for c in _certifying.in_time(ctx)] == [True]
            _certifying.certify(ctx, ask)  # nothing is asked for
            assert Path(contract.certificate).read_text() == first
            intents = [intent.action for intent in ctx.ledger.intents()]
        assert intents.count("certificate") == 1
        assert ask("127.0.0.1", f"_acme-challenge.{NAME}") == ()
        (tmp_path / "roots.pem").write_text(authority.root)
        checks = certificates.serves(contract.certificate, contract.certificate_key, NAME)
        assert [c.ok for c in checks] == [True] * len(checks)
        leaf, *more = x509.load_pem_x509_certificates(first.encode())
        assert leaf.issuer == more[0].subject
        assert more[-1].issuer == x509.load_pem_x509_certificate(authority.root.encode()).subject
    finally:
        process.end([child.pid for child in authority.children])
