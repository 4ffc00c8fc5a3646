"""Validators' answers: a host that says nothing, or nonsense, has not been validated."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from configure_hosts import fleet
from hypothesis import given
from hypothesis import strategies as st

from inferlift import ssh
from inferlift.configure import forget
from inferlift.configure.validators import ROLES, parse, validate
from inferlift.errors import Retryable


def test_checks_are_named_after_their_host() -> None:
    rows = [{"name": "port 443", "ok": True, "detail": "listening", "skipped": False}]
    assert [(c.name, c.ok, c.detail) for c in parse("gateway-1", "base", json.dumps(rows))] == [
        ("gateway-1: port 443", True, "listening")
    ]


@pytest.mark.parametrize(
    "output", ["", "[]", "{}", "null", "[1]", '[{"name": "x"}]', "Traceback", '[{"ok": true}]', '{"ok": true}', "[[]]"]
)
def test_anything_else_is_a_failed_check(output: str) -> None:
    checks = parse("h", "base", output)
    assert checks
    assert not any(c.ok for c in checks)


@given(st.text())
def test_no_text_passes_for_a_validation(output: str) -> None:
    checks = parse("h", "base", output)
    assert checks
    assert not all(c.ok for c in checks)


def digests(folder: Path, *names: str) -> None:
    roles = {"gateway-1": ROLES["gateway"], "monitor-1": ("base", "monitor")}
    rows = {n: dict.fromkeys(roles.get(n, ("base", "llamacpp", "container")), "d") for n in names}
    (folder / "digests.json").write_text(json.dumps(rows))


def answering(lines: int):  # type: ignore[no-untyped-def]
    good = json.dumps([{"name": "all", "ok": True, "detail": "", "skipped": False}])

    def run(host: object, command: str, **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout=f"{good}\n" * lines, stderr="")

    return run


def test_a_host_never_configured_from_here_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "run", answering(3))
    digests(tmp_path, "gateway-1", "model-1", "model-2")
    bad = [c for c in validate(fleet(tmp_path), tmp_path) if not c.ok]
    assert [(c.name, c.detail) for c in bad] == [("monitor-1: configured", "never configured from here")]


def test_a_missing_answer_of_one_role_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "run", answering(2))
    digests(tmp_path, "gateway-1", "model-1", "model-2", "monitor-1")
    bad = [c.name for c in validate(fleet(tmp_path), tmp_path) if not c.ok]
    assert bad == ["model-1: validator of container", "model-2: validator of container"]


def test_a_silent_host_is_named_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise Retryable("gateway-1 does not answer over SSH")

    monkeypatch.setattr(ssh, "run", silent)
    digests(tmp_path, "gateway-1", "model-1", "model-2", "monitor-1")
    checks = validate(fleet(tmp_path), tmp_path)
    assert [c.name for c in checks if not c.ok] == [f"{h.name}: answers" for h in fleet(tmp_path).hosts]


def test_no_hosts_is_not_valid(tmp_path: Path) -> None:
    empty = fleet(tmp_path).model_copy(update={"hosts": ()})
    assert [c.ok for c in validate(empty, tmp_path)] == [False]


def test_a_host_that_is_another_machine_has_nothing_that_was_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard on the monitor that was, say: it is not missed on the one that took its place."""
    monkeypatch.setattr(ssh, "run", answering(2))
    digests(tmp_path, "gateway-1", "monitor-1")
    forget(tmp_path, ["monitor-1", "never-seen"])
    known = json.loads((tmp_path / "digests.json").read_text())
    assert known["monitor-1"] == {}
    assert set(known["gateway-1"]) == set(ROLES["gateway"])
