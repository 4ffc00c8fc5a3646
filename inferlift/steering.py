"""What steers a switch besides its stage: runs without a terminal, approvals beside a run, the way back, the end."""

from __future__ import annotations

import sys
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.ledger import Ledger, connect, now, reading
from inferlift.migration import session
from inferlift.place import Place, place


def detached(where: Place, words: list[str]) -> int:
    """The same command without the terminal; what is wrong from the start is told here."""
    from inferlift import detached as runs

    ended = runs.start(where.folder, words)
    if ended:
        print((where.folder / runs.LOG).read_text(encoding="utf-8", errors="replace")[-2000:], file=sys.stderr)
        return ended
    print(runs.told(where.folder) or "it has begun")
    print(f"next: ./invoke status --profile {where.profile.name}")
    return 0


def approve_step(folder: Path, reason: str) -> bool:
    """A switch that waits for the approval of its next step holds the ledger's lock: it is told by one document."""
    with reading(folder) as ledger:
        waiting = ledger.document("waiting") if ledger else None
    if waiting is None:
        return False
    db = connect(folder)
    try:
        given = {"attempt": waiting["attempt"], "weight": waiting["weight"], "reason": reason, "at": now()}
        Ledger(folder, db, "approve").set_document("step_approved", given)
    finally:
        db.close()
    return True


def rollback(profile: str, *, verbose: bool = False) -> int:
    from inferlift.commands import write_report
    from inferlift.teardown import rollback as back

    with session(place(profile), f"rollback --profile {profile}", verbose=verbose) as ctx:
        seconds = back(ctx)
        write_report(ctx)
    print(f"all users are on the old side; authority and resolver said so after {seconds:.1f} s")
    print(f"next: ./invoke switch --profile {profile} (move users again), or ./invoke destroy --profile {profile}")
    return 0


def decommission(profile: str, *, apply: bool, undo: bool, as_json: bool, verbose: bool = False) -> int:
    """The end of the old side: shown, done with `apply`, taken back with `undo`."""
    from inferlift import decommission as end
    from inferlift.commands import finite_json, write_report

    if apply and undo:
        raise DeclarationError("--apply and --undo are opposites", next_command="give one of them")
    name = f"decommission --profile {profile}"
    with session(place(profile), name, verbose=verbose) as ctx:
        if undo:
            was = end.undo(ctx)
            write_report(ctx)
            print(
                "the old side runs again and answers: it is the way back" if was else "the old side was not taken away"
            )
            return 0
        seen, steps = end.decommission(ctx, apply=apply)
        write_report(ctx)
    verdict = "done" if apply or seen is None else "offered"
    if as_json:
        figures = {"quiet_window_s": seen.window_s if seen else None, "clients": len(seen.clients) if seen else None}
        rows = [{"do": s.text, "back": s.back} for s in steps]
        print(finite_json({"ok": True, "verdict": verdict, "figures": figures, "steps": rows}))
        return 0
    print(f"the old side: {seen.why}" if seen else "the old side was taken away before")
    for number, step in enumerate(steps, 1):
        print(f"{number}. {step.text}\n   back: {step.back}")
    if verdict == "offered":
        print(f"nothing was done; next: ./invoke {name} --apply")
    else:
        print(f"done; back: ./invoke {name} --undo, or ./invoke rollback --profile {profile} (users too)")
    return 0
