"""Reads request logs in a window and says what the old system really does."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from inferlift.artifacts import Evidence
from inferlift.artifacts.evidence import Bill, HostLook, ServerMetrics
from inferlift.audit import blocks
from inferlift.audit.assemble import assembled
from inferlift.audit.block import Block
from inferlift.audit.formats import Format, formats, named
from inferlift.audit.gpu import Readings
from inferlift.audit.interrupts import heard_as_before
from inferlift.audit.parse import shown
from inferlift.audit.reading import Reading
from inferlift.audit.recognise import by_header, choose, resolved, unread
from inferlift.audit.routes import Routes
from inferlift.errors import DeclarationError

SAMPLE = 200  # lines that decide the format


@heard_as_before()
def audit(
    logs: Iterable[Path | str | bytes],
    *,
    routes: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    format_name: str | None = None,
    zone: str = "UTC",
    gpu: Readings | None = None,
    bill: Bill | None = None,
    servers: Sequence[ServerMetrics] = (),
    host: HostLook | None = None,
    must_match: bool = False,
) -> Evidence:
    """Evidence from log files (paths; Path("-") is standard input) or from lines (text or bytes).

    `routes`: paths that are inference (each with what lies below it); None guesses from POSTs. `zone`: of times that
    carry none. The window is half open, [since, until); a stamp of whole seconds belongs to it only if its whole second
    does, so that a later audit of grown logs with since=evidence.start, until=evidence.end finds the same. Latency is
    the total clock of answered (status < 400) inference requests; errors are 0 (never answered), 408, 429, 499 and 5xx
    among inference requests. A window without a request is evidence too (n = 0), unless it `must_match`: what a person
    typed and nothing answers to is a mistake. Raises DeclarationError where nothing can be read.
    """
    low, high = _microseconds(since, "since"), _microseconds(until, "until")
    if low is not None and high is not None and low >= high:
        raise DeclarationError(f"the window ends before it begins: {since} to {until}", why="it is [since, until)")
    wanted = named(format_name) if format_name and format_name != "auto" else None
    source, notes, name, written = _source(logs, wanted)
    first = next((block for block in source if len(block.lines)), None)
    sample = _sample(first)
    chosen = _resolved(wanted, first, sample) if wanted and first is not None else choose(sample)
    if chosen is None and first is not None:  # perhaps only the beginning is strange
        chosen = choose(first.lines.gather_every(max(1, len(first.lines) // SAMPLE)).to_list())
    if chosen is None or first is None:
        raise _nothing(name, first, sample)
    reading = Reading(routes=Routes(routes), low=low, high=high)
    reading.unread = unread(sample, chosen)
    reading.read(by_header(itertools.chain([first], source), chosen), chosen, zone)
    if not reading.understood and not reading.outside:
        raise DeclarationError(
            f"{name}: no line could be understood",
            why="; ".join(reading.examples),
            next_command="name the log's format, or look at the lines",
        )
    if must_match and not reading.understood:
        raise _outside(name, reading)
    evidence = assembled(
        reading,
        chosen,
        name=name,
        notes=notes,
        written=written,
        gpu=gpu,
        zone=zone,
        bill=bill,
        servers=tuple(servers),
        host=host,
    )
    if must_match and routes and not evidence.inference_n:
        raise _no_route(name, routes, evidence)
    return evidence


def _resolved(wanted: Format, first: Block, sample: Sequence[str]) -> Format:
    try:
        return resolved(wanted, sample)
    except DeclarationError:  # a key that is rare may come later
        return resolved(wanted, first.lines.to_list())


def _outside(name: str, reading: Reading) -> DeclarationError:
    given = [f"{word} {_day(us)}" for word, us in (("from", reading.low), ("until", reading.high)) if us is not None]
    if reading.earliest is None or reading.latest is None:
        why = f"its {reading.outside} lines carry no time"
    else:
        why = f"its {reading.outside} lines are of {_day(reading.earliest)} to {_day(reading.latest)} UTC"
    return DeclarationError(
        f"{name}: no line lies in the window ({' '.join(given)} UTC)", why=why, next_command="mend --since and --until"
    )


def _no_route(name: str, routes: Sequence[str], evidence: Evidence) -> DeclarationError:
    paths = [route.route for route in evidence.other_routes]
    near = [match for route in routes for match in difflib.get_close_matches(route, paths, 1)]
    busiest = ", ".join(f"{route.route} ({route.n})" for route in evidence.other_routes[:8])
    lower = {path.lower() for path in paths}
    called = [route for route in routes if route.lower().rstrip("/") in lower]
    why = f"there is: {busiest or 'no path at all'}"
    if called:
        why = f"{', '.join(called)} was only asked with OPTIONS or HEAD, or is written in other letters; {why}"
    return DeclarationError(
        f"{name}: none of its {evidence.n} requests goes to {', '.join(routes)}",
        why=why,
        next_command=f"--routes {near[0]}" if near else "name the inference routes, or leave --routes out for a guess",
    )


def _day(us: int) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def _source(
    logs: Iterable[Path | str | bytes], wanted: Format | None
) -> tuple[Iterator[Block], list[str], str, float | None]:
    """The blocks in order, notes on what was left out, what to call the whole, and when it was last written."""
    iterator = iter(logs)
    first = next(iterator, None)
    if first is None:
        raise DeclarationError("no log was given", why="expected at least one access log")
    if not isinstance(first, Path):
        given = itertools.chain([first], iterator)
        return blocks.given(map(_bytes, given)), [], "the lines given", None
    files = [first, *(path for path in iterator if isinstance(path, Path))]
    in_order, notes = blocks.ordered(files, wanted)
    more = f" and {len(in_order) - 1} more" if len(in_order) > 1 else ""
    written = [path.stat().st_mtime for path in in_order if str(path) != blocks.STDIN]
    name = "standard input" if str(first) == blocks.STDIN else first.name
    read = itertools.chain.from_iterable(blocks.blocks(path, notes.append) for path in in_order)
    return read, notes, f"{name}{more}", max(written, default=None)


def _bytes(line: Path | str | bytes) -> bytes:
    return line if isinstance(line, bytes) else str(line).encode("utf-8", "surrogateescape")


def _sample(block: Block | None) -> list[str]:
    if block is None:
        return []
    lines = block.lines.head(SAMPLE).to_list()
    return [line for row, line in enumerate(lines) if row not in block.refused]


def _nothing(name: str, first: Block | None, sample: Sequence[str]) -> DeclarationError:
    if first is None:
        return DeclarationError(f"{name}: no lines", why="the log is empty")
    known = ", ".join(candidate.name for candidate in formats())
    seen = [*first.refused.values()][:3] if not sample else [shown(line) for line in sample[:3]]
    return DeclarationError(
        f"{name}: no known log format; it begins {'; '.join(seen)}",
        why=f"known formats: {known}",
        next_command="--format with a name, the server's log_format line, or a mapping file",
    )


def _microseconds(moment: datetime | None, what: str) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise DeclarationError(f"{what} has no time zone: {moment}", why="logs of several zones are compared in UTC")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
