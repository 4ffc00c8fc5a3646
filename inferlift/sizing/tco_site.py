"""Whether a site can take the hosts: power of a rack by the kind of cooling, circuits, UPS."""

from __future__ import annotations

import math

from inferlift.artifacts import Check
from inferlift.sizing.tco_ways import TcoInputs, Values, host_kw

COOLING = {"air": "air", "liquid": "direct liquid cooling", "immersion": "immersion"}


def hosts_per_rack(kw: float, limit_kw: float) -> int:
    """How many hosts of `kw` a rack of `limit_kw` takes; 0: not even one. Raises ValueError for a draw of 0."""
    if kw <= 0:
        raise ValueError("kw must be above 0")
    return math.floor(limit_kw / kw + 1e-9)


def circuit_kw(volts: float, amps: float, power_factor: float, share: float) -> float:
    """kW that a three-phase circuit carries all the time: sqrt(3) * V * A * power factor * share."""
    return math.sqrt(3) * volts * amps * power_factor * share / 1000


def site(inputs: TcoInputs, a: Values) -> tuple[Check, ...]:
    """The checks for own or leased hosts. What the profile does not say of the site is skipped, and says so."""
    kw = host_kw(inputs, a)
    if kw is None:
        why = f"the draw of a host with {inputs.gpus_per_host} x {inputs.gpu or 'GPU'} is not known"
        return (Check(name="rack power", ok=True, skipped=True, detail=why),)
    limit = a[f"rack_limit_kw_{inputs.cooling}"]
    each = hosts_per_rack(kw, limit)
    how = f"a host draws up to {kw:g} kW, {COOLING[inputs.cooling]} takes {limit:g} kW a rack"
    if not each:
        better = [name for name in COOLING if hosts_per_rack(kw, a[f"rack_limit_kw_{name}"])]
        advice = f"; {' or '.join(COOLING[name] for name in better)} would do" if better else ""
        return (Check(name="rack power", ok=False, detail=f"{how}: not one host{advice}"),)
    racks = math.ceil(inputs.hosts / each)
    rack = Check(name="rack power", ok=True, detail=f"{how}: {each} a rack, {racks} {_s('rack', racks)}")
    return rack, _circuits(inputs, a, kw * min(each, inputs.hosts)), _ups(inputs, a, kw * inputs.hosts)


def _circuits(inputs: TcoInputs, a: Values, rack_kw: float) -> Check:
    one = circuit_kw(a["circuit_volts"], a["circuit_amps"], a["power_factor"], a["circuit_share"])
    wanted = 2 * math.ceil(rack_kw / one - 1e-9)
    detail = (
        f"{rack_kw:g} kW a rack want {wanted} circuits of {a['circuit_amps']:g} A at {a['circuit_volts']:g} V"
        f" ({one:.1f} kW each, two feeds of which either carries all)"
    )
    if inputs.circuits is None:
        return Check(name="circuits", ok=True, skipped=True, detail=f"{detail}; say tco.circuits to have it checked")
    return Check(name="circuits", ok=inputs.circuits >= wanted, detail=f"{detail}; the site has {inputs.circuits}")


def _ups(inputs: TcoInputs, a: Values, kw: float) -> Check:
    wanted = kw / a["power_factor"]
    detail = f"{kw:g} kW want a UPS of {wanted:.1f} kVA"
    if inputs.ups_kva is None:
        return Check(name="UPS", ok=True, skipped=True, detail=f"{detail}; say tco.ups_kva to have it checked")
    return Check(name="UPS", ok=inputs.ups_kva >= wanted, detail=f"{detail}; the site has {inputs.ups_kva:g} kVA")


def _s(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"
