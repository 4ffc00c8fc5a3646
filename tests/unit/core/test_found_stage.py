"""An old side that exists: what is not as declared is named; what is asked of its host runs here in a real shell."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import ssh
from inferlift.artifacts import Check, Contract, Host, Route, World
from inferlift.dns.record import Journal, RecordState
from inferlift.errors import CheckFailed, Refusal
from inferlift.profile import ROOT, Origin
from inferlift.profile.dns import Dns
from inferlift.stages import _found, _old_side

OLD = "192.0.2.10"
HOST = Host(name="origin", role="origin", address=OLD, ssh_key="/k", host_key="ssh-ed25519 AAAA")
DNS = Dns(kind="powerdns", zone="x.test", url="https://a", key="env:K", authority=("192.0.2.3",), resolver="192.0.2.4")
CONTRACT = Contract(
    name="ai.x.test", certificate="/c", certificate_key="file:/k", key_header="X", key="env:K",
    routes=(Route(path="/a", upstream="/b"),),
)  # fmt: skip


def origin(**more: Any) -> Origin:
    return Origin.model_validate({"name": "ai.x.test", "logs": "/var/log/a.log*", "ssh": f"root@{OLD}", **more})


def context(said: Origin, **data: Any) -> Any:
    profile = SimpleNamespace(
        origin=said, switch=SimpleNamespace(dns=DNS), data=SimpleNamespace(**{"state": "none", "source": None, **data}),
        name="mine", task="chat", load=SimpleNamespace(request_timeout_s=5),
    )  # fmt: skip
    ledger = SimpleNamespace(run="run", document=lambda name: None, stage=lambda name: None)
    return SimpleNamespace(
        profile=profile, owner="me", ledger=ledger, root=Path("/project"), profile_path=Path("mine.yaml"),
        say=lambda line: None, path=lambda *parts: Path("/f", *parts),
    )  # fmt: skip


def record(kind: str, weights: dict[str, int], journal: Journal | None = None, ttl_s: int = 300) -> RecordState:
    return RecordState.model_validate(
        {"name": "ai.x.test", "kind": kind, "ttl_s": ttl_s, "weights": weights, "journal": journal, "why": "a CNAME"}
    )


def journal(weights: dict[str, int]) -> Journal:
    return Journal(owner="me", run="r", sequence=9, phase="done", intended=weights, ttl_s=5, ttl_before_s=600)


@pytest.mark.parametrize(
    ("said", "state", "found"),
    [
        ({}, record("simple", {OLD: 1}), (OLD, 300)),
        ({"ssh": "root@old.example.com"}, record("simple", {"192.0.2.77": 1}), ("192.0.2.77", 300)),
        ({"address": "192.0.2.77"}, record("simple", {"192.0.2.77": 1}), ("192.0.2.77", 300)),
        # looked at again after a switch: the TTL is the one of before
        ({}, record("weighted", {"192.0.2.9": 100}, journal({OLD: 0, "192.0.2.9": 100}), 5), (OLD, 600)),
        ({}, record("simple", {"192.0.2.77": 1}), "leads users to 192.0.2.77; 192.0.2.10 is declared"),
        ({"ssh": "root@h.example"}, record("simple", {"192.0.2.1": 1, "192.0.2.2": 1}), "no address is declared"),
        ({}, record("absent", {}), "cannot be moved"),
        ({}, record("foreign", {}), "cannot be moved"),
    ],
)
def test_where_dns_sends_users_is_the_old_side(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], state: RecordState, found: tuple[str, int] | str
) -> None:
    monkeypatch.setattr("inferlift.dns.settings.backend", lambda dns, **k: SimpleNamespace(read=lambda name: state))
    told = origin(**said)
    host = HOST.model_copy(update={"address": told.ssh.partition("@")[2] if told.ssh else ""})
    if isinstance(found, str):
        with pytest.raises(Refusal, match=found):
            _found._in_dns(context(told), told, CONTRACT, host)
    else:
        assert _found._in_dns(context(told), told, CONTRACT, host) == found


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands for the old host run in a shell here: nothing else stands in for it."""

    def run(host: Host, command: str, **more: Any) -> Any:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd="/")
        if done.returncode and more.get("check", True):
            raise CheckFailed("a command exited", why=done.stderr)
        return done

    monkeypatch.setattr(ssh, "run", run)
    return tmp_path


def log(path: Path, *rows: str, age_s: int = 0) -> None:
    path.write_text("".join(f"{row}\n" for row in rows))
    os.utime(path, (1_700_000_000 - age_s,) * 2)


def test_what_the_old_host_lacks_is_named_and_nothing_is_written(there: Path) -> None:
    log(there / "access.log", "a")
    good = origin(logs=f"{there}/access.log*")
    before = sorted(there.iterdir())
    assert [c.ok for c in _found._on_host(context(good), HOST)] == [True]
    bad = origin(logs=f"{there}/acess.log*", body_log=f"{there}/bodies.jsonl")
    checks = _found._on_host(context(bad, state="read-only", source=f"{there}/no data"), HOST)
    assert [(c.name, c.ok) for c in checks] == [
        ("origin.logs", False), ("origin.body_log", False), ("data.source", False),
    ]  # fmt: skip
    assert "no file matches" in checks[0].detail
    assert sorted(there.iterdir()) == before


