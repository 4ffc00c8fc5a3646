"""Is the old side quiet? Its own access log decides when it may go, not the TTL.

Clients that keep a connection and resolvers that serve stale answers go on for longer; they are listed by address and
agent, so that somebody can talk to them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from inferlift.artifacts.cutover import Quiet, StubbornClient

# Combined log format of nginx and Apache; whatever follows the agent is left alone.
LINE = re.compile(r'(\S+) \S+ .*?\[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d{3}) \S+ "[^"]*" "([^"]*)"')
# What came was no HTTP (a scanner, TLS on a plain port): no user's request, whoever sent it.
NO_REQUEST = re.compile(r'\S+ \S+ .*?\[[^\]]+\] "[^"]*" 400 ')
TIME = "%d/%b/%Y:%H:%M:%S %z"


def quiet(
    lines: Iterable[str],
    *,
    since: datetime,
    now: datetime,
    window_s: float,
    ours: Collection[str] = (),
    paths: Collection[str] = (),
) -> Quiet:
    """What the old side's log says since the switch ended (`since`), and whether its last `window_s` were quiet.

    `ours`: agents (by their beginning) that are no users: our own probes, monitoring. `paths`: only requests to these
    count (none given: all). Lines that cannot be read are counted and leave it undecided (None): a user may be in one.
    """
    clients: dict[tuple[str, str], list[datetime]] = {}
    unread = 0
    for line in lines:
        found = LINE.match(line)
        at = _time(found[2]) if found else None
        if found is None or at is None:
            unread += bool(line.strip()) and NO_REQUEST.match(line) is None
            continue
        path, agent = found[4].partition("?")[0], found[6]
        if at < since or agent.startswith(tuple(ours)) or (paths and path not in paths):
            continue
        clients.setdefault((found[1], agent), []).append(at)
    seen = sorted(
        (
            StubbornClient(address=address, agent=agent, requests=len(times), last=max(times))
            for (address, agent), times in clients.items()
        ),
        key=lambda c: (-c.requests, c.address, c.agent),
    )
    start = now - timedelta(seconds=window_s)
    last = max((c.last for c in seen), default=None)
    late = [c for c in seen if c.last > start]
    verdict: bool | None = not late
    why = f"no user's request for {window_s:.0f} s"
    if late:
        why = f"{len(late)} clients asked the old side in the last {window_s:.0f} s"
    elif unread:
        verdict, why = None, f"{unread} lines of the old side's log cannot be read"
    elif since > start:
        verdict, why = None, f"users left {(now - since).total_seconds():.0f} s ago, {window_s:.0f} s are looked at"
    return Quiet(quiet=verdict, why=why, window_s=window_s, last=last, unread=unread, clients=tuple(seen))


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, TIME)
    except ValueError:
        return None
