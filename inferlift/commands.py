"""What each task does: load the profile, open the session, call the library, print, return the exit code."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inferlift import steering
from inferlift.artifacts import Evidence, Sizing
from inferlift.detached import told
from inferlift.errors import DeclarationError, InferliftError, Refusal
from inferlift.ledger import now, write_atomically
from inferlift.migration import advance, looking, session, stages, status_rows
from inferlift.migration import deploy as run_stages
from inferlift.movable import deployable
from inferlift.place import Place, callers, place
from inferlift.profile import ROOT
from inferlift.stages.base import Context, Options


def deploy(
    profile: str,
    target: str | None,
    *,
    first: str | None = None,
    last: str | None = None,
    ask: bool = False,
    plan: str | None = None,
    locked: str | None = None,
    load_origin: bool = False,
    detach: bool = False,
    verbose: bool = False,
) -> int:
    from inferlift import lockfile, provision
    from inferlift.plan import approver

    where = place(profile, target)
    provision.ready(where.profile)
    given = None if locked is None else callers(locked).resolve()
    if given is not None:
        lockfile.read(given)
    options = Options(load_origin=load_origin, locked=given)
    typed = {"--from": first, "--to": last, "--plan": plan, "--locked": locked}
    flags = [f"{name} {value}" for name, value in typed.items() if value]
    flags += [name for name, given_ in (("--ask", ask), ("--load-origin", load_origin)) if given_]
    if detach:
        words = [word for name, value in typed.items() if value for word in (name, value)]
        given_flags = (("--ask", ask), ("--load-origin", load_origin), ("--verbose", verbose))
        words += [name for name, given_ in given_flags if given_]
        return steering.detached(where, ["deploy", "--profile", profile, *words])
    with session(where, " ".join(["deploy --profile", profile, *flags]), options=options, verbose=verbose) as ctx:
        if given is not None:
            lockfile.enforce(ctx, given)
            lockfile.pin(ctx, given)
        try:
            run_stages(
                ctx, first=first, last=last, approve=approver(ask=ask or where.profile.target != "lab", given=plan)
            )
        except (InferliftError, KeyboardInterrupt):
            _try_report(ctx)
            raise
        page = write_report(ctx)
        lockfile.write(ctx)
        if given is not None:
            lockfile.enforce_resolved(ctx, given)
        ctx.progress.note(f"report    {page}")
    return 0


def stage(name: str, profile: str, *, as_json: bool = False, verbose: bool = False) -> int:
    """One stage, asked for by name: it runs again even where it is done. What needs an approval needs it here too."""
    from inferlift.plan import approver

    where = place(profile)
    with session(where, f"{name} --profile {profile}", options=Options(explicit=True), verbose=verbose) as ctx:
        table = stages()
        if table["world"].applicable(ctx) is None:
            advance(ctx, table["world"])
        approver(ask=where.profile.target != "lab", given=None)(ctx, table[name])
        artifact = advance(ctx, table[name], again=True)
        write_report(ctx)
        summary = table[name].summary(artifact) if artifact is not None else "not applicable"
        if as_json:
            body = artifact.model_dump(mode="json") if artifact is not None else None
            verdict = getattr(artifact, "verdict", summary)
            print(json.dumps({"ok": True, "verdict": verdict, "figures": _numbers(ctx), "artifact": body}))
        else:
            ctx.progress.note(f"report    {ctx.folder / 'report.html'}")
    return 0


def size(
    profile: str, *, as_json: bool = False, explain: bool = False, verbose: bool = False, evidence: str = ""
) -> int:
    """The plan. Where a migration of the profile has begun, on its evidence, and kept as its stage's result."""
    from inferlift.prices import age_note, oldest
    from inferlift.sizing.show import figures, lines
    from inferlift.stages._plan import price_dates

    where = place(profile, planning=True)
    found = _planned(where, profile, verbose=verbose, evidence=evidence)
    note = age_note(oldest(price_dates(found)), datetime.date.today())
    if as_json:
        body = found.model_dump(mode="json")
        told = {"ok": True, "verdict": found.verdict, "figures": figures(found), "note": note or None}
        print(finite_json({**told, "artifact": body}))
        return 0
    print("\n".join(lines(found, explain=explain)))
    if note:
        print(f"prices     {note}")
    if not explain:
        print(f"next: ./invoke size --profile {profile} --explain, ./invoke tco --profile {profile}")
    return 0


def _planned(where: Place, profile: str, *, verbose: bool, evidence: str = "") -> Sizing:
    from inferlift.drafting import read_evidence
    from inferlift.stages._plan import planned

    if evidence:
        return _computed(lambda: planned(where.profile, read_evidence(callers(evidence))))
    found = None
    if where.folder.exists():
        with looking(where, "size") as ctx:
            found = ctx.optional("audit", Evidence)
        if found is not None and os.geteuid() == 0:
            with session(where, f"size --profile {profile}", options=Options(explicit=True), verbose=verbose) as ctx:
                kept = advance(ctx, stages()["size"], again=True)
                write_report(ctx)
                if isinstance(kept, Sizing):
                    return kept
    return _computed(lambda: planned(where.profile, found))


