"""From samples to an artifact: counts that balance, percentiles, and whether the client was in the way."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from datetime import datetime

from inferlift.artifacts import Counts, LoadRun
from inferlift.errors import CheckFailed
from inferlift.load.answer import GAP_S
from inferlift.load.figures import (
    client_limit,
    from_counts,
    nearest_rank,
    p95_range,
    percentiles,
    rate_behind,
    spread,
    thin,
)
from inferlift.load.hidden import body_shown, hider
from inferlift.load.plan import LoadPlan
from inferlift.load.samples import Sample, SampleWriter
from inferlift.load.worker import Worker

EXAMPLES = 3  # details kept of each class of error
COLUMNS = (
    "delay", "connect", "tls", "total", "total_blur", "total_delay", "ttft", "ttft_blur", "ttft_delay",
    "first_content", "per_token",
)  # fmt: skip


@dataclass
class Record:
    """What a sending loop knows beside its samples; `Worker` has the same."""

    sent: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    peak: int = 0
    connections: int = 0
    starved: int = 0
    stamped: bool = False
    busy_share: float | None = None
    done_when_sent: int | None = None
    gaps: dict[int, int] = field(default_factory=dict)
    lags: dict[int, int] = field(default_factory=dict)
    curve: list[tuple[float, int]] = field(default_factory=list)


class Taken:
    """What the samples add up to while they are written: a few numbers a request stay in memory, 4 bytes each."""

    def __init__(self, plan: LoadPlan, writer: SampleWriter | None = None) -> None:
        self._plan, self._writer = plan, writer
        self.samples = self.ok = self.retried = self.tokens = self.prompt_tokens = self.good = 0
        self.all_tokens = self.all_prompt_tokens = True  # whether every answer told them
        self.columns = {name: array("f") for name in COLUMNS}
        self.failures: dict[str, list[str]] = {}  # the first details of each class of error
        self.first_quarter = array("f")  # of an open loop: how long its first answers took, and its last
        self.last_quarter = array("f")

    def take(self, work: Worker) -> None:
        """Everything that has ended since the last time."""
        assert self._writer is not None  # noqa: S101
        while work.ended:
            sample = work.ended.popleft()
            self._writer.write(sample)
            self.count(sample)
        self._writer.flush()

    def count(self, sample: Sample) -> None:
        self.samples += 1
        self.retried += sample.retried
        columns = self.columns
        columns["delay"].append(sample.delay_ms)
        if sample.connect_ms is not None:
            columns["connect"].append(sample.connect_ms)
        if sample.tls_ms is not None:
            columns["tls"].append(sample.tls_ms)
        if sample.error is not None:
            told = self.failures.setdefault(sample.error, [])
            if sample.detail not in told and len(told) < EXAMPLES:
                told.append(sample.detail)
        if sample.error is not None or sample.total_ms is None:
            return
        if self._plan.schedule_s is not None:
            quarter = max(1, self._plan.requests // 4)
            if sample.i < quarter:
                self.first_quarter.append(sample.total_ms)
            elif sample.i >= self._plan.requests - quarter:
                self.last_quarter.append(sample.total_ms)
        self.ok += 1
        columns["total"].append(sample.total_ms)
        columns["total_blur"].append(sample.blur_ms)
        columns["total_delay"].append(sample.delay_ms)
        self.tokens += sample.tokens or 0
        self.prompt_tokens += sample.prompt_tokens or 0
        self.all_tokens = self.all_tokens and sample.tokens is not None
        self.all_prompt_tokens = self.all_prompt_tokens and sample.prompt_tokens is not None
        self.good += self._meets(sample)
        if sample.ttft_ms is None:
            return
        columns["ttft"].append(sample.ttft_ms)
        columns["ttft_blur"].append(sample.blur_first_ms)
        columns["ttft_delay"].append(sample.delay_ms)
        if sample.first_content_ms is not None:
            columns["first_content"].append(sample.first_content_ms)
        if sample.tokens is not None and sample.tokens > 1 and sample.last_token_ms is not None:
            columns["per_token"].append((sample.last_token_ms - sample.ttft_ms) / (sample.tokens - 1))

    def _meets(self, sample: Sample) -> bool:
        first, total = self._plan.slo_ttft_ms, self._plan.slo_total_ms
        return (total is None or (sample.total_ms or 0.0) <= total) and (
            first is None or (sample.ttft_ms is not None and sample.ttft_ms <= first)
        )


def result(plan: LoadPlan, work: Worker | Record, taken: Taken, started: datetime) -> LoadRun:
    """Raises CheckFailed when a request is neither answered nor in one class of error."""
    counts = Counts(
        planned=plan.requests,
        sent=work.sent,
        ok=taken.ok,
        errors=dict(sorted(work.errors.items())),
        retried=taken.retried,
    )
    if not counts.balanced or taken.samples != work.sent:
        raise CheckFailed(
            f"the load run's counts do not balance: {counts.model_dump()} with {taken.samples} samples",
            why="every request sent must end as answered or as one class of error",
        )
    columns, seconds, ok = taken.columns, work.seconds, counts.ok
    totals, ttfts = sorted(columns["total"]), sorted(columns["ttft"])
    delays = sorted(columns["delay"])
    closed = plan.users is not None
    limit = client_limit(
        columns["total"], _shifts(columns["total_blur"], columns["total_delay"], closed), columns["ttft"],
        _shifts(columns["ttft_blur"], columns["ttft_delay"], closed), columns["delay"] if closed else (),
    )  # fmt: skip
    whose, behind = _behind(plan, work, taken, delays)
    if whose == "client":
        limit = limit or behind
    if work.starved:
        limit = f"this machine had no socket left for {work.starved} requests"
    sends = plan.sends
    lag = from_counts(work.lags, 0.1)
    known = taken.all_tokens and ok > 0
    judged = plan.slo_ttft_ms is not None or plan.slo_total_ms is not None
    return LoadRun(
        label=plan.label,
        started=started,
        seconds=seconds,
        counts=counts,
        total=percentiles(totals, "total"),
        ttft=percentiles(ttfts, "first_token") if sends.streams else None,
        tokens_out=taken.tokens if known else None,
        rate_rps=ok / seconds if seconds > 0 else None,
        in_flight_peak=work.peak,
        send_delay_p95_ms=nearest_rank(delays, 95) if delays else None,
        client_limited=bool(limit),
        client_limit=limit,
        loop_lag_p95_ms=lag.p95_ms if lag else None,
        connections=work.connections if sends.transport == "http" else None,
        samples=str(plan.samples),
        latencies_ms=thin(totals),
        ttfts_ms=thin(ttfts),
        in_flight=_thin_curve(work.curve),
        protocol=sends.name,
        users=plan.users,
        offered_rps=_offered(plan),
        connect=spread(columns["connect"]),
        tls=spread(columns["tls"]),
        first_content=spread(columns["first_content"]),
        gaps=from_counts(work.gaps, GAP_S * 1000),
        per_token=spread(columns["per_token"]),
        total_p95_range_ms=p95_range(totals),
        ttft_p95_range_ms=p95_range(ttfts),
        prompt_tokens=taken.prompt_tokens if taken.all_prompt_tokens and ok else None,
        tokens_per_s=taken.tokens / seconds if known and seconds > 0 else None,
        goodput_share=taken.good / counts.planned if judged else None,
        goodput_rps=taken.good / seconds if judged and seconds > 0 else None,
        cpu_share=work.busy_share,
        kernel_times=work.stamped,
        body=body_shown(sends.shown(), hider(plan.target)),
        prefix_cache=sends.prefix_cache,
        failures={kind: tuple(told) for kind, told in sorted(taken.failures.items())},
        behind=behind,
        starved=work.starved,
    )


def last_line(run: LoadRun) -> str:
    counts = run.counts
    errors = ", ".join(f"{n} {kind}" for kind, n in counts.errors.items()) or "no errors"
    p95 = "too few samples" if run.total.p95_ms is None else f"{run.total.p95_ms:.0f} ms"
    unsent = f", {counts.unsent} unsent" if counts.unsent else ""
    limited = f"; client limited: {run.client_limit}" if run.client_limited else ""
    return (
        f"{run.label}: {counts.ok}/{counts.planned} answered in {run.seconds:.1f} s ({errors}{unsent}), "
        f"{run.rate_rps or 0:.1f}/s, p95 total {p95}, at most {run.in_flight_peak} in flight{limited}"
    )


def _shifts(blur: array[float], delay: array[float], closed: bool) -> array[float]:
    """The most that our own lateness can have added to each latency; in a closed loop it begins with the sending."""
    return blur if closed else array("f", [b + d for b, d in zip(blur, delay, strict=True)])


def _behind(plan: LoadPlan, work: Worker | Record, taken: Taken, delays: list[float]) -> tuple[str, str]:
    if plan.schedule_s is None or work.done_when_sent is None or not delays:
        return "", ""
    return rate_behind(
        plan.schedule_s[-1], work.sent, work.done_when_sent, taken.first_quarter, taken.last_quarter,
        nearest_rank(delays, 95),
    )  # fmt: skip


def _offered(plan: LoadPlan) -> float | None:
    if plan.schedule_s is None or len(plan.schedule_s) < 2 or plan.schedule_s[-1] <= 0:
        return None
    return (len(plan.schedule_s) - 1) / plan.schedule_s[-1]


def _thin_curve(curve: list[tuple[float, int]], most: int = 200) -> tuple[tuple[float, int], ...]:
    step = max(1, -(-len(curve) // most))
    return tuple(
        (round(t, 2), max(n for _, n in curve[k : k + step])) for k, (t, _) in enumerate(curve) if k % step == 0
    )
