"""`invoke bench audit`: the audit and GoAccess over the same made-up nginx logs, in the same run on this machine."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from inferlift.errors import DeclarationError

SIZES = (2_000_000, 10_000_000)
LIMITS = {"ratio_to_goaccess": 10.0, "peak_rss_mb": 1024.0, "linearity": 1.2}
_CHUNK = 250_000
_BEGIN = 1_790_000_000  # September 2026
_RATE = 40.0  # requests a second
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "python-requests/2.32", "okhttp/4.12.0", "curl/8.5.0",
)  # fmt: skip
_AUDIT = (
    "import sys; from pathlib import Path; from inferlift.audit import audit, show; "
    "found = audit([Path(sys.argv[1])]); show.print_evidence(found); print(found.n)"
)
_WRITE = (
    "import sys; from pathlib import Path; from inferlift.audit.bench import write; "
    "write(Path(sys.argv[1]), int(sys.argv[2]))"
)
_TOLD = (("seconds", "s"), ("cpu_seconds", "s of CPU"), ("rss_mb", "MiB"))


def bench(
    *, sizes: Sequence[int] = SIZES, folder: Path | None = None, runs: int = 1, say: Callable[[str], None] = print
) -> dict[str, float]:
    """Figures: ratio_to_goaccess (lines a second, first size), peak_rss_mb (last size), linearity (seconds a line, last
    over first), cpu_linearity (the same of CPU time, which other work on the machine changes less), and the seconds
    themselves (medians of `runs`). Needs goaccess on PATH.

    Raises DeclarationError where goaccess is missing.
    """
    goaccess = shutil.which("goaccess")
    if goaccess is None:
        raise DeclarationError(
            "goaccess is not installed", why="it is the peer", next_command="apt-get install goaccess"
        )
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-", dir=folder) as place:
        for size in sizes:
            log = Path(place) / f"{size}.log"
            say(f"writing {size} lines")
            _timed([sys.executable, "-c", _WRITE, str(log), str(size)])  # apart: a child's peak counts its parent's too
            audits = [_timed([sys.executable, "-c", _AUDIT, str(log)]) for _ in range(runs)]
            for told in audits:
                if told.out != str(size):
                    raise RuntimeError(f"the audit understood {told.out} of {size} lines")
            _add(figures, f"audit_{size}", audits, say)
            if size == sizes[0]:
                peers = [_timed(_goaccess(goaccess, log, Path(place))) for _ in range(runs)]
                _add(figures, f"goaccess_{size}", peers, say)
            log.unlink()
    first, last = sizes[0], sizes[-1]
    figures["ratio_to_goaccess"] = round(figures[f"goaccess_{first}_seconds"] / figures[f"audit_{first}_seconds"], 2)
    figures["peak_rss_mb"] = figures[f"audit_{last}_rss_mb"]
    for name, of in (("linearity", "seconds"), ("cpu_linearity", "cpu_seconds")):
        figures[name] = round(figures[f"audit_{last}_{of}"] / last / (figures[f"audit_{first}_{of}"] / first), 3)
    return figures


def _add(figures: dict[str, float], name: str, runs: Sequence[_Run], say: Callable[[str], None]) -> None:
    figures[f"{name}_seconds"] = round(statistics.median(run.seconds for run in runs), 2)
    figures[f"{name}_cpu_seconds"] = round(statistics.median(run.cpu_seconds for run in runs), 2)
    figures[f"{name}_rss_mb"] = round(max(run.rss_mb for run in runs))
    told = ", ".join(f"{figures[f'{name}_{what}']:g} {unit}" for what, unit in _TOLD)
    say(f"{name}: {told}")


def passed(figures: dict[str, float]) -> bool:
    return (
        figures["ratio_to_goaccess"] >= LIMITS["ratio_to_goaccess"]
        and figures["peak_rss_mb"] <= LIMITS["peak_rss_mb"]
        and figures["linearity"] <= LIMITS["linearity"]
    )


def write(path: Path, lines: int) -> None:
    """nginx combined with rt, uht, urt and rl: 60 % chat, 10 % of it under an id of its own, 30 % pages and files.

    The same lines every time. Latencies are lognormal, arrivals random at 40 a second.
    """
    with path.open("wb") as file:
        at = float(_BEGIN)
        for begin in range(0, lines, _CHUNK):
            text, at = _lines(begin, min(_CHUNK, lines - begin), at)
            file.write("\n".join(text.to_list()).encode() + b"\n")


def _lines(begin: int, count: int, at: float) -> tuple[pl.Series, float]:
    row = pl.int_range(begin, begin + count, dtype=pl.UInt64, eager=True)

    def uniform(seed: int) -> pl.Series:
        return (row.hash(seed) // 2048).cast(pl.Float64) / 2.0**53 + 1e-12

    kind = uniform(1)
    normal = (uniform(2).log() * -2).sqrt() * (uniform(3) * (2 * math.pi)).cos()
    ends = (uniform(4).log() * (-1 / _RATE)).cum_sum() + at
    columns = pl.DataFrame({
        "kind": kind, "status": uniform(5), "id": row.hash(6), "agent": row.hash(7) % len(_AGENTS),
        "a": row.hash(8) % 256, "b": row.hash(9) % 256, "sent": row.hash(10) % 9000 + 200,
        "rl": row.hash(11) % 4000 + 300,
        "chat": (normal * 0.7 - 1).exp(), "end": (ends * 1e6).cast(pl.Int64).cast(pl.Datetime("us")),
    })  # fmt: skip
    request = (
        pl.when(pl.col("kind") < 0.6).then(pl.lit("POST /api/chat HTTP/1.1"))
        .when(pl.col("kind") < 0.7).then(pl.format("POST /v1/chat/{}/messages HTTP/1.1", pl.col("id")))
        .when(pl.col("kind") < 0.9).then(pl.format("GET /static/app.{}.js HTTP/2.0", pl.col("id") % 200))
        .otherwise(pl.lit("GET / HTTP/1.1"))
    )  # fmt: skip
    status = (
        pl.when(pl.col("status") < 0.98).then(200).when(pl.col("status") < 0.985).then(404)
        .when(pl.col("status") < 0.99).then(499).when(pl.col("status") < 0.995).then(502).otherwise(429)
    )  # fmt: skip
    took = (pl.when(pl.col("kind") < 0.7).then(pl.col("chat")).otherwise(0.004) * 1000).round().cast(pl.Int64)
    agent = pl.col("agent").replace_strict(dict(enumerate(_AGENTS)), return_dtype=pl.String)
    text = pl.format(
        '10.{}.{}.7 - - [{}] "{}" {} {} "https://example.com/" "{}" rt={} uht="{}" urt="{}" rl={}',
        "a", "b", pl.col("end").dt.strftime("%d/%b/%Y:%H:%M:%S +0000"), request, status, "sent", agent,
        _seconds(took), _seconds(took * 6 // 10), _seconds(took * 19 // 20), "rl",
    )  # fmt: skip
    return columns.select(text).to_series(), float(ends[-1])


def _seconds(ms: pl.Expr) -> pl.Expr:
    return pl.format("{}.{}", ms // 1000, (ms % 1000).cast(pl.String).str.zfill(3))


def _goaccess(program: str, log: Path, folder: Path) -> list[str]:
    return [program, str(log), '--log-format=%h %^[%d:%t %^] "%r" %s %b "%R" "%u" rt=%T %^', "--date-format=%d/%b/%Y",
            "--time-format=%H:%M:%S", "--no-progress", "--no-global-config",
            "-o", str(folder / "goaccess.json")]  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """A whole process: wall and CPU seconds, peak resident memory in MiB, the last line of its output."""

    seconds: float
    cpu_seconds: float
    rss_mb: float
    out: str


def _timed(command: Sequence[str]) -> _Run:
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        error = child.stderr.read() if child.stderr else b""
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.stderr:
            child.stderr.close()
        if child.returncode:
            told = error[-500:].decode("utf-8", "replace")
            raise RuntimeError(f"{command[0]} exited with {child.returncode}: {told}")
        out.seek(0)
        last = out.read().decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return _Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, last)
