"""A certificate from a real ACME authority on loopback: Pebble, made for tests by Let's Encrypt, from its Go module."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from acme_authority import NAMES, Authority
from cryptography import x509

from inferlift import migration, place
from inferlift.artifacts import Contract, Host, Status, World
from inferlift.configure import certificates
from inferlift.configure.acme import Dns
from inferlift.declaration import load
from inferlift.dns import answers, loopback
from inferlift.errors import Refusal
from inferlift.profile import ROOT
from inferlift.stages import _certifying, _found
from inferlift.toolchain.store import cache

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    made = Authority(tmp_path_factory.mktemp("acme"))
    try:
        made.start()
        yield made
    finally:
        made.end()


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
        authority.end()
