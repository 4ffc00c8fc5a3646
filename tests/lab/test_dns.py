"""The switch on a real authority (PowerDNS) and a real caching resolver (unbound), asked without pause meanwhile.

Killed at every boundary: test_dns_bench.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from dns_sides import gates, no_intent

from inferlift import profile
from inferlift.dns import answers, verify
from inferlift.dns.backend import Desired
from inferlift.dns.powerdns import PowerDns
from inferlift.dns.switch import Switch
from inferlift.errors import Refusal, Retryable

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()
PREFIX = f"t-dns-{CLONE[:6]}"
LABEL = f"inferlift-test-dns={CLONE[:12]}"
NET = f"10.234.{int(CLONE[:2], 16)}"
AUTHORITY, RESOLVER, OLD, NEW = f"{NET}.3", f"{NET}.4", f"{NET}.10", f"{NET}.20"
API = f"http://{AUTHORITY}:8081"
ZONE, NAME, OWNER = "demo.test.", "ai.demo.test", "lab-test"
KEY = "lab-test-key-27c0"
OLD_TTL = 3

PDNS = f"""launch=gsqlite3
gsqlite3-database=/var/lib/powerdns/t.sqlite3
local-address=0.0.0.0
api=yes
api-key={KEY}
webserver=yes
webserver-address=0.0.0.0
webserver-allow-from=0.0.0.0/0
enable-lua-records=LUA
"""
UNBOUND = f"""server:
    interface: 0.0.0.0
    access-control: 0.0.0.0/0 allow
    module-config: "iterator"
    local-zone: "test." nodefault
    domain-insecure: "test."
stub-zone:
    name: "{ZONE}"
    stub-addr: {AUTHORITY}
"""
SCHEMA = """import sqlite3
at = "/var/lib/powerdns/t.sqlite3"
sqlite3.connect(at).executescript(open("/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql").read())
"""


def podman(*argv: str, stdin: str | None = None, check: bool = True) -> str:
    from inferlift import toolchain

    env = {**os.environ, **toolchain.podman_env()}
    done = subprocess.run(
        ["podman", *argv], input=stdin, capture_output=True, text=True, check=False, timeout=90, env=env
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def sweep() -> None:
    for container in podman("ps", "-a", "-q", "--filter", f"label={LABEL}").split():
        podman("rm", "-f", container)
    podman("network", "rm", "-f", PREFIX, check=False)


def configure(host: str, path: str, text: str) -> None:
    podman("exec", "-i", host, "sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}", stdin=text)


def start_authority(lua: str = "yes") -> None:
    host = f"{PREFIX}-authority"
    configure(host, "/etc/powerdns/pdns.conf", PDNS.replace("LUA", lua))
    podman("exec", host, "systemctl", "restart", "pdns")
    assert answers.wait_visible(lambda: api_answers(), timeout_s=20) is not None


def api_answers() -> bool:
    with contextlib.suppress(requests.RequestException):
        return api("GET", "").ok
    return False


def api(method: str, path: str, body: Any = None) -> requests.Response:
    session = requests.Session()
    session.trust_env = False
    url = f"{API}/api/v1/servers/localhost{path}"
    return session.request(method, url, json=body, headers={"X-API-Key": KEY}, timeout=5)


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    from inferlift import toolchain

    image = os.environ.get("INFERLIFT_TEST_IMAGE") or toolchain.host_image()
    sweep()
    podman("network", "create", "--subnet", f"{NET}.0/24", "--label", LABEL, PREFIX)
    for role, address in (("authority", AUTHORITY), ("resolver", RESOLVER)):
        podman(
            "run", "-d", "--name", f"{PREFIX}-{role}", "--label", LABEL, "--runtime", "runc",
            "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000", "--systemd=always", "--cpus", "0.7",
            "--network", PREFIX, "--ip", address, image, "/sbin/init",
        )  # fmt: skip
    for role in ("authority", "resolver"):
        assert answers.wait_visible(partial(booted, role), timeout_s=40) is not None
    authority = f"{PREFIX}-authority"
    podman("exec", "-i", authority, "python3", "-", stdin=SCHEMA)
    podman("exec", authority, "chown", "-R", "pdns:pdns", "/var/lib/powerdns")
    start_authority()
    podman("exec", f"{PREFIX}-resolver", "rm", "-f", "/etc/unbound/unbound.conf.d/root-auto-trust-anchor-file.conf")
    configure(f"{PREFIX}-resolver", "/etc/unbound/unbound.conf.d/lab.conf", UNBOUND)
    podman("exec", f"{PREFIX}-resolver", "systemctl", "restart", "unbound")
    yield
    sweep()
    assert podman("ps", "-a", "-q", "--filter", f"label={LABEL}").split() == []


def booted(role: str) -> bool:
    state = podman("exec", f"{PREFIX}-{role}", "systemctl", "is-system-running", check=False)
    return state.strip() in ("running", "degraded")


def rrset(name: str, type_: str, ttl: int, *contents: str) -> dict[str, Any]:
    records = [{"content": c, "disabled": False} for c in contents]
    return {"name": name, "type": type_, "ttl": ttl, "records": records}


@pytest.fixture
def zone(hosts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone of nine records besides SOA: the name as a simple record, and eight that must stay as they are."""
    monkeypatch.setenv("LAB_DNS_KEY", KEY)
    api("DELETE", f"/zones/{ZONE}")
    rrsets = [
        rrset("ai.demo.test.", "A", OLD_TTL, OLD),
        rrset("ai.demo.test.", "MX", 60, "10 mx.demo.test."),
        rrset("ai.demo.test.", "TXT", 60, '"v=spf1 -all"', '"a \\"quoted\\" \\; one"'),
        rrset("www.demo.test.", "A", 60, f"{NET}.90"),
        rrset("mx.demo.test.", "A", 60, f"{NET}.91"),
        rrset("v6.demo.test.", "AAAA", 60, "2001:db8::1"),
        rrset("alias.demo.test.", "CNAME", 60, "www.demo.test."),
        rrset("_sip._tcp.demo.test.", "SRV", 60, "1 1 5060 www.demo.test."),
    ]
    body = {"name": ZONE, "kind": "Native", "nameservers": ["ns1.demo.test."], "rrsets": rrsets}
    made = api("POST", "/zones", body)
    assert made.status_code == 201, made.text
    podman("exec", f"{PREFIX}-resolver", "unbound-control", "reload", check=False)
    podman("exec", f"{PREFIX}-resolver", "systemctl", "restart", "unbound")
    assert answers.wait_visible(lambda: answers.resolver_answers(RESOLVER, NAME)[0] == (OLD,), timeout_s=10) is not None


