"""The audit on a terminal and as one JSON object, and the whole command: files in, evidence out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from inferlift.artifacts import Evidence, Percentiles
from inferlift.audit.waiting import Waiting

_TONES = {"met": "red", "not met": "green", "no data": "yellow", "found": "red", "not found": "green"}
MAX_ROWS = 15


def as_json(evidence: Evidence, waiting: Waiting | None = None) -> dict[str, Any]:
    """ok, verdict, figures, and the whole evidence as `artifact`."""
    met = [trigger.name for trigger in evidence.triggers if trigger.verdict == "met"]
    decided = any(trigger.verdict != "no data" for trigger in evidence.triggers)
    figures: dict[str, float | None] = {
        "lines": evidence.quality.lines,
        "understood": evidence.quality.understood,
        "refused": evidence.quality.refused,
        "n": evidence.n,
        "inference_n": evidence.inference_n,
        "p50_ms": evidence.latency.p50_ms,
        "p95_ms": evidence.latency.p95_ms,
        "p99_ms": evidence.latency.p99_ms,
        "first_byte_p95_ms": evidence.first_byte.p95_ms if evidence.first_byte else None,
        "error_share": evidence.error_share,
        "per_minute_peak": evidence.per_minute_peak if evidence.stamped else None,
        "in_flight_peak": evidence.in_flight_peak if evidence.latency.n else None,
        "in_flight_least": evidence.in_flight_bounds[0] if evidence.in_flight_bounds else None,
        "in_flight_most": evidence.in_flight_bounds[1] if evidence.in_flight_bounds else None,
        "sent_bytes": evidence.sent_bytes,
        "gpu_idle_share": evidence.gpu_idle_share,
        "bill_growth_quarter": evidence.bill_growth_quarter,
        "triggers_met": len(met),
    }
    if waiting is not None:
        figures |= {"waiting_low": waiting.low, "waiting_high": waiting.high}
    return {
        "ok": True if decided else None,
        "verdict": "met" if met else "not met" if decided else "no data",
        "figures": figures,
        "met": met,
        "findings": [finding.name for finding in evidence.findings if finding.verdict == "found"],
        "artifact": evidence.model_dump(mode="json"),
    }


def render(evidence: Evidence, waiting: Waiting | None = None) -> Group:
    """For rich's Console.print."""
    span = (
        f"{evidence.start:%Y-%m-%d %H:%M:%S} to {evidence.end:%Y-%m-%d %H:%M:%S} UTC"
        if evidence.stamped
        else "no times"
    )
    head = f"{evidence.n} requests, {evidence.inference_n} of them inference; {span}"
    parts: list[Any] = [Text(head, style="bold"), _triggers(evidence), _findings(evidence), _routes(evidence)]
    if evidence.hours:
        parts.append(_hours(evidence))
    parts.append(_more(evidence, waiting))
    parts.append(_quality(evidence))
    return Group(*parts)


def _triggers(evidence: Evidence) -> Table:
    return _told("Reasons to move", [(told.verdict, told.name, told.why) for told in evidence.triggers])


def _findings(evidence: Evidence) -> Table:
    rows = [
        (found.verdict, found.name, f"{found.why}: {found.advice}" if found.advice else found.why)
        for found in evidence.findings
    ]
    return _told("Software first", rows, {told.why: told.name for told in reversed(evidence.triggers)})


