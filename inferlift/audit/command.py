"""`invoke audit --logs ...`: files in, evidence out, on a terminal or as one JSON object."""

from __future__ import annotations

import glob
import json
import math
import re
import zoneinfo
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from inferlift.artifacts import Evidence
from inferlift.artifacts.evidence import HostLook
from inferlift.audit import sample, show
from inferlift.audit.bills import bill
from inferlift.audit.evidence import audit
from inferlift.audit.gpu import gpu_readings
from inferlift.audit.look import look, over_ssh
from inferlift.audit.servers import server_metrics
from inferlift.audit.waiting import Waiting, cost_of_waiting
from inferlift.errors import DeclarationError

_WAITING = {"visitors": "visitors", "value": "value", "ai": "ai_share", "now": "seconds_now", "then": "seconds_then",
            "lost": "lost_per_second", "hours": "team_hours", "hour-cost": "hour_cost"}  # fmt: skip


def run(
    logs: str,
    *,
    gpu: str = "",
    bill_file: str = "",
    metrics: str = "",
    host: str = "",
    format_name: str = "auto",
    routes: str = "",
    since: str = "",
    until: str = "",
    zone: str = "UTC",
    sample_file: str = "",
    waiting: str = "",
    as_json: bool = False,
) -> int:
    """The whole command: prints, and returns the exit code 0. Empty texts are options that were not given.

    `logs`, `metrics`: paths or patterns, by commas; `routes` by commas; `host`: as ssh takes it; `sample_file`: where
    to write requests for the parity replay; `waiting`: visitors=50000,value=2,ai=0.3,then=0.5[,now=3][,lost=0.07]
    [,hours=10,hour-cost=60] (now: P95 where it is not given).

    Raises DeclarationError (exit 2) where nothing can be read, Retryable where the host does not answer.
    """
    patterns = _listed(logs)
    if not patterns:
        raise DeclarationError("no log was given", why="--logs takes paths or patterns, by commas, or -")
    if sample_file and "-" in patterns:
        raise DeclarationError("--sample needs files", why="standard input can be read once only")
    check_zone(zone)
    seen = look(over_ssh(host), host) if host else None
    evidence = audit_files(
        patterns, gpu=gpu or None, bill_file=bill_file or None, metrics=_listed(metrics), format_name=format_name,
        routes=_listed(routes) or None, since=since, until=until, zone=zone, host=seen,
    )  # fmt: skip
    cost = waiting_of(waiting, evidence) if waiting else None
    if sample_file:
        found = sample.recorded(matching(patterns), routes=_listed(routes) or None, format_name=format_name)
        sample.write(Path(sample_file), found)
    if as_json:
        print(json.dumps(show.as_json(evidence, cost)))
    else:
        show.print_evidence(evidence, cost)
    return 0


def audit_files(
    logs: Sequence[str],
    *,
    gpu: str | None = None,
    bill_file: str | None = None,
    metrics: Sequence[str] = (),
    format_name: str = "auto",
    routes: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    zone: str = "UTC",
    host: HostLook | None = None,
) -> Evidence:
    """`logs`: paths or patterns, "-" is standard input. Raises DeclarationError (exit 2) where nothing can be read."""
    check_zone(zone)
    return audit(
        matching(logs),
        routes=routes,
        since=moment(since, "--since"),
        until=moment(until, "--until"),
        format_name=format_name,
        zone=zone,
        gpu=gpu_readings(Path(gpu)) if gpu else None,
        bill=bill(Path(bill_file)) if bill_file else None,
        servers=[server_metrics(Path(path)) for path in metrics],
        host=host,
        must_match=True,
    )


def matching(patterns: Iterable[str]) -> list[Path]:
    """Raises DeclarationError for a pattern that nothing matches."""
    found: list[Path] = []
    for pattern in patterns:
        if pattern == "-" or Path(pattern).exists():
            found.append(Path(pattern))
            continue
        hits = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())  # noqa: PTH207
        if not hits:
            raise DeclarationError(f"no log matches {pattern}", why="expected a path, a pattern in quotes, or -")
        found += hits
    return found


def moment(text: str | None, what: str) -> datetime | None:
    """An ISO time (UTC unless it says otherwise), or how long ago: 90m, 24h, 7d, 4w."""
    if text is None or not text.strip():
        return None
    try:
        if found := re.fullmatch(r"(\d+)([mhdw])", text.strip(), re.A):
            unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[found[2]]
            told = datetime.now(UTC).replace(microsecond=0) - timedelta(**{unit: int(found[1])})
        else:
            told = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        told = datetime.min
    if not 1970 <= told.year <= 2200:
        raise DeclarationError(f"{what} {text!r} is no time", why="for example 2026-10-01, 2026-10-01T12:00Z or 7d")
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def check_zone(zone: str) -> None:
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise DeclarationError(f"there is no time zone {zone!r}", why="for example Europe/Berlin, or UTC") from None


def waiting_of(text: str, evidence: Evidence) -> Waiting:
    """Raises DeclarationError for inputs that are missing or no numbers."""
    given: dict[str, float] = {}
    for part in _listed(text):
        key, _, value = part.partition("=")
        try:
            amount = float(value)
            if not math.isfinite(amount):
                raise ValueError(value)
            given[_WAITING[key.strip()]] = amount
        except (KeyError, ValueError):
            raise DeclarationError(
                f"--waiting: {part!r} is not understood", why=f"known: {', '.join(_WAITING)}"
            ) from None
    if "seconds_now" not in given and evidence.latency.p95_ms is not None:
        given["seconds_now"] = evidence.latency.p95_ms / 1000
    needed = ("visitors", "value", "ai_share", "seconds_now", "seconds_then")
    missing = [key for key, name in _WAITING.items() if name in needed and name not in given]
    if missing:
        example = "--waiting visitors=50000,value=2,ai=0.3,now=3,then=0.3"
        raise DeclarationError(
            f"--waiting: {', '.join(missing)} missing", why="nothing is guessed", next_command=example
        )
    return cost_of_waiting(**given)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
