"""The lab's users while the switch and the watch run: their own process, their own record of what they saw."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferlift import process
from inferlift.artifacts import Figure, Gate, Series, UserCounts, World
from inferlift.ledger import now
from inferlift.stages._common import pictures
from inferlift.stages.base import Context

SLICES = 60  # of the time of a switch, in its plot


@contextmanager
def running(ctx: Context, world: World, what: str) -> Iterator[None]:
    """Users send requests by name, until the block ends; a kill ends them too (they watch their parent)."""
    rate = ctx.profile.raised.users if ctx.profile.raised else 0  # nobody plays a real service's users
    if not rate:
        yield
        return
    config = ctx.run_folder / f"users-{what}.json"
    config.write_text(
        json.dumps(
            {
                "name": world.contract.name,
                "resolver": world.resolver.address,
                "ca": world.contract.ca,
                "key_header": world.contract.key_header,
                "key": world.contract.key,  # a reference
                "route": world.contract.routes[0].path,
                "rate": rate,
                "max_tokens": ctx.profile.requests.output_tokens,
                "pictures": [c.prompt for c in pictures(ctx)] if ctx.profile.task == "image" else [],
                "out": str(_folder(ctx, what) / f"{ctx.ledger.run}.jsonl"),
                "limit_s": 3600,
            }
        )
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "inferlift.load.users", str(config)],
        cwd=ctx.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(ctx.run_folder / f"users-{what}.log").open("ab"),
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.end([child.pid], grace_s=15)
        child.wait()


def counts(ctx: Context, world: World, new: str, what: str, *, since_run: str) -> tuple[UserCounts, ...]:
    """What the lab's users saw since that run began; none where nobody played users.

    A run's records are called by its id, which begins with its time.
    """
    from inferlift.load.users import summarise

    files = [f for f in _files(ctx, what) if f.stem >= since_run]
    return summarise(files, world.address, new) if files else ()


def sides(ctx: Context, world: World, new: str, what: str, *, since_run: str) -> tuple[Series, ...]:
    """Where each client's answers came from, over time."""
    from inferlift.load.users import since

    files = [f for f in _files(ctx, what) if f.stem >= since_run]
    return by_side(since(files, 0.0), world.address, new)


def by_side(records: Sequence[dict[str, Any]], old: str, new: str) -> tuple[Series, ...]:
    """Share of answers from the new side in equal slices of the time, one series a client; slices without an answer
    are left out."""
    answered = [r for r in records if r.get("ok") and r.get("side") in (old, new)]
    if not answered:
        return ()
    first, last = min(r["t"] for r in answered), max(r["t"] for r in answered)
    width = max((last - first) / SLICES, 1.0)
    counts: dict[str, dict[int, list[int]]] = {}
    for record in answered:
        slot = counts.setdefault(str(record["client"]), {}).setdefault(int((record["t"] - first) // width), [0, 0])
        slot[record["side"] == new] += 1
    return tuple(
        Series(
            name=client,
            unit="share",
            points=tuple((first + (k + 0.5) * width, n[1] / sum(n)) for k, n in sorted(slots.items())),
        )
        for client, slots in sorted(counts.items())
    )


def gate(ctx: Context, what: str, since: datetime) -> Gate:
    """No user's request may fail."""
    from inferlift.load.users import since as seen_since

    seen = seen_since(_files(ctx, what), since.timestamp())
    failed = sum(1 for s in seen if not s["ok"])
    figure = Figure(
        value=float(failed) if seen else None, unit="requests", basis="measured" if seen else "unknown",
        source="the lab's users", at=now(), n=len(seen),
    )  # fmt: skip
    if not seen:
        return Gate(name="users", verdict="inconclusive", target=0.0, figure=figure, why="no user sent a request yet")
    return Gate(
        name="users", verdict="fail" if failed else "pass", target=0.0, figure=figure,
        why=f"{failed} of {len(seen)} users' requests failed since {since.astimezone(UTC):%H:%M:%S}",
    )  # fmt: skip


def _folder(ctx: Context, what: str) -> Path:
    return ctx.path("users", what)


def _files(ctx: Context, what: str) -> list[Path]:
    return sorted(_folder(ctx, what).glob("*.jsonl"))
