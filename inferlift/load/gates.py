"""Targets against figures. Too few samples, or a client that limited the run, decide nothing."""

from __future__ import annotations

from collections.abc import Sequence

from inferlift.artifacts import Figure, Gate, LoadRun, Quality, Verdict
from inferlift.profile import Targets


def gates(
    targets: Targets,
    run: LoadRun,
    quality_seen: Quality | None,
    *,
    quality: bool = True,
    rate: bool = False,
    cost_per_1000: Figure | None = None,
    minimum_requests: int = 20,
    minimum_quality: int = 10,
) -> tuple[Gate, ...]:
    """One gate for each declared target, and one that says every planned request was really sent.

    `quality` False leaves the quality gate out (a run that asked no such prompts). `rate` adds one for an open loop
    whose rate is itself what was asked for: it fails where a queue only grew.
    What was not sent counts against the error share: the denominator is what was planned.
    """
    found = [_all_sent(run), _errors(targets.error_share, run, minimum_requests)]
    if targets.p95_ttft_ms is not None:
        value = run.ttft.p95_ms if run.ttft else None
        n = run.ttft.n if run.ttft else 0
        found.append(_latency("p95 TTFT", targets.p95_ttft_ms, value, n, run))
    if targets.p95_total_ms is not None:
        found.append(_latency("p95 total", targets.p95_total_ms, run.total.p95_ms, run.total.n, run))
    if targets.min_tokens_per_s is not None:
        found.append(_speed(targets.min_tokens_per_s, run))
    if rate and run.offered_rps is not None:
        found.append(_kept(run))
    if run.client_limited and targets.p95_ttft_ms is None and targets.p95_total_ms is None:
        found.append(_client(run))
    if quality and targets.quality is not None:
        found.append(_quality(targets.quality, quality_seen, minimum_quality))
    if targets.max_cost_per_1000 is not None and cost_per_1000 is not None:
        found.append(_cost(targets.max_cost_per_1000, cost_per_1000))
    return tuple(found)


def verdict(found: Sequence[Gate]) -> Verdict:
    """One failed gate fails; one undecided leaves all undecided; nothing judged is nothing passed."""
    verdicts = {gate.verdict for gate in found}
    if "fail" in verdicts:
        return "fail"
    return "pass" if verdicts == {"pass"} else "inconclusive"


def _all_sent(run: LoadRun) -> Gate:
    counts = run.counts
    return Gate(
        name="all requests sent",
        verdict="pass" if counts.unsent == 0 else "fail",
        target=float(counts.planned),
        figure=_figure(float(counts.sent), "requests", run, counts.planned),
        why=f"{counts.sent} of {counts.planned} sent" + (f", {counts.unsent} were not" if counts.unsent else ""),
    )


def _errors(target: float, run: LoadRun, minimum: int) -> Gate:
    counts = run.counts
    failed = counts.planned - counts.ok
    share = failed / counts.planned
    classes = ", ".join(f"{n} {kind}" for kind, n in counts.errors.items()) or "no errors"
    verdict_: Verdict = "fail" if share > target else "pass"
    why = f"{failed} of {counts.planned} not answered well ({classes})"
    if verdict_ == "fail" and (failed - run.starved) / counts.planned <= target:
        verdict_, why = "inconclusive", f"{why}; for {run.starved} this machine itself had no socket"
    if verdict_ == "pass" and counts.sent < minimum:
        verdict_, why = "inconclusive", f"too few samples: {counts.sent}, at least {minimum} are needed"
    return Gate(name="error share", verdict=verdict_, target=target,
                figure=_figure(share, "share", run, counts.planned), why=why)  # fmt: skip


def _kept(run: LoadRun) -> Gate:
    verdict_: Verdict = "pass"
    why = f"{run.offered_rps or 0:.4g}/s offered, and answered as they came"
    if run.behind:
        verdict_, why = "inconclusive" if run.client_limited else "fail", run.behind
    return Gate(name="rate kept up", verdict=verdict_, target=run.offered_rps,
                figure=_figure(run.rate_rps, "requests/s", run, run.counts.ok), why=why)  # fmt: skip


def _speed(target: float, run: LoadRun) -> Gate:
    """Tokens a second that 95 of 100 users see at least."""
    slowest = run.per_token.p95_ms if run.per_token else None
    value = 1000 / slowest if slowest else None
    n = run.per_token.n if run.per_token else 0
    verdict_: Verdict
    if value is None:
        verdict_, why = "inconclusive", f"too few answers with a usage record: {n}"
    else:
        verdict_ = "pass" if value >= target else "fail"
        why = f"{value:.1f} tokens/s at 95 of 100 users, at least {target:.1f} wanted"
    return Gate(name="tokens a second a user", verdict=verdict_, target=target,
                figure=_figure(value, "tokens/s", run, n), why=why)  # fmt: skip


def _client(run: LoadRun) -> Gate:
    """Only where no latency gate says it: figures that may be the client's own pass nothing."""
    figure = _figure(run.cpu_share, "share of a core", run, run.counts.sent)
    return Gate(name="client", verdict="inconclusive", target=None, figure=figure,
                why=f"client limited: {run.client_limit}")  # fmt: skip


def _latency(name: str, target: float, value: float | None, n: int, run: LoadRun) -> Gate:
    verdict_: Verdict
    if value is None:
        verdict_, why = "inconclusive", f"too few samples: {n}"
    elif run.client_limited:
        verdict_, why = "inconclusive", f"client limited: {run.client_limit or 'the figure may be the client’s own'}"
    else:
        verdict_ = "pass" if value <= target else "fail"
        why = f"{value:.0f} ms against at most {target:.0f} ms, {n} samples"
    return Gate(name=name, verdict=verdict_, target=target, figure=_figure(value, "ms", run, n), why=why)


def _quality(target: float, quality: Quality | None, minimum: int) -> Gate:
    n = quality.n if quality else 0
    share = quality.share if quality else None
    verdict_: Verdict
    if quality is None or share is None or n < minimum:
        verdict_, why = "inconclusive", f"too few answers to judge: {n}, at least {minimum} are needed"
    else:
        verdict_ = "pass" if share >= target else "fail"
        first = f"; e.g. {quality.wrong[0]}" if quality.wrong else ""
        spread = f" (95 % range {quality.range[0]:.0%} to {quality.range[1]:.0%})" if quality.range else ""
        why = f"{quality.correct} of {n} right{spread}, at least {target:.0%} wanted{first}"
    figure = Figure(value=share, unit="share", basis="measured" if share is not None else "unknown",
                    source="checkable prompts, greedy decoding", n=n)  # fmt: skip
    return Gate(name="quality", verdict=verdict_, target=target, figure=figure, why=why)


def _cost(target: float, cost: Figure) -> Gate:
    verdict_: Verdict
    if cost.value is None:
        verdict_, why = "inconclusive", "the cost is not known"
    else:
        verdict_ = "pass" if cost.value <= target else "fail"
        why = f"{cost.value:.4g} {cost.unit} against at most {target:.4g}"
    return Gate(name="cost of 1000 requests", verdict=verdict_, target=target, figure=cost, why=why)


def _figure(value: float | None, unit: str, run: LoadRun, n: int) -> Figure:
    return Figure(
        value=value, unit=unit, basis="measured" if value is not None else "unknown",
        source=f"load run {run.label!r}", at=run.started.isoformat(), n=n,
    )  # fmt: skip
