"""The load client: exactly N requests, closed loop or by schedule, each one measured and accounted for.

The event loop runs in a thread of its own (`worker.py`); the caller's thread shows progress and takes signals, so
that neither a slow terminal nor an interrupt touches a measurement.
"""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from inferlift.artifacts import Counts, LoadRun
from inferlift.errors import CheckFailed, Refusal
from inferlift.load.figures import client_limit, nearest_rank, percentiles, thin
from inferlift.load.plan import LoadPlan
from inferlift.load.replay import replay_schedule
from inferlift.load.samples import Sample, SampleWriter
from inferlift.load.target import request_body
from inferlift.load.worker import Worker

__all__ = ["LoadPlan", "replay_schedule", "run"]

Say = Callable[[str], None]
SECOND_S = 1.0


def run(plan: LoadPlan, say: Say | None = None, stop: threading.Event | None = None) -> LoadRun:
    """Send the plan's requests and return what came of them. Blocks; progress about once a second through `say`.

    `stop`, once set, ends sending: what is in flight is still awaited, the rest counts as unsent. Past
    `deadline_s` what is in flight counts as timed out. Raises CheckFailed when the counts do not balance,
    Refusal when this machine allows too few open files.
    """
    _allow_open_files(min(plan.users or plan.requests, plan.requests) + 64)
    started = datetime.now(UTC)
    writer = SampleWriter(plan.samples, _head(plan, started))
    work = Worker(plan)
    thread = threading.Thread(target=work.main, name=f"load-{plan.label}", daemon=True)
    thread.start()
    written, said = 0, time.monotonic()
    try:
        while not work.finished.wait(0.1):
            written = _flush(writer, work, written)
            if stop is not None and stop.is_set():
                work.no_more()
            if say is not None and time.monotonic() - said >= SECOND_S:
                said = time.monotonic()
                say(_progress(plan, work))
    except BaseException:
        work.abort()
        work.finished.wait(5)
        raise
    finally:
        _flush(writer, work, written)
        writer.close()
    thread.join()
    if work.failure is not None:
        raise work.failure
    result = _result(plan, work, started)
    if say is not None:
        say(_last_line(result))
    return result


def _allow_open_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted += 256  # what the rest of the process has open
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Refusal(
            f"{wanted} open files are needed for so many users, {hard} are allowed",
            why="each user holds a connection",
            next_command=f"ulimit -Hn {wanted}, or fewer users",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _head(plan: LoadPlan, started: datetime) -> dict[str, Any]:
    """The plan as it was carried out, with the first body as it goes out; no secret is in it."""
    target = plan.target
    body = request_body(plan.prompts[0], plan.max_tokens, stream=plan.stream, model=target.model)
    return {
        "label": plan.label,
        "started": started.isoformat(),
        "planned": plan.requests,
        "url": target.url,
        "address": target.address or target.resolver,
        "users": plan.users,
        "scheduled_s": plan.schedule_s[-1] if plan.schedule_s else None,
        "body": json.loads(body),
    }


def _flush(writer: SampleWriter, work: Worker, written: int) -> int:
    upto = len(work.samples)
    for sample in work.samples[written:upto]:
        writer.write(sample)
    writer.flush()
    return upto


def _progress(plan: LoadPlan, work: Worker) -> str:
    done, errors = len(work.samples), sum(work.errors.values())
    elapsed = time.monotonic() - work.start if work.start else 0.0
    rate = done / elapsed if elapsed > 0 else 0.0
    left = f", about {(plan.requests - done) / rate:.0f} s left" if rate > 0 else ""
    return (
        f"{plan.label}: {done}/{plan.requests} answered, {work.in_flight} in flight, {rate:.1f}/s, "
        f"{errors} errors{left}"
    )


def _result(plan: LoadPlan, work: Worker, started: datetime) -> LoadRun:
    samples = work.samples
    good = [s for s in samples if s.error is None and s.total_ms is not None]
    counts = Counts(
        planned=plan.requests,
        sent=work.sent,
        ok=len(good),
        errors=dict(sorted(work.errors.items())),
        retried=sum(s.retried for s in samples),
    )
    if not counts.balanced or len(samples) != work.sent:
        raise CheckFailed(
            f"the load run's counts do not balance: {counts.model_dump()} with {len(samples)} samples",
            why="every request sent must end as answered or as one class of error",
        )
    totals = [s.total_ms for s in good if s.total_ms is not None]
    streamed = [s for s in good if s.ttft_ms is not None]
    ttfts = [s.ttft_ms for s in streamed if s.ttft_ms is not None]
    tokens = [s.tokens for s in good]
    delays = sorted(s.delay_ms for s in samples)
    limit = client_limit(
        totals, [_shift(work, s, s.total_ms) for s in good], ttfts,
        [_shift(work, s, s.ttft_ms) for s in streamed], work.busy_share,
    )  # fmt: skip
    lag = work.lag.p95_ms()
    return LoadRun(
        label=plan.label,
        started=started,
        seconds=work.seconds,
        counts=counts,
        total=percentiles(totals, "total"),
        ttft=percentiles(ttfts, "first_token") if plan.stream else None,
        tokens_out=sum(t for t in tokens if t is not None) if tokens and None not in tokens else None,
        rate_rps=len(good) / work.seconds if work.seconds > 0 else None,
        in_flight_peak=work.peak,
        send_delay_p95_ms=nearest_rank(delays, 95) if delays else None,
        client_limited=bool(limit),
        client_limit=limit,
        loop_lag_p95_ms=lag,
        connections=sum(s.connect_ms is not None for s in samples),
        samples=str(plan.samples),
        latencies_ms=thin(totals),
        ttfts_ms=thin(ttfts),
        in_flight=_thin_curve(work.curve),
    )


def _shift(work: Worker, sample: Sample, after_ms: float | None) -> float:
    """The most that our own lateness can have added to this latency, in ms."""
    scheduled = work.start + sample.at_s
    sent = scheduled + sample.delay_ms / 1000
    late = work.lag.at(scheduled + (after_ms or 0.0) / 1000)
    if sample.connect_ms is not None:
        late += work.lag.within(sent, sent + sample.connect_ms / 1000)
    return sample.delay_ms + late * 1000


def _thin_curve(curve: list[tuple[float, int]], most: int = 200) -> tuple[tuple[float, int], ...]:
    step = max(1, -(-len(curve) // most))
    return tuple(
        (round(t, 2), max(n for _, n in curve[k : k + step])) for k, (t, _) in enumerate(curve) if k % step == 0
    )


def _last_line(run: LoadRun) -> str:
    counts = run.counts
    errors = ", ".join(f"{n} {kind}" for kind, n in counts.errors.items()) or "no errors"
    p95 = "too few samples" if run.total.p95_ms is None else f"{run.total.p95_ms:.0f} ms"
    unsent = f", {counts.unsent} unsent" if counts.unsent else ""
    limited = f"; client limited: {run.client_limit}" if run.client_limited else ""
    return (
        f"{run.label}: {counts.ok}/{counts.planned} answered in {run.seconds:.1f} s ({errors}{unsent}), "
        f"{run.rate_rps or 0:.1f}/s, p95 total {p95}, at most {run.in_flight_peak} in flight{limited}"
    )
