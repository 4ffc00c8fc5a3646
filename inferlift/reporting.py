"""What the report is told: read from the ledger, never by looking at the world, and never failing a run."""

from __future__ import annotations

import datetime
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from inferlift import __version__
from inferlift.artifacts import (
    Artifact,
    Cutover,
    Evidence,
    Images,
    LoadRun,
    Measurement,
    Quality,
    Scaled,
    Service,
    Sizing,
    Status,
    SwitchStep,
    Transfer,
    Watch,
    World,
)
from inferlift.errors import InferliftError
from inferlift.ledger import Intent, StageRow, now
from inferlift.report import Approval, Attempt, FaultRow, Overruled, ProfileSummary, ReportData, Rollback
from inferlift.report import StageRow as Row
from inferlift.stages.base import Context

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")
ARTIFACTS: dict[str, tuple[str, type[Artifact]]] = {  # field of ReportData -> stage, model
    "world": ("world", World),
    "evidence": ("audit", Evidence),
    "sizing": ("size", Sizing),
    "images": ("build", Images),
    "service": ("poc", Service),
    "measurement": ("load", Measurement),
    "transfer": ("migrate", Transfer),
    "scaled": ("scale", Scaled),
    "cutover": ("switch", Cutover),
    "watch": ("watch", Watch),
}
MOST_SAMPLE_BYTES = 16_000_000  # larger sample files are not read for a plot: the page must not slow a run down
SLICES = 60  # of the time of a run, in its plot of answers a second
_ODD = (InferliftError, OSError, ValueError, LookupError, TypeError, AttributeError, sqlite3.Error)
_OPEN = (Status.FAILED, Status.HELD, Status.UNCERTAIN)


def gather(ctx: Context) -> ReportData:
    """Everything known so far. What is missing or cannot be read is left out, the latter named in `notes`."""
    notes: list[str] = []
    rows = _rows(ctx, notes)
    found = {f: _read(notes, f"{s}'s result", _getter(ctx, s, model)) for f, (s, model) in ARTIFACTS.items()}
    states = {row.name: row for row in rows}
    found |= _unaccepted(ctx, states, notes)
    attempts = tuple(a for name in ("load", "scale", "switch") if (a := _attempt(ctx, name, states, notes)) is not None)
    approved = _read(notes, "the approvals", lambda: ctx.ledger.document("approved")) or {}
    data = ReportData(
        generated=now(),
        version=__version__,
        profile=_summary(ctx),
        stages=tuple(_with_summary(row, found) for row in rows),
        faults=_read(notes, "the faults rehearsed", lambda: _faults(ctx)) or (),
        attempts=attempts,
        approvals=_read(notes, "the approved plans", lambda: _approvals(ctx)) or (),
        overruled=_read(notes, "the reasons given", lambda: _overruled(approved)) or (),
        held=_held(ctx, states, found, approved, notes),
        rollback=_read(notes, "the roll-back", lambda: _rollback(ctx)),
        lock=_read(notes, "the versions", lambda: _lock(ctx)) or {},
        **found,
    )
    rates = {run.samples: points for run in _runs(data) if (points := _read(notes, "samples", _rate_of(run)))}
    aged = _read(notes, "the age of the prices", lambda: price_notes(data)) or ()
    return data.model_copy(update={"rates": rates, "price_notes": aged, "notes": tuple(notes)})


def price_notes(data: ReportData) -> tuple[str, ...]:
    """What there is to say of the age of the plan's prices on the day of the report; nothing up to 90 days."""
    from inferlift.prices import age_note, oldest
    from inferlift.report.view import latest_sizing
    from inferlift.stages._plan import price_dates

    plan, today = latest_sizing(data), datetime.date.fromisoformat(data.generated[:10])
    if plan is None or plan.cost_per_hour.value is None:
        return ()  # there is no price whose age could be told
    found = [age_note(oldest(price_dates(plan)), today)]
    older: dict[str, list[str]] = {}
    for option in plan.tco.options if plan.tco is not None else ():
        if option.total.value is not None and option.total.at and (note := age_note(option.total.at, today)):
            older.setdefault(note, []).append(option.way)
    renew = "the profile's section tco can say newer ones"  # a refresh renews the prices of the cloud only
    found += [
        f"{', '.join(ways)}: {note.partition('; refresh')[0]}; {renew}"
        for note, ways in older.items()
        if note not in found
    ]
    return tuple(note for note in found if note)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _read(notes: list[str], what: str, get: Callable[[], T]) -> T | None:
    """What `get` gives; where it cannot, None and a note. A report never fails the run that it reports."""
    try:
        return get()
    except _ODD as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        notes.append(f"{what} could not be read: {reason}")
        return None


