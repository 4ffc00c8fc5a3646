"""From the ledger to the report: partial, failed, held and odd runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from inferlift.artifacts import Artifact, Quality, Status
from inferlift.declaration import load
from inferlift.ledger import Ledger, connect
from inferlift.profile import ROOT
from inferlift.progress import Progress
from inferlift.report import render
from inferlift.reporting import ARTIFACTS, gather, price_notes
from inferlift.stages.base import Context
from tests.unit.report import plan_factory as planned
from tests.unit.report import report_factory as made

RESULTS: dict[str, Artifact] = {
    "world": made.world(), "audit": made.evidence(), "size": made.sizing(), "build": made.images(),
    "poc": made.service(1), "load": made.measurement(), "migrate": made.transfer(), "scale": made.scaled(),
    "switch": made.cutover(), "watch": made.watch(),
}  # fmt: skip


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    declared = load("demo", ROOT)
    with Ledger.open(tmp_path / "state", command="test", declared_in=declared.path) as ledger:
        yield Context(
            root=ROOT, folder=tmp_path / "state", run_folder=tmp_path / "state", owner="t/report",
            profile=declared.profile, profile_path=declared.path, ledger=ledger, progress=Progress(),
        )  # fmt: skip


def finish(ctx: Context, *names: str, status: Status = Status.DONE, message: str = "") -> None:
    for name in names:
        ctx.ledger.begin(name, f"key of {name}")
        result = RESULTS[name] if status is Status.DONE else None
        ctx.ledger.finish(name, result, status, 12.5, message)


def test_a_finished_migration_is_gathered_whole(ctx: Context) -> None:
    finish(ctx, *RESULTS)
    data = gather(ctx)
    assert data.notes == ()
    for field, (stage, _) in ARTIFACTS.items():
        assert getattr(data, field) == RESULTS[stage], field
    assert {row.status for row in data.rows()} == {Status.DONE}
    assert all(row.summary for row in data.rows())
    assert data.lock["seed"]
    assert data.profile.model == "SmolLM2-135M-Instruct"
    assert "Moved" in render(data)


def test_an_empty_ledger_is_a_report_too(ctx: Context) -> None:
    data = gather(ctx)
    assert {row.status for row in data.rows()} == {Status.PENDING}
    assert data.notes == ()
    assert "Nothing has run yet" in render(data)


def test_a_changed_artifact_is_left_out_and_named(ctx: Context) -> None:
    finish(ctx, "audit", "size")
    (ctx.folder / "artifacts" / "audit.json").write_text("{}", encoding="utf-8")
    data = gather(ctx)
    assert data.evidence is None
    assert data.sizing == RESULTS["size"]
    assert any("audit" in note for note in data.notes)
    assert "could not be read" in render(data)


def test_an_artifact_of_another_version_is_left_out_and_named(ctx: Context) -> None:
    ctx.ledger.begin("audit", "k")
    ctx.ledger.finish("audit", Quality(n=1, correct=1, share=1.0), Status.DONE, 1.0)
    data = gather(ctx)
    assert data.evidence is None
    assert len(data.notes) == 1


@pytest.mark.parametrize(
    "name", ["held", "approved", "rollback", "rolled_back", "switch_steps", "approval:first", "approval:second"]
)
def test_an_odd_document_never_ends_a_run(ctx: Context, name: str) -> None:
    finish(ctx, "size")
    finish(ctx, "switch", "watch", status=Status.FAILED, message="no")
    bodies: tuple[object, ...] = (
        None, 3, "text", [], {}, {"at": None}, {"steps": 3}, {"size": "no"}, {"stage": ["size"]}, [[]],
    )  # fmt: skip
    for body in bodies:
        ctx.ledger.set_document(name, body)
        assert "Stopped in switch" in render(gather(ctx)) or name in ("held", "rollback"), body


def test_a_ledger_that_cannot_be_read_is_said(ctx: Context) -> None:
    finish(ctx, "audit")
    with connect(ctx.folder) as db:
        db.execute("DROP TABLE document")
    data = gather(ctx)
    assert data.evidence is not None
    assert any("no such table" in note for note in data.notes)


def test_a_failed_load_test_shows_what_it_measured(ctx: Context) -> None:
    finish(ctx, "audit", "size", "build", "poc")
    ctx.ledger.begin("load", "k")
    run = made.load_run("new", 1000, 300.0, 90_000)
    for action, result in (("requests", run), ("quality", made.measurement().quality)):
        with ctx.ledger.intent("load", "k", action, "", {}, {}) as keep:
            keep(result.model_dump_json())
    ctx.ledger.finish("load", None, Status.FAILED, 301.0, "the new side does not meet its targets")
    data = gather(ctx)
    attempt = data.attempt("load")
    assert attempt is not None
    assert attempt.runs == (run,)
    assert [g.verdict for g in attempt.gates if g.name == "p95 total"] == ["fail"]
    assert data.measurement is None
    assert "Stopped in load" in render(data)


def test_an_accepted_result_stays_beside_a_later_failure_but_old_steps_do_not_come_back(ctx: Context) -> None:
    ctx.ledger.begin("load", "k")
    with ctx.ledger.intent("load", "k", "requests", "", {}, {}) as keep:
        keep(made.load_run("new", 1000, 145.0, 2700).model_dump_json())
    ctx.ledger.finish("load", RESULTS["load"], Status.DONE, 1.0)
    ctx.ledger.begin("load", "k")
    ctx.ledger.finish("load", None, Status.FAILED, 1.0, "the gateway is gone")
    data = gather(ctx)
    assert data.measurement == RESULTS["load"]
    assert data.attempt("load") is None
    assert data.stage("load").status is Status.FAILED


def test_a_failed_acceptance_is_shown_against_its_deadline(ctx: Context) -> None:
    ctx.ledger.begin("scale", "k")
    scaled = made.scaled()
    with ctx.ledger.intent("scale", "k", "acceptance", "", {}, {"deadline_s": 90.0}) as keep:
        keep(scaled.acceptance.model_dump_json())
    loss = {"run": scaled.with_loss.model_dump(mode="json"), "host": "model-5", "in_flight": 4}
    with ctx.ledger.intent("scale", "k", "loss", "model-5", {}, {"deadline_s": 90.0}) as keep:
        keep(json.dumps(loss))
    ctx.ledger.finish("scale", None, Status.FAILED, 300.0, "5 replicas do not carry it")
    attempt = gather(ctx).attempt("scale")
    assert attempt is not None
    assert (attempt.deadline_s, attempt.lost_host, len(attempt.runs)) == (90.0, "model-5", 2)
    assert "deadline of 90\u202fs" in render(gather(ctx)) or "deadline of 1\u202fmin 30\u202fs" in render(gather(ctx))


def test_a_switch_that_rolled_itself_back_is_the_result(ctx: Context) -> None:
    ctx.ledger.begin("switch", "k")
    late = made.cutover(rolled_back=True)
    steps = tuple(s.model_copy(update={"at": s.at.replace(year=2126)}) for s in late.steps)
    ctx.ledger.set_document("rolled_back", late.model_copy(update={"steps": steps}))
    ctx.ledger.finish("switch", None, Status.FAILED, 40.0, "the switch rolled itself back")
    data = gather(ctx)
    assert data.cutover is not None
    assert data.cutover.rolled_back
    assert "Rolled back: users are on the old side" in render(data)


def test_a_roll_back_of_long_ago_is_not_todays(ctx: Context) -> None:
    ctx.ledger.set_document("rolled_back", made.cutover(rolled_back=True))
    old = made.cutover()
    early = tuple(s.model_copy(update={"at": s.at.replace(year=2006)}) for s in old.steps)
    ctx.ledger.set_document("rolled_back", old.model_copy(update={"steps": early, "rolled_back": True}))
    ctx.ledger.begin("switch", "k")
    ctx.ledger.finish("switch", None, Status.FAILED, 1.0, "the authority does not answer")
    assert gather(ctx).cutover is None


def test_a_hold_is_shown_until_it_is_passed(ctx: Context) -> None:
    finish(ctx, "scale", status=Status.HELD, message="too few samples")
    ctx.ledger.set_document("held", {"stage": "scale", "why": "too few samples"})
    assert gather(ctx).held == {"stage": "scale", "why": "too few samples"}
    finish(ctx, "scale")
    assert gather(ctx).held is None


def test_a_verdict_holds_until_a_reason_is_given(ctx: Context) -> None:
    ctx.ledger.begin("size", "k")
    ctx.ledger.finish("size", made.sizing().model_copy(update={"verdict": "stay"}), Status.DONE, 1.0)
    ctx.ledger.set_document("held", {"stage": "size", "why": "it is fine where it is"})
    assert gather(ctx).held is not None
    reason = {"size": {"reason": "the host is being sold", "at": "2026-11-30T09:00:00+00:00", "overruled": "stay"}}
    ctx.ledger.set_document("approved", reason)
    data = gather(ctx)
    assert data.held is None
    assert "the host is being sold" in render(data)


def test_a_stage_that_a_kill_left_has_no_end(ctx: Context) -> None:
    finish(ctx, "poc")
    ctx.ledger.begin("poc", "another key")
    row = gather(ctx).stage("poc")
    assert (row.status, row.seconds, row.finished) == (Status.UNCERTAIN, None, None)


def test_answers_a_second_add_up_to_the_answers(ctx: Context, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    lines = [json.dumps({"run": {"label": "new"}})]
    lines += [json.dumps({"i": k, "at_s": k * 0.1, "total_ms": 40.0}, separators=(",", ":")) for k in range(100)]
    lines += ['{"i":100,"at_s":3.0,"total_ms":5.0,"error":"reset"}', '{"i":101,"at_s":3.0}']
    path.write_text("\n".join(lines), encoding="utf-8")
    run = made.load_run("new", 101, 10.0, 40).model_copy(update={"samples": str(path)})
    ctx.ledger.begin("load", "k")
    ctx.ledger.finish("load", made.measurement().model_copy(update={"run": run}), Status.DONE, 1.0)
    points = gather(ctx).rates[str(path)]
    widths = [b[0] - a[0] for a, b in pairwise(points)]
    assert round(sum(w * p[1] for w, p in zip(widths, points, strict=False))) == 100


@pytest.mark.parametrize("text", ["", "garbage", '{"i":1,', '{"i":1,"at_s":"x","total_ms":"y"}\n', "\x00\xff"])
def test_odd_samples_leave_the_rate_unknown(ctx: Context, tmp_path: Path, text: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(text, encoding="utf-8")
    run = made.load_run("new", 10, 10.0, 40).model_copy(update={"samples": str(path)})
    ctx.ledger.begin("load", "k")
    ctx.ledger.finish("load", made.measurement().model_copy(update={"run": run}), Status.DONE, 1.0)
    data = gather(ctx)
    assert data.rates == {}
    assert "Answers a second" not in render(data)


def test_old_prices_are_said_by_the_day_of_the_report(ctx: Context) -> None:
    old = made.sizing().model_copy(
        update={"cost_per_hour": made.sizing().cost_per_hour.model_copy(update={"at": "2020-01-15"})}
    )
    ctx.ledger.begin("size", "k")
    ctx.ledger.finish("size", old, Status.DONE, 1.0)
    data = gather(ctx)
    assert len(data.price_notes) == 1
    assert "days old, more than 90" in data.price_notes[0]


PRICED = [
    ("2026-04-01", "2026-01", "2026-01", ()),  # 90 days
    ("2026-04-02", "2026-01", "2026-01", ("prices are of 2026-01: 91 days old",)),
    ("2026-04-02", "2026-03", "2026-01", ("buy, cloud reserved, cloud on demand: prices are of 2026-01: 91",)),
    ("2026-04-02", "", "", ("prices without a date",)),
    ("2025-12-01", "2026-01", "2026-01", ("prices are dated 2026-01, after today",)),
]


@pytest.mark.parametrize(("day", "hosts", "ways", "said"), PRICED)
def test_the_age_of_prices_is_told_apart_for_the_ways_compared(
    day: str, hosts: str, ways: str, said: tuple[str, ...]
) -> None:
    sizing = planned.sizing()
    assert sizing.tco is not None
    options = tuple(
        one.model_copy(update={"total": one.total.model_copy(update={"at": ways or None})})
        for one in sizing.tco.options
    )  # fmt: skip
    hour = sizing.cost_per_hour.model_copy(update={"at": hosts or None})
    plan = sizing.model_copy(
        update={"cost_per_hour": hour, "costs": None, "tco": sizing.tco.model_copy(update={"options": options})}
    )
    data = made.empty().model_copy(update={"generated": f"{day}T23:00:00+00:00", "sizing": plan})
    notes = price_notes(data)
    assert len(notes) == len(said)
    assert all(note.startswith(start) for note, start in zip(notes, said, strict=True))


def test_without_a_known_price_there_is_no_age() -> None:
    unknown = made.measured(None, "EUR/h")
    data = made.empty().model_copy(
        update={"sizing": made.sizing().model_copy(update={"cost_per_hour": unknown}), "generated": "2036-01-01"}
    )
    assert price_notes(data) == ()
