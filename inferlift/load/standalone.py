"""`invoke load --url`: the load test of one endpoint or several in turn, without a migration around it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from inferlift import secret
from inferlift.artifacts import Evidence, Figure, LoadRun, Quality, TrafficShape, Verdict
from inferlift.errors import DeclarationError
from inferlift.load import columns, comparison, knee
from inferlift.load.arrivals import ramp, schedule
from inferlift.load.client import LoadPlan, replay_schedule, run
from inferlift.load.comparison import Found
from inferlift.load.endpoint import Sent, target
from inferlift.load.gates import gates, verdict
from inferlift.load.idle import AfterIdle, after_idle
from inferlift.load.quality import assess, load_cases
from inferlift.load.selfcheck import Drive, self_check
from inferlift.load.target import Target
from inferlift.profile import Targets

Say = Callable[[str], None]
RAMP_FROM = 10.0  # a ramp begins at this part of its rate
USERS = 32  # where neither users nor a rate nor a shape is given
EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Asked:
    """What the user asked for. `prices` an hour, one an endpoint; None where not known."""

    urls: tuple[str, ...]
    requests: int = 1000
    users: int | None = None
    rate: float | None = None
    arrivals: str = "poisson"  # constant, poisson, bursty; ramp: rising to the rate
    shape: Path | None = None
    seed: int = 0
    find_knee: float | None = None  # highest rate to try
    knee_seconds: float = 20.0  # of each step
    sent: Sent = field(default_factory=Sent)
    targets: Targets = field(default_factory=lambda: Targets(error_share=0.01))
    quality: Path | None = None
    key: str | None = None
    key_header: str = "Authorization"
    ca: str | None = None
    prices: tuple[float | None, ...] = ()
    currency: str = "USD"
    warm_up: int | None = None  # None: a twentieth of the requests, at least 8
    idle_s: float | None = None
    check_self: bool = True
    timeout_s: float = 120.0
    deadline_s: float | None = None
    folder: Path | None = None  # for samples; None: .inferlift/load/TIME
    html: Path | None = None
    junit: Path | None = None


def standalone(
    asked: Asked, *, as_json: bool = False, say: Say | None = None, out: Callable[[str], None] = print
) -> int:
    """Run it and print the table (or one JSON object). Returns 0 (every gate passes), 1 (one fails) or 3 (undecided).

    Raises DeclarationError before anything is sent for what cannot be carried out.
    """
    tell = say or (lambda text: print(text, file=sys.stderr))
    _check(asked)
    folder = asked.folder or Path(".inferlift") / "load" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    protocol = asked.sent.make()
    where = [
        target(url, protocol, key=asked.key, key_header=asked.key_header, ca=asked.ca, timeout_s=asked.timeout_s,
               model=asked.sent.model) for url in asked.urls
    ]  # fmt: skip
    times = _times(asked)
    drive = self_check() if asked.check_self and protocol.transport == "http" else None
    if drive is not None:
        tell(str(drive))
        _warn(asked, drive, times, tell, streams=protocol.streams)
    found = []
    for k, (url, endpoint) in enumerate(zip(asked.urls, where, strict=True)):
        if len(where) > 1:
            tell(f"endpoint {k + 1} of {len(where)}: {url}")
        price = asked.prices[k] if k < len(asked.prices) else None
        found.append(_measure(asked, url, endpoint, times, folder / f"{k + 1}.jsonl", price, tell))
    decided = _together([f.verdict for f in found])
    if asked.html is not None:
        from inferlift.load.page import write

        write(asked.html, found, decided, drive)
    if asked.junit is not None:
        from inferlift.load.junit import write as write_junit

        write_junit(asked.junit, found)
    out(json.dumps(comparison.document(found, decided, drive)) if as_json else comparison.table(found, decided))
    return EXIT[decided]


def _check(asked: Asked) -> None:
    if not asked.urls:
        raise DeclarationError("no endpoint was given", next_command="./invoke load --url http://HOST:PORT")
    given = [name for name, value in (("--users", asked.users), ("--rate", asked.rate), ("--shape", asked.shape))
             if value is not None]  # fmt: skip
    if "--users" in given and len(given) > 1:
        raise DeclarationError(
            f"{' and '.join(given)} do not go together",
            why="users wait for their answers, a rate or a shape does not",
        )
    if len(asked.prices) > len(asked.urls):
        raise DeclarationError(f"{len(asked.prices)} prices for {len(asked.urls)} endpoints")
    if any(price is not None and price < 0 for price in asked.prices):
        raise DeclarationError("a price is not negative")
    if asked.requests < 1 or (asked.users is not None and asked.users < 1):
        raise DeclarationError("at least one request and one user are needed")
    if asked.key is not None:
        secret.resolve(asked.key)  # told now, not after the warm-up
    if asked.quality is not None:
        load_cases(asked.quality)


def _times(asked: Asked) -> tuple[float, ...] | None:
    """The send times, the same for every endpoint; None: a closed loop."""
    if asked.shape is not None:
        return replay_schedule(_shape(asked.shape), asked.requests, asked.rate, seed=asked.seed)
    if asked.rate is not None and asked.arrivals == "ramp":
        return ramp(asked.requests, asked.rate / RAMP_FROM, asked.rate)
    if asked.rate is not None:
        return schedule(asked.arrivals, asked.requests, asked.rate, seed=asked.seed)
    return None


def _shape(path: Path) -> TrafficShape:
    """Of an audit's evidence, or the shape alone."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document = document.get("artifact", document)
        return Evidence.model_validate(document).shape if "shape" in document else TrafficShape.model_validate(document)
    except (OSError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"{path} holds no traffic shape", why=str(error).splitlines()[0],
            next_command="./invoke audit --profile NAME --json > evidence.json",
        ) from None  # fmt: skip