def _faults(ctx: Context) -> tuple[FaultRow, ...]:
    path = ctx.folder / "rehearsal.json"
    if not path.is_file():
        return ()
    return tuple(FaultRow.model_validate(row) for row in json.loads(path.read_text(encoding="utf-8")))


def _getter(ctx: Context, stage: str, model: type[A]) -> Callable[[], A | None]:
    return lambda: ctx.ledger.artifact(stage, model)


def _rows(ctx: Context, notes: list[str]) -> list[Row]:
    from inferlift.report.data import STAGES

    rows = []
    for name in STAGES:
        row: StageRow | None = _read(notes, f"the state of {name}", lambda n=name: ctx.ledger.stage(n))  # type: ignore[misc]
        if row is None:
            rows.append(Row(name=name))
        else:
            rows.append(
                Row(
                    name=name,
                    status=row.status,
                    seconds=None if row.status is Status.UNCERTAIN else row.seconds,
                    started=row.started,
                    finished=None if row.status is Status.UNCERTAIN else row.finished,
                    message=row.message,
                )
            )
    return rows


def _with_summary(row: Row, found: dict[str, Any]) -> Row:
    """The stage's own line about its result; a stage that did not end done speaks by its message."""
    from inferlift.migration import stages

    artifact = next((found[field] for field, (stage, _) in ARTIFACTS.items() if stage == row.name), None)
    if artifact is None or row.status is not Status.DONE:
        return row
    line = _read([], row.name, lambda: stages()[row.name].summary(artifact))
    return row.model_copy(update={"summary": line or ""})


def _summary(ctx: Context) -> ProfileSummary:
    p = ctx.profile
    return ProfileSummary(
        name=p.name,
        description=p.description,
        target=p.target,
        model=p.model.name,
        parameters=p.model.parameters_total,
        server=p.server.kind,
        requests_in_flight=p.requests.in_flight_peak,
        per_minute_peak=p.requests.per_minute_peak,
        p95_ttft_ms=p.targets.p95_ttft_ms,
        p95_total_ms=p.targets.p95_total_ms,
        min_tokens_per_s=p.targets.min_tokens_per_s,
        error_share=p.targets.error_share,
        quality=p.targets.quality,
        max_cost_per_1000=p.targets.max_cost_per_1000,
        currency=p.budget.currency,
        usd_rate=p.budget.usd_rate,
        usd_rate_source=p.budget.usd_rate_source,
        usd_rate_date=p.budget.usd_rate_date,
        data_state=p.data.state,
    )


# --- what was measured and not accepted -------------------------------------------------------------------------------


def _unaccepted(ctx: Context, states: dict[str, Row], notes: list[str]) -> dict[str, Any]:
    """A switch that rolled itself back and a watch that said no leave no artifact, but they are the result."""
    found: dict[str, Any] = {}
    switch, watch = states["switch"], states["watch"]
    if switch.status in _OPEN:
        body = _read(notes, "the roll-back", lambda: ctx.ledger.document("rolled_back"))
        cutover = _read(notes, "the roll-back", lambda: Cutover.model_validate(body)) if body else None
        if cutover and cutover.steps and cutover.steps[-1].at.isoformat() >= (switch.started or ""):
            found["cutover"] = cutover
    if watch.status in _OPEN:
        judged = _read(notes, "the watch", lambda: _results(ctx, watch).get("judge"))
        if judged is not None:
            found["watch"] = _read(notes, "the watch", lambda: Watch.model_validate_json(judged.result or ""))
    return found


def _attempt(ctx: Context, name: str, states: dict[str, Row], notes: list[str]) -> Attempt | None:
    row = states[name]
    if row.status not in _OPEN:
        return None
    make = {"load": _load_attempt, "scale": _scale_attempt, "switch": _switch_attempt}[name]
    return _read(notes, f"what {name} measured", lambda: make(ctx, row))


def _load_attempt(ctx: Context, row: Row) -> Attempt | None:
    from inferlift.load.gates import gates

    results = _results(ctx, row)
    if "requests" not in results:
        return None
    run = LoadRun.model_validate_json(results["requests"].result or "")
    asked = results.get("quality")
    quality = Quality.model_validate_json(asked.result or "") if asked else None
    judged = gates(ctx.profile.targets, run, quality, quality=quality is not None)
    return Attempt(stage="load", runs=(run,), quality=quality, gates=judged)


