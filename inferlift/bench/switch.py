"""`invoke bench switch`: how fast users are back, and what 200 kills leave, on a real PowerDNS on loopback.

The switch's own process is killed (SIGKILL, by itself) at every boundary of every write, again and again, and started
anew with the same command; users resolve the name and ask by it all the time. In the kill rounds the clock runs faster,
since a kill does not depend on how long a weight is held; the way back is measured with the real one.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import multiprocessing
import os
import signal
import socketserver
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift import profile
from inferlift.artifacts import Figure, Gate, Verdict
from inferlift.dns import answers, loopback, record, switch
from inferlift.dns.eyes import Net
from inferlift.dns.powerdns import PowerDns
from inferlift.errors import InferliftError, Retryable

ZONE, NAME, OWNER = "bench.test.", "ai.bench.test", "bench"
OLD, NEW, AUTHORITY = "127.0.42.10", "127.0.42.20", "127.0.0.1"
KEY = "INFERLIFT_BENCH_DNS_KEY"
ACTIONS = ("lower_ttl", "make_weighted", "rehearse", "set_weight", "finish", "roll_back", "restore")
PLACES = ("before the intent", "before the write", "after the write", "before the outcome")
KILLS, ROLLBACKS = 200, 3
SPEED = 40  # of the clock in the kill rounds
RATE = 25  # users' requests a second, each resolved anew
PLAN = profile.Switch(ttl_s=1, steps=(10, 100), min_samples=1, failures_to_roll_back=2)


def run(root: Path, *, as_json: bool = False, kills: int = KILLS, rollbacks: int = ROLLBACKS) -> int:
    """Figures: rollback_seconds (longest, from the deciding gate until the authority names the old side alone), kills,
    boundaries_hit (of `boundaries`), empty_answers, failed_requests, hand_work (restarts that did not go on)."""
    figures = measure(kills=kills, rollbacks=rollbacks, say=lambda line: print(line, file=sys.stderr))
    ok = (
        figures["rollback_seconds"] <= 2
        and figures["kills"] >= kills
        and figures["boundaries_hit"] == figures["boundaries"]
        and figures["empty_answers"] == figures["failed_requests"] == figures["hand_work"] == 0
    )
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures}))
    else:
        for name, value in figures.items():
            print(f"{name:<22} {value}")
    return 0 if ok else 1


def measure(*, kills: int, rollbacks: int, say: Callable[[str], None]) -> dict[str, float]:
    """The figures. Raises Retryable when the name server cannot be had or does not start."""
    from inferlift.toolchain import store

    found = loopback.programs(store.cache() / "name-servers")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-switch-") as folder:
        at = Path(folder)
        records = [("ai.bench.test", "A", 2, OLD)]
        with loopback.powerdns(found, at / "pdns", ZONE, records) as server:
            os.environ[KEY] = server.secret
            _warm(server)
            web = loopback.free_port()
            with _users(at / "users.json", server.port, web):
                say(f"a roll-back by failing gates, {rollbacks} times")
                seconds = [_rolled_back(server, f"rollback-{i}") for i in range(rollbacks)]
                say(f"at least {kills} kills at {len(ACTIONS) * len(PLACES)} boundaries")
                done = _Kills(server, at / "book.json", kills, say).run()
            seen = json.loads((at / "users.json").read_text())
            for reason in seen["why"]:
                say(f"a user's request failed: {reason}")
    return {
        "rollback_seconds": round(max(seconds), 3),
        "kills": done["kills"],
        "boundaries_hit": done["hit"],
        "boundaries": len(ACTIONS) * len(PLACES),
        "empty_answers": seen["empty"],
        "failed_requests": seen["failed"],
        "hand_work": done["hand_work"],
        "requests": seen["old"] + seen["new"] + seen["failed"],
        "requests_old": seen["old"],
        "requests_new": seen["new"],
        "seconds": round(time.monotonic() - start, 1),
    }


# ---- the switch


def _switch(server: loopback.Server, run_name: str, verdict: Verdict = "pass", **more: Any) -> switch.Switch:
    backend = PowerDns(
        f"http://{AUTHORITY}:{server.api}", f"env:{KEY}", ZONE, names=(NAME,), addresses=(OLD, NEW), owner=OWNER,
        run=run_name,
    )  # fmt: skip
    figure = Figure(value=None, unit="share", basis="assumed", source="decided by this measurement")
    decided = Gate(name="decided", verdict=verdict, target=None, figure=figure, why="decided by this measurement")
    given = Gate(name="decided", verdict="pass", target=None, figure=figure, why="decided by this measurement")
    named: dict[str, Any] = {
        "gates": lambda weight: (decided if weight == 100 else given,),
        "on_intent": _no_intent,
        "net": Net.real(server.port),
        **more,
    }
    return switch.Switch(
        backend=backend, name=NAME, old=OLD, new=NEW, plan=PLAN, authority=AUTHORITY, resolver=AUTHORITY, **named
    )


@contextlib.contextmanager
def _no_intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
    yield


def _warm(server: loopback.Server) -> None:
    """Everything imported before a child is forked: what is measured is the switch, not Python's start."""
    _switch(server, "warm").backend.read(NAME)
    from inferlift.dns import octo

    octo.Api("http://127.0.0.1:1", "localhost", None, 1.0, ZONE).provider("none", [])


def _rolled_back(server: loopback.Server, run_name: str) -> float:
    """All the way to 100 %, gates failing there, real clock. Seconds from the decision to the authority's answer."""
    driven = _switch(server, run_name, "fail")
    result = driven.run()
    assert result.rolled_back  # noqa: S101
    assert result.rollback_s is not None  # noqa: S101
    driven.restore()
    return result.rollback_s


