"""Buy, lease, rent, cloud or a managed service over years: totals, break-even, and what would change the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferlift.artifacts import Basis, Figure
from inferlift.artifacts.cost import Sensitivity, Tco, TcoAssumption, TcoLine, TcoOption, Way
from inferlift.sizing.cost import Priced
from inferlift.sizing.tco_assumptions import assumptions, highest
from inferlift.sizing.tco_site import site
from inferlift.sizing.tco_ways import Part, TcoInputs, Values, ways

__all__ = ["TcoInputs", "assumptions", "figures", "lines", "tco"]
SWING = 0.25
_PRICES = ("server", "rented_gpu_hour", "cloud_host_hour", "reserved_host_hour", "api_in", "api_out")
_AMOUNTS = ("input_tokens_month", "output_tokens_month", "busy_share", "running_share")
_MAIN: dict[Way, tuple[str, ...]] = {
    "buy": ("server",),
    "lease": ("server",),
    "rented hardware": ("rented_gpu_hour",),
    "cloud on demand": ("cloud_host_hour",),
    "cloud reserved": ("reserved_host_hour", "cloud_host_hour"),
    "managed service": ("api_out", "api_in"),
}


def tco(inputs: TcoInputs, assumed: Mapping[str, TcoAssumption]) -> Tco:
    """The comparison, all money in `inputs.currency`. `assumed`: see `assumptions`.

    A way whose main price is unknown has no total; one that misses a smaller part says so and is not called the
    cheapest. Raises ValueError unless hosts and the rate are above 0 and the shares between 0 and 1.
    """
    _check(inputs)
    a = {name: row.value for name, row in assumed.items()}
    found = ways(inputs, a)
    options = sorted((_option(inputs, assumed, way, parts) for way, parts in found.items()), key=_by_total)
    cheapest = _cheapest(found)
    best = next((option for option in options if option.way == cheapest), None)
    saving = None
    if inputs.bill_monthly is not None and inputs.bill_monthly.value is not None and best is not None:
        saving = Figure(
            value=inputs.bill_monthly.value - (best.monthly.value or 0.0),
            unit=f"{inputs.currency}/month",
            basis=best.monthly.basis,
            source=f"today's bill less {best.way}; {inputs.bill_monthly.source}",
        )
    return Tco(
        currency=inputs.currency,
        years=a["years"],
        options=tuple(options),
        cheapest=cheapest,
        break_even_utilisation=_break_even(inputs, a),
        sensitivity=_sensitivity(inputs, a, cheapest),
        checks=site(inputs, a),
        assumptions=tuple(assumed.values()),
        bill_monthly=inputs.bill_monthly,
        saving_monthly=saving,
        notes=_notes(options),
    )


def lines(found: Tco, *, explain: bool = False) -> list[str]:
    """What a terminal shows; `explain` lists the assumptions too."""
    said = [f"over {found.years:g} years, in {found.currency}"]
    widest = max(len(option.way) for option in found.options)
    for option in found.options:
        least = "at least " if option.missing else ""
        total = "unknown" if option.total.value is None else f"{least}{option.total.value:,.0f}"
        monthly = "" if option.monthly.value is None else f"  {option.monthly.value:,.0f} a month"
        tokens = option.per_million_output_tokens.value
        each = "" if tokens is None else f"  {tokens:.4g} a million output tokens"
        mark = "  <- cheapest" if option.way == found.cheapest else ""
        said.append(f"  {option.way.ljust(widest)}  {total:>16}{monthly}{each}{mark}")
        said += [f"      {_amount(line)}  {line.name}: {line.formula}" for line in option.lines]
        said += [f"      {option.note}"] if option.note else []
    share = found.break_even_utilisation
    if share.value is not None:
        said.append(f"break-even utilisation {share.value:.0%}: {share.source}")
    else:
        said.append(f"break-even utilisation unknown: {share.source}")
    changing = [row for row in found.sensitivity if row.changes]
    said.append(
        f"a quarter up or down changes the cheapest way for {len(changing)} of {len(found.sensitivity)} numbers"
    )
    said += [
        f"  {row.name}: lower {row.cheapest_low or 'none'}, higher {row.cheapest_high or 'none'}" for row in changing
    ]
    for check in found.checks:
        state = "not checked" if check.skipped else "ok" if check.ok else "no"
        said.append(f"{check.name} {state}: {check.detail}")
    if found.bill_monthly is not None and found.bill_monthly.value is not None:
        said.append(
            f"today's bill {found.bill_monthly.value:,.0f} {found.bill_monthly.unit}: {found.bill_monthly.source}"
        )
    if found.saving_monthly is not None and found.saving_monthly.value is not None:
        less = found.saving_monthly.value
        said.append(f"the cheapest way {'saves' if less >= 0 else 'costs'} {abs(less):,.0f} a month against it")
    said += list(found.notes)
    own = sum(row.declared for row in found.assumptions)
    count = f"{len(found.assumptions)} assumptions, {own} of them the profile's own (its tco section changes them)"
    if not explain:
        return [*said, f"{count}; --explain lists them, inferlift/sizing/tco.yaml has them"]
    said.append(f"{count}:")
    for row in found.assumptions:
        apart = "" if row.low is None or row.high is None else f" ({row.low:g} to {row.high:g})"
        said.append(f"  {row.name} {row.value:.6g}{apart} {row.unit}: {row.source}")
    return said


def figures(found: Tco) -> dict[str, float | int | None]:
    """What a program reads, in the comparison's currency; None is unknown."""
    said: dict[str, float | int | None] = {f"total.{option.way}": option.total.value for option in found.options}
    said |= {f"monthly.{option.way}": option.monthly.value for option in found.options}
    said["break_even_utilisation"] = found.break_even_utilisation.value
    said["changing_numbers"] = sum(row.changes for row in found.sensitivity)
    said["bill_monthly"] = found.bill_monthly.value if found.bill_monthly else None
    said["saving_monthly"] = found.saving_monthly.value if found.saving_monthly else None
    return said


