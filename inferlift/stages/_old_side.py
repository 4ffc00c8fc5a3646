"""What the old side's own access log says: errors while users move, and whether anybody still comes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from inferlift import ssh
from inferlift.artifacts import Figure, Gate, World
from inferlift.artifacts.cutover import Quiet
from inferlift.ledger import now

AGENT = "inferlift-load"  # of our own requests (inferlift/load/target.py)
LINES = 5000  # of the log's end; users that leave a log so full in one window are no quiet ones


def gate(world: World, since: datetime) -> Gate:
    """Errors in the old side's own log since the step began."""
    from inferlift.audit import audit

    lines = _tail(world, 2000)
    # an empty log (just rotated) holds no error either
    seen = audit(lines, routes=[r.path for r in world.contract.routes], since=since) if lines else None
    n, errors = (seen.inference_n, seen.errors) if seen else (0, 0)
    figure = Figure(
        value=errors / n if n else None,
        unit="share",
        basis="measured" if n else "unknown",
        source="the old side's access log",
        at=now(),
        n=n,
    )
    why = f"{errors} of {n} requests failed on the old side" if n else "the old side saw no request in this step"
    return Gate(name="old side errors", verdict="fail" if errors else "pass", target=0.0, figure=figure, why=why)


def quiet(world: World, *, since: datetime, window_s: float) -> Quiet:
    """Is the old side quiet since users left (`since`)? Raises Retryable when its log cannot be read."""
    from inferlift.dns import stubborn

    # the log is in the host's time, and so is the end of the window
    clock = ssh.run(world.origin, "date +%s", timeout_s=20).stdout.strip()
    lines = _tail(world, LINES)
    return stubborn.quiet(
        lines,
        since=since,
        now=datetime.fromtimestamp(int(clock), UTC),
        window_s=window_s,
        paths=[r.path for r in world.contract.routes],
        ours=() if world.lab else (AGENT,),  # in the lab the users are ours
    )


def recorded(world: World) -> str:
    """The requests that were recorded last, as JSON lines; empty where none are kept."""
    if world.recorded:
        return Path(world.recorded).read_text(encoding="utf-8", errors="replace")
    return ssh.run(world.origin, f"tail -n 400 {world.body_log}", timeout_s=30).stdout if world.body_log else ""


def _tail(world: World, lines: int) -> list[str]:
    """The end of the newest log, with the one before it: it may have been rotated a moment ago."""
    packed = r"\.\(gz\|bz2\|xz\|zst\)$"
    command = (
        f"set -- $(ls -1t -- {world.log_glob} | grep -v '{packed}' | head -n 2); test -r \"$1\" && "
        f'cat -- $2 "$1" | tail -n {lines}'
    )
    return ssh.run(world.origin, command, timeout_s=20).stdout.splitlines()
