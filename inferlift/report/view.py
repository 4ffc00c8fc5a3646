"""What the page says first, and the lists that join several artifacts: headline, tiles, costs, what was left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from inferlift.artifacts import Basis, Check, Configured, Figure, Host, LoadRun, Percentiles, Sizing, Status
from inferlift.report import plan_view
from inferlift.report.data import ReportData
from inferlift.report.figures import UNKNOWN, milliseconds, number, quantity, seconds, share, words

Tone = Literal["good", "bad", "wait", "plain"]
_ENDED = (Status.DONE, Status.NOT_APPLICABLE, Status.SKIPPED)


@dataclass(frozen=True)
class Headline:
    tone: Tone
    title: str
    why: str


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    sub: str
    basis: Basis
    before: str = ""  # the old side's value, where there is one


@dataclass(frozen=True)
class Skipped:
    what: str
    where: str


def headline(data: ReportData) -> Headline:
    """One sentence: where the migration stands and why. What went wrong last comes first."""
    rows = data.rows()
    by = {status: [r for r in rows if r.status is status] for status in Status}
    if data.rollback is not None or (data.cutover is not None and data.cutover.rolled_back):
        took = data.rollback.seconds if data.rollback else data.cutover.rollback_s if data.cutover else None
        why = data.cutover.why if data.cutover and data.cutover.rolled_back else "taken back on command"
        return Headline("bad", "Rolled back: users are on the old side", f"{why}; the way back took {seconds(took)}")
    if failed := by[Status.FAILED]:
        return Headline("bad", f"Stopped in {failed[0].name}", failed[0].message or "no reason was recorded")
    if data.held is not None:
        why = str(data.held.get("why") or "no reason was recorded")
        return Headline("wait", f"Held in {data.held.get('stage', 'an unknown stage')}: a person decides", why)
    if held := by[Status.HELD]:
        return Headline(
            "wait", f"Held in {held[0].name}: a person decides", held[0].message or "no reason was recorded"
        )
    if open_ := by[Status.UNCERTAIN]:
        why = "this page was written before the stage ended; the next run settles it and goes on"
        return Headline("wait", f"In {open_[0].name}, not finished", why)
    ended = [r for r in rows if r.status in _ENDED]
    if len(ended) == len(rows):
        return _moved(data)
    after = next(r.name for r in rows if r.status not in _ENDED)
    if not ended:
        return Headline("plain", "Nothing has run yet", f"the first stage is {after}")
    verdict = f"; the sizing says {data.sizing.verdict}" if data.sizing else ""
    return Headline("plain", f"{len(ended)} of {len(rows)} stages done", f"next: {after}{verdict}")


def tiles(data: ReportData) -> list[Tile]:
    """The figures a reader looks for, each with how it is known."""
    run = data.measurement.run if data.measurement else None
    old = data.measurement.origin if data.measurement else data.evidence.latency if data.evidence else None
    total = run.total if run else None
    ttft = run.ttft if run else None
    first = data.evidence.first_byte if data.evidence else None
    made = [
        _latency(data, "P95, whole answer", total, data.profile.p95_total_ms, old),
        _latency(data, "P95, first token", ttft, data.profile.p95_ttft_ms, first),
    ]
    counts = run.counts if run else None
    rate = _rate(run) if run else _unmeasured(data)
    answered = f"{number(counts.ok)} of {number(counts.planned)}" if counts else UNKNOWN
    made.append(Tile("load test answered", answered, rate, _basis(counts)))
    made.append(_quality(data))
    sizing = latest_sizing(data)
    made.append(_cost(sizing))
    made.append(_replicas(data, sizing))
    users = data.cutover.users if data.cutover else ()
    seen, failed = sum(u.old + u.new + u.failed for u in users), sum(u.failed for u in users)
    made.append(
        Tile(
            "users' requests failed",
            f"{number(failed)} of {number(seen)}" if seen else UNKNOWN,
            "during the switch" if seen else "no user was seen switching",
            "measured" if seen else "unknown",
        )
    )
    back = data.cutover.rehearsed_rollback_s if data.cutover else None
    made.append(
        Tile(
            "way back, rehearsed",
            seconds(back),
            "until all users were on the old side" if back is not None else "not rehearsed yet",
            _basis(back),
        )
    )
    return made


def costs(data: ReportData) -> list[tuple[str, Figure]]:
    """Every cost with its source; what is not known is a row too."""
    rows: list[tuple[str, Figure]] = []
    bill = data.evidence.bill_monthly if data.evidence else None
    rows.append(("old side, a month", bill or _unknown("money/month", "no bill was given to the audit")))
    measured = data.measurement.sizing if data.measurement else None
    for sizing, when in ((data.sizing, "as sized"), (measured, "after the load test")):
        if sizing is not None:
            alone = "" if sizing.costs is None else ", the hosts alone"
            rows.append((f"new side, an hour{alone}, {when}", sizing.cost_per_hour))
            rows.append((f"new side, 1000 requests{alone}, {when}", sizing.cost_per_1000))
            if sizing.costs is not None:
                least = sizing.costs.at_least if sizing.costs.monthly.value is not None else ""
                rows.append((f"new side, a month, {least}{when}", sizing.costs.monthly))
                rows.append((f"new side, 1000 requests, {least}{when}", sizing.costs.per_1000))
    if data.watch is not None:
        rows += [(f"watch: {words(name)}", f) for name, f in data.watch.figures.items() if "cost" in name.lower()]
    return rows


def skipped(data: ReportData) -> list[Skipped]:
    """What was not done or not looked at here, and why: the same reason on several hosts is one line."""
    where: dict[str, list[str]] = defaultdict(list)
    for configured in _configured(data):
        for line in configured.skipped:
            host, _, what = line.partition(": ")
            _add(where, what or line, host if what else "")
    for place, checks in _checks(data):
        for check in checks:
            if check.skipped:
                host, _, name = check.name.partition(": ")
                _add(where, f"check: {name or check.name}: {check.detail}", host if name else place)
    hosts = _model_hosts(data)
    if hosts and not any(h.gpu for h in hosts):
        _add(where, "GPU: none in this fleet; no figure on this page says anything about a GPU's speed", "fleet")
    for note in data.evidence.quality.notes if data.evidence else ():
        _add(where, f"log: {note}", "audit")
    for name, figure in (data.watch.figures if data.watch else {}).items():
        if figure.value is None:
            _add(where, f"{words(name)}: {figure.source}", "watch")
    for row in data.stages:
        if row.status in (Status.SKIPPED, Status.NOT_APPLICABLE):
            _add(where, row.message or row.status.value, row.name)
    return [Skipped(what, ", ".join(hosts)) for what, hosts in where.items()]


def latest_sizing(data: ReportData) -> Sizing | None:
    """The sizing that counts: made with the measured rate where there is one."""
    if data.scaled is not None:
        return data.scaled.sizing
    return data.measurement.sizing if data.measurement else data.sizing


# --- helpers ----------------------------------------------------------------------------------------------------------


def _moved(data: ReportData) -> Headline:
    watch = data.watch
    if watch is None:
        return Headline("wait", "All stages ended; what the watch found is unknown", "its result could not be read")
    tone: Tone = "good" if watch.verdict == "pass" else "bad" if watch.verdict == "fail" else "wait"
    title = {
        "pass": "Moved: all users are on the new fleet",
        "fail": "Moved, but the watch says no",
        "inconclusive": "Moved; the watch does not decide",
    }[watch.verdict]
    return Headline(tone, title, watch.why)


def _latency(
    data: ReportData, label: str, new: Percentiles | None, target: float | None, old: Percentiles | None
) -> Tile:
    before = milliseconds(old.p95_ms) if old and old.p95_ms is not None else ""
    if new is None:
        sub = _unmeasured(data)
    else:
        sub = f"n={number(new.n)}" + (f", target {milliseconds(target)}" if target is not None else ", no target")
        sub += _at_rates(data) if before else ""
    value = new.p95_ms if new else None
    return Tile(label, milliseconds(value), sub, _basis(value), before)


def _at_rates(data: ReportData) -> str:
    """Two latencies compare only beside the rates they were seen at."""
    seen, run = data.evidence, data.measurement.run if data.measurement else None
    if seen is None or run is None or run.rate_rps is None:
        return ""
    span = (seen.end - seen.start).total_seconds()
    old = quantity(seen.inference_n / span, "") if span > 0 else UNKNOWN
    return f"; old at {old.strip()}, new at {quantity(run.rate_rps, '').strip()} requests/s"


def _unmeasured(data: ReportData) -> str:
    return "the load test was not accepted" if data.attempt("load") else "the new side is not measured yet"


def _rate(run: LoadRun) -> str:
    return f"at {quantity(run.rate_rps, '')} a second" if run.rate_rps is not None else "rate unknown"


def _quality(data: ReportData) -> Tile:
    quality = data.measurement.quality if data.measurement else None
    if quality is None or not quality.n:
        return Tile("checkable prompts right", UNKNOWN, "no prompt was asked", "unknown")
    target = data.profile.quality
    sub = share(quality.share) + (f", at least {share(target)} wanted" if target is not None else "")
    return Tile("checkable prompts right", f"{quality.correct} of {quality.n}", sub, "measured")


def _cost(sizing: Sizing | None) -> Tile:
    """Of all that is billed, where that is known; what is missing from it makes it the least."""
    label = "cost of 1000 requests"
    if sizing is None:
        return Tile(label, UNKNOWN, "not sized yet", "unknown")
    least, each = plan_view.per_1000(sizing)
    hour = sizing.costs.hourly if sizing.costs is not None else sizing.cost_per_hour
    sub = quantity(hour.value, hour.unit) if hour.value is not None else "the cost of an hour is unknown"
    return Tile(label, f"{least}{quantity(each.value, each.unit.removesuffix('/1000'))}", sub, each.basis)


def _replicas(data: ReportData, sizing: Sizing | None) -> Tile:
    if sizing is None:
        return Tile("replicas", UNKNOWN, "not sized yet", "unknown")
    value = f"{sizing.replicas} + {sizing.spare} spare"
    if data.scaled is not None:
        return Tile("replicas", value, f"{data.scaled.service.replicas} accepted under load", "measured")
    return Tile("replicas", value, sizing.choice, "predicted")


def _basis(value: object) -> Basis:
    return "measured" if value is not None else "unknown"


def _unknown(unit: str, source: str) -> Figure:
    return Figure(value=None, unit=unit, basis="unknown", source=source)


def _configured(data: ReportData) -> list[Configured]:
    services = [data.service, data.scaled.service if data.scaled else None]
    return [s.configured for s in services if s is not None]


def _model_hosts(data: ReportData) -> list[Host]:
    service = data.scaled.service if data.scaled else data.service
    return [h for h in service.fleet.hosts if h.role == "model"] if service else []


def _checks(data: ReportData) -> Iterable[tuple[str, tuple[Check, ...]]]:
    if data.images:
        yield from ((image.name, image.checks) for image in data.images.images)
    if data.service:
        yield "poc", data.service.checks
    if data.transfer:
        yield "migrate", data.transfer.checks
    if data.scaled:
        yield "scale", data.scaled.service.checks


def _add(where: dict[str, list[str]], what: str, host: str) -> None:
    known = where[what]
    if host and host not in known:
        known.append(host)
