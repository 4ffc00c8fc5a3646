"""The ordered stages of one migration: the done are verified, the missing run, what a kill left is settled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from inferlift import __version__, process
from inferlift.artifacts import Artifact, Check, Status
from inferlift.drift import drift
from inferlift.errors import CheckFailed, DeclarationError, Held, InferliftError, Interrupted, Refusal
from inferlift.ledger import Ledger, digest, reading
from inferlift.place import Place, claim
from inferlift.profile import ROOT, Profile
from inferlift.progress import Progress
from inferlift.stages import _notice
from inferlift.stages.base import Context, Options, Stage, moved

# What a stage builds on, finished: else it is refused, whoever asks for it.
UPSTREAM: dict[str, tuple[str, ...]] = {
    "poc": ("build",),
    "load": ("audit", "poc"),
    "migrate": ("poc",),
    "scale": ("poc", "load"),
    "switch": ("poc", "migrate", "scale"),
    "watch": ("scale", "switch"),
}
ORDER = ("audit", "size", "build", "poc", "load", "migrate", "scale", "switch", "watch")


def stages() -> dict[str, Stage]:
    """All stages in order, the old side first."""
    from inferlift.stages.audit import AuditStage
    from inferlift.stages.build import BuildStage
    from inferlift.stages.load import LoadStage
    from inferlift.stages.migrate import MigrateStage
    from inferlift.stages.poc import PocStage
    from inferlift.stages.scale import ScaleStage
    from inferlift.stages.size import SizeStage
    from inferlift.stages.switch import SwitchStage
    from inferlift.stages.watch import WatchStage
    from inferlift.stages.world import WorldStage

    made: list[Stage] = [
        WorldStage(), AuditStage(), SizeStage(), BuildStage(), PocStage(),
        LoadStage(), MigrateStage(), ScaleStage(), SwitchStage(), WatchStage(),
    ]  # fmt: skip
    return {s.name: s for s in made}


@contextmanager
def looking(where: Place, command: str) -> Iterator[Context]:
    """A context that changes nothing: no lock, no folder, an empty ledger where there is none yet."""
    with reading(where.folder) as ledger:
        yield Context(
            root=ROOT,
            folder=where.folder,
            run_folder=where.folder,
            owner=where.owner,
            profile=where.profile,
            profile_path=where.profile_path,
            ledger=ledger or Ledger.empty(where.folder),
            progress=Progress(),
        )


@contextmanager
def session(
    where: Place,
    command: str,
    *,
    options: Options | None = None,
    verbose: bool = False,
    on_boundary: Callable[[str], None] | None = None,
) -> Iterator[Context]:
    """An exclusive run: the lock taken, remnants of a killed run ended, open intents settled."""
    if os.geteuid() != 0 and (why := _needs_root(where.profile)):
        raise Refusal("this needs root", why=why, next_command=f"sudo ./invoke {command}")
    if (unfit := _not_reachable()) is not None:
        raise unfit
    claim(where.state)
    with Ledger.open(where.folder, command=f"invoke {command}", declared_in=where.profile_path) as ledger:
        run_folder = where.folder / "runs" / ledger.run
        run_folder.mkdir(parents=True, mode=0o700)
        progress = Progress(run_folder / "run.log", verbose=verbose)
        ctx = Context(
            root=ROOT,
            folder=where.folder,
            run_folder=run_folder,
            owner=where.owner,
            profile=where.profile,
            profile_path=where.profile_path,
            ledger=ledger,
            progress=progress,
            options=options or Options(),
        )
        ctx.drift = lambda: drift(ctx)
        if on_boundary is not None:
            ledger.on_boundary = on_boundary
        try:
            with _signals(), process.owned(where.owner):
                settle(ctx)
                yield ctx
        except (KeyboardInterrupt, Interrupted):
            process.end(process.remnants(ctx.owner))  # nothing of ours works on, or keeps this process waiting
            raise Interrupted(
                f"stopped{' in ' + ctx.stage if ctx.stage else ''}",
                why="nothing is lost: what was finished is in the ledger, what was begun is settled by the next run",
                next_command=f"./invoke {command}",
            ) from None
        finally:
            ctx.close()
            progress.close()


def settle(ctx: Context) -> None:
    """What a killed run left: its processes are ended, its open intents get an outcome. Before anything else."""
    if left := process.remnants(ctx.owner):
        ctx.say(f"ending {len(left)} processes that a killed run left behind")
        process.end(left)
    table = stages()
    for intent in ctx.ledger.open_intents():
        what = f"{intent.stage} {intent.action} {intent.subject}"
        try:
            outcome = table[intent.stage].settle(ctx, intent) if intent.stage in table else "absent"
        except Interrupted:
            raise
        except InferliftError as error:
            # It stays open and is asked about again; the command itself may be the one that mends what is missing.
            ctx.progress.note(f"unsettled {what}: {error.what}" + (f" ({error.why})" if error.why else ""))
            continue
        ctx.progress.note(f"settled   {what}: {outcome}")
        ctx.ledger.close_intent(intent.id, outcome)


def deploy(ctx: Context, *, first: str | None = None, last: str | None = None, approve: Approver | None = None) -> None:
    """Run the stages from `first` to `last`: verify what is done, run what is not, hold where a person must decide."""
    table = stages()
    names = _span_of(first, last)
    walk = (["world"] if table["world"].applicable(ctx) is None else []) + list(names)
    _verify_ahead(ctx, table, walk)
    for index, name in enumerate(walk):
        if approve is not None and table[name].applicable(ctx) is None:
            approve(ctx, table[name])
        advance(ctx, table[name], walk[index + 1 :])


Approver = Callable[[Context, Stage], None]


def advance(ctx: Context, stage: Stage, later: Sequence[str] = (), *, again: bool = False) -> Artifact | None:
    """Bring one stage to where it should be. Returns its artifact.

    Raises Held, CheckFailed and the rest of the tree with the stage's row saying the same.
    """
    ledger, name = ctx.ledger, stage.name
    ctx.stage = name
    if (why := stage.applicable(ctx)) is not None:
        ledger.begin(name, "")
        ledger.finish(name, None, Status.NOT_APPLICABLE, 0.0, why)
        ctx.progress.note(f"{name:<8} not applicable: {why}")
        return None
    parts = {"tool": __version__, **stage.key(ctx)}
    ctx.key = digest(parts)
    row = ledger.stage(name)
    once, unreadable = _recorded(ledger, stage)
    known = once if row is not None and row.status is Status.DONE else None
    expected = ledger.expected_seconds(name)
    after = sum(ledger.expected_seconds(n) or 0.0 for n in later)
    findings: list[Check] = []
    if known is not None and row is not None and not again:
        if row.key != ctx.key:
            changed = _changed(ledger.document(f"key:{name}"), parts)
            if moved(ledger) and name != "watch":
                ctx.progress.note(f"{name:<8} stale: {changed} changed; users are on the fleet, so it is not repeated")
                ctx.progress.note(f"{'':<8} to repeat it on purpose: ./invoke {name} --profile {ctx.profile.name}")
                return known
            ctx.progress.note(f"{name:<8} runs again: {changed} changed")
        else:
            findings = [c for c in _verified(ctx, stage, known) if not c.ok and not c.skipped]
            if not findings:
                ctx.progress.note(f"{name:<8} verified: {stage.summary(known)}")
                return known
            for c in findings:
                ctx.progress.note(f"{name:<8} found: {c.name}: {c.detail}")
            if name == "load" and moved(ledger):
                ctx.progress.note(f"{name:<8} users are on the fleet, so it is not repeated: ./invoke {name} does")
                return known
    elif unreadable is not None:
        if name in ("load", "scale") and not again and moved(ledger):
            raise CheckFailed(
                f"the result of {name} cannot be believed",
                why=f"{unreadable}; users are on the fleet, so it is not measured again by itself",
                next_command=f"./invoke {name} --profile {ctx.profile.name}",
            )
        ctx.progress.note(f"{name:<8} found: {unreadable}; it is made anew")
    elif row is not None and row.status in (Status.FAILED, Status.HELD, Status.UNCERTAIN):
        ctx.progress.note(f"{name:<8} goes on (it was {row.status.value})")
    _require(ctx, name)
    # What was accepted once is not load-tested again under users because a repair of it was killed or failed.
    accepted = once if known is None and not again and name in ("load", "scale") and moved(ledger) else None
    if name == "load" and accepted is not None and row is not None:
        ctx.progress.note(f"{name:<8} is {row.status.value}; users are on the fleet, so ./invoke {name} repeats it")
        return accepted
    ctx.progress.stage(name, expected_s=expected, remaining_after_s=after)
    ledger.begin(name, ctx.key)
    start = time.monotonic()
    try:
        held_before = row is not None and row.status is Status.HELD
        if (known is not None and (findings or again)) or (again and held_before and name != "switch"):
            ledger.forget_steps(name)
        to_repair = accepted or (known if findings else None)
        artifact = stage.repair(ctx, to_repair, findings) if to_repair is not None else stage.run(ctx)
    except InferliftError as error:
        status = Status.HELD if isinstance(error, Held) else Status.FAILED
        if isinstance(error, Held):
            ledger.set_document("held", {"stage": name, "why": error.why or error.what})
            _notice.tell(ctx, "held", error.why or error.what)
        # what the monitor misses now takes nothing from a watch that was passed
        if not isinstance(error, Interrupted) and not (name == "watch" and known is not None):
            ledger.finish(
                name, None, status, time.monotonic() - start, f"{error.what}: {error.why}" if error.why else error.what
            )
        raise
    seconds = time.monotonic() - start
    # The parts come first: later stages' keys are made of them, and a kill in between repeats the stage.
    ledger.set_document(f"key:{name}", parts)
    ledger.finish(name, artifact, Status.DONE, seconds)
    ledger.timed(name, seconds)
    release(ledger, name)
    ctx.forget_probes()
    ctx.progress.done(stage.summary(artifact))
    return artifact


def release(ledger: Ledger, name: str) -> None:
    """A hold of a stage that was passed is history."""
    held = ledger.document("held")
    if isinstance(held, dict) and held.get("stage") == name:
        ledger.drop_document("held")


def status_rows(where: Place) -> list[dict[str, Any]]:
    """How each stage stands, read without the lock."""
    rows = []
    with reading(where.folder) as ledger:
        for name in ORDER:
            row = ledger.stage(name) if ledger else None
            rows.append(
                {
                    "stage": name,
                    "status": row.status.value if row else Status.PENDING.value,
                    "finished": row.finished if row else None,
                    "seconds": row.seconds if row else None,
                    "message": row.message if row else "",
                }
            )
    return rows


# --- helpers ----------------------------------------------------------------------------------------------------------


def _verify_ahead(ctx: Context, table: dict[str, Stage], names: Sequence[str]) -> None:
    """Start the verifications of all finished stages at once; `advance` collects them."""
    for name in names:
        row = ctx.ledger.stage(name)
        if row is None or row.status is not Status.DONE:
            continue
        stage = table[name]
        artifact, _ = _recorded(ctx.ledger, stage)
        if artifact is not None:
            ctx.start_probe(f"stage:{name}", lambda s=stage, a=artifact: s.verify(ctx, a))  # type: ignore[misc]


def _verified(ctx: Context, stage: Stage, artifact: Artifact) -> list[Check]:
    try:
        return ctx.probe(f"stage:{stage.name}", lambda: stage.verify(ctx, artifact))
    except (InferliftError, OSError, ValueError) as error:
        return [Check(name="verification", ok=False, detail=str(error).replace("\n", " "))]


def _recorded(ledger: Ledger, stage: Stage) -> tuple[Artifact | None, str | None]:
    """The stage's recorded artifact, or why it cannot be believed."""
    try:
        return ledger.artifact(stage.name, stage.artifact), None
    except CheckFailed as error:
        return None, error.why