# ---- the kills


@dataclass
class _Kills:
    """Rounds of forward, back and restore. Every boundary kills once, then all of them anew: it takes two rounds, since
    an action that happens once and was written is not repeated after its kill.

    The book (a file) is what survives: boundaries that killed in this turn, intents without an outcome.
    """

    server: loopback.Server
    book: Path
    wanted: int
    say: Callable[[str], None]

    def run(self) -> dict[str, int]:
        kills, hand_work, rounds, hit = 0, 0, 0, set[tuple[str, str]]()
        every = len(ACTIONS) * len(PLACES)
        base = time.time()
        killed: list[list[str]] = []
        while (kills < self.wanted or len(hit) < every) and rounds < 4 + 2 * self.wanted // every * 2:
            rounds += 1
            self.book.write_text(json.dumps({"hit": killed, "pending": []}))
            for direction, stands in (("forward", NEW), ("back", OLD)):
                while self._child(direction, f"round-{rounds}", base) is not None:
                    kills += 1
                    hand_work += self._settled()
                hand_work += set(self._backend().read(NAME).weights) != {stands}
            killed = json.loads(self.book.read_text())["hit"]
            hit |= {(action, place) for action, place in killed}
            killed = [] if len(killed) == every else killed
            self.say(f"round {rounds}: {kills} kills, {len(hit)} of {every} boundaries")
        return {"kills": kills, "hit": len(hit), "hand_work": hand_work}

    def _settled(self) -> int:
        """What the next command does first: settle each intent without an outcome. How many it could not."""
        kept = json.loads(self.book.read_text())
        state = self._backend().read(NAME)
        left = sum(record.settle(state, planned) not in ("done", "absent") for planned in kept["pending"])
        self.book.write_text(json.dumps({**kept, "pending": []}))
        return left

    def _backend(self) -> Any:
        return _switch(self.server, "look").backend

    def _child(self, direction: str, run_name: str, base: float) -> bool | None:
        """One process of the switch. True: it was killed; None: it came to its end. Raises what it could not do."""
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                try:
                    self._drive(direction, run_name, base)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        if os.waitstatus_to_exitcode(status):
            raise InferliftError("the switch did not go on after a kill", why=f"{direction} of {run_name}")
        return None

    def _drive(self, direction: str, run_name: str, base: float) -> None:
        import requests

        kept = json.loads(self.book.read_text())
        action_now = ""

        def keep() -> None:
            part = self.book.with_suffix(".part")
            part.write_text(json.dumps(kept))
            part.replace(self.book)

        def boundary(place: str) -> None:
            if [action_now, place] not in kept["hit"]:
                kept["hit"].append([action_now, place])
                keep()
                os.kill(os.getpid(), signal.SIGKILL)

        @contextlib.contextmanager
        def intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
            nonlocal action_now
            action_now = action
            boundary("before the intent")
            kept["pending"].append(planned)
            keep()
            yield
            boundary("before the outcome")
            kept["pending"].remove(planned)
            keep()

        send = requests.Session.send

        def send_or_die(session: Any, request: Any, **named: Any) -> Any:
            """Inside the write: just before it leaves, and when the server has it and nobody here knows."""
            if request.method != "PATCH":
                return send(session, request, **named)
            boundary("before the write")
            answer = send(session, request, **named)
            boundary("after the write")
            return answer

        requests.Session.send = send_or_die  # type: ignore[method-assign,assignment]
        driven = _switch(
            self.server,
            run_name,
            on_intent=intent,
            clock=lambda: base + SPEED * (time.time() - base),
            sleep=lambda seconds: time.sleep(seconds / SPEED),
        )
        if direction == "forward":
            driven.run()
        else:
            driven.rollback()
            driven.restore()


# ---- users, in a process of their own


@contextlib.contextmanager
def _users(out: Path, dns_port: int, web: int) -> Iterator[None]:
    """Both sides' web servers and the users, until the block ends; what they saw is in `out` then."""
    context = multiprocessing.get_context("fork")
    stop, ready = context.Event(), context.Event()
    child = context.Process(target=_ask_on, args=(out, dns_port, web, stop, ready), daemon=True)
    child.start()
    if not ready.wait(10):
        raise Retryable("the users of this measurement did not start")
    try:
        yield
    finally:
        stop.set()
        child.join(30)
        if child.is_alive():
            child.kill()


def _ask_on(out: Path, dns_port: int, web: int, stop: Any, ready: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the measurement, which ends this one
    servers = [_Web((address, web), _Answer) for address in (OLD, NEW)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    seen = {"old": 0, "new": 0, "failed": 0, "empty": 0}
    why: list[str] = []  # of what failed: a machine that is too busy fails requests too
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ready.set()
    due = time.monotonic()
    while not stop.is_set():
        try:
            got = answers.authority_share(AUTHORITY, NAME, 1, port=dns_port)
            seen["empty"] += got.empty
            (address,) = got.hits or ("",)
            with opener.open(f"http://{address}:{web}/", timeout=5) as answer:
                seen["old" if answer.read() == OLD.encode() else "new"] += 1
        except (Retryable, OSError, ValueError) as error:
            seen["failed"] += 1
            why.append(str(error).replace("\n", " ")[:120])
        due += 1 / RATE
        time.sleep(max(0.0, due - time.monotonic()))
    out.write_text(json.dumps({**seen, "why": why[:5]}))


class _Web(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Answer(http.server.BaseHTTPRequestHandler):
    """Says by which address it was asked."""

    def do_GET(self) -> None:
        body = str(self.connection.getsockname()[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...
