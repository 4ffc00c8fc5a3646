"""The plan's pictures: offers by cost, ranges against targets, costs by part, ways over years, time to the switch."""

from __future__ import annotations

from inferlift.artifacts import Costs, Interval, OfferResult, Sizing, Tco, Timeline, TimelineStep
from inferlift.report import plan_view
from inferlift.report.data import ProfileSummary
from inferlift.report.figures import UNKNOWN, count, number, quantity, seconds
from inferlift.report.plots import Mark, linear, spread, timeline
from inferlift.report.rows import Key, Row, Rows, Span, stacked

CHEAPEST = 10  # offers drawn
NAMED = 4  # kinds of offers named before "and more"
FAR = 3.0  # a mark beyond so many times the longest bar is said, not drawn
PARTS = ("p1", "p2", "p3", "p4", "p5", "p6")
# Parts of the ways to get the hardware, gathered so that six very different bills can be compared at a glance.
FAMILIES = {
    "hardware": "hosts", "lease": "hosts", "rent": "hosts", "compute": "hosts",
    "input tokens": "tokens", "output tokens": "tokens", "support": "support",
    "electricity": "power and room", "colocation": "power and room",
    "network": "network and storage", "storage": "network and storage", "egress": "network and storage",
    "administration": "administration",
}  # fmt: skip
TONES = {
    "hosts": "p1", "tokens": "p2", "support": "p3", "power and room": "p4", "network and storage": "p5",
    "administration": "p6", "other": "plain",
}  # fmt: skip


def offers(sizing: Sizing, profile: ProfileSummary) -> Rows | None:
    """The cheapest usable offers, and the chosen one if it is not among them. None where none has a known cost."""
    fitting = plan_view.usable(sizing)
    priced = sorted((one for one in fitting if one.per_1000.value is not None), key=_cost)
    if not priced or len(sizing.offers) < 2:
        return None
    shown = priced[:CHEAPEST] + [one for one in priced[CHEAPEST:] if plan_view.is_choice(one, sizing)]
    longest = max(_cost(one) for one in shown)
    limit = profile.max_cost_per_1000
    marks, note = _near((limit, "target"), longest, sizing.currency)
    notes = [note] if note else []
    if len(priced) > len(shown):
        notes.append(f"{count(len(priced) - len(shown), 'dearer one')} not drawn")
    if unpriced := [one for one in fitting if one.per_1000.value is None]:
        notes.append(f"{count(len(unpriced), 'usable offer')} without a known price: {_kinds(unpriced)}")
    tones = [_tone(one, sizing) for one in shown]
    names = {"new": "the choice", "third": "meets every target", "plain": "misses a target"}
    return Rows(
        title="Usable offers by cost",
        says=f"{sizing.currency} for 1000 requests: " + "; ".join(f"{_offer(one)} {_each(one)}" for one in shown),
        x=linear(0.0, max([longest, *(m.value for m in marks)]) or 1.0, number),
        rows=tuple(
            Row(
                _offer(one), _each(one), strong=tone == "new",
                spans=(Span(0.0, _cost(one), tone, "; ".join(one.misses) or one.reason),),
            )
            for one, tone in zip(shown, tones, strict=True)
        ),
        marks=marks,
        keys=tuple(Key(name, tone) for tone, name in names.items() if tone in tones),
        x_title=f"{sizing.currency} for 1000 requests, the hosts alone",
        note="; ".join(notes),
    )  # fmt: skip


def reached(sizing: Sizing, profile: ProfileSummary) -> list[Rows]:
    """One picture for each predicted figure: the value, the range of 9 in 10 cases, the target."""
    serving = sizing.serving
    if serving is None:
        return []
    declared = plan_view.targets(profile)
    found = [_range(plan_view.NAMES.get(key, key), one, declared.get(key), key) for key, one in serving.reached.items()]
    for name, each in (("one host", serving.items_per_s), ("one copy of the model", serving.tokens_per_s)):
        if each is not None:
            found.append(_range(f"{each.unit} of {name}", each, None, ""))
    return found


def costs(found: Costs) -> Rows | None:
    """The known parts of a month's bill on one bar; the missing ones are named. None for a single known part."""
    known = [(line.name, line.monthly.value) for line in found.lines if line.monthly.value is not None]
    if len(known) < 2 or found.monthly.value is None:
        return None
    money = [(name, value, quantity(value, found.currency)) for name, value in known]
    tones = [PARTS[min(k, len(PARTS) - 1)] for k in range(len(money))]
    total = f"{found.at_least}{quantity(found.monthly.value, found.currency)}"
    missing = f"not known and missing from the sum: {', '.join(found.missing)}" if found.missing else ""
    return Rows(
        title="A month, by part",
        says=f"{total} a month: {', '.join(f'{name} {said}' for name, _, said in money)}",
        x=linear(0.0, sum(value for _, value in known) or 1.0, number),
        rows=(
            Row("all parts" if not found.missing else "known parts", total, strong=True,
                spans=stacked([(value, tone, f"{name}: {said}")
                               for (name, value, said), tone in zip(money, tones, strict=True)])),
        ),
        keys=tuple(Key(f"{name} {said}", tone) for (name, _, said), tone in zip(money, tones, strict=True)),
        x_title=f"{found.currency} a month",
        note=missing,
    )  # fmt: skip


