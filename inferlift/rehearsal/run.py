"""`invoke rehearse`: plant a fault, type what a user would type, hold how it ends against what is documented."""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift.errors import CheckFailed, DeclarationError, InferliftError, Refusal
from inferlift.profile import ROOT
from inferlift.rehearsal.standing import Ended, Standing, lab_only, own_place
from inferlift.report import FaultRow

RESULTS = "rehearsal.json"  # in the migration's folder; the report shows it
DOC = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- table: made by `invoke rehearse` -->", "<!-- end of table -->"
HELD = 3
OLD_SIDE = "scale"  # stages up to here leave users on the old side


@dataclass(frozen=True)
class Spec:
    """One row of faults.yaml."""

    name: str
    what: str
    after: str
    type: str
    exit: int
    users: str
    says: str = ""
    heal: str = ""
    own: bool = False


def rehearse(
    fault: str, profile: str, *, here: bool = False, keep: bool = False, write: bool = False, as_json: bool = False
) -> int:
    """Rehearse one fault or `all`. In a lab of its own, raised and removed again; `here`: on the migration that stands.

    Returns 0 when every fault ended as documented, else 1. Raises DeclarationError, Refusal.
    """

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # a command that is being rehearsed ends with us
    chosen = choose(fault, specs())
    lab = _standing(profile, here, say)
    rows: list[FaultRow] = []
    try:
        for spec in chosen:
            if here and spec.own:
                say(f"{spec.name:<20} not here: it needs a lab of its own (leave --here out)")
                continue
            if not here:
                ensure(lab, spec.after)
            rows.append(meet(lab, spec))
            say(line_of(rows[-1]))
            keep_rows(lab.place.folder, rows)
            if write:  # at once: a rehearsal that is stopped keeps what it saw
                write_doc(rows)
    finally:
        if not here and not keep:
            take_down(lab)
    ok = bool(rows) and all(row.ok for row in rows)
    if as_json:
        figures = {f"{row.fault}_seconds": row.seconds for row in rows}
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures,
                          "faults": [row.model_dump() for row in rows]}))  # fmt: skip
    elif not rows:
        raise Refusal("no fault was rehearsed", why="those asked for need a lab of their own",
                      next_command=f"./invoke rehearse --fault {fault}")  # fmt: skip
    return 0 if ok else 1


def specs() -> list[Spec]:
    import yaml

    table: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text("utf-8"))
    return [Spec(name=name, **row) for name, row in table.items()]


def choose(fault: str, known: Sequence[Spec]) -> list[Spec]:
    """Raises DeclarationError for a name that is none, naming the nearest."""
    if fault == "all":
        return list(known)
    found = [spec for name in fault.split(",") for spec in known if spec.name == name]
    if len(found) == len(fault.split(",")):
        return found
    wrong = next(name for name in fault.split(",") if name not in {s.name for s in known})
    near = difflib.get_close_matches(wrong, [s.name for s in known], 1)
    raise DeclarationError(
        f"there is no fault {wrong!r}" + (f"; did you mean {near[0]}?" if near else ""),
        why=f"there are: {', '.join(s.name for s in known)}, and all",
        next_command=f"./invoke rehearse --fault {near[0] if near else 'all'}",
    )


def meet(lab: Standing, spec: Spec, faults: Mapping[str, Callable[[], Any]] | None = None) -> FaultRow:
    """Plant, type, heal, type again; never raises for a fault that ends in another way than documented."""
    if faults is None:
        from inferlift.rehearsal.faults import FAULTS

        faults = FAULTS
    fault, before = faults[spec.name](), lab.users()
    began, ended, trouble = time.monotonic(), None, ""
    try:
        fault.plant(lab)
        ended = lab.invoke(spec.type)
    except (InferliftError, OSError) as error:
        trouble = f"could not be rehearsed: {str(error).splitlines()[0]}"
    seconds = round(time.monotonic() - began, 1)
    users = _users(lab)
    try:
        fault.heal(lab)
        looks = 2 if spec.heal == "watch" else 1
        if spec.heal and (again := _typed(lab, spec.heal, looks)).code != 0:
            trouble = trouble or f"after it, `{spec.heal}` ended with {again.code}: {last_words(again)}"
    except (InferliftError, OSError) as error:
        trouble = trouble or f"could not be undone: {str(error).splitlines()[0]}"
    # on a migration that stands, users stay where they were unless the fault moves them
    expected = before if spec.users == "old" else spec.users
    trouble = trouble or (differs(spec, ended, users, expected) if ended else "")
    return FaultRow(
        fault=spec.name, what=spec.what, typed=spec.type, outcome=trouble or (last_words(ended) if ended else ""),
        exit=ended.code if ended else None, expected_exit=spec.exit, users=users, seconds=seconds, ok=not trouble,
    )  # fmt: skip


def differs(spec: Spec, ended: Ended, users: str, expected: str) -> str:
    """What is not as documented; empty when all is."""
    if ended.code != spec.exit:
        return f"ended with {ended.code}, documented is {spec.exit}: {last_words(ended)}"
    if "Traceback" in ended.text:
        return "ended in a traceback"
    if spec.says and not re.search(spec.says, ended.text):
        return f"does not say {spec.says!r}: {last_words(ended)}"
    return "" if users == expected else f"users are at {users}, documented is {expected}"


