"""Knot and HAProxy as what decides the answers in a migration (`switch.dns`); Route 53: tests/unit/dns."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from dns_sides import NAME, NEW, OLD, ZONE, sides

from inferlift import configure
from inferlift.dns import loopback
from inferlift.dns.rfc2136 import Rfc2136
from inferlift.profile.dns import Dns
from tests import moving

pytestmark = pytest.mark.lab

SERVER = "127.0.42.53"


def test_knot_in_a_migration(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback.knot(found, tmp_path / "knot", ZONE, [f"ai 2 A {OLD}"], address=SERVER, port=53) as server:
        monkeypatch.setenv("TSIG", server.secret)
        dns = Dns(
            kind="rfc2136", server=SERVER, key_name="inferlift", key="env:TSIG", zone=ZONE, authority=(SERVER,),
            resolver=SERVER,
        )  # fmt: skip

        def somebody_else() -> None:
            from dns import query, rcode, tsig, update

            change = update.UpdateMessage(ZONE, keyring=tsig.Key("inferlift.", server.secret))
            change.replace(f"{NAME}.", 1, "A", OLD)
            assert query.tcp(change, SERVER).rcode() == rcode.NOERROR

        with moving.migration_on(dns, tmp_path, NAME, OLD, NEW, monkeypatch) as where:
            cutover = moving.moved_killed_changed_and_back(where, monkeypatch, somebody_else)
        assert cutover.backend == "rfc2136"
        assert [s.weight for s in cutover.steps] == [0, 50, 100]
        assert (cutover.ttl_before_s, cutover.ttl_s) == (2, 1)
        again = Rfc2136(
            SERVER, "inferlift", "env:TSIG", ZONE, names=[NAME], addresses=[OLD, NEW], owner="a look", run="a look"
        )
        assert again.read(NAME).weights == {NEW: 1}


def test_haproxy_in_a_migration(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{found.root}/usr/bin:{os.environ['PATH']}")  # socat, and what it needs
    monkeypatch.setenv("LD_LIBRARY_PATH", found.env()["LD_LIBRARY_PATH"])
    ca = configure.ensure_ca(tmp_path / "ca", "the gateway's test")
    certificate, key = configure.issue(ca, tmp_path / "ca", NAME, dns=(NAME,), days=2)
    (tmp_path / "front.pem").write_text(Path(certificate).read_text() + Path(key).read_text())
    with sides() as web:
        both = {"old": (OLD, web), "new": (NEW, web)}
        front = f"bind {SERVER}:443 ssl crt {tmp_path}/front.pem"
        with loopback.haproxy(found, tmp_path / "gw", both, backend="users", more=front) as gw:
            dns = Dns(
                kind="haproxy", backend="users", servers={OLD: "old", NEW: "new"}, front=SERVER,
                socket=f"{gw.folder}/admin.sock", journal=f"{gw.folder}/switch.json",
            )  # fmt: skip

            def somebody_else() -> None:
                line = f"echo 'set server users/old weight 40' | socat - UNIX-CONNECT:{gw.folder}/admin.sock"
                subprocess.run(line, shell=True, check=True, capture_output=True, timeout=10)

            trusted = str(tmp_path / "ca" / "ca.pem")
            with moving.migration_on(dns, tmp_path, NAME, OLD, NEW, monkeypatch, ca=trusted) as where:
                cutover = moving.moved_killed_changed_and_back(where, monkeypatch, somebody_else)
            assert cutover.backend == "haproxy"
            assert [s.weight for s in cutover.steps] == [0, 10, 50, 100]
            assert [s.authority_share for s in cutover.steps][-1] == 1.0