def _require(ctx: Context, name: str) -> None:
    """Raises Refusal where a stage that this one builds on is not finished."""
    for needed in UPSTREAM.get(name, ()):
        row = ctx.ledger.stage(needed)
        status = Status.PENDING if row is None else row.status
        if status not in (Status.DONE, Status.NOT_APPLICABLE):
            raise Refusal(
                f"{name} needs {needed}, which " + ("has not run" if row is None else f"is {status.value}"),
                why=row.message if row is not None else "",
                next_command=f"./invoke deploy --profile {ctx.profile.name} --to {name}",
            )


def _changed(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """The names of what differs between two keys."""
    if before is None:
        return "what it depends on"
    names = [k for k in sorted({*before, *after}) if digest(before.get(k)) != digest(after.get(k))]
    return ", ".join(names) or "what it depends on"


def _span_of(first: str | None, last: str | None) -> tuple[str, ...]:
    import difflib

    for given in (first, last):
        if given is not None and given not in ORDER:
            near = difflib.get_close_matches(given, ORDER, 1)
            raise DeclarationError(
                f"there is no stage {given!r}" + (f"; did you mean {near[0]}?" if near else ""),
                why=f"the stages are {', '.join(ORDER)}",
            )
    low = ORDER.index(first) if first else 0
    high = ORDER.index(last) if last else len(ORDER) - 1
    if low > high:
        raise DeclarationError(f"--from {first} comes after --to {last}", why=f"the order is {', '.join(ORDER)}")
    return ORDER[low : high + 1]


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # What whoever started us had ignored (nohup) stays ignored.
    heard = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, stop) for s in heard}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _needs_root(profile: Profile) -> str:
    """Why; empty where it does not."""
    if profile.target == "lab" or profile.raised is not None:
        return "the lab's hosts are podman machines with systemd and networks of their own"
    return "podman builds the app's image in a storage of its own" if profile.origin is not None else ""


def _not_reachable() -> InferliftError | None:
    """The lab runs on Linux with Debian's packages; anything else is said before something is made."""
    if sys.platform != "linux":
        return Refusal("the lab needs a Linux host", why=f"this is {sys.platform}", next_command="use a Debian machine")
    return None
