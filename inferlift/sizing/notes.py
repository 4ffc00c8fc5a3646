"""The notes of a plan: how its figures came about, what fits, what waits, what is assumed."""

from __future__ import annotations

from inferlift.artifacts import Figure
from inferlift.profile import Profile
from inferlift.sizing.choice import Row
from inferlift.sizing.hardware import Gpu
from inferlift.sizing.memory import longest_context, most_sessions
from inferlift.sizing.reach import Served, context_of
from inferlift.sizing.tco_assumptions import reserved_range


def notes(profile: Profile, peak: Figure, answered: Figure, mean: Figure | None, best: Row) -> tuple[str, ...]:
    """What a reader of the plan should know beside its figures."""
    said = [f"peak: {peak.source}", f"rate of one replica ({best.rate.basis}): {best.rate.source}"]
    asked, deadline = profile.requests, profile.targets.acceptance_deadline_s
    if answered is not peak:
        said.append(f"to be answered: {answered.value or 0:.3g} requests/s, {answered.source}")
    if deadline is not None:
        said.append(f"{asked.in_flight_peak} in flight must be answered within {deadline:g} s: counted in")
    if answered.value is not None:
        said.append(f"replicas: {answered.value:.3g} requests/s / {best.rate.value or 0:.3g} -> {best.replicas},"
                     f" plus {best.spare} spare")  # fmt: skip
    if best.cost_per_hour.value is not None and peak.value:
        if mean is None:
            said.append("cost per 1000 is at the peak rate: the logs span less than a day, the real mean is not known")
        else:
            least = best.cost_per_hour.value / (peak.value * 3600) * 1000
            said.append(
                f"at the peak rate the hosts would cost {least:.4f} {profile.budget.currency} per 1000 requests"
            )
    if best.served is not None and best.served.sessions is not None:
        room = best.served.sessions * best.served.copies * best.replicas
        if asked.in_flight_peak > room:
            said.append(f"{asked.in_flight_peak - room} of {asked.in_flight_peak} in flight wait at the gateway")
    if best.served is not None and best.served.need is not None and best.served.gpu is not None:
        said.append(_fitting(profile, best.served, best.served.gpu))
    if asked.sessions is not None and best.served is not None and best.served.gpu is not None and best.served.need:
        fits = most_sessions(
            profile.model, profile.server, best.served.gpu, best.served.layout, context_of(profile)
        ) * best.served.copies * best.replicas  # fmt: skip
        kept = min(fits, asked.sessions)
        said.append(
            f"the context of {kept} of {asked.sessions} open conversations stays in GPU memory between requests"
        )
    if profile.operations.reservation in ("1y", "3y") and best.sold_as != "reserved":
        said.append(_without_reserved_price(profile, best))
    if best.served is not None and best.served.beyond:
        said.append(f"the prediction goes beyond what it was fitted on: {best.served.beyond}")
    said.append(
        "offers are compared by the cost of their hosts; disks, traffic and the rest are counted for the choice"
    )
    return tuple(said)


def _fitting(profile: Profile, served: Served, gpu: Gpu) -> str:
    """What batch and what context the memory of one copy holds."""
    model, server, context, sessions = profile.model, profile.server, context_of(profile), served.sessions or 1
    most = most_sessions(model, server, gpu, served.layout, context)
    longest = longest_context(model, server, gpu, served.layout, sessions)
    return f"a copy holds {most} sessions of {context} tokens, or {sessions} of up to {longest} tokens each"


def _without_reserved_price(profile: Profile, best: Row) -> str:
    """A reservation whose price no table has is priced as it is sold, and what it may come to is said as a range."""
    said = f"no price of a {profile.operations.reservation} reservation is known: priced {best.sold_as}"
    if best.per_1000.value is None or profile.target != "aws":
        return said
    least, most, source = reserved_range()
    low, high = (best.per_1000.value * (1 - share) for share in (most, least))
    return f"{said}; at {least:.0%} to {most:.0%} less 1000 would cost {low:.4g} to {high:.4g} ({source})"
