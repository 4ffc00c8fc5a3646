"""The switch alone, as a library and as it is typed, on PowerDNS and HAProxy on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dns_sides import AUTHORITY, FAST, NAME, NEW, OLD, OWNER, ZONE, Side, Web, answered, sides

from inferlift import profile
from inferlift.dns import loopback
from inferlift.dns.standalone import GateSource, back, standalone

pytestmark = pytest.mark.lab


@pytest.fixture
def pdns(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[loopback.Server]:
    with loopback.powerdns(found, tmp_path / "pdns", ZONE, [("ai.demo.test", "A", 2, OLD)]) as server:
        monkeypatch.setenv("DNS_KEY", server.secret)
        yield server


def test_the_switch_alone_with_a_url_and_a_command(pdns: loopback.Server, tmp_path: Path) -> None:
    settings = {"kind": "powerdns", "url": f"http://{AUTHORITY}:{pdns.api}", "key": "env:DNS_KEY", "zone": ZONE}
    named: dict[str, Any] = {"authority": [AUTHORITY], "resolver": AUTHORITY, "dns_port": pdns.port, "owner": OWNER}
    plan = profile.Switch(ttl_s=1, steps=(10, 100), min_samples=6)
    with sides() as web:
        gate = GateSource(url=f"http://{NAME}:{web}/", command='test "$WEIGHT" -le 100')
        log = tmp_path / "log" / "intents.jsonl"
        result = standalone(NAME, OLD, NEW, settings, gate, plan=plan, log=log, **FAST, **named)
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
        back(NAME, OLD, NEW, settings, restore=True, **named)
        assert answered(pdns) == OLD
        # a new side that nobody serves is never given a user
        dead = GateSource(url=f"http://{NAME}:{loopback.free_port()}/")
        failed = standalone(NAME, OLD, NEW, settings, dead, plan=plan, run="run-9", **FAST, **named)
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
        if kind == "powerdns":
            held = typed(tmp_path, "switch", *common, "--gate", "exit 3", *gate[:-2])
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
