"""A load run by Locust's distributed workers, merged exactly: every sample is kept, percentiles are of all of them.

On loopback the workers are processes of this machine, started here; elsewhere they are waited for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import json
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferlift.artifacts import LoadRun
from inferlift.errors import CheckFailed, DeclarationError
from inferlift.load import client
from inferlift.load.asked import Asked
from inferlift.load.endpoint import Sent
from inferlift.load.plan import LoadPlan
from inferlift.load.result import Record, Taken, last_line, result
from inferlift.load.samples import Sample, SampleWriter, read_samples
from inferlift.load.scenario import scenario

Say = Callable[[str], None]
USERS_A_RATE = 4  # open loop: users for each request a second, where none are given
POOL_MOST = 20_000


def runner(asked: Asked) -> Callable[[LoadPlan, Say | None], LoadRun]:
    """What sends a plan by workers. Raises DeclarationError where that cannot be."""
    if importlib.util.find_spec("locust") is None:
        raise DeclarationError(
            "workers need Locust, which is not installed", why="it is an optional part of this package",
            next_command=f"{sys.executable} -m pip install '.[distributed]'",
        )  # fmt: skip
    if asked.sent.make().transport != "http":
        raise DeclarationError("workers speak HTTP", why="gRPC calls run in this process alone")
    host, _, port = asked.bind.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise DeclarationError(f"--bind {asked.bind} is not HOST:PORT")
    users = asked.users or (asked.workers if asked.rate is None else None)
    if users is not None and users < asked.workers:
        raise DeclarationError(f"{users} users for {asked.workers} workers: each needs one at least")
    return lambda plan, say: run(plan, asked.sent, asked.workers, host, int(port), say, users=asked.users)


def run(
    plan: LoadPlan, sent: Sent, workers: int, host: str, port: int, say: Say | None = None, *, users: int | None = None
) -> LoadRun:
    """As `client.run`. `users` of an open loop are how many requests can be in flight at most.

    Raises CheckFailed when a worker is lost or the counts do not balance, Stopped on Ctrl-C.
    """
    started = datetime.now(UTC)
    tell = say or (lambda text: None)
    pool = min(plan.users or users or _pool(plan), plan.requests)
    writer = SampleWriter(plan.samples, client.head(plan, started))
    writer.close()
    told = scenario(plan, sent, workers) | {"users": max(pool, workers)}
    with client.heeding() as asked_to_end, _master(told, plan.samples, host, port) as master:
        found = _listened(master, host, workers, asked_to_end, tell)
    if found["problem"] and not asked_to_end.is_set():
        raise CheckFailed(
            f"the workers brought no whole result: {found['problem']}",
            next_command=f"python -m inferlift.load.locust_users {host}:{found['port']} on each of {workers} hosts",
        )
    made = merged(plan, found.get("records", []), started).model_copy(update={"workers": workers})
    tell(last_line(made))
    if asked_to_end.is_set():
        raise client.Stopped(made)
    return made


def merged(plan: LoadPlan, records: Sequence[dict[str, Any]], started: datetime) -> LoadRun:
    """One result of the samples at `plan.samples` and the workers' records beside them.

    Times count from each worker's own start, which the master gave to all at once: workers on several hosts begin
    as far apart as that message travels.
    """
    taken = Taken(plan)
    record = Record(
        seconds=max((r["seconds"] for r in records), default=0.0),
        connections=sum(r["connections"] for r in records),
        stamped=any(r["stamped"] for r in records),
        busy_share=max((r["cpu_share"] for r in records if r["cpu_share"] is not None), default=None),
    )
    for r in records:
        for mine, theirs in ((record.gaps, r["gaps"]), (record.lags, r["lags"])):
            for step, count in theirs:
                mine[step] = mine.get(step, 0) + count
    turns: list[tuple[float, int]] = []
    last_sent = 0.0
    for fields in read_samples(plan.samples):
        sample = Sample(**fields)
        taken.count(sample)
        record.sent += 1
        if sample.error is not None:
            record.errors[sample.error] = record.errors.get(sample.error, 0) + 1
        begun = sample.at_s + (sample.delay_ms / 1000 if plan.users is None else 0.0)
        last_sent = max(last_sent, begun)
        turns += [(begun, 1), (sample.at_s + (sample.total_ms or 0.0) / 1000, -1)]
    record.done_when_sent = sum(1 for at, step in turns if step < 0 and at <= last_sent)
    in_flight = 0
    for at, step in sorted(turns):
        in_flight += step
        record.peak = max(record.peak, in_flight)
        if not record.curve or at - record.curve[-1][0] >= 0.25:
            record.curve.append((at, in_flight))
    return result(plan, record, taken, started)


def _pool(plan: LoadPlan) -> int:
    """Users of an open loop, where it is not said how many can be in flight."""
    seconds = plan.schedule_s[-1] if plan.schedule_s else 0.0
    rate = (plan.requests - 1) / seconds if seconds > 0 else plan.requests
    return min(POOL_MOST, max(64, round(rate * USERS_A_RATE)))


@contextlib.contextmanager
def _master(told: dict[str, Any], samples: Path, host: str, port: int) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario"
        file.touch(0o600)
        file.write_bytes(pickle.dumps(told))
        child = subprocess.Popen(
            [sys.executable, "-m", "inferlift.load.locust_master", host, str(0 if _loopback(host) else port), str(file),
             str(samples)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield child
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _listened(
    master: subprocess.Popen[str], host: str, workers: int, asked_to_end: threading.Event, tell: Say
) -> dict[str, Any]:
    """The master's last word, with its port; workers of this machine live as long as it is awaited."""
    assert master.stdin is not None and master.stdout is not None and master.stderr is not None  # noqa: S101, PT018
    errors: list[str] = []
    threading.Thread(target=_pass_on, args=(master.stderr, tell, errors), daemon=True).start()
    first = master.stdout.readline()
    if not first:
        raise CheckFailed("the master of the workers did not start", why="; ".join(errors[-3:]))
    port = json.loads(first)["port"]
    children: list[subprocess.Popen[bytes]] = []
    try:
        if _loopback(host):
            argv = [sys.executable, "-m", "inferlift.load.locust_users", f"{host}:{port}"]
            children = [
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True) for _ in range(workers)
            ]  # fmt: skip
        else:
            tell(f"waiting for {workers} workers: python -m inferlift.load.locust_users {host}:{port} on each host")
        last: list[str] = []
        reader = threading.Thread(target=lambda: last.append(master.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        told_to_stop = False
        while reader.is_alive():
            reader.join(0.1)
            if asked_to_end.is_set() and not told_to_stop:
                told_to_stop = True
                with contextlib.suppress(OSError):
                    master.stdin.write("s")
                    master.stdin.flush()
        if not last or not last[0]:
            return {"problem": f"the master ended: {'; '.join(errors[-3:])}", "port": port}
        found: dict[str, Any] = json.loads(last[0])
        return found | {"port": port}
    finally:
        for child in children:
            child.kill()
            child.wait()


def _pass_on(lines: Any, tell: Say, errors: list[str]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for text in lines:
            errors.append(text.rstrip())
            if "answered by" in text:
                tell(text.rstrip())


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
