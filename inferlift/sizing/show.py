"""The plan as a person reads it on a terminal, short or with every formula."""

from __future__ import annotations

from inferlift.artifacts import Figure, Interval, OfferResult, Serving, Sizing
from inferlift.sizing import cost
from inferlift.sizing.cost import number

_NAMES = {"p95_ttft_ms": "first token", "p95_total_ms": "whole answer", "min_tokens_per_s": "tokens a user sees"}
SHOWN = 12  # offers


def lines(plan: Sizing, *, explain: bool = False) -> list[str]:
    """Verdict, choice, figures with how they are known; `explain` adds formulas, checks, the chain and the timeline."""
    place = f" in {plan.region}" if plan.region else ""
    sold = "" if plan.sold_as == "on demand" else f", {plan.sold_as}"
    said = [
        f"verdict    {plan.verdict}: {plan.why}",
        f"choice     {plan.replicas} + {plan.spare} spare x {plan.choice}{place}{sold}",
        f"peak       {_figure(plan.peak_rps)}",
        f"a host     {_figure(plan.rate_per_replica)}",
    ]
    said += _serving(plan)
    costs = plan.costs
    per_1000 = costs.per_1000 if costs is not None else plan.cost_per_1000
    least = costs.at_least if costs is not None and per_1000.value is not None else ""
    if not least and plan.mean_rps is None and per_1000.value is not None:
        least = "at least "  # at the peak rate, since nothing tells the mean
    listed = "declared" if plan.sold_as == "owned" else "listed prices"
    said.append(f"cost       {least}{_money(per_1000, listed)}; hosts alone {_money(plan.cost_per_hour, listed)}")
    for one in plan.unreachable:
        near = "nobody can tell" if one.nearest is None else f"{number(one.nearest)} {one.unit} ({one.where})"
        said.append(f"out of reach  {one.target} {one.wanted:g} {one.unit}; the nearest that an offer reaches: {near}")
    for other in plan.alternatives:
        said.append(f"instead    {other.name}: {_money(other.per_1000, listed)}; {other.why}")
    said += [f"software   {line}" for line in plan.software]
    said += _offers(plan)
    if explain:
        said += _explained(plan)
    # a name may hold what a terminal would obey
    return ["".join(letter if letter.isprintable() else "?" for letter in line) for line in said]


def figures(plan: Sizing) -> dict[str, float | int | str | None]:
    """What a program reads; None is unknown. Money in the plan's currency."""
    costs, serving = plan.costs, plan.serving
    found: dict[str, float | int | str | None] = {
        "peak_rps": plan.peak_rps.value,
        "rate_per_replica": plan.rate_per_replica.value,
        "replicas": plan.replicas,
        "spare": plan.spare,
        "memory_bytes": plan.memory.total_bytes,
        "cost_per_hour": plan.cost_per_hour.value,
        "cost_per_1000": costs.per_1000.value if costs is not None else plan.cost_per_1000.value,
        "cost_per_month": costs.monthly.value if costs is not None else None,
        "hours_to_switch": plan.timeline.hours_to_switch if plan.timeline is not None else None,
        "offers_compared": len(plan.offers),
        "offers_usable": sum(one.fits for one in plan.offers),
    }
    for key, reached in (serving.reached if serving is not None else {}).items():
        found[key] = reached.value
        found[f"{key}_low"], found[f"{key}_high"] = reached.low, reached.high
    return found


def _serving(plan: Sizing) -> list[str]:
    serving = plan.serving
    if serving is None:
        return []
    said = []
    if serving.gpu is not None:
        said.append(f"layout     {_layout(serving)}")
    for key, reached in serving.reached.items():
        full = ", at the most that a host is given" if serving.items_per_s is not None else ""
        said.append(f"predicted  {_NAMES.get(key, key)} {_interval(reached)}{full}")
    if serving.items_per_s is not None:
        said.append(f"predicted  {_interval(serving.items_per_s)} a host")
    if serving.beyond:
        said.append(f"beyond     {serving.beyond}")
    if plan.batching is not None and plan.batching.settings:
        said.append("server     " + ", ".join(f"{key} {value}" for key, value in plan.batching.settings.items()))
    if plan.memory.gpu_bytes is not None and plan.memory.gpu_available_bytes is not None:
        used, free = plan.memory.gpu_bytes / 2**30, plan.memory.gpu_available_bytes / 2**30
        said.append(f"memory     {used:.1f} GiB of the {free:.1f} GiB that the engine may take of the fullest GPU")
    else:
        said.append(f"memory     {plan.memory.total_bytes / 2**30:.2f} GiB a replica")
    return said


