"""Reads request logs in a window and says what the old system really does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from inferlift.artifacts import Evidence
from inferlift.artifacts.evidence import Bill, GpuUse, HostLook, ServerMetrics
from inferlift.audit import blocks
from inferlift.audit.assemble import assembled
from inferlift.audit.blocks import Block
from inferlift.audit.formats import Format, formats, named
from inferlift.audit.interrupts import heard_as_before
from inferlift.audit.layouts import LineReader
from inferlift.audit.parse import choose
from inferlift.audit.reading import Reading
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
    gpu: GpuUse | None = None,
    bill: Bill | None = None,
    servers: Sequence[ServerMetrics] = (),
    host: HostLook | None = None,
) -> Evidence:
    """Evidence from log files (paths; Path("-") is standard input) or from lines (text or bytes).

    `routes`: paths that are inference (each with what lies below it); None guesses from POSTs. `zone`: of times that
    carry none. The window is half open, [since, until); a stamp of whole seconds belongs to it only if its whole second
    does, so that a later audit of grown logs with since=evidence.start, until=evidence.end finds the same. Latency is
    the total clock of answered (status < 400) inference requests; errors are 0 (never answered), 408, 429, 499 and 5xx
    among inference requests. A window without a request is evidence too (n = 0). Raises DeclarationError where nothing
    can be read.
    """
    low, high = _microseconds(since, "since"), _microseconds(until, "until")
    wanted = named(format_name) if format_name and format_name != "auto" else None
    source, notes, name, written = _source(logs, wanted)
    first = next((block for block in source if len(block.lines)), None)
    sample = _sample(first)
    chosen = wanted or choose(sample)
    if chosen is None and first is not None:  # perhaps only the beginning is strange
        chosen = choose(first.lines.gather_every(max(1, len(first.lines) // SAMPLE)).to_list())
    if chosen is None or first is None:
        raise _nothing(name, first, sample)
    reading = Reading(routes=Routes(routes), low=low, high=high)
    reading.read(itertools.chain([first], source), LineReader(chosen, zone))
    if not reading.understood and not reading.outside:
        raise DeclarationError(
            f"{name}: no line could be understood",
            why="; ".join(reading.examples),
            next_command="name the log's format, or look at the lines",
        )
    return assembled(
        reading, chosen, name=name, notes=notes, written=written, gpu=gpu, bill=bill, servers=tuple(servers), host=host
    )


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
    seen = [*first.refused.values()][:3] if not sample else [repr(line[:60]) for line in sample[:3]]
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
