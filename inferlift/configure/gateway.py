"""The gateway's HAProxy, through its admin socket and its access log, over SSH."""

from __future__ import annotations

import csv
import io
import re
import time
from dataclasses import dataclass

from inferlift import ssh
from inferlift.artifacts import Host
from inferlift.errors import CheckFailed, Refusal

SOCKET = "/run/haproxy-admin.sock"
BACKEND = "models"
NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")


@dataclass(frozen=True)
class ServerState:
    """One model host as the gateway sees it."""

    name: str
    status: str  # HAProxy's own word: UP, DOWN, DRAIN, MAINT, "UP 1/2" ...
    sessions: int  # requests it is answering now
    queue: int  # requests waiting for this very server
    requests: int  # answered since HAProxy started or was reloaded

    @property
    def serving(self) -> bool:
        return self.status.startswith("UP")


@dataclass(frozen=True)
class Queue:
    waiting: int  # requests waiting for any server
    in_flight: int  # requests inside the gateway, waiting ones included


def servers(host: Host) -> list[ServerState]:
    """All model hosts of the gateway. Raises Retryable (no SSH), CheckFailed (HAProxy does not answer)."""
    return [
        ServerState(
            name=row["svname"],
            status=row["status"],
            sessions=int(row["scur"] or 0),
            queue=int(row["qcur"] or 0),
            requests=int(row["stot"] or 0),
        )
        for row in _stat(host)
        if row["# pxname"] == BACKEND and row["svname"] not in ("BACKEND", "FRONTEND")
    ]


def queue(host: Host) -> Queue:
    rows = {(row["# pxname"], row["svname"]): row for row in _stat(host)}
    backend = rows[BACKEND, "BACKEND"]
    return Queue(waiting=int(backend["qcur"] or 0), in_flight=int(backend["scur"] or 0))


def drain(host: Host, name: str, *, timeout_s: float = 120) -> float:
    """No new request to that model host; returns the seconds until its last one had ended.

    Raises Refusal when it is the only one that serves, CheckFailed when requests are left after `timeout_s`.
    """
    now = servers(host)
    target = _named(now, name, host)
    if target.serving and not any(s.serving for s in now if s.name != name):
        raise Refusal(
            f"{name} is the only model host that serves",
            why="draining it would leave the users without an answer",
            next_command="add a replica first",
        )
    _command(host, f"set server {BACKEND}/{name} state drain")
    started = time.monotonic()
    while (left := _named(servers(host), name, host).sessions) and time.monotonic() - started < timeout_s:
        time.sleep(0.5)
    if left:
        raise CheckFailed(f"{name} still answers {left} requests after {timeout_s:.0f} s of draining")
    return time.monotonic() - started


def undrain(host: Host, name: str) -> None:
    """Requests go to that model host again."""
    _named(servers(host), name, host)
    _command(host, f"set server {BACKEND}/{name} state ready")


def requests_since(host: Host, seconds: float) -> int:
    """Users' requests that ended at the gateway in the last `seconds`, or are inside it now.

    Our own ones, marked by the fleet's synthetic key, and strangers without a valid key are no users. Source: the
    access log in the journal.
    """
    now = float(_ssh(host, "date +%s.%N"))
    # The journal's own time is the request's end; a queued one may have started long before.
    script = (
        f"journalctl -u haproxy --since @{int(now - seconds)} -o short-unix --no-pager"
        f""" | awk '$1 >= {now - seconds:.3f} && /"who":"user"/ {{ n++ }} END {{ print n + 0 }}'"""
    )
    return int(_ssh(host, script)) + queue(host).in_flight


def _stat(host: Host) -> list[dict[str, str]]:
    text = _command(host, "show stat")
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or "# pxname" not in rows[0]:
        raise CheckFailed(f"HAProxy on {host.name} does not tell its state", why=text.strip()[:200])
    return rows


def _command(host: Host, command: str) -> str:
    """Runtime API. HAProxy answers a successful `set` with an empty line, a failed one with the reason."""
    answer = _ssh(host, f"socat -t 5 - UNIX-CONNECT:{SOCKET}", stdin=command + "\n")
    if command.startswith("set ") and answer.strip():
        raise CheckFailed(f"HAProxy on {host.name} refused: {command}", why=answer.strip()[:200])
    return answer


def _ssh(host: Host, command: str, stdin: str | None = None) -> str:
    return ssh.run(host, command, timeout_s=30, stdin=stdin).stdout


def _named(states: list[ServerState], name: str, host: Host) -> ServerState:
    for state in states:
        if state.name == name and NAME.fullmatch(name):
            return state
    raise CheckFailed(f"{host.name} knows no model host {name}", why="known: " + ", ".join(s.name for s in states))
