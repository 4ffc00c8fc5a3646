"""The tasks as typed: a wrong profile is exit 2 with file and line, before anything is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.command_line import typed


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLIFT_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize("task", ["deploy", "plan", "destroy", "audit", "status"])
def test_a_wrong_profile_is_refused_before_anything_is_made(tmp_path: Path, task: str) -> None:
    profile = tmp_path / "wrong.yaml"
    profile.write_text("extends: demo\nname: wrong\nswitch:\n  ttls: 5\n")
    done = typed(task, "--profile", str(profile))
    assert done.returncode == 2, done.stderr
    assert f"{profile}:4" in done.stderr
    assert "ttl_s" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    done = typed("deploy", "--profile", "dmeo")
    assert done.returncode == 2
    assert "demo" in done.stderr


def test_another_target_is_refused_in_words(tmp_path: Path) -> None:
    done = typed("deploy", "--profile", "demo", "--target", "aws")
    assert done.returncode == 2
    assert "aws" in done.stderr


def test_an_approval_without_a_reason_is_refused(tmp_path: Path) -> None:
    done = typed("approve", "--profile", "demo")
    assert done.returncode == 2
    assert "reason" in done.stderr


def test_reporting_tasks_print_one_json_object(tmp_path: Path) -> None:
    for task in ("status", "plan"):
        done = typed(task, "--profile", "demo", "--json")
        assert done.returncode == 0, done.stderr
        body = json.loads(done.stdout)
        assert {"ok", "verdict", "figures"} <= set(body)
        assert body["figures"]["rate_rps"] is None, "nothing was measured yet"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("task", "more"), [("status", ()), ("plan", ()), ("report", ()), ("approve", ("--reason", "x")), ("destroy", ())]
)
def test_a_damaged_ledger_ends_in_words(tmp_path: Path, task: str, more: tuple[str, ...]) -> None:
    folder = tmp_path / "state" / "demo-lab"
    folder.mkdir(parents=True)
    (folder / "ledger.sqlite").write_bytes(b"no database" * 400)
    done = typed(task, "--profile", "demo", *more)
    assert done.returncode == 2, done.stderr
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