def last_words(ended: Ended) -> str:
    """The line that says how it ended; of what was found, the first is the cause and the others follow from it."""
    lines = [line.strip() for line in ended.text.splitlines() if line.strip()]
    said = [line.removeprefix("inferlift: ") for line in lines if line.startswith("inferlift: ")]
    found = [line for line in lines if " found: " in line]
    plain = [line for line in lines if not line.startswith(("report", "next", "why"))]
    return re.sub(r"\s+", " ", (said[-1:] or found[:1] or plain[-1:] or ["nothing"])[0])[:160]


def ensure(lab: Standing, after: str) -> None:
    """Bring the rehearsal's lab to where the fault is planted. Raises CheckFailed when it does not get there."""
    states = lab.statuses()
    if after == OLD_SIDE:
        if states["switch"] != "pending" and lab.users() != "old":
            _must(lab, "rollback")
        _must(lab, "deploy --to scale")
    elif not states["switch"] == states["watch"] == "done":
        _must(lab, "deploy --to scale")
        _must(lab, "switch")
        _must(lab, "watch", looks=2)


def take_down(lab: Standing) -> None:
    """The rehearsal's lab is removed; what cannot be is said, and the commands that do."""
    from inferlift.ledger import reading

    with reading(lab.place.folder) as ledger:
        if ledger is None:
            return
    lab.say("the rehearsal's lab is taken down")
    if lab.statuses()["switch"] not in ("pending",):
        lab.invoke("rollback")
    for _ in range(20):
        done = lab.invoke("destroy")
        if "saw" not in done.text or done.code == 0:
            break
    down = lab.invoke("lab down")
    if done.code or down.code:
        lab.say(f"left: INFERLIFT_STATE={lab.place.state} ./invoke destroy --profile {lab.profile}, then lab down")


def keep_rows(folder: Path, rows: Sequence[FaultRow]) -> None:
    """Beside the ledger, newest of each fault; the report reads it."""
    path = folder / RESULTS
    known = {row["fault"]: row for row in json.loads(path.read_text("utf-8"))} if path.is_file() else {}
    known |= {row.fault: row.model_dump() for row in rows}
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(list(known.values()), indent=1), encoding="utf-8")
    temporary.replace(path)


def write_doc(rows: Sequence[FaultRow], path: Path = DOC) -> None:
    """The table in docs/faults.md; rows of faults that were not rehearsed now stay as they are."""
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    table, _, tail = rest.partition(END)
    known = {cells[1].strip(" `"): line for line in table.splitlines() if len(cells := line.split("|")) > 5}
    made = {row.fault: _doc_line(row) for row in rows}
    lines = [made.get(spec.name) or known.get(spec.name) for spec in specs()]
    body = "\n".join(
        ["| fault | typed | how it ended | exit | users | seconds |", "| --- | --- | --- | --- | --- | --- |",
         *[line for line in lines if line]]
    )  # fmt: skip
    path.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}", encoding="utf-8")


def line_of(row: FaultRow) -> str:
    mark = "as documented" if row.ok else "NOT as documented"
    return f"{row.fault:<20} {mark}: exit {row.exit}, {row.seconds:.0f} s, users {row.users}: {row.outcome}"


def _doc_line(row: FaultRow) -> str:
    outcome = row.outcome.replace("|", "\\|") + ("" if row.ok else " (NOT as documented)")
    return f"| `{row.fault}` | `{row.typed}` | {outcome} | {row.exit} | {row.users} | {row.seconds:.0f} |"


def _typed(lab: Standing, line: str, looks: int) -> Ended:
    """A watch that decides nothing (too few requests, no history) is looked at anew, as it says itself."""
    done = lab.invoke(line)
    for _ in range(looks - 1):
        if done.code == HELD:
            done = lab.invoke(line)
    return done


def _must(lab: Standing, line: str, *, looks: int = 1) -> None:
    lab.say(f"before the fault: invoke {line}")
    done = _typed(lab, line, looks)
    if done.code:
        raise CheckFailed(
            f"the rehearsal's lab did not get ready: {line} ended with {done.code}",
            why=last_words(done),
            next_command=f"see {lab.place.state}/rehearsal-logs/commands.log",
        )


def _users(lab: Standing) -> str:
    try:
        return lab.users()
    except InferliftError:
        return "unknown"


def _standing(profile: str, here: bool, say: Callable[[str], None]) -> Standing:
    from inferlift.place import place

    if os.geteuid() != 0:
        raise Refusal("the lab needs root", next_command="sudo ./invoke rehearse --fault all")
    if not here:
        own, path = own_place(profile)
        return Standing(own, str(path), say)
    lab = Standing(lab_only(place(profile)), profile, say)
    if lab.statuses()["watch"] != "done":
        raise Refusal(
            f"no finished migration of {profile} stands here",
            next_command=f"./invoke deploy --profile {profile}, or leave --here out for a lab of its own",
        )
    return lab