def _option(inputs: TcoInputs, assumed: Mapping[str, TcoAssumption], way: Way, parts: Sequence[Part]) -> TcoOption:
    months = assumed["years"].value * 12
    total = _total(parts)
    prices = [price for name in _MAIN[way] if (price := getattr(inputs, name)).usd is not None]
    price = prices[0] if prices else getattr(inputs, _MAIN[way][0])
    basis: Basis = "unknown" if total is None else "assumed"  # every way carries assumed hours and rates
    unit = inputs.currency
    tokens = inputs.output_tokens_month
    per_million = None if total is None or not tokens else total / months / tokens * 1e6
    return TcoOption(
        way=way,
        total=Figure(value=total, unit=unit, basis=basis, source=price.source, at=price.date or None),
        monthly=Figure(
            value=None if total is None else total / months,
            unit=f"{unit}/month",
            basis=basis,
            source=f"total / {months:g} months",
        ),
        per_million_output_tokens=Figure(
            value=per_million,
            unit=f"{unit}/million output tokens",
            basis="unknown" if per_million is None else basis,
            source="tokens a month unknown" if not tokens else f"{tokens / 1e6:.4g} million a month",
        ),
        lines=tuple(TcoLine(name=part.name, total=part.total, formula=part.formula) for part in parts),
        missing=tuple(part.name for part in parts if part.total is None),
        note="; ".join(filter(None, [_note(price), _apart(inputs, assumed, way)])),
    )


def _note(price: Priced) -> str:
    """Where the main price is from."""
    return f"price: {price.source}{f' ({price.date})' if price.date else ''}" if price.usd is not None else ""


def _apart(inputs: TcoInputs, assumed: Mapping[str, TcoAssumption], way: Way) -> str:
    """From what to what the total goes where the price itself is an assumption with a range."""
    row = assumed["cloud_reserved_discount"]
    if way != "cloud reserved" or inputs.reserved_host_hour.usd is not None or row.low is None or row.high is None:
        return ""
    a = {name: one.value for name, one in assumed.items()}
    low, high = (_total(ways(inputs, {**a, row.name: share})["cloud reserved"]) for share in (row.high, row.low))
    if low is None or high is None:
        return ""
    return (
        f"no reserved price is known: {row.value:.0%} less than on demand is assumed; {row.low:.0%} to {row.high:.0%}"
        f" less would be {high:,.0f} to {low:,.0f}"
    )


def _total(parts: Sequence[Part]) -> float | None:
    if any(part.main and part.total is None for part in parts):
        return None
    return sum(part.total for part in parts if part.total is not None)


def _by_total(option: TcoOption) -> tuple[bool, float]:
    return option.total.value is None, option.total.value or 0.0


def _ranked(found: Mapping[Way, Sequence[Part]]) -> list[tuple[float, Way]]:
    """Ways whose total is whole, cheapest first."""
    whole = [(way, parts) for way, parts in found.items() if all(part.total is not None for part in parts)]
    return sorted((sum(part.total or 0.0 for part in parts), way) for way, parts in whole)


def _cheapest(found: Mapping[Way, Sequence[Part]]) -> Way | None:
    ranked = _ranked(found)
    return ranked[0][1] if ranked else None


