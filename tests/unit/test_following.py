"""`status --follow`, on ledgers that another process writes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferlift import detached, following, ledger, place
from inferlift.artifacts import Status
from inferlift.ledger import Ledger, connect
from inferlift.profile import ROOT

pytestmark = pytest.mark.programs


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> place.Place:
    monkeypatch.setenv("INFERLIFT_STATE", str(tmp_path))
    return place.place("demo-small")


def begin(where: place.Place, pid: int) -> Ledger:
    where.folder.mkdir(parents=True)
    db = connect(where.folder)
    db.execute(
        "INSERT INTO run VALUES ('r1','invoke deploy --profile demo-small',?,?,NULL,NULL,NULL)", (pid, ledger.now())
    )
    (where.folder / "runs" / "r1").mkdir(parents=True)
    return Ledger(where.folder, db, "r1")


def end(kept: Ledger, code: int, message: str) -> None:
    kept._db.execute("UPDATE run SET finished=?, exit=?, message=? WHERE id='r1'", (ledger.now(), code, message))


def test_lines_come_until_the_run_ends_and_its_exit_code_is_ours(where: place.Place) -> None:
    kept, out = begin(where, os.getpid()), io.StringIO()
    log = where.folder / "runs" / "r1" / "run.log"
    log.write_text("one\ntw")

    def meanwhile(seconds: float) -> None:
        with log.open("a") as file:
            file.write("o\nthree\n")
        end(kept, 3, "held")

    assert following.follow(where, out=out, sleep=meanwhile) == 3
    assert out.getvalue().splitlines() == ["one", "two", "three", "ended with 3: held"]


def test_a_killed_run_is_said_to_go_on_by_the_same_command(where: place.Place) -> None:
    begin(where, os.getpid())
    out, alive = io.StringIO(), [True]

    def dies(seconds: float) -> None:
        alive[0] = False
        connect(where.folder).execute("UPDATE run SET pid=4194305")

    assert following.follow(where, out=out, sleep=dies) == 1
    assert "./invoke deploy --profile demo-small" in out.getvalue()


def test_without_a_run_it_says_how_things_stand_after_a_moment(where: place.Place) -> None:
    out, ticks = io.StringIO(), iter(range(100))
    assert following.follow(where, out=out, sleep=lambda s: None, clock=lambda: float(next(ticks))) == 0
    assert out.getvalue().startswith("no run is under way")
    assert "watch" in out.getvalue()


def test_the_view_on_a_terminal_shows_stages_users_and_lines(where: place.Place) -> None:
    from rich.console import Console

    kept = begin(where, os.getpid())
    kept.begin("poc", "k")
    kept.mark("poc", Status.UNCERTAIN)
    kept.set_document("switch_steps", {"attempt": "a", "steps": [{"weight": 10}]})
    shown = Console(file=io.StringIO(), width=100)
    shown.print(following.view(where, following.newest(where), ["a line"], datetime.now(UTC)))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "users: 10 % on the new side" in text
    assert "runs" in text
    assert "a line" in text


SUPERVISOR = """
import sys
from inferlift import detached
detached.PAUSE_S, real = 0.1, detached.subprocess.Popen
detached.subprocess.Popen = lambda argv, **named: real([sys.executable, "-c", RUN, *sys.argv[1:3]], **named)
sys.exit(detached.main([sys.argv[1], "deploy"]))
"""
RUN = """
import os, pathlib, sys, time
from inferlift.ledger import Ledger
folder = pathlib.Path(sys.argv[1])
with Ledger.open(folder, command="invoke deploy --profile demo-small", declared_in=pathlib.Path(sys.argv[2])) as kept:
    (folder / "runs" / kept.run).mkdir(parents=True)
    again = len(kept.runs()) > 1
    (folder / "runs" / kept.run / "run.log").write_text("goes on\\n" if again else "begins\\n")
    while not (folder / "seen").exists():
        time.sleep(0.02)
    if not again:
        os.kill(os.getpid(), 9)
"""


def test_a_detached_run_is_followed_through_its_kill_and_its_restart(where: place.Place) -> None:
    """Supervisor, ledger, kill and restart are real; the run is a stand-in that ends as soon as it was seen."""
    where.folder.mkdir(parents=True)
    argv = [sys.executable, "-c", f"RUN = {RUN!r}\n{SUPERVISOR}", str(where.folder), str(where.profile_path)]
    supervisor = subprocess.Popen([*argv, "inferlift.detached"], cwd=ROOT, stdout=subprocess.DEVNULL)
    out = io.StringIO()

    def look_again(seconds: float) -> None:
        time.sleep(0.05)
        if "begins" in out.getvalue():
            (where.folder / "seen").touch()

    try:
        assert following.follow(where, out=out, sleep=look_again) == 0
        assert supervisor.wait(20) == 0
    finally:
        supervisor.kill()
    assert out.getvalue().splitlines() == [
        "begins", "the run was killed; it is detached, and started again", "goes on", "ended with 0",
    ]  # fmt: skip
    found = detached.look(where.folder)
    assert found is not None
    assert (found["starts"], found["exit"]) == (2, 0)