def _scale_attempt(ctx: Context, row: Row) -> Attempt | None:
    results, runs, lost = _results(ctx, row), [], None
    if whole := results.get("acceptance"):
        runs.append(LoadRun.model_validate_json(whole.result or ""))
    if loss := results.get("loss"):
        body = json.loads(loss.result or "")
        lost = str(body["host"])
        runs.append(LoadRun.model_validate(body["run"]))
    if not runs:
        return None
    deadline = (whole or loss).planned.get("deadline_s") if (whole or loss) else None  # type: ignore[union-attr]
    return Attempt(stage="scale", runs=tuple(runs), deadline_s=deadline, lost_host=lost)


def _switch_attempt(ctx: Context, row: Row) -> Attempt | None:
    kept = (ctx.ledger.document("switch_steps") or {}).get("steps") or ()
    steps = tuple(s for s in map(SwitchStep.model_validate, kept) if s.at.isoformat() >= (row.started or ""))
    return Attempt(stage="switch", steps=steps) if steps else None


def _results(ctx: Context, row: Row) -> dict[str, Intent]:
    """The finished steps of the stage's last attempt, by action: begun since it started, or gone on with."""
    found: dict[str, Intent] = {}
    for intent in ctx.ledger.intents():
        if intent.stage == row.name and intent.outcome == "done" and intent.result:
            kept = ctx.ledger.finished_step(intent.stage, intent.key, intent.action, intent.subject)
            if intent.started >= (row.started or "") or (kept is not None and kept.id == intent.id):
                found[intent.action] = intent
    return found


# --- decisions and versions -------------------------------------------------------------------------------------------


def _approvals(ctx: Context) -> tuple[Approval, ...]:
    from inferlift.plan import COVERS, plan_hash

    documents = [(part, ctx.ledger.document(f"approval:{part}")) for part in COVERS]
    return tuple(
        Approval(part=part, hash=plan_hash(d), covers=COVERS[part], document=d)
        for part, d in documents
        if isinstance(d, dict)
    )


def _overruled(approved: dict[str, Any]) -> tuple[Overruled, ...]:
    return tuple(
        Overruled(stage=stage, reason=str(a["reason"]), at=a.get("at"), overruled=str(a.get("overruled") or ""))
        for stage, a in approved.items()
    )


def _held(
    ctx: Context, states: dict[str, Row], found: dict[str, Any], approved: dict[str, Any], notes: list[str]
) -> dict[str, Any] | None:
    """What waits for a person now: a hold that was passed since is history."""
    held = _read(notes, "what is held", lambda: ctx.ledger.document("held"))
    if not isinstance(held, dict):
        return None
    stage, sizing, measured = str(held.get("stage")), found.get("sizing"), found.get("measurement")
    if stage == "size" and sizing is not None:
        verdicts = {sizing.verdict, *([measured.sizing.verdict] if measured else [])}
        return held if verdicts != {"go"} and "size" not in approved else None
    return held if stage in states and states[stage].status is Status.HELD else None


def _rollback(ctx: Context) -> Rollback | None:
    body = ctx.ledger.document("rollback")
    return Rollback(at=str(body["at"]), seconds=body.get("seconds")) if body else None


def _lock(ctx: Context) -> dict[str, Any]:
    from inferlift.lockfile import collect

    return collect(ctx)


# --- answers a second -------------------------------------------------------------------------------------------------


def _runs(data: ReportData) -> list[LoadRun]:
    runs = [run for attempt in data.attempts for run in attempt.runs]
    if data.measurement:
        runs += [data.measurement.run, *([data.measurement.origin_live] if data.measurement.origin_live else [])]
    if data.scaled:
        runs += [data.scaled.acceptance, data.scaled.with_loss]
    return runs


def _rate_of(run: LoadRun) -> Callable[[], tuple[tuple[float, float], ...]]:
    return lambda: _rate(run)


def _rate(run: LoadRun) -> tuple[tuple[float, float], ...]:
    """Answers a second over the run, in equal slices, from every request's own record; empty where that is gone."""
    path = Path(run.samples)
    if not path.is_file() or path.stat().st_size > MOST_SAMPLE_BYTES or run.seconds <= 0:
        return ()
    slices = max(1, min(SLICES, math.floor(run.seconds)))
    width = run.seconds / slices
    ended: Counter[int] = Counter()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith('{"i"') or '"error"' in line:
            continue
        sample = json.loads(line)
        if sample.get("total_ms") is not None:
            ended[min(slices - 1, math.floor((sample["at_s"] + sample["total_ms"] / 1000) / width))] += 1
    points = [(round(k * width, 3), ended[k] / width) for k in range(slices)]
    return (*points, (round(run.seconds, 3), points[-1][1])) if ended else ()