def _warn(asked: Asked, drive: Drive, times: tuple[float, ...] | None, tell: Say, *, streams: bool) -> None:
    can = drive.stream_rps if streams else drive.plain_rps
    if times is not None and len(times) > 1 and times[-1] > 0 and (len(times) - 1) / times[-1] > 0.8 * can:
        tell(f"the rate asked is near what this machine can drive ({can:.0f}/s): the client may become the limit")


def _measure(
    asked: Asked,
    url: str,
    where: Target,
    times: tuple[float, ...] | None,
    samples: Path,
    price: float | None,
    tell: Say,
) -> Found:
    protocol = asked.sent.make()
    limits = asked.targets
    plan = LoadPlan(
        where, asked.requests, (), samples, protocol=protocol, label=url, request_timeout_s=asked.timeout_s,
        users=(asked.users or min(USERS, asked.requests)) if times is None else None, schedule_s=times,
        deadline_s=asked.deadline_s or max(600.0, asked.requests * 2.0),
        slo_ttft_ms=limits.p95_ttft_ms, slo_total_ms=limits.p95_total_ms,
    )  # fmt: skip
    warm = _warm_up(asked, plan, tell)
    idle: AfterIdle | None = None
    if asked.idle_s is not None:
        idle = after_idle(plan, asked.idle_s, tell)
    run_ = run(plan, tell)
    columns.write(samples, samples.with_suffix(".npz"))
    found_knee = _knee(asked, plan, tell) if asked.find_knee is not None else None
    quality = _quality(asked, where, tell)
    cost = _cost(asked, run_, price)
    judged = gates(limits, run_, quality, cost_per_1000=cost)
    return Found(url, run_, warm, quality, idle, found_knee, price, asked.currency, cost, judged, verdict(judged))


def _warm_up(asked: Asked, plan: LoadPlan, tell: Say) -> LoadRun | None:
    """Requests that do not count: caches fill, connections are proved, lazy servers load their model."""
    count = asked.warm_up if asked.warm_up is not None else max(8, asked.requests // 20)
    if count == 0:
        return None
    return run(
        replace(plan, requests=count, schedule_s=None, users=min(count, plan.users or 8), label="warm-up",
                samples=plan.samples.with_name(f"{plan.samples.stem}-warm-up.jsonl")), tell,
    )  # fmt: skip


def _knee(asked: Asked, plan: LoadPlan, tell: Say) -> knee.Knee:
    def measure(times: tuple[float, ...], label: str) -> LoadRun:
        name = f"{plan.samples.stem}-{label.replace('/', '')}.jsonl"
        return run(
            replace(plan, requests=len(times), schedule_s=times, users=None, label=label,
                    samples=plan.samples.with_name(name)), None,
        )  # fmt: skip

    def judge(found: LoadRun) -> tuple[Verdict, str]:
        judged = gates(asked.targets, found, None, quality=False)
        decided = verdict(judged)
        return decided, "; ".join(g.why for g in judged if g.verdict == decided)

    high = asked.find_knee or 0.0
    return knee.find(
        measure,
        judge,
        low=min(asked.rate or high / 16, high),
        high=high,
        seed=asked.seed,
        say=tell,
        seconds=asked.knee_seconds,
    )


def _quality(asked: Asked, where: Target, tell: Say) -> Quality | None:
    return assess(where, load_cases(asked.quality), say=tell) if asked.quality is not None else None


def _cost(asked: Asked, found: LoadRun, price: float | None) -> Figure | None:
    if price is None:
        return None
    value = price / 3.6 / found.rate_rps if found.rate_rps else None
    return Figure(
        value=value, unit=f"{asked.currency} per 1000 requests", basis="measured" if value is not None else "unknown",
        source=f"{price:g} {asked.currency}/h at the measured rate", at=found.started.isoformat(), n=found.counts.ok,
    )  # fmt: skip


def _together(verdicts: list[Verdict]) -> Verdict:
    if "fail" in verdicts:
        return "fail"
    return "pass" if set(verdicts) == {"pass"} else "inconclusive"
