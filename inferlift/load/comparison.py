"""What several endpoints answered to the same requests: one table, one JSON object."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from inferlift.artifacts import Figure, Gate, LoadRun, Quality, Verdict
from inferlift.load.figures import Change, p95_difference
from inferlift.load.idle import AfterIdle
from inferlift.load.knee import Knee
from inferlift.load.quality import change
from inferlift.load.samples import read_samples
from inferlift.load.selfcheck import Drive


class Found(NamedTuple):
    """Everything measured at one endpoint."""

    url: str
    run: LoadRun
    warm_up: LoadRun | None
    quality: Quality | None
    idle: AfterIdle | None
    knee: Knee | None
    price: float | None  # an hour
    currency: str
    cost: Figure | None
    gates: tuple[Gate, ...]
    verdict: Verdict
    seed: int | None = None
    not_begun: str = ""  # why: no warm-up request was answered
    interrupted: bool = False


def table(found: Sequence[Found], decided: Verdict) -> str:
    """For people: one row an endpoint, then what was sent, what is excluded, and each gate that does not pass."""
    head = ("endpoint", "ok", "P95 TTFT", "P95 total", "requests/s", "tokens/s", "quality", "cost per 1000", "verdict")
    rows = [head, *(_row(f) for f in found)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [line for other in found[1:] for line in _changes(found[0], other)]
    for f in found:
        before = f"{f.url}: " if len(found) > 1 else "  "
        lines += [f"{before}{line}" for line in notes(f)]
        lines += [f"{before}{g.name} {g.verdict}: {g.why}" for g in f.gates if g.verdict != "pass"]
    return "\n".join([*lines, f"verdict: {decided}"])


def document(found: Sequence[Found], decided: Verdict, drive: Drive | None) -> dict[str, Any]:
    """The machine's face. `figures` are the first endpoint's; with several, each one's follow as `endpoint_N_NAME`."""
    ok = {"pass": True, "fail": False, "inconclusive": None}[decided]
    return {
        "ok": ok,
        "verdict": decided,
        "figures": _all_figures(found),
        "self_check": drive._asdict() if drive is not None else None,
        "endpoints": [_endpoint(found[0], f) for f in found],
    }


def _all_figures(found: Sequence[Found]) -> dict[str, float | None]:
    several = {f"endpoint_{k}_{name}": v for k, f in enumerate(found, 1) for name, v in figures(f).items()}
    return figures(found[0]) | (several if len(found) > 1 else {})


def figures(f: Found) -> dict[str, float | None]:
    run, quality = f.run, f.quality
    counts = run.counts
    return {
        "planned": counts.planned,
        "sent": counts.sent,
        "ok": counts.ok,
        "retried": counts.retried,
        "error_share": (counts.planned - counts.ok) / counts.planned,
        "requests_per_s": run.rate_rps,
        "tokens_per_s": run.tokens_per_s,
        "goodput_share": run.goodput_share,
        "in_flight_peak": run.in_flight_peak,
        "ttft_p50_ms": run.ttft.p50_ms if run.ttft else None,
        "ttft_p95_ms": run.ttft.p95_ms if run.ttft else None,
        "ttft_p99_ms": run.ttft.p99_ms if run.ttft else None,
        "total_p50_ms": run.total.p50_ms,
        "total_p95_ms": run.total.p95_ms,
        "total_p99_ms": run.total.p99_ms,
        "gap_p95_ms": run.gaps.p95_ms if run.gaps else None,
        "time_per_token_p50_ms": run.per_token.p50_ms if run.per_token else None,
        "connect_p95_ms": run.connect.p95_ms if run.connect else None,
        "tls_p95_ms": run.tls.p95_ms if run.tls else None,
        "send_delay_p95_ms": run.send_delay_p95_ms,
        "loop_lag_p95_ms": run.loop_lag_p95_ms,
        "cpu_share": run.cpu_share,
        "quality": quality.share if quality else None,
        "cost_per_1000": f.cost.value if f.cost else None,
        "after_idle_added_ms": f.idle.added_ms if f.idle else None,
        "knee_per_s": f.knee.rate if f.knee else None,
    }


def changes(first: Found, other: Found) -> dict[str, Change]:
    """What moved against the first endpoint, each with its 95 % range; what cannot be told is left out."""
    found: dict[str, Change] = {}
    for name in ("ttft_ms", "total_ms"):
        moved = p95_difference(values(first.run, name), values(other.run, name))
        if moved is not None:
            found[name.replace("_ms", "_p95_ms")] = moved
    if first.quality is not None and other.quality is not None and (moved := change(first.quality, other.quality)):
        found["quality"] = moved
    return found


def values(run: LoadRun, name: str) -> array[float]:
    """One column of the answered requests, from the samples; empty where the file is gone."""
    path = Path(run.samples)
    if not path.is_file():
        return array("f")
    return array("f", (s[name] for s in read_samples(path) if "error" not in s and name in s))


