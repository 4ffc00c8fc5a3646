"""Everything measured at one endpoint: warm-up, first answer after idle, the run or the knee, quality, cost, gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from inferlift.artifacts import Figure, LoadRun, Quality, Verdict
from inferlift.load import client, columns, knee
from inferlift.load.arrivals import schedule
from inferlift.load.asked import Asked
from inferlift.load.client import LoadPlan, Stopped
from inferlift.load.comparison import Found
from inferlift.load.gates import gates, verdict
from inferlift.load.idle import AfterIdle, after_idle
from inferlift.load.quality import assess, load_cases
from inferlift.load.target import Target

Say = Callable[[str], None]
Run = Callable[[LoadPlan, Say | None], LoadRun]
USERS = 32  # where neither users nor a rate nor a shape is given


def measure(
    asked: Asked,
    url: str,
    where: Target,
    times: tuple[float, ...] | None,
    samples: Path,
    price: float | None,
    tell: Say,
    run: Run = client.run,
) -> Found:
    """`url` as it may be shown. On Ctrl-C what there is, so marked; KeyboardInterrupt where that is nothing."""
    protocol = asked.sent.make().apart(asked.texts)
    limits = asked.targets
    plan = LoadPlan(
        where, asked.requests, (), samples, protocol=protocol, texts=asked.texts, label=url,
        request_timeout_s=asked.timeout_s,
        users=(asked.users or min(USERS, asked.requests)) if times is None else None, schedule_s=times,
        deadline_s=asked.deadline_s or max(600.0, asked.requests * 2.0),
        slo_ttft_ms=limits.p95_ttft_ms, slo_total_ms=limits.p95_total_ms,
    )  # fmt: skip
    made = _Made()
    try:
        _carry_out(made, asked, plan, tell, run)
    except KeyboardInterrupt as stopped:
        if made.run is None and isinstance(stopped, Stopped) and stopped.run.samples == str(samples):
            made.run = stopped.run
        if made.run is None:
            raise
        made.interrupted = True
    assert made.run is not None  # noqa: S101
    columns.write(samples, samples.with_suffix(".npz"))
    cost = _cost(asked, made.run, price)
    judged = gates(limits, made.run, made.quality, rate=True, cost_per_1000=cost)
    decided: Verdict = "inconclusive" if made.interrupted else verdict(judged)
    return Found(
        url=url, run=made.run, warm_up=made.warm_up, quality=made.quality, idle=made.idle, knee=made.knee,
        price=price, currency=asked.currency, cost=cost, gates=judged, verdict=decided, seed=asked.seed,
        not_begun=made.not_begun, interrupted=made.interrupted,
    )  # fmt: skip


@dataclass
class _Made:
    run: LoadRun | None = None
    warm_up: LoadRun | None = None
    quality: Quality | None = None
    idle: AfterIdle | None = None
    knee: knee.Knee | None = None
    not_begun: str = ""
    interrupted: bool = False


def _carry_out(made: _Made, asked: Asked, plan: LoadPlan, tell: Say, run: Run) -> None:
    made.warm_up = _warm_up(asked, plan, tell)
    if made.warm_up is not None and made.warm_up.counts.ok == 0:
        # what answers nothing is not measured: a thousand time-outs more would say the same, hours later
        made.not_begun = f"none of {made.warm_up.counts.planned} warm-up requests was answered: {_why(made.warm_up)}"
        tell(f"not begun: {made.not_begun}")
        made.run = client.unsent(plan)
        return
    if asked.idle_s is not None:
        made.idle = after_idle(plan, asked.idle_s, tell, name=f"{asked.texts}i")
    if asked.find_knee is not None:
        made.knee = _knee(asked, plan, tell, run)
        made.run = _at_knee(made, asked, plan, tell, run)
    else:
        made.run = run(plan, tell)
    if asked.quality is not None:
        made.quality = assess(plan.target, load_cases(asked.quality), say=tell)


def _why(found: LoadRun) -> str:
    return "; ".join(
        f"{n} {kind}" + (f" ({found.failures[kind][0]})" if found.failures.get(kind) else "")
        for kind, n in found.counts.errors.items()
    )


def _warm_up(asked: Asked, plan: LoadPlan, tell: Say) -> LoadRun | None:
    """Requests that do not count: caches fill, connections are proved, lazy servers load their model."""
    count = asked.warm_up if asked.warm_up is not None else max(8, asked.requests // 20)
    if count == 0:
        return None
    return client.run(
        replace(plan, requests=count, schedule_s=None, users=min(count, plan.users or 8), label="warm-up",
                protocol=plan.sends.apart(f"{asked.texts}w"),
                samples=plan.samples.with_name(f"{plan.samples.stem}-warm-up.jsonl")), tell,
    )  # fmt: skip


def _knee(asked: Asked, plan: LoadPlan, tell: Say, run: Run) -> knee.Knee:
    def step(times: tuple[float, ...], label: str) -> LoadRun:
        name, texts = f"{plan.samples.stem}-{label.replace('/', '')}.jsonl", f"{asked.texts}k{label}"
        return run(
            replace(plan, requests=len(times), schedule_s=times, users=None, label=label,
                    protocol=plan.sends.apart(texts), texts=texts, samples=plan.samples.with_name(name)), None,
        )  # fmt: skip

    def judge(found: LoadRun) -> tuple[Verdict, str]:
        judged = gates(asked.targets, found, None, quality=False, rate=True)
        decided = verdict(judged)
        return decided, "; ".join(g.why for g in judged if g.verdict == decided)

    high = asked.find_knee or 0.0
    return knee.find(
        step, judge, low=min(asked.rate or high / 16, high), high=high, seed=asked.seed or 0, say=tell,
        seconds=asked.knee_seconds,
    )  # fmt: skip


def _at_knee(made: _Made, asked: Asked, plan: LoadPlan, tell: Say, run: Run) -> LoadRun:
    """All the requests at the rate that was found: what is reported, and judged, is this run and no step of the search.

    Where they do not pass, the next lower rate that did in the search is tried; below all of them the lowest rate's
    run shows what fails.
    """
    assert made.knee is not None  # noqa: S101
    good = sorted({s.rate for s in made.knee.steps if s.verdict == "pass"}, reverse=True)
    found: LoadRun | None = None
    for rate in good or [made.knee.steps[0].rate]:
        times = schedule("poisson", asked.requests, rate, seed=asked.seed or 0)
        tell(f"{asked.requests} requests at {rate:.3g}/s")
        found = run(replace(plan, schedule_s=times, users=None), tell)
        passed = verdict(gates(asked.targets, found, None, quality=False, rate=True)) == "pass"
        made.knee = made.knee._replace(rate=rate if passed else None)
        if passed:
            break
        made.knee = made.knee._replace(bounded=True)
    assert found is not None  # noqa: S101
    return found


def _cost(asked: Asked, found: LoadRun, price: float | None) -> Figure | None:
    if price is None:
        return None
    value = price / 3.6 / found.rate_rps if found.rate_rps else None
    return Figure(
        value=value, unit=f"{asked.currency} per 1000 requests", basis="measured" if value is not None else "unknown",
        source=f"{price:g} {asked.currency}/h at the measured rate", at=found.started.isoformat(), n=found.counts.ok,
    )  # fmt: skip
