"""A certificate from a real ACME authority on loopback: Pebble, made for tests by Let's Encrypt, from its Go module."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from inferlift import process
from inferlift.configure import ensure_ca, issue
from inferlift.configure.acme import Dns, obtain
from inferlift.errors import Refusal
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

    def start(self) -> None:
        where = programs()
        dns = f"127.0.0.1:{self.ports['dns']}"
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