def _endpoint(first: Found, f: Found) -> dict[str, Any]:
    found: dict[str, Any] = {
        "url": f.url,
        "verdict": f.verdict,
        "interrupted": f.interrupted,
        "not_begun": f.not_begun or None,
        "seed": f.seed,
        "figures": figures(f),
        "run": f.run.model_dump(mode="json", exclude={"latencies_ms", "ttfts_ms", "in_flight"}),
        "warm_up": _counts(f.warm_up) if f.warm_up else None,
        "quality": f.quality.model_dump(mode="json") if f.quality else None,
        "after_idle": {**f.idle._asdict(), "added_ms": f.idle.added_ms} if f.idle else None,
        "knee": _knee(f.knee) if f.knee else None,
        "gates": [g.model_dump(mode="json") for g in f.gates],
    }
    if f is not first:
        found["against_first"] = {k: {**c._asdict(), "sure": c.sure} for k, c in changes(first, f).items()}
    return found


def _counts(run: LoadRun) -> dict[str, Any]:
    return {"seconds": run.seconds, **run.counts.model_dump(mode="json")}


def _knee(knee: Knee) -> dict[str, Any]:
    steps = [{"rate": s.rate, "verdict": s.verdict, "why": s.why} for s in knee.steps]
    return {"rate": knee.rate, "bounded": knee.bounded, "steps": steps}


def _row(f: Found) -> tuple[str, ...]:
    run = f.run
    ttft = run.ttft.p95_ms if run.ttft else None
    quality = f"{f.quality.correct}/{f.quality.n}" if f.quality else "-"
    cost = f"{f.cost.value:.4g} {f.currency}" if f.cost and f.cost.value is not None else "-"
    return (
        f.url, f"{run.counts.ok}/{run.counts.planned}", _ms(ttft, run.ttft_p95_range_ms),
        _ms(run.total.p95_ms, run.total_p95_range_ms), _number(run.rate_rps), _number(run.tokens_per_s), quality, cost,
        f.verdict,
    )  # fmt: skip


def notes(f: Found) -> list[str]:
    run = f.run
    how = f"{run.users} users, closed loop" if run.users else f"open loop at {_number(run.offered_rps)}/s"
    how += f", by {run.workers} workers" if run.workers else ""
    kind = "; the kernel's times of arrival" if run.kernel_times else "; times as read"
    lines = [
        f"{run.counts.planned} {run.protocol} requests, {how}, {run.in_flight_peak} in flight at most"
        + (kind if run.counts.sent else ""),
        f"first body as sent: {str(run.body)[:300]}",
    ]
    if f.seed is not None:
        lines.append(f"seed {f.seed} (--seed {f.seed} sends the same again)")
    if run.prefix_cache:
        lines.append(f"prefix cache {run.prefix_cache}")
    if f.warm_up:
        ok, planned = f.warm_up.counts.ok, f.warm_up.counts.planned
        lines.append(f"warm-up, not in the figures: {ok} of {planned} answered in {f.warm_up.seconds:.1f} s")
    if run.counts.errors or run.counts.unsent or run.counts.retried:
        kinds = ", ".join(f"{n} {kind}" for kind, n in run.counts.errors.items()) or "no errors"
        lines.append(f"{kinds}; {run.counts.unsent} unsent; {run.counts.retried} tried once more on a new connection")
    lines += [f"{kind}, e.g.: {' | '.join(told)}" for kind, told in run.failures.items()]
    if f.not_begun:
        lines.append(f"not begun: {f.not_begun}")
    if f.interrupted:
        lines.append("stopped by hand: what was in flight is counted as interrupted, and nothing is decided")
    if f.idle is not None:
        added = f.idle.added_ms
        kept = {True: "kept in memory", False: "not kept in memory", None: "no more than warm answers differ"}
        said = "not answered" if added is None else f"{added:+.0f} ms ({kept[f.idle.kept]})"
        lines.append(f"first answer after {f.idle.idle_s:.0f} s idle: {said}")
    if f.knee is not None:
        rate = "below the lowest rate tried" if f.knee.rate is None else f"{f.knee.rate:.3g}/s"
        lines.append(f"knee: {rate}{'' if f.knee.bounded else ' or higher'}; the figures and the verdict are of the "
                     f"{run.counts.planned} requests at that rate")  # fmt: skip
    if run.client_limited:
        lines.append(f"client limited: {run.client_limit}")
    return lines


def _changes(first: Found, other: Found) -> list[str]:
    lines = []
    for name, moved in changes(first, other).items():
        unit, scale = ("%", 100) if name == "quality" else ("ms", 1)
        sure = "" if moved.sure else ", not told apart"
        lines.append(
            f"{other.url} against {first.url}: {name.removesuffix('_ms')} {moved.value * scale:+.1f} {unit} "
            f"(95 % range {moved.low * scale:+.1f} to {moved.high * scale:+.1f}{sure})"
        )
    return lines


def _ms(value: float | None, spread: tuple[float, float] | None) -> str:
    if value is None:
        return "too few samples"
    return f"{value:.0f} ms" + (f" ({spread[0]:.0f}-{spread[1]:.0f})" if spread else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