def world(there: Path, **more: Any) -> World:
    return World.model_validate(
        {"origin": HOST, "address": OLD, "contract": CONTRACT, "zone": "x.test", "ttl_s": 5,
         "log_glob": f"{there}/access*", **more}
    )  # fmt: skip


def test_the_newest_log_and_the_one_before_it_are_read_whatever_they_are_called(there: Path) -> None:
    log(there / "access-2026-01-02.log", "newest")
    log(there / "access-2026-01-01.log", "before", age_s=60)
    log(there / "access-2025.log", "long ago", age_s=600)
    (there / "access-2026-01-03.log.gz").write_bytes(b"packed")
    assert _old_side._tail(world(there), 10) == ["before", "newest"]
    (there / "access-2026-01-01.log").unlink()
    (there / "access-2025.log").unlink()
    assert _old_side._tail(world(there), 10) == ["newest"]
    with pytest.raises(CheckFailed):
        _old_side._tail(world(there, log_glob=f"{there}/nothing*"), 10)


@pytest.mark.parametrize(("lab", "quiet"), [(None, True), ("the lab's", False)])
def test_our_own_look_is_no_user_of_a_real_service(there: Path, lab: Any, quiet: bool) -> None:
    now = datetime.now(UTC)
    log(
        there / "access.log",
        f'10.0.0.1 - - [{now:%d/%b/%Y:%H:%M:%S +0000}] "POST /a HTTP/1.1" 200 1 "-" "inferlift-load"',
    )
    found = world(there).model_copy(update={"lab": lab})
    seen = _old_side.quiet(found, since=datetime.fromtimestamp(now.timestamp() - 60, UTC), window_s=30)
    assert seen.quiet is quiet


def test_recorded_requests_are_the_hosts_the_files_or_none(there: Path) -> None:
    log(there / "bodies.jsonl", "there")
    log(there / "here.jsonl", "here")
    assert _old_side.recorded(world(there, body_log=f"{there}/bodies.jsonl")) == "there\n"
    assert _old_side.recorded(world(there, recorded=f"{there}/here.jsonl")) == "here\n"
    assert _old_side.recorded(world(there)) == ""


def test_everything_that_is_wrong_is_said_in_one_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: demo\nname: mine\norigin:\n  name: ai.x.test\n  logs: /var/log/a.log\n"
    )
    ctx = context(origin())
    ctx.root, ctx.profile_path = ROOT, tmp_path / "mine.yaml"
    monkeypatch.setattr(_found, "_host", lambda ctx, said: HOST)
    monkeypatch.setattr(_found, "_in_dns", lambda ctx, said, contract, host: (OLD, 300))
    wrong = {"_certificate": "ended", "_secrets": "short", "_on_host": "no log", "_answering": "status 401"}
    keys = {"_certificate": "origin.certificate", "_secrets": "origin.key", "_on_host": "origin.logs"}
    for name, why in wrong.items():
        bad = [Check(name=keys.get(name, "origin"), ok=False, detail=why)]
        monkeypatch.setattr(_found, name, lambda *a, bad=bad: bad)
    with pytest.raises(Refusal) as caught:
        _found.Found().run(ctx)
    assert caught.value.what.splitlines()[1:] == [
        f"{ctx.profile_path}:3: origin.certificate: ended",
        f"{ctx.profile_path}:3: origin.key: short",
        f"{ctx.profile_path}:5: origin.logs: no log",
        f"{ctx.profile_path}:3: origin: status 401",
    ]
    assert caught.value.exit_code == 2
    for name in wrong:
        monkeypatch.setattr(_found, name, lambda *a: [Check(name="x", ok=True)])
    found = _found.Found().run(context(origin(old_ttl_s=900)))
    assert (found.address, found.ttl_s, found.lab, found.resolvers) == (OLD, 900, None, ("192.0.2.4", "192.0.2.3"))


def test_a_host_key_is_never_learned(tmp_path: Path) -> None:
    key, known = tmp_path / "id", tmp_path / "known_hosts"
    asked: dict[str, Any] = {"name": "origin", "role": "origin", "key": str(key), "known_hosts": str(known)}
    place = ("deploy", OLD, 2222)
    with pytest.raises(Exception, match="there is no SSH key"):
        ssh.operators_host(place, **asked, folder=tmp_path / "ssh")
    key.touch()
    known.touch()
    with pytest.raises(Refusal, match="is not in") as caught:
        ssh.operators_host(place, **asked, folder=tmp_path / "ssh")
    assert caught.value.next_command == f"ssh -p 2222 deploy@{OLD}, compare the fingerprint, yes"
    known.write_text(f"[{OLD}]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n")
    assert ssh.operators_host(place, **asked, folder=tmp_path / "ssh").host_key.startswith("ssh-ed25519 AAAAC3")
