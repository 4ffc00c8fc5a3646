"""What the chosen hosts cost: by the hour, the month, 1000 requests and a million tokens, part by part.

Pure arithmetic on plain numbers. What is unknown stays unknown: it is left out of the sums and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inferlift.artifacts import Basis, Figure
from inferlift.artifacts.cost import CostLine, Costs

HOURS_A_MONTH = 730.0  # 365 * 24 / 12, as clouds bill
GB = 1e9


@dataclass(frozen=True)
class Priced:
    """A price in USD and where it is from. `usd` None: unknown."""

    usd: float | None
    source: str
    date: str = ""
    basis: Basis = "declared"


@dataclass(frozen=True)
class Step:
    """A rate of egress: USD a GB between two amounts a month."""

    usd: float | None
    from_gb: float = 0.0
    up_to_gb: float | None = None
    source: str = ""
    date: str = ""


UNPRICED = Priced(None, "no price known", basis="unknown")


@dataclass(frozen=True)
class CostInputs:
    """What costs are computed from. Rates in requests/s of the whole service; None is unknown."""

    currency: str
    usd_rate: float  # USD for one unit of the currency
    usd_rate_note: str  # source and date of the rate
    hosts: int  # spare ones too
    host_hour: Priced
    capacity_rps: Figure  # of the replicas without the spare ones
    peak_rps: Figure
    mean_rps: Figure | None = None
    output_tokens: float = 0.0  # of a reply; 0: the task writes none
    disk_gb: float | None = None  # a host
    disk_gb_month: Priced = UNPRICED
    egress_gb: float | None = None  # a month
    egress: tuple[Step, ...] = ()
    addresses: int = 0
    address_hour: Priced = UNPRICED
    balancers: int = 0
    balancer_hour: Priced = UNPRICED
    region_hour: Priced | None = None  # fee of the region for dedicated instances; None: there are none


def costs(inputs: CostInputs) -> Costs:
    """The costs, part by part. Raises ValueError for a rate of exchange or a number of hosts that is not above 0."""
    if inputs.usd_rate <= 0 or inputs.hosts < 1:
        raise ValueError("usd_rate and hosts must be above 0")
    lines = tuple(line for line in (_compute(inputs), _disks(inputs), _egress(inputs), *_small(inputs)) if line)
    missing = tuple(line.name for line in lines if line.monthly.value is None)
    monthly = _sum(inputs, lines)
    hourly = _scaled(monthly, 1 / HOURS_A_MONTH, f"{inputs.currency}/h", "the month / 730 hours")
    mean, peak = inputs.mean_rps, inputs.peak_rps
    at_peak = _per_request(inputs, monthly, peak, "peak", 1000, "1000")
    per_1000 = _per_request(inputs, monthly, mean, "mean", 1000, "1000") if mean else at_peak
    tokens = inputs.output_tokens
    rate, which = (mean, "mean") if mean else (peak, "peak")
    per_million = _per_request(inputs, monthly, rate, which, 1e6 / tokens if tokens else 0.0, "million output tokens")
    notes = []
    if mean is None and at_peak.value is not None:
        notes.append("1000 requests are costed at the peak rate, the least they can cost: the mean rate is not known")
    elif mean is not None and at_peak.value is not None and per_1000.value is not None:
        notes.append(f"at the peak rate 1000 requests would cost {at_peak.value:.4g} {inputs.currency}")
    if missing:
        notes.append(f"unknown and missing from the sums: {', '.join(missing)}")
    return Costs(
        currency=inputs.currency,
        lines=lines,
        hourly=hourly,
        monthly=monthly,
        per_1000=per_1000,
        per_1000_at_peak=at_peak,
        per_million_output_tokens=per_million,
        utilisation_mean=_utilisation(mean, inputs.capacity_rps, "mean"),
        utilisation_peak=_utilisation(peak, inputs.capacity_rps, "peak"),
        missing=missing,
        notes=tuple(notes),
    )


def mean_of_day(peak: Figure, day_curve: Sequence[float] | None) -> Figure | None:
    """The mean rate over a day whose busiest hour is at the peak rate. None without a curve or a peak.

    `day_curve`: any number of hours, relative to each other.
    """
    if not day_curve or peak.value is None or max(day_curve) <= 0:
        return None
    share = sum(day_curve) / len(day_curve) / max(day_curve)
    return peak.model_copy(
        update={
            "value": peak.value * share,
            "basis": "declared" if peak.basis == "declared" else "predicted",
            "source": f"{share:.3g} of the peak by the day curve; {peak.source}",
        }
    )


def lines(found: Costs) -> list[str]:
    """What a terminal shows."""
    rows = [(line.name, _text(line.monthly), line.formula) for line in found.lines]
    least = found.at_least if found.monthly.value is not None else ""
    rows.append(("month", least + _text(found.monthly), "sum, 730 hours"))
    for name, figure in (
        ("hour", found.hourly),
        ("1000 requests", found.per_1000),
        ("million output tokens", found.per_million_output_tokens),
    ):
        if figure.value is not None:
            rows.append((name, found.at_least + _text(figure), figure.source))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    said = [f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c}" for a, b, c in rows]
    for which, share in (("mean", found.utilisation_mean), ("peak", found.utilisation_peak)):
        if share.value is not None:
            said.append(f"{which} utilisation {share.value:.0%}: {share.source}")
    return said + list(found.notes)


def number(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _compute(inputs: CostInputs) -> CostLine:
    return _line(inputs, "compute", inputs.host_hour, inputs.hosts * HOURS_A_MONTH, f"{inputs.hosts} hosts * 730 h")


def _disks(inputs: CostInputs) -> CostLine | None:
    if inputs.disk_gb == 0:
        return None
    if inputs.disk_gb is None:
        return _line(
            inputs, "disks", replace(UNPRICED, source="the size of the disks is not known"), 0.0, "size unknown"
        )
    amount = inputs.disk_gb * inputs.hosts
    return _line(inputs, "disks", inputs.disk_gb_month, amount, f"{inputs.hosts} hosts * {inputs.disk_gb:g} GB")


def _egress(inputs: CostInputs) -> CostLine | None:
    gb = inputs.egress_gb
    if gb == 0:
        return None
    if gb is None:
        unknown = replace(UNPRICED, source="the amount that leaves the service is not known")
        return _line(inputs, "egress", unknown, 0.0, "amount unknown")
    usd, parts, sources = 0.0, [], []
    left = gb
    for step in inputs.egress:
        within = min(gb, step.up_to_gb if step.up_to_gb is not None else gb) - step.from_gb
        if within <= 0:
            continue
        if step.usd is None:
            break
        usd += within * step.usd
        left -= within
        parts.append(f"{within:g} GB * {step.usd:g} USD")
        sources.append(step)
    if left > 1e-9 * gb or not sources:
        return _line(inputs, "egress", replace(UNPRICED, source="no price for that amount"), 0.0, f"{gb:g} GB a month")
    priced = Priced(usd / gb, sources[0].source, sources[0].date)
    return _line(inputs, "egress", priced, gb, " + ".join(parts), shown=False)


def _small(inputs: CostInputs) -> list[CostLine]:
    found = []
    if inputs.addresses:
        amount = inputs.addresses * HOURS_A_MONTH
        found.append(_line(inputs, "addresses", inputs.address_hour, amount, f"{inputs.addresses} * 730 h"))
    if inputs.balancers:
        amount = inputs.balancers * HOURS_A_MONTH
        found.append(_line(inputs, "load balancer", inputs.balancer_hour, amount, f"{inputs.balancers} * 730 h"))
    if inputs.region_hour is not None:
        found.append(_line(inputs, "dedicated fee", inputs.region_hour, HOURS_A_MONTH, "1 region * 730 h"))
    return found


def _line(inputs: CostInputs, name: str, price: Priced, amount: float, how: str, *, shown: bool = True) -> CostLine:
    value = None if price.usd is None else price.usd * amount / inputs.usd_rate
    formula = f"{how} * {price.usd:g} USD" if shown and price.usd is not None else how
    if price.usd is None:
        formula += f": {price.source}"
    elif inputs.currency != "USD":
        formula += f" / {inputs.usd_rate:g} USD"
    source = price.source
    if inputs.currency != "USD":
        source += f"; 1 {inputs.currency} = {inputs.usd_rate:g} USD ({inputs.usd_rate_note})"
    figure = Figure(
        value=value,
        unit=f"{inputs.currency}/month",
        basis="unknown" if value is None else price.basis,
        source=source,
        at=price.date or None,
    )
    return CostLine(name=name, monthly=figure, formula=formula)


def _sum(inputs: CostInputs, found: Sequence[CostLine]) -> Figure:
    """The known parts; unknown as a whole where the hosts' price is, since they are most of it."""
    compute = found[0].monthly
    known = [line.monthly for line in found if line.monthly.value is not None]
    if compute.value is None:
        return compute
    return Figure(
        value=sum(figure.value for figure in known if figure.value is not None),
        unit=f"{inputs.currency}/month",
        basis="assumed" if any(figure.basis == "assumed" for figure in known) else compute.basis,
        source=f"sum of {', '.join(line.name for line in found if line.monthly.value is not None)}; {compute.source}",
        at=min((figure.at for figure in known if figure.at), default=None),
    )


