"""The lab's users while DNS moves: one client that resolves for every request, one that keeps its connection.

    python -m inferlift.load.users CONFIG.json

One JSON line a request: t (unix seconds at its end), client, side (the address it went to), ok, ms, error, retried.
Ends at SIGTERM, after the configured time, or when its parent dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from inferlift.artifacts import UserCounts
from inferlift.errors import CheckFailed
from inferlift.load.target import Target, request_body

CLIENTS = ("resolving", "keep-alive")
PARENT_CHECK_S = 0.5


def start(
    target: Target,
    folder: Path,
    *,
    rate: float,
    seconds: float,
    prompts: Sequence[str],
    max_tokens: int = 8,
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start both clients in one process; returns it and the file they write. `rate` is requests/s of both together.

    The target must not be pinned: its `resolver` (or the system's) is what the users follow. The process carries
    its owner's mark like every child of ours.
    """
    if target.address is not None:
        raise CheckFailed("users follow the DNS: their target must not be pinned to an address")
    folder.mkdir(parents=True, exist_ok=True)
    out, config = folder / "users.jsonl", folder / "users.json"
    config.write_text(
        json.dumps(
            {
                "target": asdict(target),
                "rate": rate,
                "seconds": seconds,
                "prompts": list(prompts),
                "max_tokens": max_tokens,
                "out": str(out),
            },
            default=dict,
        )
    )
    with (folder / "users.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "inferlift.load.users", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
        )
    return child, out


def stop(child: subprocess.Popen[bytes], *, grace_s: float = 10.0) -> None:
    """SIGTERM: what is in flight is still awaited for a moment; then the end."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(5)


def since(path: Path, t: float) -> Iterator[dict[str, Any]]:
    """Records that ended at or after `t` (unix seconds); a last line still being written is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("t", 0.0) >= t:
                    yield record


def summarise(path: Path, old: str, new: str, *, since_t: float = 0.0) -> tuple[UserCounts, ...]:
    """Answered requests by side and failures, for each client. `old` and `new` are addresses."""
    counts = {client: {"old": 0, "new": 0, "failed": 0} for client in CLIENTS}
    for record in since(path, since_t):
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
    with Path(config["out"]).open("a", encoding="utf-8") as out:
        asyncio.run(_main(config, out))
    return 0


async def _main(config: dict[str, Any], out: TextIO) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    target = Target(**config["target"])
    bodies = [request_body(p, config["max_tokens"], model=target.model) for p in config["prompts"]]
    each_s = len(CLIENTS) / float(config["rate"])
    watch = asyncio.create_task(_until_orphaned(os.getppid(), end))
    clients = [
        asyncio.create_task(_client(client, target, bodies, each_s, k * each_s / len(CLIENTS), out, end))
        for k, client in enumerate(CLIENTS)
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(float(config["seconds"])):
            await end.wait()
    end.set()
    _, late = await asyncio.wait(clients, timeout=5.0)  # what is in flight may still be answered
    for task in (watch, *late):
        task.cancel()
    for task in clients:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _until_orphaned(parent: int, end: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_CHECK_S)
    end.set()


async def _client(
    name: str, target: Target, bodies: list[bytes], each_s: float, first_s: float, out: TextIO, end: asyncio.Event
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
            error, detail, retried = await _request(http, target, bodies[k % len(bodies)], kept=keep and k > 0)
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


async def _request(http: Any, target: Target, body: bytes, *, kept: bool) -> tuple[str | None, str, bool]:
    """(error class or None, detail, retried). A kept connection closed before the first byte is tried once more
    on a new one, which means a new resolution: browsers and API clients do the same."""
    from inferlift.load.connection import error_class, stale

    retried = False
    try:
        async with asyncio.timeout(target.timeout_s):
            try:
                problem = await _post(http, target, body)
            except Exception as error:
                if not kept or not stale(error):
                    raise
                retried = True
                problem = await _post(http, target, body)
    except Exception as error:
        return *error_class(error), retried
    return *(problem or (None, "")), retried


async def _post(http: Any, target: Target, body: bytes) -> tuple[str, str] | None:
    from inferlift.load.answer import Answer
    from inferlift.load.sse import SseParser

    answer, parser = Answer(), SseParser()
    response = await http.post(target.url, data=body, allow_redirects=False)
    async with response:
        try:
            if response.status != 200:
                text = (await response.content.read(200)).decode(errors="replace")
                return ("http_4xx" if response.status < 500 else "http_5xx"), f"status {response.status}: {text[:80]}"
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