def tco(found: Tco) -> Rows | None:
    """The ways that have a total, stacked by what is paid for. None where no way has one."""
    known = [(one, one.total.value) for one in found.options if one.total.value is not None]
    if not known:
        return None
    rows, families = [], []
    for option, total in known:
        sums: dict[str, float] = {}
        for line in option.lines:
            family = FAMILIES.get(line.name, "other")
            sums[family] = sums.get(family, 0.0) + (line.total or 0.0)
        families += [family for family, value in sums.items() if value]
        least = "at least " if option.missing else ""
        best = option.way == found.cheapest and plan_view.compared(found)
        spans = stacked([
            (sums[family], tone, f"{family}: {quantity(sums[family], found.currency)}")
            for family, tone in TONES.items() if sums.get(family)
        ])  # fmt: skip
        label = f"{option.way}, cheapest" if best else option.way
        rows.append(Row(label, f"{least}{quantity(total, found.currency)}", spans=spans, strong=best))
    longest = max(total for _, total in known)
    bill = found.bill_monthly.value if found.bill_monthly is not None else None
    paid = None if bill is None else bill * 12 * found.years
    marks, note = _near((paid, "today's bill"), longest, found.currency)
    return Rows(
        title=f"What each way costs over {plan_view.term(found)}",
        says="; ".join(f"{row.label}: {row.value}" for row in rows),
        x=linear(0.0, max([longest, *(m.value for m in marks)]) or 1.0, number),
        rows=tuple(rows),
        marks=marks,
        keys=tuple(Key(family, tone) for family, tone in TONES.items() if family in families),
        note=note,
        x_title=f"{found.currency} in all",
    )


def gantt(found: Timeline) -> Rows | None:
    """Steps along the hours from the start; those that take no time are named, unknown lengths are open dots."""
    drawn = [step for step in found.steps if step.hours is None or step.hours > 0]
    if not drawn:
        return None
    instant = [step.name for step in found.steps if step.hours == 0]
    end = max(found.hours_to_verdict, found.plan_hours, *(step.ends_at for step in drawn))
    marks = (
        Mark(found.plan_hours * 3600, f"planned: {_hours(found.plan_hours)}"),
        Mark(found.hours_to_switch * 3600, f"moved: {_hours(found.hours_to_switch)}"),
    )
    keys = [Key("on the critical path", "third"), Key("may end later, by as much as the line", "plain")]
    if any(step.hours is None for step in drawn):
        keys.append(Key("length unknown", "wait", "dots"))
    path = ", ".join(found.critical_path)
    return Rows(
        title="The way to the switch",
        says=f"{_hours(found.hours_to_switch)} at the earliest, {plan_view.fits(found)}; on the way: {path}",
        x=timeline(end * 3600, seconds),
        rows=tuple(_step(step) for step in drawn),
        marks=marks,
        keys=tuple(keys),
        x_title="since the start",
        note=f"take no time: {', '.join(instant)}" if instant else "",
    )


# --- helpers ----------------------------------------------------------------------------------------------------------


def _cost(one: OfferResult) -> float:
    return one.per_1000.value or 0.0


def _each(one: OfferResult) -> str:
    missed = f", {len(one.misses)} missed" if one.misses else ""
    return f"{number(one.per_1000.value)}{missed}"


def _offer(one: OfferResult) -> str:
    hosts = f"{one.hosts} × " if one.hosts is not None else ""
    place = f", {one.region}" if one.region else ""
    return f"{hosts}{one.offer}{place}" + (f", {one.sold_as}" if one.sold_as != "on demand" else "")


def _tone(one: OfferResult, sizing: Sizing) -> str:
    return "new" if plan_view.is_choice(one, sizing) else "plain" if one.misses else "third"


def _kinds(found: list[OfferResult]) -> str:
    kinds = list(dict.fromkeys(one.offer for one in found))
    more = f" and {count(len(kinds) - NAMED, 'other kind')}" if len(kinds) > NAMED else ""
    return ", ".join(kinds[:NAMED]) + more


def _near(mark: tuple[float | None, str], longest: float, unit: str) -> tuple[tuple[Mark, ...], str]:
    """The mark, or words where drawing it would press the bars together."""
    value, name = mark
    if value is None:
        return (), ""
    label = f"{name} {quantity(value, unit)}"
    return ((), f"{label} lies beyond the right edge") if value > FAR * longest else ((Mark(value, label),), "")


def _range(name: str, found: Interval, target: float | None, key: str) -> Rows:
    value, low, high = quantity(found.value, found.unit), _bare(found.low, found.unit), _bare(found.high, found.unit)
    verdict = plan_view.judged(key, found, target)
    wanted = "" if target is None else f"target {quantity(target, found.unit)}"
    ends = [found.low, found.high, *([target] if target is not None else [])]
    return Rows(
        title=f"Predicted: {name}",
        says=f"{name}: {value} predicted, {low} to {high} in 9 of 10 cases{f'; {wanted}, {verdict}' if wanted else ''}",
        x=spread(min(ends), max(ends), lambda v: _bare(v, found.unit)),
        rows=(Row(value, f"{low} to {high}", whisker=(found.low, found.high), dot=found.value, strong=True),),
        marks=(Mark(target, wanted),) if target is not None else (),
        note=verdict,
        x_title="9 of 10 cases lie on the line",
    )


def _bare(value: float, unit: str) -> str:
    """Without its unit, which stands once beside it; a time or a share says its own."""
    return quantity(value, unit if unit in ("ms", "s", "share") else "")


def _step(step: TimelineStep) -> Row:
    if step.hours is None:
        return Row(step.name, UNKNOWN, dot=step.starts_at * 3600, tone="wait")
    tone = "third" if step.critical else "plain"
    end = step.ends_at * 3600
    slack = None if step.critical or step.slack_hours <= 0 else (end, end + step.slack_hours * 3600)
    spans = (Span(step.starts_at * 3600, end, tone, f"{step.basis}: {step.source}"),)
    return Row(step.name, _hours(step.hours), spans=spans, whisker=slack, tone=tone, strong=step.critical)


def _hours(hours: float) -> str:
    return seconds(hours * 3600)
