"""Order, resume, repair, holding and staleness, with stand-in stages."""

from __future__ import annotations

import os
import signal

import pytest

from inferlift import migration
from inferlift.artifacts import Status
from inferlift.errors import CheckFailed, DeclarationError, Held, Interrupted, Refusal

pytestmark = pytest.mark.usefixtures("as_root")


def deploy(where, **more):
    with migration.session(where, "deploy") as ctx:
        migration.deploy(ctx, **more)


def test_every_stage_runs_once_and_a_second_deploy_only_verifies(where, table) -> None:
    deploy(where)
    deploy(where)
    assert {n: s.runs for n, s in table.items()} == dict.fromkeys(table, 1)


def test_from_and_to_limit_the_walk(where, table) -> None:
    deploy(where, last="size")
    assert [n for n, s in table.items() if s.runs] == ["world", "audit", "size"]
    deploy(where, first="build", last="build")
    assert [n for n, s in table.items() if s.runs] == ["world", "audit", "size", "build"]
    with pytest.raises(DeclarationError, match="comes after"):
        deploy(where, first="switch", last="audit")
    with pytest.raises(DeclarationError, match="did you mean switch"):
        deploy(where, first="swich")


def test_a_failed_stage_stops_the_walk_and_is_tried_again(where, table) -> None:
    table["poc"].fails = CheckFailed("not ready")
    with pytest.raises(CheckFailed):
        deploy(where)
    assert [r["status"] for r in migration.status_rows(where)][:5] == ["done", "done", "done", "failed", "pending"]
    table["poc"].fails = None
    deploy(where)
    assert table["build"].runs == 1
    assert all(r["status"] == "done" for r in migration.status_rows(where))


def test_what_is_no_longer_true_is_repaired_and_nothing_else_runs(where, table) -> None:
    deploy(where)
    table["poc"].ok = False
    deploy(where)
    assert (table["poc"].repairs, table["load"].runs, table["scale"].runs) == (1, 1, 1)


def test_a_changed_key_runs_the_stage_again(where, table) -> None:
    deploy(where, last="load")
    table["build"].depends = {"on": 2}
    deploy(where, last="load")
    assert (table["build"].runs, table["poc"].runs) == (2, 1)


def test_once_users_are_moved_a_changed_key_is_stale_and_is_not_repeated(where, table, capsys) -> None:
    deploy(where)
    table["load"].depends = {"on": 1, "targets": 5}
    deploy(where)
    assert table["load"].runs == 1
    assert "load     stale: targets changed" in capsys.readouterr().err


def test_held_is_a_status_of_its_own_and_exit_3(where, table) -> None:
    table["load"].fails = Held("does not decide", why="7 samples")
    with pytest.raises(Held) as held:
        deploy(where)
    assert held.value.exit_code == 3
    assert {r["stage"]: r["status"] for r in migration.status_rows(where)}["load"] == Status.HELD
    with migration.looking(where, "status") as ctx:
        assert ctx.ledger.document("held") == {"stage": "load", "why": "7 samples"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_how_to_go_on_and_the_next_run_goes_on(where, table, number) -> None:
    run = table["poc"].run

    def interrupted(ctx):
        os.kill(os.getpid(), number)
        return run(ctx)

    table["poc"].run = interrupted
    with pytest.raises(Interrupted) as stopped:
        deploy(where)
    assert stopped.value.exit_code == 130
    assert "./invoke deploy" in str(stopped.value)
    table["poc"].run = run
    deploy(where)
    assert table["build"].runs == 1
    assert all(r["status"] == "done" for r in migration.status_rows(where))


def test_not_root_is_one_message(where, table, monkeypatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Refusal, match="needs root"):
        deploy(where)
    assert not where.folder.exists()
