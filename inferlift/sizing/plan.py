"""Compares all offers, chooses one, and says whether to move at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inferlift.artifacts import Evidence, Figure, Memory, Offer, OfferResult, Sizing
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.sizing import hardware
from inferlift.sizing.capacity import mean_rps, needed_replicas, peak_rps
from inferlift.sizing.memory import GIB, memory, tensor_parallel_sizes
from inferlift.sizing.speed import Speed, on_cpu, on_gpu

Verdict = Literal["go", "conditional", "defer", "stay"]
# What decides for itself; bill and GPU use add reasons but cannot decide "stay" by being unknown.
DECIDING = ("P95 over 500 ms", "over 500 inference requests a minute", "over 500 in flight")


def size(
    profile: Profile, evidence: Evidence | None, offers: Sequence[Offer], measured_rate: Figure | None = None
) -> Sizing:
    """The plan. A replica is one host of the offer, with all its GPUs.

    `measured_rate` (requests/s of one replica) replaces the prediction for the chosen offer. Costs are of all hosts,
    the spare ones too, compute alone, in the profile's currency. Raises DeclarationError without offers or where
    the model fits none of them.
    """
    if not offers:
        raise DeclarationError(f"there are no offers for the target {profile.target}", why="the price table is empty")
    peak = peak_rps(profile, evidence)
    compared = [_compared(profile, offer, peak, evidence, None) for offer in offers]
    fitting = [row for row in compared if row.result.fits]
    if not fitting:
        reasons = "; ".join(f"{row.offer.name}: {row.result.reason}" for row in compared[:5])
        raise DeclarationError(
            f"{profile.model.name} fits no offer of the target {profile.target}",
            why=reasons,
            next_command="use fewer weight_bits, fewer slots, a smaller context_per_slot, or another target",
        )
    best = min(fitting, key=_preference)
    if measured_rate is not None:
        if not measured_rate.value or measured_rate.value <= 0:
            raise DeclarationError("the measured rate is unknown or not above 0", why=measured_rate.source)
        again = _compared(profile, best.offer, peak, evidence, measured_rate)
        compared[compared.index(best)] = again
        best = again
    verdict, why = _verdict(profile, evidence, peak, best)
    return Sizing(
        verdict=verdict,
        why=why,
        memory=best.memory,
        peak_rps=peak,
        rate_per_replica=best.rate,
        replicas=best.replicas,
        spare=profile.operations.spare,
        offers=tuple(_with_reason(row, best) for row in compared),
        choice=best.result.offer,
        cost_per_hour=best.cost_per_hour,
        cost_per_1000=best.result.per_1000,
        currency=profile.budget.currency,
        notes=(*best.notes, *_notes(profile, peak, best)),
    )


def evidence_inputs(evidence: Evidence | None) -> dict[str, Any] | None:
    """All that `size` reads of the evidence: where it is the same, so is the plan."""
    if evidence is None:
        return None
    return {
        "per_minute_peak": evidence.per_minute_peak,
        "has_inference": evidence.inference_n > 0,
        "growth_per_month": evidence.growth_per_month,
        "mean_rps": mean_rps(evidence),
        "triggers": {trigger.name: trigger.verdict for trigger in evidence.triggers},
    }


@dataclass(frozen=True)
class _Row:
    offer: Offer
    result: OfferResult
    memory: Memory
    rate: Figure
    replicas: int
    cost_per_hour: Figure
    misses: tuple[str, ...]  # targets that look out of reach
    notes: tuple[str, ...] = ()


def _compared(profile: Profile, offer: Offer, peak: Figure, evidence: Evidence | None, measured: Figure | None) -> _Row:
    name, need, speed, why = _fit(profile, offer)
    unknown = _money(profile, None, f"{profile.budget.currency}/h", offer)
    if speed is None:
        per_1000 = unknown.model_copy(update={"unit": f"{profile.budget.currency}/1000"})
        result = OfferResult(
            offer=name, fits=False, replicas=None, usd_per_hour=_usd(offer, None), per_1000=per_1000, reason=why
        )
        no_rate = Figure(value=None, unit="requests/s", basis="unknown", source=why)
        return _Row(offer, result, need, no_rate, 0, unknown, ())
    rate = measured or Figure(value=speed.requests_per_s, unit="requests/s", basis="predicted", source=speed.explain)
    each = rate.value or speed.requests_per_s
    asked = profile.requests
    deadline = profile.targets.acceptance_deadline_s
    replicas = needed_replicas(peak.value or 0.0, each, in_flight=asked.in_flight_peak, deadline_s=deadline)
    hosts = replicas + profile.operations.spare
    usd = None if offer.usd_per_hour is None else offer.usd_per_hour * hosts
    per_hour = _money(profile, usd, f"{profile.budget.currency}/h", offer)
    per_1000, notes = _per_1000(profile, per_hour, peak, evidence)
    misses = _misses(profile, speed, per_1000)
    result = OfferResult(
        offer=name,
        fits=True,
        replicas=replicas,
        usd_per_hour=_usd(offer, usd),
        per_1000=per_1000,
        reason="; ".join(misses) or f"fits; {speed.explain}",
    )
    return _Row(offer, result, need, rate, replicas, per_hour, misses, notes)


def _fit(profile: Profile, offer: Offer) -> tuple[str, Memory, Speed | None, str]:
    """What to call the offer, the memory needed on it, its speed, or None and why it cannot be used."""
    model, server = profile.model, profile.server
    if offer.gpu is None:
        need = memory(model, server, on_gpu=False)
        lab = profile.lab
        cpus = offer.vcpu or (lab.model_cpus if lab else None)
        ram = offer.ram_gib * GIB if offer.ram_gib else lab.model_memory_mb * 2**20 if lab else None
        name = f"{offer.name} {cpus:g} CPU" if cpus else offer.name
        if ram is not None and need.total_bytes > ram:
            return name, need, None, f"needs {need.total_bytes / GIB:.2f} GiB of memory, has {ram / GIB:.2f}"
        return name, need, on_cpu(profile, cpus or float(server.threads)), ""
    need = memory(model, server, on_gpu=True)
    if offer.offered is False:
        return offer.name, need, None, f"not offered in {offer.region}"
    if offer.gpu_count < 1 or offer.gpu_fraction < 1:
        return offer.name, need, None, "a slice of a GPU; not compared"
    gpu = hardware.gpu(offer.gpu, offer.vram_mib or 0)
    if gpu is None or offer.vram_mib is None:
        return offer.name, need, None, f"no data sheet of {offer.gpu}"
    usable = offer.vram_mib * 2**20 * hardware.assumed("gpu_memory_share")
    for tp in tensor_parallel_sizes(model, offer.gpu_count):
        need = memory(model, server, on_gpu=True, tensor_parallel=tp)
        if need.total_bytes <= usable * tp:
            one = on_gpu(profile, gpu, tp)
            if one is None:
                return offer.name, need, None, f"bandwidth and FLOPS of {offer.gpu} are unknown"
            copies = offer.gpu_count // tp
            explain = f"{copies} x tp {tp}: {one.explain}"
            return offer.name, need, Speed(one.requests_per_s * copies, one.ttft_s, one.total_s, explain), ""
    have = usable * max(tensor_parallel_sizes(model, offer.gpu_count))
    return offer.name, need, None, f"needs {need.total_bytes / GIB:.1f} GiB of GPU memory, may use {have / GIB:.1f}"


def _misses(profile: Profile, speed: Speed, per_1000: Figure) -> tuple[str, ...]:
    """Targets that cannot be met even by a request that is alone, or by the price."""
    wanted = profile.targets
    found = []
    if wanted.p95_ttft_ms is not None and speed.ttft_s * 1000 > wanted.p95_ttft_ms:
        found.append(f"first token after {speed.ttft_s * 1000:.0f} ms at best, target {wanted.p95_ttft_ms:g}")
    if wanted.p95_total_ms is not None and speed.total_s * 1000 > wanted.p95_total_ms:
        found.append(f"answer after {speed.total_s * 1000:.0f} ms at best, target {wanted.p95_total_ms:g}")
    limit = wanted.max_cost_per_1000
    if limit is not None and per_1000.value is not None and per_1000.value > limit:
        found.append(f"{per_1000.value:.4f} {profile.budget.currency} per 1000, at most {limit:g} wanted")
    return tuple(found)


def _per_1000(
    profile: Profile, per_hour: Figure, peak: Figure, evidence: Evidence | None
) -> tuple[Figure, tuple[str, ...]]:
    """Cost of 1000 requests: at the mean rate where the logs span a day, else at the peak rate, which is the least."""
    mean = mean_rps(evidence)
    rate, which = (mean, "mean") if mean is not None else (peak.value, "peak")
    unit = f"{profile.budget.currency}/1000"
    if per_hour.value is None or not rate:
        return per_hour.model_copy(update={"value": None, "basis": "unknown", "unit": unit}), ()
    figure = per_hour.model_copy(
        update={
            "value": per_hour.value / (rate * 3600) * 1000,
            "unit": unit,
            "source": f"at the {which} rate of {rate:.3g} requests/s; {per_hour.source}",
        }
    )
    if mean is not None and peak.value:
        least = per_hour.value / (peak.value * 3600) * 1000
        return figure, (f"at the peak rate 1000 requests would cost {least:.4f} {profile.budget.currency}",)
    return figure, ("cost per 1000 is at the peak rate: the logs span less than a day, the real mean is not known",)


def _verdict(profile: Profile, evidence: Evidence | None, peak: Figure, best: _Row) -> tuple[Verdict, str]:
    if peak.value is None:
        return "defer", "the peak is unknown: audit the logs, or declare requests.per_minute_peak"
    if evidence is None:
        return "conditional", "no audit: nothing says that the present hosting does not do; sized by the profile alone"
    verdicts = {trigger.name: trigger.verdict for trigger in evidence.triggers}
    met = [name for name, verdict in verdicts.items() if verdict == "met"]
    if not met:
        missing = [name for name in DECIDING if verdicts.get(name) != "not met"]
        if missing:
            return "defer", f"no trigger is met, and there is no data for: {', '.join(missing)}"
        return "stay", "no trigger is met: the present hosting does"
    if best.misses:
        return "conditional", f"triggers met: {', '.join(met)}; but {'; '.join(best.misses)}"
    if profile.targets.max_cost_per_1000 is not None and best.result.per_1000.value is None:
        return "conditional", f"triggers met: {', '.join(met)}; but the cost is unknown and targets limit it"
    return "go", f"triggers met: {', '.join(met)}; {best.result.offer} looks able to reach the targets"


def _preference(row: _Row) -> tuple[int, int, float, str]:
    """Offers that reach the targets first, known prices before unknown ones, then the cheapest."""
    price = row.cost_per_hour.value
    return len(row.misses), int(price is None), price or 0.0, row.offer.name


def _with_reason(row: _Row, best: _Row) -> OfferResult:
    if row is best:
        return row.result.model_copy(update={"reason": f"chosen: {row.result.reason}"})
    if not row.result.fits or row.misses:
        return row.result
    if row.cost_per_hour.value is None:
        return row.result.model_copy(update={"reason": f"fits, but its price is unknown ({row.offer.source})"})
    return row.result.model_copy(update={"reason": f"fits, dearer than {best.result.offer}"})


def _money(profile: Profile, usd: float | None, unit: str, offer: Offer) -> Figure:
    budget = profile.budget
    rate = 1.0 if budget.currency == "USD" else budget.usd_rate
    source = offer.source
    if budget.currency != "USD":
        source += f"; 1 {budget.currency} = {rate:g} USD ({budget.usd_rate_source}, {budget.usd_rate_date})"
    return Figure(
        value=None if usd is None else usd / rate,
        unit=unit,
        basis=_basis(offer, usd),
        source=source,
        at=offer.date,
    )


def _usd(offer: Offer, usd: float | None) -> Figure:
    return Figure(value=usd, unit="USD/h", basis=_basis(offer, usd), source=offer.source, at=offer.date)


def _basis(offer: Offer, usd: float | None) -> Literal["unknown", "assumed", "declared"]:
    if usd is None:
        return "unknown"
    return "assumed" if offer.source.startswith("assumption") else "declared"


def _notes(profile: Profile, peak: Figure, best: _Row) -> tuple[str, ...]:
    notes = [f"peak: {peak.source}", f"rate of one replica ({best.rate.basis}): {best.rate.source}"]
    asked, deadline = profile.requests, profile.targets.acceptance_deadline_s
    if deadline is not None:
        notes.append(f"{asked.in_flight_peak} in flight must be answered within {deadline:g} s: counted in")
    if peak.value is not None:
        notes.append(f"replicas: {peak.value:.3g} requests/s / {best.rate.value or 0:.3g} -> {best.replicas},"
                     f" plus {profile.operations.spare} spare")  # fmt: skip
    notes.append("costs are of compute alone: no disks, addresses, traffic or load balancer")
    return tuple(notes)