def _computed(work: Callable[[], Sizing]) -> Sizing:
    """Figures that no machine can hold are the profile's, not ours."""
    try:
        return work()
    except (OverflowError, ZeroDivisionError, ValueError) as error:
        raise DeclarationError(
            "the plan cannot be computed",
            why=f"a figure of the profile or the evidence is beyond all bounds ({error})",
            next_command="look for a number that is far too large or too small",
        ) from None


def finite_json(body: dict[str, Any]) -> str:
    """One object that every reader takes: no Infinity, no NaN."""
    try:
        return json.dumps(body, allow_nan=False)
    except ValueError:
        raise DeclarationError("a figure is not finite", why="a number of the profile is beyond all bounds") from None


def tco(profile: str, *, as_json: bool = False, explain: bool = False) -> int:
    """Buy, lease, rent, cloud or a managed service, over years, for the plan's hosts."""
    from inferlift.sizing import tco as comparison

    where = place(profile, planning=True)
    found = _planned(where, profile, verbose=False).tco
    assert found is not None  # noqa: S101
    if as_json:
        verdict = found.cheapest or "unknown"
        body = found.model_dump(mode="json")
        print(finite_json({"ok": True, "verdict": verdict, "figures": comparison.figures(found), "artifact": body}))
    else:
        print("\n".join(comparison.lines(found, explain=explain)))
    return 0


def plan(profile: str, target: str | None = None, *, as_json: bool = False) -> int:
    from inferlift.plan import show

    where = place(profile, target, planning=True)
    refused = None
    try:
        deployable(where.profile, profile)
    except DeclarationError as error:
        if where.profile.target != "aws":
            raise
        refused = error  # there a plan says what a fleet would be, also of what cannot be moved yet
    with looking(where, f"plan --profile {profile}") as ctx:
        lines, document = show(ctx)
        if as_json:
            print(json.dumps({"ok": True, "verdict": document["verdict"], "figures": _numbers(ctx), "plan": document}))
        else:
            print("\n".join(lines))
            if refused is not None:
                print(f"deploy    refused: {refused.what}")
    return 0


def approve(profile: str, reason: str) -> int:
    where = place(profile)
    if not reason.strip():
        raise DeclarationError(
            "an approval needs a reason",
            why="it stands in the report beside the verdict it overrules",
            next_command=f"./invoke approve --profile {profile} --reason '...'",
        )
    if steering.approve_step(where.folder, reason):
        print("approved; the switch that waits goes on by itself, or with ./invoke deploy --profile " + profile)
        return 0
    with session(where, f"approve --profile {profile}") as ctx:
        held = ctx.ledger.document("held")
        if held is None:
            raise Refusal("nothing is held", next_command=f"./invoke status --profile {profile}")
        approved = ctx.ledger.document("approved") or {}
        before = approved.get(held["stage"]) or {}
        approved[held["stage"]] = {
            "reason": reason,
            "at": now(),
            "overruled": held["why"],  # just this: other numbers hold again
            "earlier": [*before.get("earlier", ()), *([before["overruled"]] if before else [])],
        }
        ctx.ledger.set_document("approved", approved)
        ctx.ledger.drop_document("held")
    print(f"approved {held['stage']}; go on with ./invoke deploy --profile {profile}")
    return 0


def status(profile: str, *, as_json: bool = False, follow: bool = False, drift: bool = False) -> int:
    """How each stage stands; `follow`: until the run that is under way ends, with its exit code; `drift`: what is not
    as it was left."""
    where = place(profile)
    if follow:
        from inferlift.following import follow as follow_run

        return follow_run(where)
    if drift:
        return _drift(where, as_json=as_json)
    rows = status_rows(where)
    done = sum(r["status"] in ("done", "not applicable") for r in rows)
    with looking(where, "status") as ctx:
        held = ctx.ledger.document("held")
        figures = _numbers(ctx)
    if as_json:
        verdict = "done" if done == len(rows) else "held" if held else "pending"
        print(json.dumps({"ok": done == len(rows), "verdict": verdict, "figures": figures, "stages": rows}))
        return 0
    for r in rows:
        took = f"{r['seconds']:.0f} s" if r["seconds"] else ""
        print(f"{r['stage']:<8} {r['status']:<15} {took:>7}  {r['message']}".rstrip())
    if held:
        print(f"held in {held['stage']}: {held['why']}")
    if line := told(where.folder):
        print(line)
    return 0


def _drift(where: Place, *, as_json: bool) -> int:
    from inferlift.drift import drift, lines

    with looking(where, "status --drift") as ctx:
        found = drift(ctx)
    drifted = [c for c in found if not c.ok and not c.skipped]
    if as_json:
        checks = [c.model_dump(mode="json") for c in found]
        verdict = "drift" if drifted else "as it was left"
        print(
            json.dumps({"ok": not drifted, "verdict": verdict, "figures": {"drifted": len(drifted)}, "checks": checks})
        )
    else:
        print("\n".join(lines(found)))
        if drifted:
            print(f"next: ./invoke deploy --profile {where.profile.name} (it puts right what is ours)")
    return 0