def _told(title: str, rows: Sequence[tuple[str, str, str]], said: dict[str, str] | None = None) -> Table:
    """A reason that was given above is not given again."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    said = dict(said or {})
    for verdict, name, why in rows:
        first = said.setdefault(why, name)
        text = Text(name, style="bold").append(f"\n{why if first == name else f'as for: {first}'}", style="not bold")
        table.add_row(Text(verdict, style=_TONES[verdict]), text)
    return table


def _routes(evidence: Evidence) -> Table:
    table = _figures_table("Routes (latency in ms, to the last byte; P95 of the first byte)", "route", "1st byte")
    for route in (*evidence.routes[:MAX_ROWS], *evidence.other_routes[:5]):
        name = route.route if route.inference else f"({route.route})"
        ranks = (*_ranks(route.latency), _p95(route.first_byte))
        # a path is no markup, whatever a scanner put into it
        table.add_row(Text(name), str(route.n), _count(route.errors, route.n), *ranks)
    left = max(0, len(evidence.routes) - MAX_ROWS)
    if left:
        table.add_row(f"... and {left} more", *[""] * 7)
    table.add_row("all inference", str(evidence.inference_n), _count(evidence.errors, evidence.inference_n),
                  *_ranks(evidence.latency), _p95(evidence.first_byte), style="bold")  # fmt: skip
    return table


def _hours(evidence: Evidence) -> Table:
    table = _figures_table("Hours (UTC)", "hour", "bytes sent")
    for hour in evidence.hours[:48]:
        sent = "-" if hour.sent_bytes is None else _size(hour.sent_bytes)
        table.add_row(hour.hour, str(hour.n), _count(hour.errors, hour.n), *_ranks(hour.latency), sent)
    return table


def _more(evidence: Evidence, waiting: Waiting | None) -> Text:
    at, shape = evidence.at_1000, evidence.shape
    lines = []
    if evidence.stamped:
        lines.append(
            f"busiest 60 s: {evidence.per_minute_peak} inference requests; most in flight: {_flying(evidence)}"
        )
    if shape.dispersion is not None:
        lines.append(f"burstiness: {shape.dispersion:g} (variance over mean of arrivals in 10 s; 1 is random)")
    if evidence.growth_per_month is not None:
        lines.append(f"growth: {evidence.growth_per_month:+.1%} a month")
    if evidence.sessions is not None:
        lines.append(f"sessions: {evidence.sessions}")
    if at is not None and at.error_share is not None:
        lines.append(f"errors at {at.users} in flight: {at.error_share:.1%} "
                     f"(95 %: {at.error_low or 0:.1%} to {at.error_high or 0:.1%}), predicted")  # fmt: skip
    for server in evidence.servers:
        told = f"mean {server.mean_ms:.0f} ms" if server.mean_ms is not None else "no latency"
        lines.append(f"{server.server}: {server.requests} requests, {told}")
    if waiting is not None:
        lines.append(f"waiting costs {waiting.low:,.0f} to {waiting.high:,.0f} a month: {waiting.formula}")
        lines += [f"  {line}" for line in waiting.inputs]
    return Text("\n".join(lines))


def _quality(evidence: Evidence) -> Text:
    told = evidence.quality
    text = Text("Quality of the data\n", style="bold")
    lines = [f"{told.lines} lines: {told.understood} understood, {told.refused} refused; formats: "
             + ", ".join(f"{name} {n}" for name, n in (told.formats or {}).items())]  # fmt: skip
    lines += [f"refused, for example {example}" for example in told.examples]
    if told.without_duration:
        lines.append(
            f"{told.without_duration} inference requests without a duration: left out of percentiles, not zero"
        )
    if told.steps_back:
        lines.append(f"the clock went back {told.steps_back} times, by {told.largest_step_back_s:g} s at most")
    if told.repeated_lines:
        lines.append(f"{told.repeated_lines} lines are exact copies of one nearby")
    lines += [f"silence: {gap}" for gap in told.gaps]
    if evidence.gpu is not None:
        lines += [f"GPU: {note}" for note in evidence.gpu.notes]
    if evidence.bill is not None:
        lines += [f"bill: {note}" for note in evidence.bill.notes]
    lines += list(told.notes)
    text.append("\n".join(lines), style="not bold")
    for question in told.questions:
        text.append(f"\nquestion: {question}", style="yellow")
    return text


def _flying(evidence: Evidence) -> str:
    if not evidence.latency.n:
        return "unknown"
    bounds = evidence.in_flight_bounds
    if bounds is None or bounds[0] == bounds[1]:
        return str(evidence.in_flight_peak)
    return f"{evidence.in_flight_peak}, between {bounds[0]} and {bounds[1]} (stamps are whole seconds)"


def _figures_table(title: str, first: str, last: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column(first, overflow="fold")
    for name in ("n", "errors", "P50", "P90", "P95", "P99", last):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _ranks(found: Percentiles) -> tuple[str, str, str, str]:
    return _ms(found.p50_ms), _ms(found.p90_ms), _ms(found.p95_ms), _ms(found.p99_ms)


def _p95(found: Percentiles | None) -> str:
    return _ms(found.p95_ms) if found else ""


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.3g}"


def _count(errors: int, n: int) -> str:
    return f"{errors} ({errors / n:.1%})" if errors else "0"


def print_evidence(evidence: Evidence, waiting: Waiting | None = None, console: Console | None = None) -> None:
    (console or Console()).print(render(evidence, waiting))
