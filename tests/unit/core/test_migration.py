"""Order, resume, repair, holding and staleness, with stand-in stages."""

from __future__ import annotations

import os
import signal
import time

import pytest

from inferlift import migration, place, process
from inferlift.artifacts import Quality, Status
from inferlift.errors import CheckFailed, DeclarationError, Held, Interrupted, Refusal, Retryable
from inferlift.ledger import Ledger

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


def test_a_run_under_nohup_outlives_its_terminal(where, table, monkeypatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with migration.session(where, "deploy"):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_not_root_is_one_message(where, table, monkeypatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Refusal, match="needs root"):
        deploy(where)
    assert not where.folder.exists()


# --- what a stage builds on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "upstream"), [(s, u) for s, needed in migration.UPSTREAM.items() for u in needed])
def test_a_stage_is_refused_while_what_it_builds_on_is_not_finished(where, table, stage, upstream) -> None:
    deploy(where)
    with migration.session(where, stage) as ctx:
        for status in (Status.FAILED, Status.HELD, Status.UNCERTAIN):
            ctx.ledger.mark(upstream, status)
            with pytest.raises(Refusal, match=f"{stage} needs {upstream}, which is {status.value}"):
                migration.advance(ctx, table[stage], again=True)
        ctx.ledger.drop(upstream)
        with pytest.raises(Refusal, match=f"{upstream}, which has not run"):
            migration.advance(ctx, table[stage], again=True)
    assert table[stage].runs == 1


def test_from_does_not_jump_over_a_failed_stage(where, table) -> None:
    table["scale"].fails = CheckFailed("too slow")
    with pytest.raises(CheckFailed):
        deploy(where)
    with pytest.raises(Refusal, match="switch needs scale, which is failed"):
        deploy(where, first="switch")
    assert table["switch"].runs == 0


# --- kills between two writes, damaged results ------------------------------------------------------------------------


class Killed(BaseException):
    """As much of a SIGKILL as one process can have."""


def test_a_kill_before_the_last_write_of_a_stage_leaves_no_old_parts_behind(where, table, monkeypatch) -> None:
    deploy(where, last="poc")
    table["poc"].depends = {"on": 2}
    finish = Ledger.finish

    def killed_after(self, name, *more):
        finish(self, name, *more)
        if name == "poc":
            raise Killed

    monkeypatch.setattr(Ledger, "finish", killed_after)
    with pytest.raises(Killed):
        deploy(where, last="poc")
    monkeypatch.setattr(Ledger, "finish", finish)
    deploy(where, last="poc")
    with migration.looking(where, "status") as ctx:
        assert ctx.ledger.document("key:poc")["on"] == 2


@pytest.mark.parametrize("damage", ["edited", "removed", "another version"])
@pytest.mark.parametrize("name", ["world", "size", "switch"])
def test_an_unbelievable_result_is_named_and_made_anew(where, table, capsys, name, damage) -> None:
    deploy(where)
    path = where.folder / "artifacts" / f"{name}.json"
    if damage == "removed":
        path.unlink()
    elif damage == "edited":
        path.write_bytes(b"\xff" + path.read_bytes())
    else:
        with migration.session(where, "older") as ctx:
            ctx.ledger.finish(name, Quality(n=1, correct=1, share=1.0), Status.DONE, 0.1)
    deploy(where)
    assert f"{name:<8} found: " in capsys.readouterr().err
    assert [n for n, s in table.items() if s.runs > 1] == [name]


def test_an_unbelievable_acceptance_is_not_measured_again_under_users(where, table) -> None:
    deploy(where)
    (where.folder / "artifacts" / "scale.json").write_text("{}")
    with pytest.raises(CheckFailed, match="cannot be believed") as refused:
        deploy(where)
    assert "./invoke scale" in str(refused.value)
    assert table["scale"].runs == 1


@pytest.mark.parametrize("left", [Status.UNCERTAIN, Status.FAILED])
def test_under_users_an_unfinished_repair_is_repaired_and_nothing_is_load_tested(where, table, left) -> None:
    deploy(where)
    with migration.session(where, "killed") as ctx:
        for name in ("load", "scale"):
            ctx.ledger.mark(name, left)
    tested = table["load"].runs
    deploy(where, last="load")
    with pytest.raises(Refusal, match="scale needs load"):
        deploy(where)
    with migration.session(where, "done") as ctx:
        ctx.ledger.mark("load", Status.DONE)
    deploy(where)
    assert (table["load"].runs, table["scale"].repairs) == (tested, 1)


def test_an_intent_that_cannot_be_settled_does_not_stop_what_would_mend_it(where, table, capsys) -> None:
    deploy(where, last="audit")
    with migration.session(where, "killed") as ctx:
        ctx.stage = "switch"
        with pytest.raises(Interrupted), ctx.intent("weight", "ai", {}, {}):
            raise Interrupted("killed")

    def unreachable(ctx, intent):
        raise Retryable("the authority does not answer")

    table["switch"].settle = unreachable
    deploy(where, last="size")
    assert table["size"].runs == 1
    assert "unsettled switch weight ai: the authority does not answer" in capsys.readouterr().err
    del table["switch"].settle
    deploy(where, last="size")
    with migration.looking(where, "status") as ctx:
        assert ctx.ledger.open_intents() == []


# --- holds ------------------------------------------------------------------------------------------------------------


def test_a_hold_that_was_passed_is_history(where, table) -> None:
    table["load"].fails = Held("does not decide", why="7 samples")
    with pytest.raises(Held):
        deploy(where)
    table["load"].fails = None
    deploy(where)
    with migration.looking(where, "status") as ctx:
        assert ctx.ledger.document("held") is None


def test_a_held_stage_goes_on_from_its_numbers_and_is_measured_anew_when_asked_for_by_name(where, table) -> None:
    deploy(where, last="poc")
    table["load"].hold = True
    for again, runs in ((False, 1), (False, 1), (True, 2)):
        with migration.session(where, "load") as ctx, pytest.raises(Held):
            migration.advance(ctx, table["load"], again=again)
        assert table["load"].acted == runs


def test_an_approval_is_of_the_numbers_it_overruled(where, table) -> None:
    with migration.session(where, "deploy") as ctx:
        ctx.ledger.set_document("approved", {"load": {"overruled": "7 samples", "earlier": ["5 samples"]}})
        assert ctx.overruled("load", "7 samples")
        assert ctx.overruled("load", "5 samples")
        assert not ctx.overruled("load", "3 samples")
        assert not ctx.overruled("watch", "7 samples")


# --- ends -------------------------------------------------------------------------------------------------------------


def test_an_interrupted_run_ends_the_children_that_would_keep_it_waiting(where, table) -> None:
    probes = []

    def interrupted():
        with migration.session(where, "deploy") as ctx:
            ctx.start_probe("slow", lambda: process.run(["sleep", "60"], timeout_s=90, check=False))
            probes.append(ctx._probes["slow"])
            while not process.remnants(where.owner):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        interrupted()
    assert probes[0].result(timeout=5).returncode == -signal.SIGTERM


# --- places -----------------------------------------------------------------------------------------------------------


def test_relative_paths_are_the_callers(tmp_path, monkeypatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path / "sub"))
    monkeypatch.setenv("INFERLIFT_STATE", "../state")
    assert place.state_folder() == tmp_path / "state"
    assert place.callers("lock") == tmp_path / "sub" / "lock"
    assert place.from_caller("demo") == "demo"


def test_one_file_by_two_spellings_is_one_profile(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("INFERLIFT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("INFERLIFT_CWD", str(migration.ROOT / "docs"))
    by_path = place.place("../profiles/demo-small.yaml")
    assert by_path.profile_path == place.place("demo-small").profile_path


def test_a_switch_that_stopped_half_way_counts_as_users_on_the_fleet(where, table) -> None:
    from inferlift.stages.base import all_back, moved

    with migration.session(where, "deploy") as ctx:
        assert not moved(ctx.ledger)
        ctx.ledger.begin("switch", "k")
        ctx.ledger.set_document("switch_steps", {"attempt": "a", "steps": [{"weight": 0}]})
        assert not moved(ctx.ledger)
        ctx.ledger.set_document("switch_steps", {"attempt": "a", "steps": [{"weight": 0}, {"weight": 10}]})
        assert moved(ctx.ledger)
        all_back(ctx.ledger)
        assert not moved(ctx.ledger)
