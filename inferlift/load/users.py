"""The lab's users while DNS moves: one client that resolves for every request, one that keeps its connection.

    python -m inferlift.load.users CONFIG.json

CONFIG holds name, resolver (IP or IP:port), ca, key_header, key (a reference), route, rate (requests/s of both
clients together), max_tokens, out (the file written) and limit_s; port, tls, prompts, pictures (files to send
in place of prompts) and timeout_s may be given.
One JSON line a request: t (unix seconds at its end), client, side (the address it went to), ok, ms, error, retried.
Ends at SIGTERM, after the configured time, or when its parent dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from inferlift.artifacts import UserCounts
from inferlift.load.answer import Answer
from inferlift.load.target import Target, request_body

CLIENTS = ("resolving", "keep-alive")
PARENT_CHECK_S = 0.5
PROMPTS = ("Name a colour.", "What is the capital of Portugal?", "Name an animal that can fly.", "What is a cache?")


def since(paths: Path | Sequence[Path], t: float) -> list[dict[str, Any]]:
    """Records that ended at or after `t` (unix seconds); a last line still being written is left out."""
    found = []
    for path in [paths] if isinstance(paths, Path) else paths:
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("t", 0.0) >= t:
                    found.append(record)
    return found


def summarise(paths: Path | Sequence[Path], old: str, new: str, *, since_t: float = 0.0) -> tuple[UserCounts, ...]:
    """Answered requests by side and failures, for each client. `old` and `new` are addresses."""
    counts = {client: {"old": 0, "new": 0, "failed": 0} for client in CLIENTS}
    for record in since(paths, since_t):
        row = counts.get(record.get("client", ""))
        if row is None:
            continue
        if not record.get("ok"):
            row["failed"] += 1
        elif record.get("side") in (old, new):
            row["old" if record["side"] == old else "new"] += 1
        else:
            row["failed"] += 1  # answered by a host that is neither: nobody planned that
    return tuple(UserCounts(client=client, **row) for client, row in counts.items())


def main(argv: Sequence[str]) -> int:
    config = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    path = Path(config["out"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        asyncio.run(_until_told(config, out))
    return 0


async def follow(config: dict[str, Any], out: TextIO, end: asyncio.Event) -> None:
    """Both clients, until `end` is set or the configured time is over."""
    target = _target(config)
    bodies, reads = _asked(config)
    each_s = len(CLIENTS) / float(config["rate"])
    clients = [
        asyncio.create_task(_client(client, target, bodies, reads, each_s, k * each_s / len(CLIENTS), out, end))
        for k, client in enumerate(CLIENTS)
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(float(config["limit_s"])):
            await end.wait()
    end.set()
    _, late = await asyncio.wait(clients, timeout=5.0)  # what is in flight may still be answered
    for task in late:
        task.cancel()
    for task in clients:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _asked(config: dict[str, Any]) -> tuple[list[bytes], Callable[[], Answer]]:
    """What is sent, and what reads an answer."""
    if not config.get("pictures"):
        return [request_body(p, int(config.get("max_tokens", 8))) for p in config.get("prompts") or PROMPTS], Answer
    from inferlift.load.pictures import Read, body_of

    return [body_of(Path(file)) for file in config["pictures"]], Read


async def _until_told(config: dict[str, Any], out: TextIO) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    watch = asyncio.create_task(_until_orphaned(os.getppid(), end))
    await follow(config, out, end)
    watch.cancel()


def _target(config: dict[str, Any]) -> Target:
    """Never pinned: users follow the DNS."""
    given = ("name", "resolver", "ca", "key_header", "key", "route", "port", "tls", "timeout_s")
    return Target(**{"timeout_s": 60.0} | {k: config[k] for k in given if config.get(k) is not None})


async def _until_orphaned(parent: int, end: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_CHECK_S)
    end.set()


async def _client(
    name: str,
    target: Target,
    bodies: list[bytes],
    reads: Callable[[], Answer],
    each_s: float,
    first_s: float,
    out: TextIO,
    end: asyncio.Event,
) -> None:
    """One user: a request every `each_s` seconds; a slow answer delays the next, none are sent side by side."""
    from inferlift.load.connection import Lookup, Pinned, session

    keep = name == "keep-alive"
    resolver: Lookup | Pinned = Lookup(target.resolver) if target.resolver else Pinned(target.name)
    loop = asyncio.get_running_loop()
    due, k = loop.time() + first_s, 0
    async with session(target, keep=keep, limit=1, resolver=resolver) as http:
        while not await _ended(end, due - loop.time()):
            began = loop.time()
            error, detail, retried = await _request(http, target, bodies[k % len(bodies)], reads, kept=keep and k > 0)
            record = {
                "t": round(time.time(), 3),
                "client": name,
                "side": resolver.last,
                "ok": error is None,
                "ms": round((loop.time() - began) * 1000, 1),
                "error": error,
                "detail": detail,
                "retried": retried,
            }
            out.write(json.dumps({key: value for key, value in record.items() if value not in (None, "")}) + "\n")
            out.flush()
            k += 1
            due = max(due + each_s, loop.time())


async def _request(
    http: Any, target: Target, body: bytes, reads: Callable[[], Answer], *, kept: bool
) -> tuple[str | None, str, bool]:
    """(error class or None, detail, retried). A kept connection closed before the first byte is tried once more
    on a new one, which means a new resolution: browsers and API clients do the same."""
    from inferlift.load.connection import error_class, stale

    retried = False
    try:
        async with asyncio.timeout(target.timeout_s):
            try:
                problem = await _post(http, target, body, reads())
            except Exception as error:
                if not kept or not stale(error):
                    raise
                retried = True
                problem = await _post(http, target, body, reads())
    except Exception as error:
        return *error_class(error), retried
    return *(problem or (None, "")), retried


async def _post(http: Any, target: Target, body: bytes, answer: Answer) -> tuple[str, str] | None:
    from inferlift.load.sse import SseParser

    parser = SseParser()
    response = await http.post(target.url, data=body, allow_redirects=False)
    async with response:
        try:
            if response.status != 200:
                text = (await response.content.read(200)).decode(errors="replace")
                return ("http_4xx" if response.status < 500 else "http_5xx"), f"status {response.status}: {text[:80]}"
            if response.content_type != "text/event-stream":
                answer.body(await response.read(), 0.0)
                return answer.problem()
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    answer.event(event, 0.0)
        except ConnectionError as error:
            return "reset", str(error)[:120]
        except Exception as error:
            # from here on the answer had begun: no second try, whatever broke
            return _begun(error)
    return answer.problem()


def _begun(error: Exception) -> tuple[str, str]:
    from inferlift.load.connection import error_class

    kind, detail = error_class(error)
    return ("reset" if kind == "connect" else kind), detail


async def _ended(end: asyncio.Event, wait_s: float) -> bool:
    if wait_s > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), wait_s)
    return end.is_set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
