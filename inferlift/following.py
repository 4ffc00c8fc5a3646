"""`status --follow`: a run seen from another process, by the ledger and the run's log. It takes no lock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from inferlift import detached
from inferlift.ledger import reading
from inferlift.migration import status_rows
from inferlift.place import Place

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY_S = 0.5
LINES = 8
STARTS_WITHIN_S = 8.0  # a run that was just started, detached, has its row soon


@dataclass(frozen=True)
class Run:
    id: str
    command: str
    pid: int
    started: str
    exit: int | None  # None: under way, or killed
    message: str

    @property
    def alive(self) -> bool:
        return self.exit is None and Path(f"/proc/{self.pid}").exists()


@dataclass
class Tail:
    """New lines of a file that grows."""

    path: Path
    at: int = 0
    rest: bytes = b""
    last: list[str] = field(default_factory=list)

    def new(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                data = file.read()
        except OSError:
            return []
        self.at += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        lines = [line.decode(errors="replace") for line in whole]
        self.last = (self.last + lines)[-LINES:]
        return lines


def follow(
    where: Place,
    *,
    out: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    after: str = "",
) -> int:
    """Look on until the run ends; its exit code. Without a run under way: how it stands, and 0. A run that was killed
    gives 1, unless it is detached: then the one that is started after it is followed (`after`: the killed one), however
    soon that ends. On a terminal one view that is rewritten, else a line for each step."""
    out = out or sys.stdout
    until = clock() + STARTS_WITHIN_S
    while (run := newest(where)) is None or run.id == after or not (run.alive or (after and run.exit is not None)):
        supervised = detached.look(where.folder) or {}
        if clock() >= until and not (after and supervised.get("running")):
            print(detached.told(where.folder) if after else "no run is under way", file=out)
            _stages(where, out)
            return int(supervised.get("exit") or 1) if after else 0
        sleep(EVERY_S)
    tail = Tail(where.folder / "runs" / run.id / "run.log")
    show = _terminal if out.isatty() else _plain
    show(where, run.id, tail, out, sleep)
    ended = by_id(where, run.id)
    if ended is None or ended.exit is None:
        if (detached.look(where.folder) or {}).get("running"):
            print("the run was killed; it is detached, and started again", file=out)
            return follow(where, out=out, sleep=sleep, clock=clock, after=run.id)
        print(f"the run was killed; the same command goes on: ./{run.command}", file=out)
        return 1
    print(f"ended with {ended.exit}{': ' + ended.message if ended.message else ''}", file=out)
    return ended.exit


def newest(where: Place) -> Run | None:
    return next(iter(reversed(_runs(where))), None)


def by_id(where: Place, name: str) -> Run | None:
    return next((run for run in _runs(where) if run.id == name), None)


def _runs(where: Place) -> list[Run]:
    with reading(where.folder) as ledger:
        rows = ledger.runs() if ledger is not None else []
    return [Run(row[0], row[1], int(row[2]), row[3], row[5], row[6] or "") for row in rows]


def _plain(where: Place, name: str, tail: Tail, out: TextIO, sleep: Callable[[float], None]) -> None:
    while True:
        run = by_id(where, name)
        for line in tail.new():
            print(line, file=out, flush=True)
        if run is None or not run.alive:
            return
        sleep(EVERY_S)


def _terminal(where: Place, name: str, tail: Tail, out: TextIO, sleep: Callable[[float], None]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=out), auto_refresh=False, transient=False) as live:
        while True:
            run = by_id(where, name)
            tail.new()
            live.update(view(where, run, tail.last, datetime.now(UTC)), refresh=True)
            if run is None or not run.alive:
                return
            sleep(EVERY_S)


def view(where: Place, run: Run | None, lines: list[str], now: datetime) -> RenderableType:
    """The stages, where users are, and the newest lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for row in status_rows(where):
        took = f"{row['seconds']:.0f} s" if row["seconds"] else ""
        style = {"done": "green", "failed": "red", "held": "yellow", "uncertain": "bold"}.get(row["status"], "dim")
        word = "runs" if row["status"] == "uncertain" and run is not None and run.alive else row["status"]
        table.add_row(row["stage"], Text(word, style=style), took, Text(row["message"][:100]))
    head = "no run"
    if run is not None:
        head = f"{run.command}, pid {run.pid}, {_span(run.started, now)}"
    return Group(Text(head, style="bold"), table, Text(_users(where)), *[Text(line, style="dim") for line in lines])


def _users(where: Place) -> str:
    with reading(where.folder) as ledger:
        kept: dict[str, Any] = (ledger.document("switch_steps") or {}) if ledger is not None else {}
    steps = kept.get("steps") or []
    if not steps or kept.get("back"):
        return "users are on the old side"
    return f"users: {steps[-1]['weight']} % on the new side"


def _stages(where: Place, out: TextIO) -> None:
    for row in status_rows(where):
        print(f"{row['stage']:<8} {row['status']:<15} {row['message']}".rstrip(), file=out)


def _span(started: str, now: datetime) -> str:
    seconds = (now - datetime.fromisoformat(started)).total_seconds()
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
