"""The plan: what is needed, which offer serves it, what that costs, and whether to move at all."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from inferlift.artifacts import (
    Alternative,
    Chain,
    CompatCheck,
    Evidence,
    Figure,
    Interval,
    Offer,
    Serving,
    Sizing,
    Unreachable,
)
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.sizing import batching, compat, hardware, image_tokens
from inferlift.sizing.capacity import day_curve, mean_rps, peak_rps, to_answer
from inferlift.sizing.chain import Question, chain
from inferlift.sizing.choice import COST, NOT_NAMED, ZONES, Row, Terms, compare, preference, result, row
from inferlift.sizing.copies import Known
from inferlift.sizing.cost import mean_of_day
from inferlift.sizing.memory import most_sessions, weights_bytes
from inferlift.sizing.notes import notes
from inferlift.sizing.reach import TOKENS_PER_S, Served, context_of, image_context
from inferlift.sizing.variants import variants
from inferlift.sizing.verdict import Service, nearest, software, threshold, verdict
from inferlift.sizing.vision import service_time

UNITS = {"p95_ttft_ms": "ms", "p95_total_ms": "ms", "min_tokens_per_s": "tokens/s", ZONES: "zones"}


def size(
    profile: Profile,
    evidence: Evidence | None,
    offers: Sequence[Offer],
    measured_rate: Figure | None = None,
    *,
    services: Sequence[Service] = (),
) -> Sizing:
    """The plan. A replica is one host of the offer, with all its GPUs.

    `measured_rate` (requests/s of one replica) replaces the prediction for the chosen offer. Costs are of all hosts,
    the spare ones too, compute alone, in the profile's currency. `services`: managed services of the same model.
    Raises DeclarationError without offers or where the model fits none of them.
    """
    if not offers:
        raise DeclarationError(f"there are no offers for the target {profile.target}", why="the price table is empty")
    peak = peak_rps(profile, evidence)
    answered, mean = to_answer(profile, evidence, peak), _mean(profile, evidence, peak)
    _known_hardware(profile)
    _countable_images(profile)
    terms = Terms(profile, answered.value, mean.value if mean is not None else None)
    known: Known = {}
    rows = compare(terms, offers, known)
    if all(found.served is None for found in rows):
        raise _fits_nowhere(profile, rows)
    best = min(rows, key=preference)
    if measured_rate is not None:
        if not measured_rate.value or measured_rate.value <= 0:
            raise DeclarationError("the measured rate is unknown or not above 0", why=measured_rate.source)
        again = row(Terms(profile, terms.peak, terms.mean, measured_rate), best.offer, known)
        rows[rows.index(best)] = again
        best = again
    served = best.served
    assert served is not None  # noqa: S101  (the best of rows that hold a usable one)
    service = min(
        (one for one in services if one.per_1000.value is not None),
        key=lambda one: one.per_1000.value or 0.0,
        default=None,
    )
    checks = _checks(profile, best, offers)
    links = _chain(profile, best, answered)
    blockers = [f"{check.name}: {check.detail}" for check in checks if check.verdict == "fail"]
    blockers += [f"{link.name} too small: {link.why}" for link in (links.too_small if links is not None else ())]
    said, why = verdict(profile, evidence, peak, best, service, blockers)
    return Sizing(
        verdict=said,
        why=why,
        memory=served.memory,
        peak_rps=peak,
        rate_per_replica=best.rate,
        replicas=best.replicas,
        spare=best.spare,
        offers=tuple(result(found, best, profile.budget.currency) for found in rows),
        choice=best.name,
        cost_per_hour=best.cost_per_hour,
        cost_per_1000=best.per_1000,
        currency=profile.budget.currency,
        notes=notes(profile, peak, answered, mean, best),
        mean_rps=mean,
        region=best.offer.region,
        sold_as=best.sold_as,
        serving=_serving(served),
        unreachable=_unreachable(profile, rows, best),
        alternatives=_alternatives(terms, rows, best, offers, service),
        software=tuple(reason for reason, _ in software(evidence)) if evidence is not None else (),
        batching=_batching(profile, best, answered),
        chain=links,
        compat=checks,
    )  # fmt: skip


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
        "day_curve": evidence.day_curve,
        "software": software(evidence),
    }


def _mean(profile: Profile, evidence: Evidence | None, peak: Figure) -> Figure | None:
    """Requests/s over a day: as audited where the logs span one, else the peak by the day curve."""
    audited = mean_rps(evidence)
    if audited is not None:
        return Figure(value=audited, unit="requests/s", basis="measured", source="audit: all requests over its span")
    return mean_of_day(peak, day_curve(profile, evidence))


def _known_hardware(profile: Profile) -> None:
    """Names of hardware that no table knows are refused before everything is rejected for them."""
    known = {"cpu", *(name for gpu in hardware.gpus() for name in (gpu.name, gpu.ec2_name) if name)}
    asked = [*profile.operations.hardware, *(h.gpu for h in (profile.static.hosts if profile.static else ()) if h.gpu)]
    for name in (one.strip() for one in asked):
        if name.lower() not in {one.lower() for one in known}:
            near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 1)
            real = next((one for one in known if near and one.lower() == near[0]), "")
            raise DeclarationError(
                f"no table knows the hardware {name!r}" + (f"; did you mean {real}?" if real else ""),
                why=f"known: {', '.join(sorted(known))}",
                next_command="correct operations.hardware or static.hosts",
            )


def _countable_images(profile: Profile) -> None:
    """Images that become tokens are counted, or the plan says that it cannot."""
    asked = profile.requests
    if profile.task != "multimodal" or asked.image_tokens is not None:
        return
    if image_tokens.family_of(profile.model.name) is None:
        raise DeclarationError(
            f"nothing here knows how many tokens {profile.model.name} makes of an image",
            why=f"families known by their names: {', '.join(image_tokens.image_families())}",
            next_command="count them with the model's own processor, and set requests.image_tokens",
        )
    longest, slot = asked.longest + image_context(profile), profile.server.context_per_slot or profile.model.context
    if longest > slot:
        raise DeclarationError(
            f"a request with its images takes {longest} tokens, a session has {slot}",
            why=f"{image_context(profile)} of them are {asked.images_per_request} image(s)",
            next_command="fewer or smaller images, or a larger server.context_per_slot",
        )


def _fits_nowhere(profile: Profile, rows: Sequence[Row]) -> DeclarationError:
    grouped: dict[str, list[str]] = {}
    other = {found.offer.gpu or "cpu" for found in rows if found.why.endswith(NOT_NAMED)}
    for found in rows:
        if not found.why.endswith(NOT_NAMED):
            grouped.setdefault(found.why, []).append(found.name)
    # what is too small says more than what was left out
    ordered = sorted(grouped.items(), key=lambda pair: not pair[0].startswith("needs"))
    told = [f"{names[0]}{' and others' if len(set(names)) > 1 else ''}: {why}" for why, names in ordered]
    if other:
        asked = ", ".join(profile.operations.hardware)
        which = "the others have" if told else f"no offer has {asked}; there are"
        told.append(f"{which} {', '.join(sorted(other))}, not among operations.hardware ({asked})")
    return DeclarationError(
        f"{profile.model.name} fits no offer of the target {profile.target}",
        why="; ".join(told[:5]) + (f"; and {len(told) - 5} more reasons" if len(told) > 5 else ""),
        next_command="use fewer weight_bits (a smaller weight_format), fewer slots, a smaller context_per_slot,"
        " other regions, or another target",
    )


def _serving(served: Served) -> Serving:
    items = served.items
    return Serving(
        gpu=served.gpu.name if served.gpu is not None else None,
        copies=served.copies,
        tensor=served.layout.tensor,
        pipeline=served.layout.pipeline,
        sessions=served.sessions,
        reached=dict(served.ranges),
        tokens_per_s=served.tokens_per_s,
        items_per_s=_times(items.items_per_s, served.copies) if items is not None else None,
        beyond=served.beyond,
    )


def _times(found: Interval, factor: float) -> Interval:
    return Interval(value=found.value * factor, low=found.low * factor, high=found.high * factor, unit=found.unit)


def _unreachable(profile: Profile, rows: Sequence[Row], best: Row) -> tuple[Unreachable, ...]:
    """Targets the choice misses, each with the nearest that any offer reaches."""
    found = []
    for key, wanted, _ in best.misses:
        near = nearest(rows, key, better_is_more=key in (TOKENS_PER_S, ZONES))
        unit = f"{profile.budget.currency}/1000" if key == COST else UNITS.get(key, "hosts")
        found.append(
            Unreachable(
                target=key,
                wanted=wanted,
                nearest=near[0] if near else None,
                unit=unit,
                where=_where(near[1]) if near else "no offer",
            )
        )
    return tuple(found)


def _where(found: Row) -> str:
    return f"{found.name} in {found.offer.region}" if found.offer.region else found.name


def _alternatives(
    terms: Terms, rows: Sequence[Row], best: Row, offers: Sequence[Offer], service: Service | None
) -> tuple[Alternative, ...]:
    """Cheaper ones that nearly do, other weight formats with the quality they must show, a managed service."""
    found = []
    price, currency = best.cost_per_hour.value, terms.profile.budget.currency
    nearly = [
        one for one in rows
        if one.served is not None and one is not best and one.misses and one.cost_per_hour.value is not None
        and (price is None or one.cost_per_hour.value < price) and one.short <= threshold("nearly")
    ]  # fmt: skip
    if not best.misses and nearly:
        one = min(nearly, key=lambda each: each.cost_per_hour.value or 0.0)
        found.append(
            Alternative(kind="nearly", name=_where(one), per_1000=one.per_1000, why=result(one, best, currency).reason)
        )
    safe = [one for one in rows if one.served is not None and not one.misses and not one.doubtful
            and one.cost_per_hour.value is not None]  # fmt: skip
    if best.doubtful and safe:
        one = min(safe, key=lambda each: each.cost_per_hour.value or 0.0)
        found.append(
            Alternative(
                kind="safe",
                name=f"{one.hosts} x {_where(one)}",
                per_1000=one.per_1000,
                why="meets every target even at the unlucky end of the prediction's range",
            )
        )
    for variant in variants(terms.profile):
        changed = compare(Terms(variant.profile, terms.peak, terms.mean), offers)
        one = min(changed, key=preference)
        if one.served is None or len(one.misses) > len(best.misses):
            continue
        cheaper = price is None or (one.cost_per_hour.value is not None and one.cost_per_hour.value < price)
        if cheaper or len(one.misses) < len(best.misses):
            found.append(
                Alternative(
                    kind="format",
                    name=f"{variant.name} on {one.hosts} x {_where(one)}",
                    per_1000=one.per_1000,
                    why=variant.why,
                )
            )
    if service is not None:
        found.append(
            Alternative(
                kind="service",
                name=service.name,
                per_1000=service.per_1000,
                why="a managed service of the same model: no hosts, another contract, its own limits",
            )
        )
    return tuple(found)


def _batching(profile: Profile, best: Row, answered: Figure) -> Any:
    """What the server is told about batches."""
    served = best.served
    assert served is not None  # noqa: S101
    if served.items is not None:
        service = service_time(served.items)
        each = (answered.value or 0.0) * profile.requests.images_per_request / (best.replicas * served.copies)
        if service is None or each <= 0:
            return None
        return batching.choose(each, service, profile.targets.p95_total_ms)
    if served.gpu is None or served.sessions is None:
        return None
    fits = most_sessions(profile.model, profile.server, served.gpu, served.layout, context_of(profile))
    return batching.for_llm(
        profile.server.engine, fits=max(1, fits), needed=served.sessions, context=context_of(profile)
    )


def _checks(profile: Profile, best: Row, offers: Sequence[Offer]) -> tuple[CompatCheck, ...]:
    if profile.target == "lab":
        return ()
    assert best.served is not None  # noqa: S101
    offering = [one.region for one in offers if one.name == best.offer.name and one.offered and one.region]
    return compat.checks(
        profile, best.offer, best.served.gpu, hosts=best.hosts, spot=best.sold_as == "spot",
        regions_offering=tuple(dict.fromkeys(offering)),
    )  # fmt: skip


def _chain(profile: Profile, best: Row, answered: Figure) -> Chain | None:
    served, each = best.served, best.rate.value
    assert served is not None  # noqa: S101
    if profile.target == "lab":
        return None
    share = answered.value / best.replicas if answered.value is not None else None
    return chain(
        Question(
            profile=profile,
            offer=best.offer,
            gpu=served.gpu,
            weights_bytes=weights_bytes(profile.model),
            need_bytes=served.need.total if served.need is not None else served.memory.total_bytes,
            layout=served.layout,
            peak_rps=share,
            busy=share / each if share is not None and each else None,
        )
    )