def _per_request(
    inputs: CostInputs, monthly: Figure, rate: Figure | None, which: str, requests: float, what: str
) -> Figure:
    """Cost of so many requests at that rate."""
    unit = f"{inputs.currency}/{what}"
    if monthly.value is None or rate is None or not rate.value or not requests:
        why = "the task writes no tokens" if not requests else "the cost or the rate is unknown"
        return Figure(value=None, unit=unit, basis="unknown", source=why)
    value = monthly.value / (rate.value * HOURS_A_MONTH * 3600) * requests
    source = f"at the {which} rate of {rate.value:.3g} requests/s ({rate.basis})"
    if what != "1000":
        source += f", {inputs.output_tokens:g} tokens each"
    return Figure(value=value, unit=unit, basis=monthly.basis, source=f"{source}; {monthly.source}", at=monthly.at)


def _utilisation(rate: Figure | None, capacity: Figure, which: str) -> Figure:
    if rate is None or rate.value is None or not capacity.value:
        return Figure(value=None, unit="share", basis="unknown", source=f"the {which} rate or the capacity is unknown")
    source = f"{rate.value:.3g} of {capacity.value:.3g} requests/s; capacity {capacity.basis}: {capacity.source}"
    return Figure(value=rate.value / capacity.value, unit="share", basis=capacity.basis, source=source)


def _scaled(figure: Figure, factor: float, unit: str, why: str) -> Figure:
    if figure.value is None:
        return figure.model_copy(update={"unit": unit})
    return figure.model_copy(update={"value": figure.value * factor, "unit": unit, "source": f"{why}; {figure.source}"})


def _text(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{number(figure.value)} {figure.unit}"