def _break_even(inputs: TcoInputs, a: Values) -> Figure:
    """Share of the hours u from which buying costs less than cloud hosts that run only then.

    buy(u) = fixed + power(u), cloud(u) = fixed + compute * u; power is linear in u, so u is where two lines meet.
    """
    unit, months = "share of the hours", a["years"] * 12

    def unknown(why: str) -> Figure:
        return Figure(value=None, unit=unit, basis="unknown", source=why)

    idle = ways(replace(inputs, busy_share=0.0, running_share=0.0), a)
    busy = ways(replace(inputs, busy_share=1.0, running_share=1.0), a)
    buy0, buy1 = _total(idle["buy"]), _total(busy["buy"])
    cloud0, cloud1 = _total(idle["cloud on demand"]), _total(busy["cloud on demand"])
    if buy0 is None or buy1 is None:
        return unknown("the price of a server is unknown")
    if cloud0 is None or cloud1 is None:
        return unknown("the price of a cloud host is unknown")
    slope = (cloud1 - cloud0) - (buy1 - buy0)
    if slope <= 0:
        return unknown("an hour of the cloud costs no more than the electricity of an own host: buying never pays")
    share = (buy0 - cloud0) / slope
    if share <= 0:
        return Figure(value=0.0, unit=unit, basis="assumed", source="buying is cheaper even for hosts that never work")
    said = "above this share of the hours buying is cheaper than cloud hosts that run only then"
    if share > 1:
        said = "more than all hours: the cloud on demand is cheaper even around the clock"
    return Figure(value=share, unit=unit, basis="assumed", source=f"{said}; over {months:g} months")


def _sensitivity(inputs: TcoInputs, a: Values, cheapest: Way | None) -> tuple[Sensitivity, ...]:
    """Each number a quarter lower and higher, the rest as it is. Numbers that move no total are left out."""
    now = _totals(ways(inputs, a))
    rows = []
    for name, value in a.items():
        if name == "eur_usd" or not value:
            continue
        low = ways(inputs, {**a, name: value * (1 - SWING)})
        high = ways(inputs, {**a, name: min(highest(name), value * (1 + SWING))})
        if _totals(low) != now or _totals(high) != now:
            rows.append(_row(name, low, high, cheapest))
    for name in (*_PRICES, *_AMOUNTS):
        low_inputs, high_inputs = _swung(inputs, name, 1 - SWING), _swung(inputs, name, 1 + SWING)
        if low_inputs is None or high_inputs is None:
            continue
        low, high = ways(low_inputs, a), ways(high_inputs, a)
        if _totals(low) != now or _totals(high) != now:
            rows.append(_row(name, low, high, cheapest))
    return tuple(rows)


def _totals(found: Mapping[Way, Sequence[Part]]) -> list[float | None]:
    return [_total(parts) for parts in found.values()]


def _swung(inputs: TcoInputs, name: str, factor: float) -> TcoInputs | None:
    """The inputs with that number times the factor; None where it is unknown or nothing."""
    value = getattr(inputs, name)
    if isinstance(value, Priced):
        changed: dict[str, Any] = {name: None if value.usd is None else replace(value, usd=value.usd * factor)}
    else:
        most = 1.0 if name.endswith("_share") else math.inf
        changed = {name: min(value * factor, most) if value else None}
    return replace(inputs, **changed) if changed[name] is not None else None


def _row(
    name: str, low: Mapping[Way, Sequence[Part]], high: Mapping[Way, Sequence[Part]], cheapest: Way | None
) -> Sensitivity:
    at_low, at_high = _ranked(low), _ranked(high)
    first_low, first_high = (at_low[0][1] if at_low else None), (at_high[0][1] if at_high else None)
    return Sensitivity(
        name=name,
        cheapest_low=first_low,
        cheapest_high=first_high,
        margin_low=at_low[1][0] - at_low[0][0] if len(at_low) > 1 else None,
        margin_high=at_high[1][0] - at_high[0][0] if len(at_high) > 1 else None,
        changes=first_low != cheapest or first_high != cheapest,
    )


def _notes(options: Sequence[TcoOption]) -> tuple[str, ...]:
    unknown = [option.way for option in options if option.total.value is None]
    partly = [
        f"{option.way} ({', '.join(option.missing)})" for option in options if option.missing and option.total.value
    ]
    notes = ["what is paid as it is used bears no interest; capital bears it, so that the totals compare"]
    if unknown:
        notes.append(f"not compared, a price is unknown: {', '.join(unknown)}")
    if partly:
        notes.append(f"at least, a part is unknown: {'; '.join(partly)}")
    notes.append("a managed service runs its own choice of model and hardware: its quality and limits have to be tried")
    return tuple(notes)


def _amount(line: TcoLine) -> str:
    return f"{'unknown' if line.total is None else f'{line.total:,.0f}':>14}"


def _check(inputs: TcoInputs) -> None:
    if inputs.hosts < 1 or inputs.usd_rate <= 0:
        raise ValueError("hosts and usd_rate must be above 0")
    if not (0 <= inputs.busy_share <= 1 and 0 <= inputs.running_share <= 1):
        raise ValueError("busy_share and running_share lie between 0 and 1")