def others() -> list[str]:
    """All RRsets but the switched address, its journal and the SOA (its serial moves)."""
    found = api("GET", f"/zones/{ZONE}").json()["rrsets"]
    moved = [("ai.demo.test.", "A"), ("ai.demo.test.", "LUA"), ("_inferlift.ai.demo.test.", "TXT"), (ZONE, "SOA")]
    return sorted(json.dumps(r, sort_keys=True) for r in found if (r["name"], r["type"]) not in moved)


def backend(run: str = "run-1") -> PowerDns:
    return PowerDns(API, "env:LAB_DNS_KEY", ZONE, names=[NAME], addresses=[OLD, NEW], owner=OWNER, run=run)


def switch(run: str = "run-1", steps: tuple[int, ...] = (1, 10, 50, 100), **more: Any) -> Switch:
    plan = profile.Switch(ttl_s=1, steps=steps, failures_to_roll_back=2)
    named: dict[str, Any] = {"gates": gates, "on_intent": no_intent, "say": print, **more}
    return Switch(
        backend=backend(run), name=NAME, old=OLD, new=NEW, plan=plan, authority=AUTHORITY, resolver=RESOLVER, **named
    )


@dataclass
class Users:
    """Asks the authority and the resolver without pause: every answer is counted, an empty one is a failure."""

    seen: Counter[str] = field(default_factory=Counter)
    every_s: float = 0.002
    empty: int = 0
    errors: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Users:
        self.threads = [threading.Thread(target=self._loop, args=(ask,)) for ask in (self._direct, self._cached)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=10)

    def _loop(self, ask: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                ask()
            except Retryable as error:
                self.errors.append(str(error))
            time.sleep(self.every_s)

    def _direct(self) -> None:
        got = answers.authority_share(AUTHORITY, NAME, 4)
        self.empty += got.empty
        self.seen.update({f"authority {a}": n for a, n in got.hits.items()})

    def _cached(self) -> None:
        found, _ = answers.resolver_answers(RESOLVER, NAME)
        self.empty += not found
        self.seen.update(f"resolver {a}" for a in found)


def test_forward_back_forward_without_one_empty_answer(zone: None) -> None:
    before = others()
    assert len(before) == 8  # the other eight of nine
    with Users() as users:
        first = switch().run()
        back = switch().rollback()
        second = switch("run-2", steps=(10, 100)).run()
        switch("run-2").rollback()
        switch("run-2").restore()
    print(
        f"rehearsed roll-back {first.rehearsed_rollback_s} s, {second.rehearsed_rollback_s} s at the authority; "
        f"real {back.authority_s:.3f} s at the authority, {back.resolver_s} s at the resolver (TTL 1 s); "
        f"{first.seconds} s forward, {second.seconds} s again; {sum(users.seen.values())} answers {dict(users.seen)}"
    )
    assert (users.empty, users.errors) == (0, [])
    assert users.seen[f"authority {NEW}"] > 100
    assert users.seen[f"resolver {NEW}"] > 100
    assert [s.weight for s in first.steps] == [0, 1, 10, 50, 100]
    for step in first.steps:
        assert step.authority_share is not None
        assert answers.share_ok(step.weight, step.asked, round(step.authority_share * step.asked))
        assert step.resolver_answers
    assert (first.ttl_before_s, first.ttl_s) == (OLD_TTL, 1)
    assert first.seconds > OLD_TTL + 4 * 2
    assert back.resolver_s is not None
    assert others() == before
    restored = backend().read(NAME)
    assert (restored.kind, restored.ttl_s, restored.weights, restored.journal) == ("simple", OLD_TTL, {OLD: 1}, None)


def test_failing_gates_roll_back_by_themselves(zone: None) -> None:
    result = switch(gates=lambda weight: gates(weight, "fail" if weight == 10 else "pass")).run()
    assert result.rolled_back
    assert result.rollback_s is not None
    print(f"automatic roll-back: {result.rollback_s:.3f} s authority, {result.rollback_resolver_s} s resolver")
    assert answers.authority_share(AUTHORITY, NAME, 300).hits == {OLD: 300}
    assert set(answers.resolver_answers(RESOLVER, NAME)[0]) == {OLD}


def test_someone_elses_weight_is_found_and_named_by_the_quick_check(zone: None) -> None:
    switch(steps=(100,)).run()
    expected = {NEW: 100}
    answers.wait_visible(lambda: set(answers.resolver_answers(RESOLVER, NAME)[0]) == {NEW}, timeout_s=5)
    checks = verify(backend(), NAME, expected, authority=AUTHORITY, resolver=RESOLVER)
    assert all(c.ok for c in checks), checks
    assert len(checks) == 3
    change = {**rrset("ai.demo.test.", "LUA", 1, f"A \"pickwrandom({{{{60,'{OLD}'}},{{40,'{NEW}'}}}})\"")}
    api("PATCH", f"/zones/{ZONE}", {"rrsets": [{**change, "changetype": "REPLACE"}]}).raise_for_status()
    found = verify(backend(), NAME, expected, authority=AUTHORITY, resolver=RESOLVER)
    assert not found[0].ok
    assert f"{OLD} 60%" in found[0].detail
    assert "changed by someone else" in found[0].detail
    assert not found[1].ok  # the authority's own answers show it too
    with pytest.raises(Refusal):
        switch("run-2").run()
    switch("run-2").rollback()
    assert answers.authority_share(AUTHORITY, NAME, 100).hits == {OLD: 100}


def test_guards_before_a_real_server(zone: None) -> None:
    """Nine records or not: never the last answer, never an empty set, only this profile's names and addresses."""
    before, state = others(), backend().read(NAME)
    for weights in ({}, {OLD: 0, NEW: 0}, {OLD: 50, f"{NET}.66": 50}):
        with pytest.raises(Refusal):
            backend().propose(state, Desired(kind="weighted", weights=weights, ttl_s=1, journal=None))
    with pytest.raises(Refusal, match="not a name of this profile"):
        backend().propose(
            backend().read("www.demo.test"), Desired(kind="simple", weights={OLD: 1}, ttl_s=1, journal=None)
        )
    assert backend().read(NAME) == state
    assert others() == before
    api("PATCH", f"/zones/{ZONE}", {"rrsets": [{"name": "ai.demo.test.", "type": "A", "changetype": "DELETE"}]})
    assert backend().read(NAME).kind == "absent"
    with pytest.raises(Refusal, match="stops here"):
        switch().run()
    assert others() == before


def test_an_authority_without_lua_is_refused_with_the_name_still_answered(zone: None) -> None:
    start_authority(lua="no")
    try:
        with pytest.raises(Refusal, match="cannot weight"):
            switch().run()
        assert backend().read(NAME).ttl_s == OLD_TTL  # nothing was written
        assert answers.authority_share(AUTHORITY, NAME, 20).hits == {OLD: 20}
    finally:
        start_authority()


def test_an_api_that_is_down_is_unknown_not_empty(zone: None) -> None:
    host = f"{PREFIX}-authority"
    podman("exec", host, "systemctl", "stop", "pdns")
    try:
        with pytest.raises(Retryable):
            backend().read(NAME)
        found = verify(backend(), NAME, {OLD: 100}, authority=AUTHORITY, resolver=RESOLVER)
        assert [c.ok for c in found[:2]] == [False, False]
        assert "does not answer" in found[0].detail
    finally:
        podman("exec", host, "systemctl", "start", "pdns")
        assert answers.wait_visible(api_answers, timeout_s=20) is not None
