"""The parts of each way to get the hardware over the term: buy, lease, rent, cloud, managed service.

Plain numbers in one currency. All ways carry the same hosts, load, storage and administration rate; only capital is
charged interest, what is paid as it is used is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from inferlift.artifacts import Figure
from inferlift.artifacts.cost import Way
from inferlift.sizing.cost import HOURS_A_MONTH, UNPRICED, Priced


@dataclass(frozen=True)
class TcoInputs:
    """What is compared. Prices in USD with their sources, `bill_monthly` in the currency; None is unknown."""

    currency: str
    usd_rate: float  # USD for one unit of the currency
    hosts: int  # spare ones too
    gpus_per_host: int = 0
    gpu: str = ""
    gpu_tdp_w: float | None = None
    host_kw: float | None = None  # the most a host draws; None: from the GPUs
    cooling: str = "air"  # "air", "liquid" (direct), "immersion"
    server: Priced = UNPRICED  # one host to buy
    rented_gpu_hour: Priced = UNPRICED  # one GPU
    cloud_host_hour: Priced = UNPRICED
    cloud_region_hour: Priced | None = None  # fee of the region for dedicated instances; None: there are none
    reserved_host_hour: Priced = UNPRICED  # unpriced: the price on demand less the assumed discount
    api_in: Priced = UNPRICED  # a million input tokens
    api_out: Priced = UNPRICED
    input_tokens_month: float | None = None
    output_tokens_month: float | None = None
    busy_share: float = 1.0  # mean load of the hosts over what they could carry
    running_share: float = 1.0  # share of the hours that cloud hosts on demand run
    storage_gb: float = 0.0
    cloud_gb_month: Priced = UNPRICED  # of cloud storage
    egress_gb_month: float = 0.0
    egress_gb: Priced = UNPRICED  # of the cloud, on average
    bill_monthly: Figure | None = None  # of today's hosting
    ups_kva: float | None = None  # what the site has; None: not said
    circuits: int | None = None  # what a rack has; None: not said


@dataclass(frozen=True)
class Part:
    name: str
    total: float | None
    formula: str
    main: bool = False  # without it the total says nothing


Values = Mapping[str, float]


def annuity(price: float, residual: float, rate_a_year: float, months: float) -> float:
    """What a price less a residual value costs a month at that interest: (P - R / (1+i)^n) * i / (1 - (1+i)^-n).

    i is a twelfth of the yearly rate; without interest (P - R) / n. Raises ValueError unless months is above 0.
    """
    if months <= 0:
        raise ValueError("months must be above 0")
    i = rate_a_year / 12
    if i == 0:
        return (price - residual) / months
    paid = -math.expm1(-months * math.log1p(i))  # 1 - (1+i)^-n, exact for small i too
    return (price - residual * (1 - paid)) * i / paid


def host_kw(inputs: TcoInputs, a: Values) -> float | None:
    """The most one host draws; from its GPUs where it is not known itself."""
    if inputs.host_kw is not None:
        return inputs.host_kw
    if inputs.gpu_tdp_w is None or not inputs.gpus_per_host:
        return None
    return inputs.gpu_tdp_w * inputs.gpus_per_host * a["host_power_factor"] / 1000


def ways(inputs: TcoInputs, a: Values) -> dict[Way, list[Part]]:
    """The parts of all ways."""
    months = a["years"] * 12
    own = _site(inputs, a, months)
    return {
        "buy": [_bought(inputs, a, months), _support(inputs, a), *own],
        "lease": [_leased(inputs, a, months), _support(inputs, a), *own],
        "rented hardware": _rented(inputs, a, months),
        "cloud on demand": _cloud(inputs, a, months, inputs.cloud_host_hour, inputs.running_share, ""),
        "cloud reserved": _cloud(inputs, a, months, *_reserved(inputs, a)),
        "managed service": _managed(inputs, a, months),
    }


def energy_kwh_month(kw: float, hosts: int, busy: float, idle_share: float, pue: float) -> float:
    """kWh a month at the meter: draw of the hosts, idle share below full load, times PUE."""
    return kw * hosts * (idle_share + (1 - idle_share) * busy) * pue * HOURS_A_MONTH


def _in(inputs: TcoInputs, price: Priced) -> float | None:
    return None if price.usd is None else price.usd / inputs.usd_rate


def _hardware(inputs: TcoInputs, a: Values) -> tuple[float, float] | None:
    """Price of all servers, and of it all with switches and spares."""
    each = _in(inputs, inputs.server)
    if each is None:
        return None
    servers = each * inputs.hosts
    return servers, servers * (1 + a["network_share"] + a["spares_share"])


def _bought(inputs: TcoInputs, a: Values, months: float) -> Part:
    return _financed(inputs, a, months, "hardware", a["interest_rate"])


def _leased(inputs: TcoInputs, a: Values, months: float) -> Part:
    return _financed(inputs, a, months, "lease", a["lease_interest_rate"])


def _financed(inputs: TcoInputs, a: Values, months: float, name: str, rate: float) -> Part:
    hardware = _hardware(inputs, a)
    if hardware is None:
        return Part(name, None, f"price of a server unknown: {inputs.server.source}", main=True)
    servers, everything = hardware
    period = min(months, a["hardware_life_years"] * 12)
    residual = servers * a["residual_share"]
    each = annuity(everything, residual, rate, period)
    formula = (
        f"{everything:.0f} with switches and spares, less {residual:.0f} left, over {period:g} months at {rate:.3g}"
        f" = {each:.2f} a month * {months:g}"
    )
    return Part(name, each * months, formula, main=True)


def _support(inputs: TcoInputs, a: Values) -> Part:
    hardware = _hardware(inputs, a)
    if hardware is None:
        return Part("support", None, "price of a server unknown")
    return Part(
        "support",
        hardware[0] * a["support_share"] * a["years"],
        f"{hardware[0]:.0f} * {a['support_share']:g} * {a['years']:g} years",
    )


def _site(inputs: TcoInputs, a: Values, months: float) -> list[Part]:
    """What own and leased hosts need around them."""
    kw = host_kw(inputs, a)
    pue = a[f"pue_{inputs.cooling}"]
    if kw is None:
        power = Part("electricity", None, "draw of a host unknown")
        room = Part("colocation", None, "draw of a host unknown")
    else:
        kwh = energy_kwh_month(kw, inputs.hosts, inputs.busy_share, a["idle_power_share"], pue)
        price, rent = a["electricity_per_kwh"], a["colocation_per_kw_month"]
        power = Part("electricity", kwh * price * months, f"{kwh:.0f} kWh a month * {price:.4g} * {months:g}")
        reserved = kw * inputs.hosts
        room = Part("colocation", reserved * rent * months, f"{reserved:g} kW * {rent:.4g} * {months:g}")
    network = a["network_per_month"]
    return [
        power,
        room,
        Part("network", network * months, f"{network:.4g} a month * {months:g}"),
        *_storage(inputs, a["storage_per_gb_month"], months),
        _administration(a, a["admin_hours_own"] * inputs.hosts, months),
    ]


def _rented(inputs: TcoInputs, a: Values, months: float) -> list[Part]:
    each, gpus = _in(inputs, inputs.rented_gpu_hour), inputs.gpus_per_host * inputs.hosts
    if each is None or not gpus:
        rent = Part("rent", None, f"price of a GPU hour unknown: {inputs.rented_gpu_hour.source}", main=True)
    else:
        rent = Part(
            "rent", gpus * each * HOURS_A_MONTH * months, f"{gpus} GPUs * {each:.4g} * 730 h * {months:g}", True
        )
    return [
        rent,
        *_storage(inputs, a["storage_per_gb_month"], months),
        _administration(a, a["admin_hours_rented"] * inputs.hosts, months),
    ]


def _reserved(inputs: TcoInputs, a: Values) -> tuple[Priced, float, str]:
    """The reserved price, the share of the hours paid, and how the price is known."""
    if inputs.reserved_host_hour.usd is not None:
        return inputs.reserved_host_hour, 1.0, ""
    hourly = inputs.cloud_host_hour
    if hourly.usd is None:
        return hourly, 1.0, ""
    off = a["cloud_reserved_discount"]
    return Priced(hourly.usd * (1 - off), hourly.source, hourly.date, "assumed"), 1.0, f" (less {off:.0%}, assumed)"


def _cloud(inputs: TcoInputs, a: Values, months: float, price: Priced, share: float, how: str) -> list[Part]:
    each = _in(inputs, price)
    if each is None:
        compute = Part("compute", None, f"price of a host unknown: {price.source}", main=True)
    else:
        formula = f"{inputs.hosts} hosts * {each:.4g}{how} * 730 h * {share:g} * {months:g}"
        compute = Part("compute", inputs.hosts * each * HOURS_A_MONTH * share * months, formula, main=True)
    parts = [compute, *_storage(inputs, _in(inputs, inputs.cloud_gb_month), months)]
    if inputs.egress_gb_month:
        out = _in(inputs, inputs.egress_gb)
        total = None if out is None else inputs.egress_gb_month * out * months
        said = "unknown" if out is None else f"{out:.4g}"
        parts.append(Part("egress", total, f"{inputs.egress_gb_month:g} GB a month * {said} * {months:g}"))
    if inputs.cloud_region_hour is not None:
        fee = _in(inputs, inputs.cloud_region_hour)
        total = None if fee is None else fee * HOURS_A_MONTH * share * months
        said = "unknown" if fee is None else f"{fee:.4g}"
        parts.append(Part("dedicated fee", total, f"1 region * {said} * 730 h * {share:g} * {months:g}"))
    return [*parts, _administration(a, a["admin_hours_cloud"] * inputs.hosts, months)]


def _managed(inputs: TcoInputs, a: Values, months: float) -> list[Part]:
    parts = []
    for name, tokens, price in (
        ("input tokens", inputs.input_tokens_month, inputs.api_in),
        ("output tokens", inputs.output_tokens_month, inputs.api_out),
    ):
        each = _in(inputs, price)
        if tokens is None or (each is None and tokens):
            why = "tokens a month unknown" if tokens is None else f"price unknown: {price.source}"
            parts.append(Part(name, None, why, main=True))
        elif tokens and each is not None:
            formula = f"{tokens / 1e6:.4g} million a month * {each:.4g} * {months:g}"
            parts.append(Part(name, tokens / 1e6 * each * months, formula, main=True))
    return [*parts, _administration(a, a["admin_hours_managed"], months)]


def _storage(inputs: TcoInputs, each: float | None, months: float) -> list[Part]:
    if not inputs.storage_gb:
        return []
    if each is None:
        return [Part("storage", None, "price of a GB unknown")]
    formula = f"{inputs.storage_gb:g} GB * {each:.4g} * {months:g}"
    return [Part("storage", inputs.storage_gb * each * months, formula)]


def _administration(a: Values, hours: float, months: float) -> Part:
    rate = a["admin_rate"]
    return Part("administration", hours * rate * months, f"{hours:g} h a month * {rate:.4g} * {months:g}")