def report(profile: str) -> int:
    where = place(profile)
    with looking(where, "report") as ctx:
        if not where.folder.exists():
            raise Refusal("there is nothing to report yet", next_command=f"./invoke deploy --profile {profile}")
        print(write_report(ctx))
    return 0


def diff(profile: str, a: str, b: str) -> int:
    from inferlift.lockfile import diff as differences
    from inferlift.lockfile import find

    where = place(profile)
    lines = differences(find(where.folder, a), find(where.folder, b))
    print("\n".join(lines) if lines else "the two runs resolved the same versions and measured the same figures")
    return 0


def destroy(profile: str, *, delete_data: bool = False, verbose: bool = False) -> int:
    from inferlift import provision
    from inferlift.teardown import destroy as remove

    where = place(profile)
    then = f"./invoke lab down --profile {profile} (the old world too)"
    if where.profile.raised is None:
        then = f"./invoke deploy --profile {profile} (all of it anew)"
    with session(where, f"destroy --profile {profile}", verbose=verbose) as ctx:
        left = remove(ctx, delete_data=delete_data)
        held = [] if left or delete_data else provision.kept(f"{where.owner}/fleet", ctx.folder)
        if held:
            told = "".join(f"\n  {line}" for line in held)
            print(f"kept, since it holds data:{told}")
            then = f"./invoke destroy --profile {profile} --delete-data (that too), or {then}"
        return _left(left, "the fleet, but for that," if held else "the fleet", then)


def lab(action: str, profile: str, *, verbose: bool = False) -> int:
    """The old world alone: up or down."""
    from inferlift.teardown import lab_down

    if action not in ("up", "down"):
        raise DeclarationError(
            f"the lab cannot {action!r}", why="expected up or down", next_command=f"./invoke lab up --profile {profile}"
        )
    where = place(profile)
    if where.profile.raised is None:
        raise DeclarationError(
            f"{where.profile.name} has no old world for the lab to raise or take down",
            why="its old side is a service that exists (`origin:`), and is left as it is",
            next_command=f"./invoke deploy --profile {profile} --to audit looks at it",
        )
    with session(where, f"lab {action} --profile {profile}", verbose=verbose) as ctx:
        if action == "up":
            advance(ctx, stages()["world"])
            return 0
        return _left(lab_down(ctx), "the lab's old world", f"./invoke deploy --profile {profile} (all of it anew)")


def profiles() -> int:
    from inferlift.declaration import load, names
    from inferlift.stages._plan import planned

    for name in names(ROOT):
        try:
            profile = load(name, ROOT).profile
            print(f"{name:<12} {profile.target:<6} {profile.task:<10} {profile.description}")
            found = planned(profile, None)
            each = found.costs.per_1000 if found.costs is not None else found.cost_per_1000
            cost = "cost unknown" if each.value is None else f"{each.value:.4g} {each.unit}"
            print(f"{'':<12} {found.verdict}: {found.replicas}+{found.spare} x {found.choice}, {cost} ({each.basis})")
        except InferliftError as error:
            print(f"{name:<12} wrong:  {error.what}")
    return 0


def doctor(target: str | None = None, profile: str = "", *, as_json: bool = False) -> int:
    """Tools of the target; with AWS, what the account says to a profile's fleet. A profile names its target itself."""
    from inferlift.toolchain.doctor import as_object, report, table

    where = place(profile, target, planning=True) if profile else None
    target = target or (where.profile.target if where else "lab")
    tools = report(target)
    account = None
    if target == "aws":
        from inferlift.stages import _account

        with looking(where or place("demo-aws", planning=True), "doctor") as ctx:
            account = _account.ask(ctx, preview=False)
    ok = all(t.present for t in tools) and (account is None or account.ok)
    if as_json:
        more = {"checks": [c.model_dump() for c in account.checks]} if account else {}
        print(json.dumps({**as_object(tools), **more, "ok": ok, "verdict": "complete" if ok else "missing"}))
        return 0 if ok else 1
    print(table(tools))
    if account is not None:
        print(f"\naccount, for the fleet of {where.profile.name if where else 'demo-aws (another: --profile)'}")
        print("\n".join(_account.lines(account)))
    return 0 if ok else 1


def write_report(ctx: Context) -> Path:
    """The page of everything known so far, beside the ledger."""
    from inferlift.report import render
    from inferlift.reporting import gather

    page = ctx.folder / "report.html"
    write_atomically(page, render(gather(ctx)))
    return page


def _try_report(ctx: Context) -> None:
    """The page of a run that did not end well; that it cannot be written does not hide why."""
    try:
        write_report(ctx)
    except OSError as error:
        ctx.progress.note(f"the report could not be written: {error}")


def _left(left: list[str], what: str, then: str) -> int:
    if left:
        print(f"left of {what}:\n" + "\n".join(f"  {line}" for line in left), file=sys.stderr)
        return 1
    print(f"{what} is gone; listed again by label: nothing is left")
    print(f"next: {then}")
    return 0


def _numbers(ctx: Context) -> dict[str, Any]:
    from inferlift.lockfile import figures

    return figures(ctx)
