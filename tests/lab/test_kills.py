"""Killed anywhere, the same command goes on: without hand work, without a second copy, without remnants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Lab

from inferlift import process
from inferlift.ledger import reading
from inferlift.profile import ROOT

pytestmark = pytest.mark.lab
ROUNDS = 150  # far more than one migration has boundaries


def test_killed_at_every_boundary_and_inside_the_engines(killed: Lab, tmp_path: Path) -> None:
    hits = tmp_path / "hits"
    inside = {
        "inside Pulumi's create": lambda: (
            _open(killed, "provision") and len(killed.hosts("world")) + len(killed.hosts()) > 0
        ),
        "inside Ansible": lambda: _open(killed, "configure") and "Write the files" in _newest_log(killed),
        "inside the load test": lambda: _open(killed, "requests") and _samples(killed) > 10,
        "inside a DNS write": lambda: _open(killed, "weight"),
    }
    hit_inside: list[str] = []
    for _ in range(ROUNDS):
        run = killed.start(sys.executable, str(ROOT / "tests" / "lab" / "killer.py"), killed.profile, str(hits))
        over = threading.Event()
        watcher = threading.Thread(target=_kill_inside, args=(run, over, inside, hit_inside), daemon=True)
        watcher.start()
        code = run.wait(timeout=600)
        over.set()
        watcher.join(timeout=10)
        if code == 0:
            break
        assert code == -signal.SIGKILL, killed.log()[-3000:]
    else:
        pytest.fail(f"not finished after {ROUNDS} kills")
    boundaries = hits.read_text().splitlines()
    print(f"{len(boundaries)} boundaries hit, and {', '.join(hit_inside)}")
    assert sorted(hit_inside) == sorted(inside)
    _every_boundary_was_hit(killed, boundaries)
    assert set(killed.statuses().values()) == {"done"}
    _one_copy_each(killed)
    assert process.remnants(killed.place.owner) == []


def _kill_inside(
    run: subprocess.Popen[bytes], over: threading.Event, inside: dict[str, Callable[[], bool]], hit: list[str]
) -> None:
    """SIGKILL of the one process, so that its children stay behind."""
    while not over.wait(0.05):
        for name, reached in inside.items():
            if name not in hit and reached() and run.poll() is None:
                os.kill(run.pid, signal.SIGKILL)
                hit.append(name)
                return


def _every_boundary_was_hit(lab: Lab, boundaries: list[str]) -> None:
    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        known = {f"{i.stage} {i.action}" for i in ledger.intents()}
    for name in known:
        assert f"{name} intent" in boundaries
        assert f"{name} outcome" in boundaries
    assert len(boundaries) >= 2 * len(known)


def _one_copy_each(lab: Lab) -> None:
    from inferlift.artifacts import Service

    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        service = Service.model_validate(ledger.document("service"))
    assert len(lab.hosts()) == len(service.fleet.hosts)
    assert len(lab.hosts("world")) == 3


def _open(lab: Lab, action: str) -> bool:
    try:
        with reading(lab.place.folder) as ledger:
            return ledger is not None and any(i.action.startswith(action) for i in ledger.open_intents())
    except Exception:  # the ledger is being made just now
        return False


def _newest_log(lab: Lab) -> str:
    logs = sorted(lab.place.folder.glob("runs/*/run.log"), key=lambda p: p.stat().st_mtime)
    return logs[-1].read_text(errors="replace") if logs else ""


def _samples(lab: Lab) -> int:
    files = sorted(lab.place.folder.glob("samples/load-new-*.jsonl"), key=lambda p: p.stat().st_mtime)
    return files[-1].read_bytes().count(b"\n") if files else 0
