"""One pass over the lines: blocks are read in columns by two threads, kept in log order, cut to the window, and only
what the figures need stays in memory (about 30 bytes a line)."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import polars as pl

from inferlift.audit.block import Block
from inferlift.audit.figures import whole
from inferlift.audit.formats import Format
from inferlift.audit.layouts import LineReader
from inferlift.audit.routes import Routes

WORKERS = 2
NO_INFERENCE = ("OPTIONS", "HEAD")
HOUR = 3_600_000_000
MOST_SUMS = 200_000  # routes times hours
_U32 = 2**32 - 1


@dataclass(frozen=True)
class _Told:
    """What is kept of a block's rows; `route` counts the block's own names."""

    formats: dict[str, int]
    statuses: dict[int, int]
    zones: set[str]
    unstamped: int
    steps: tuple[int, int, int, int]  # first and last stamp, steps back, the largest
    sums: pl.DataFrame
    kept: pl.DataFrame

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Told:
        lead = pl.when("started").then(0).otherwise(pl.col("duration").fill_null(0))
        hour = pl.when("asks").then((pl.col("stamp") - lead) // HOUR).cast(pl.Int32).alias("hour")
        sums = frame.group_by("route", "asks", hour).agg(
            pl.len().alias("n"),
            pl.col("sent").sum(),
            pl.col("sent").count().alias("sent_n"),
            pl.col("duration").filter(pl.col("upstream").is_not_null()).sum().alias("with_upstream"),
            pl.col("upstream").filter(pl.col("duration").is_not_null()).sum(),
        )
        return cls(
            dict(frame["format"].value_counts().iter_rows()),
            dict(frame["status"].drop_nulls().value_counts().iter_rows()),
            set(frame["zone"].drop_nulls().unique()),
            frame["stamp"].null_count(),
            _steps_back(frame),
            sums,
            _compact(frame),
        )


@dataclass(frozen=True)
class _Part:
    """A block, read: rows in the window in log order, and what was refused."""

    lines: int
    frame: pl.DataFrame  # of the rows in the window
    names: list[str]  # of the block's routes
    outside: int
    earliest: int | None  # the first and the last moment that any line stands for, in or out of the window
    latest: int | None
    refused: dict[int, str]
    rows: pl.DataFrame | None  # (row, inside) of all understood rows, where there is a window
    repeated: int
    ask: frozenset[str]
    told: _Told


@dataclass
class Reading:
    """What the pass leaves. Times in microseconds."""

    routes: Routes
    low: int | None = None
    high: int | None = None
    counted: int = 0
    refused: int = 0
    outside: int = 0
    earliest: int | None = None
    latest: int | None = None
    examples: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    zones: set[str] = field(default_factory=set)
    ask: set[str] = field(default_factory=set)
    unread: str = ""  # a piece of the lines that no field of the format holds
    unstamped: int = 0
    steps_back: int = 0
    largest_step_back: int = 0
    repeated: int = 0
    by_hour: bool = True  # bytes are known by hour
    kept: list[pl.DataFrame] = field(default_factory=list)
    sums: list[pl.DataFrame] = field(default_factory=list)  # by route: sent bytes, duration and upstream time
    _before: int | None = None  # the stamp of the row before
    _waiting: int = 0  # refused since the last understood row: which side of the window is not known yet
    _waiting_examples: list[str] = field(default_factory=list)
    _read: int = 0

    def read(self, source: Iterable[Block], chosen: Format, zone: str) -> None:
        readers: dict[Format, LineReader] = {}
        making = Lock()

        def work(block: Block) -> _Part:
            with making:
                wanted = block.format or chosen
                if wanted not in readers:
                    readers[wanted] = LineReader(wanted, zone)
            return self._part(block, readers[wanted])

        with ThreadPoolExecutor(WORKERS) as pool:
            for part in _in_order(pool, source, work):
                self._take(part)
        self._decide(True)

    @property
    def understood(self) -> int:
        return sum(self.formats.values())

    def _part(self, block: Block, reader: LineReader) -> _Part:
        found = reader.read(block.lines, block.refused)
        frame, rows, outside = found.frame, None, 0
        moments = (
            frame["stamp"]
            + pl.select(pl.when(frame["whole"].fill_null(True)).then(1_000_000).otherwise(1000)).to_series()
        )
        timed = len(moments) > moments.null_count()
        earliest, latest = (whole(frame["stamp"].min()), whole(moments.max())) if timed else (None, None)
        if self.low is not None or self.high is not None:
            inside = frame["stamp"].is_not_null()
            width = pl.select(pl.when(frame["whole"]).then(1_000_000).otherwise(0)).to_series()
            if self.low is not None:
                inside &= (frame["stamp"] >= self.low).fill_null(False)
            if self.high is not None:
                ends = (frame["stamp"] + width <= self.high) & (frame["stamp"] < self.high)
                inside &= ends.fill_null(False)
            rows = pl.DataFrame({"row": frame["row"], "inside": inside})
            outside = frame.height - int(inside.sum())
            frame = frame.filter(inside) if outside else frame
        lines = block.lines if frame.height == len(block.lines) else block.lines.gather(frame["row"])
        repeated = len(lines) - lines.n_unique()
        names, numbered = self.routes.of(frame["path"])
        frame = frame.join(numbered, on="path", how="left", maintain_order="left").drop("path", "row")
        asks = pl.col("hit") & ~pl.col("method").is_in(NO_INFERENCE).fill_null(False)
        if self.routes.declared is None:
            asks = (pl.col("method") == "POST") | (pl.col("method").is_null() & pl.col("route").is_not_null())
        frame = frame.with_columns(asks.fill_null(False).alias("asks"))
        told = _Told.of(frame)
        return _Part(
            len(block.lines), frame, names, outside, earliest, latest, found.refused, rows, repeated, found.ask, told
        )

    def _take(self, part: _Part) -> None:
        if part.latest is not None:
            self.latest = max(self.latest or part.latest, part.latest)
        if part.earliest is not None:
            self.earliest = min(self.earliest or part.earliest, part.earliest)
        self.outside += part.outside
        self._refuse(part)
        self._read += part.lines
        frame = part.frame
        if not frame.height:
            return
        self.counted += frame.height
        self.repeated += part.repeated
        self.ask |= part.ask
        told = part.told
        self.formats.update(told.formats)
        self.statuses.update(told.statuses)
        self.zones |= told.zones
        self.unstamped += told.unstamped
        self._clock(part)
        numbers = pl.Series([self.routes.number(name) for name in part.names], dtype=pl.UInt16)
        self.sums.append(told.sums.with_columns(numbers.gather(told.sums["route"]).alias("route")))
        if len(self.sums) > 50:
            self.sums = [self.summed()]
        self.kept.append(told.kept.with_columns(numbers.gather(told.kept["route"]).alias("route")))

    def summed(self) -> pl.DataFrame:
        found = pl.concat(self.sums)
        if self.by_hour and found.height > MOST_SUMS:
            found = found.group_by("route", "asks", "hour").agg(pl.all().sum())
            self.by_hour = found.height <= MOST_SUMS  # else bytes by hour would take more memory than the log's lines
        if not self.by_hour:
            found = found.with_columns(pl.lit(None, dtype=pl.Int32).alias("hour"))
        return found.group_by("route", "asks", "hour").agg(pl.all().sum())

    def _clock(self, part: _Part) -> None:
        if part.told.unstamped == part.frame.height:
            return
        first, last, steps, largest = part.told.steps
        between = self._before - first if self._before is not None else 0
        if between > _tolerance(part.frame):
            steps, largest = steps + 1, max(largest, between)
        self.steps_back += steps
        self.largest_step_back = max(self.largest_step_back, largest)
        self._before = last

    def _refuse(self, part: _Part) -> None:
        """A refused line belongs to the side of the window on which the next understood line lies."""
        refused = sorted(part.refused)
        if part.rows is None:
            self._wait(refused, part)
            self._decide(True)
            return
        understood, inside = part.rows["row"], part.rows["inside"]
        if not refused:
            if len(understood):
                self._decide(bool(inside[0]))
            return
        after = understood.search_sorted(pl.Series(refused, dtype=pl.UInt32)).to_list()
        if len(understood):
            first = [row for row, at in zip(refused, after, strict=True) if at == 0]
            self._wait(first, part)
            self._decide(bool(inside[0]))
        for at, group in itertools.groupby(zip(refused, after, strict=True), key=lambda pair: pair[1]):
            if len(understood) and at == 0:
                continue
            self._wait([row for row, _ in group], part)
            if at < len(understood):
                self._decide(bool(inside[at]))

    def _wait(self, rows: list[int], part: _Part) -> None:
        self._waiting += len(rows)
        for row in rows[: max(0, 3 - len(self._waiting_examples))]:
            self._waiting_examples.append(f"line {self._read + row + 1}: {part.refused[row]}")

    def _decide(self, inside: bool) -> None:
        if inside and self._waiting:
            self.counted += self._waiting
            self.refused += self._waiting
            self.examples += self._waiting_examples[: max(0, 3 - len(self.examples))]
        self._waiting, self._waiting_examples = 0, []


def _in_order(pool: ThreadPoolExecutor, source: Iterable[Block], work: Callable[[Block], _Part]) -> Iterator[_Part]:
    """One block more than there are workers is held, so that memory does not grow with the log."""
    running: deque[Future[_Part]] = deque()
    for block in source:
        running.append(pool.submit(work, block))
        if len(running) > WORKERS:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _steps_back(frame: pl.DataFrame) -> tuple[int, int, int, int]:
    stamps = frame["stamp"].drop_nulls()
    if not len(stamps):
        return 0, 0, 0, 0
    if stamps.is_sorted():
        return stamps[0], stamps[-1], 0, 0
    steps = stamps.diff().drop_nulls()
    back = steps.filter(steps < -_tolerance(frame))
    return stamps[0], stamps[-1], len(back), -whole(back.min())


def _tolerance(frame: pl.DataFrame) -> int:
    """Stamps of starts come in the order of the ends, so only long steps mean something there."""
    return 600_000_000 if frame["started"].any() else 1_000_000


def _compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns that the figures need, each as narrow as this block allows."""
    columns = ["stamp", "whole", "started", "route", "asks", "status", "duration", "first", "received"]
    kept = frame.select(
        *columns[:6],
        *(pl.col(name).cast(pl.UInt32 if _fits(frame[name]) else pl.Int64) for name in columns[6:]),
    )
    more = [name for name in ("session", "body") if frame[name].null_count() < frame.height]
    if more:
        kept = kept.hstack(
            frame.select(pl.col("session").hash(7).alias("session") if name == "session" else name for name in more)
        )
    return kept


def _fits(column: pl.Series) -> bool:
    return whole(column.max()) <= _U32