def _layout(serving: Serving) -> str:
    split = f"tensor parallel {serving.tensor}"
    if serving.pipeline > 1:
        split += f", {serving.pipeline} pipeline stages"
    sessions = f", {serving.sessions} sessions each" if serving.sessions is not None else ""
    return f"{serving.copies} x the model on {serving.gpu}, {split}{sessions}"


def _offers(plan: Sizing) -> list[str]:
    """The usable ones by cost, then how many were rejected for what."""
    usable = sorted(
        (one for one in plan.offers if one.fits),
        key=lambda one: (len(one.misses), one.per_1000.value is None, one.per_1000.value or 0.0),
    )
    priced = sum(one.per_1000.value is not None for one in usable)
    said = [f"offers     {len(plan.offers)} compared, {len(usable)} usable, {priced} of them priced (hosts alone)"]
    said += [f"  {_offer(one, plan.currency)}" for one in usable[:SHOWN]]
    if len(usable) > SHOWN:
        said.append(f"  and {len(usable) - SHOWN} more usable ones (--json has all)")
    rejected: dict[str, list[str]] = {}
    for one in plan.offers:
        if not one.fits:
            rejected.setdefault(one.reason, []).append(one.offer)
    for reason, names in sorted(rejected.items(), key=lambda pair: -len(pair[1]))[:6]:
        shown = ", ".join(list(dict.fromkeys(names))[:4]) + (" ..." if len(set(names)) > 4 else "")
        said.append(f"  rejected {len(names):>3}: {reason} ({shown})")
    return said


def _offer(one: OfferResult, currency: str) -> str:
    place = f" {one.region}" if one.region else ""
    each = "cost unknown" if one.per_1000.value is None else f"{one.per_1000.value:.4f} {currency} per 1000"
    return f"{one.hosts} x {one.offer}{place} {one.layout} {one.sold_as}: {each}; {one.reason}".replace("  ", " ")


def _explained(plan: Sizing) -> list[str]:
    said = ["", "memory", *(f"  {line}" for line in plan.memory.explain)]
    if plan.batching is not None:
        said += ["batching", *(f"  {line}" for line in plan.batching.explain)]
    if plan.chain is not None:
        said.append(f"the whole chain: {plan.chain.why}")
        for link in plan.chain.links:
            named = f" [{link.exception}]" if link.exception else ""
            said.append(f"  {link.name:<8} {link.verdict}{named}: {link.why}")
    if plan.compat:
        said.append("before money is spent")
        for check in plan.compat:
            then = f"; next: {check.next_step}" if check.next_step and check.verdict != "pass" else ""
            said.append(f"  {check.name:<14} {check.verdict}: {check.detail}{then}")
    if plan.costs is not None:
        said += ["costs", *(f"  {line}" for line in cost.lines(plan.costs))]
    timeline = plan.timeline
    if timeline is not None:
        fits = {True: "fits", False: "does not fit", None: "cannot be said to fit"}[timeline.fits_plan]
        said.append(
            f"timeline: {timeline.hours_to_switch:.1f} h to the switch at the earliest, which {fits}"
            f" the plan of {timeline.plan_hours:g} h; on the way: {', '.join(timeline.critical_path)}"
        )
        for step in timeline.steps:
            hours = "unknown" if step.hours is None else f"{step.hours:.2f} h"
            mark = "*" if step.critical else " "
            said.append(f" {mark} {step.name:<12} {hours:>9} ({step.basis}) {step.source}")
        said += [f"  longer: {reason}" for reason in timeline.longer]
    return [*said, "notes", *(f"  {note}" for note in plan.notes)]


def _interval(found: Interval) -> str:
    ends = f"{number(found.low)} to {number(found.high)}"
    return f"{number(found.value)} {found.unit} ({ends} in 9 of 10 cases)"


def _figure(found: Figure) -> str:
    return f"unknown ({found.source})" if found.value is None else f"{number(found.value)} {found.unit} ({found.basis})"


def _money(found: Figure, listed: str) -> str:
    """`listed`: whose a price is that nobody measured or assumed."""
    if found.value is None:
        return f"unknown {found.unit}"
    return f"{number(found.value)} {found.unit} ({listed if found.basis == 'declared' else found.basis})"
