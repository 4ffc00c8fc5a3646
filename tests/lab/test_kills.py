"""Killed anywhere, the same command goes on: without hand work, without a second copy, without remnants."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import killer
import pytest
from conftest import Lab

from inferlift import process
from inferlift.artifacts import Cutover, Service
from inferlift.ledger import reading

pytestmark = pytest.mark.lab
ROUNDS = 150  # far more than one migration has boundaries


def test_killed_at_every_boundary_and_inside_the_engines(
    small: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = small
    for name in ("INFERLIFT_STATE", "PYTHONPATH"):
        monkeypatch.setenv(name, killed.env[name])
    hits = Hits(tmp_path / "hits")
    inside = {
        "inside Pulumi's create": (signal.SIGKILL, "provision", lambda: bool(killed.hosts("world"))),
        "inside Ansible": (signal.SIGKILL, "configure", lambda: "Write the files" in _newest_log(killed)),
        "inside the load test": (signal.SIGTERM, "requests", lambda: _samples(killed, "load-new") > 10),
        "inside a DNS write": (signal.SIGKILL, "set_weight", lambda: True),
        "while users are moved": (signal.SIGINT, "", lambda: _samples(killed, "switch") > 3),
    }
    left, took = dict(inside), list[float]()
    for _ in range(ROUNDS):
        killed.started = time.time()
        run = killer.start(killed.profile, hits.path, killed.log_path)
        over, sent = threading.Event(), list[Sent]()
        watcher = threading.Thread(target=_stop_inside, args=(killed, run.pid, over, hits, left, sent), daemon=True)
        watcher.start()
        run.join(timeout=600)
        took.append(time.time() - killed.started)
        code = run.exitcode
        over.set()
        watcher.join(timeout=10)
        if sent and hits.names() == sent[0].hits:  # it was the signal that ended this run
            del left[sent[0].inside]
        if code == 0:
            break
        assert code in (-signal.SIGKILL, 130), killed.log()[-3000:]
    else:
        pytest.fail(f"not finished after {ROUNDS} kills")
    print(f"{len(hits.names())} boundaries hit, and {', '.join(inside)}")
    print(f"{len(took)} runs, {sum(took):.0f} s, the shorter half {sum(sorted(took)[: len(took) // 2]):.0f} s")
    assert not left
    _every_boundary_was_hit(killed, hits.names())
    assert set(killed.statuses().values()) == {"done"}
    assert sum(u.failed for u in killed.artifact("switch", Cutover).users) == 0
    _one_copy_each(killed)
    assert process.remnants(killed.place.owner) == []


class Hits:
    """The boundaries at which the process has killed itself so far."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


# a signal, the action whose intent is open then ("": whichever), and what else has to be so
Reached = tuple[int, str, Callable[[], bool]]


class Sent(NamedTuple):
    """A signal that was sent to the run, and the boundaries hit until then."""

    inside: str
    hits: list[str]


def _stop_inside(
    lab: Lab, pid: int, over: threading.Event, hits: Hits, left: dict[str, Reached], sent: list[Sent]
) -> None:
    """A signal to the one process, so that its children stay behind."""
    while not over.wait(0.02):
        begun = _begun(lab)  # once for all: this looks on while two processors are wanted elsewhere
        for name, (number, action, reached) in left.items():
            if (not action or any(a.startswith(action) for a in begun)) and reached() and not over.is_set():
                sent.append(Sent(name, hits.names()))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                return


def _every_boundary_was_hit(lab: Lab, boundaries: list[str]) -> None:
    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        known = {f"{i.stage} {i.action} {i.subject}".rstrip() for i in ledger.intents()}
    for name in known:
        assert f"{name} intent" in boundaries
        assert f"{name} outcome" in boundaries
    assert len(boundaries) >= 2 * len(known)


def _one_copy_each(lab: Lab) -> None:
    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        service = Service.model_validate(ledger.document("service"))
    assert len(lab.hosts()) == len(service.fleet.hosts)
    assert len(lab.hosts("world")) == 3


def _begun(lab: Lab) -> list[str]:
    """Actions whose intents are open now."""
    try:
        with reading(lab.folder) as ledger:
            return [] if ledger is None else [i.action for i in ledger.open_intents()]
    except Exception:  # the ledger is being made just now
        return []


def _newest_log(lab: Lab) -> str:
    """The log of the run that goes on now; an earlier run's says nothing about this one."""
    return _newest(lab, "runs/*/run.log").decode(errors="replace")


def _samples(lab: Lab, label: str) -> int:
    return _newest(lab, f"samples/{label}-*.jsonl").count(b"\n")


def _newest(lab: Lab, pattern: str) -> bytes:
    files = [p for p in lab.folder.glob(pattern) if p.stat().st_mtime > lab.started]
    return max(files, key=lambda p: p.stat().st_mtime).read_bytes() if files else b""
