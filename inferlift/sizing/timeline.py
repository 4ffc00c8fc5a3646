"""The way from the plan to the switch: steps with durations, the critical path, what makes it longer than planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.artifacts import Basis, Figure, Offer, Timeline, TimelineStep
from inferlift.profile import Profile

SWITCH, VERDICT = "switch", "watch"


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the profile. None: not known; an assumption of timeline.yaml stands in, and says so."""

    weights_bytes: float | None = None  # of one copy
    quota_suffices: bool | None = None  # for the fleet and its surge; None: not known, so an increase is assumed
    fleet_rps: float | None = None  # requests/s of the proof of concept, predicted or measured
    old_ttl_s: float | None = None
    stock_image: bool = False  # the server is taken as it is: nothing to build
    measured_gbps: float | None = None  # of the link to the new side, by a copy
    measured: Mapping[str, Figure] = field(default_factory=dict)  # hours of steps that were done, by name


@dataclass(frozen=True)
class _Duration:
    hours: float | None
    basis: Basis
    source: str


def timeline(profile: Profile, offer: Offer, known: Circumstances | None = None) -> Timeline:
    """Earliest start and end of every step, the critical path to the switch, and the comparison with 48 hours.

    An unknown duration counts as nothing, so that the times are the least they can be; the plan then only says that
    it does not fit, never that it does.
    """
    told = known or Circumstances()
    names = list(_table()["steps"])
    after = {name: tuple(_table()["steps"][name]["after"]) for name in names}
    durations = {name: _duration(name, profile, offer, told) for name in names}
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for name in names:  # the table is in an order in which every step comes after what it waits for
        starts[name] = max((ends[before] for before in after[name]), default=0.0)
        ends[name] = starts[name] + (durations[name].hours or 0.0)
    latest = _latest(names, after, durations, ends)
    path = _critical(after, ends)
    steps = tuple(
        TimelineStep(
            name=name,
            hours=durations[name].hours,
            basis=durations[name].basis,
            source=durations[name].source,
            after=after[name],
            starts_at=starts[name],
            ends_at=ends[name],
            slack_hours=max(0.0, latest[name] - ends[name]),
            critical=name in path or name == VERDICT,
        )
        for name in names
    )
    unknown = tuple(name for name in names if durations[name].hours is None)
    plan, total = float(_table()["plan_hours"]), ends[SWITCH]
    return Timeline(
        steps=steps,
        critical_path=path,
        hours_to_switch=total,
        hours_to_verdict=ends[VERDICT],
        plan_hours=plan,
        fits_plan=False if total > plan else None if unknown else True,
        longer=_longer(path, durations, total, plan),
        unknown=unknown,
    )


def copy_hours(gigabytes: float, gbps: float, share: float = 1.0) -> float:
    """Hours that so many gigabytes (10^9 bytes) take over a link of so many gigabits a second, of which `share` is
    kept up. Raises ValueError unless the link and its share are above 0."""
    if gbps <= 0 or share <= 0:
        raise ValueError("the link and its share must be above 0")
    return gigabytes * 8 / (gbps * share) / 3600


def _duration(name: str, profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if (done := told.measured.get(name)) is not None:
        return _Duration(done.value, done.basis, done.source)
    if (compute := _COMPUTED.get(name)) is not None:
        return compute(profile, offer, told)
    return _assumed(name)


def _assumed(name: str) -> _Duration:
    entry = _table()["steps"][name]
    return _Duration(float(entry["hours"]), "assumed", str(entry["source"]))


def _approval(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    hours = profile.operations.approvals_hours
    return _Duration(hours / 2, "declared", f"operations.approvals_hours {hours:g} / 2")


def _quota(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if offer.region is None:
        return _Duration(0.0, "declared", "no account's quota is involved")
    if told.quota_suffices:
        return _Duration(0.0, "declared", "operations.quota_vcpus suffices for the fleet and its surge")
    entry = _table()["quota_hours"]["p" if offer.name.startswith("p") else "default"]
    why = "the quota is not known" if told.quota_suffices is None else "the quota is too small"
    return _Duration(float(entry["hours"]), "assumed", f"{why}; {entry['source']}")


def _image(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if told.stock_image:
        return _Duration(0.0, "declared", f"the server {profile.server.kind} is taken as it is")
    return _assumed("image")


def _weights(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if told.weights_bytes is None:
        return _Duration(None, "unknown", "the size of the weights was not computed")
    # they come from a store near the hosts or over the user's own link, whichever is said
    return _copied(told.weights_bytes / 1e9, profile, offer, told, "of weights", by_host=True)


def _data(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if profile.data.state == "none":
        return _Duration(0.0, "declared", "data.state none: nothing to copy")
    if profile.data.size_gb is None:
        return _Duration(None, "unknown", "data.size_gb is not given")
    return _copied(profile.data.size_gb, profile, offer, told, "of data", by_host=False)


def _second_pass(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if profile.data.state != "read-write":
        return _Duration(0.0, "declared", f"data.state {profile.data.state}: nothing changes meanwhile")
    if profile.data.ingest_gb_per_day is None:
        return _Duration(None, "unknown", "data.ingest_gb_per_day is not given")
    first = _data(profile, offer, told).hours
    if first is None:
        return _Duration(None, "unknown", "how long the first pass takes is not known")
    changed = profile.data.ingest_gb_per_day * first / 24
    return _copied(changed, profile, offer, told, f"changed in the {first:.3g} h of the first pass", by_host=False)


def _copied(
    gigabytes: float, profile: Profile, offer: Offer, told: Circumstances, what: str, *, by_host: bool
) -> _Duration:
    share, declared = float(_table()["link_share"]["value"]), profile.network.bandwidth_gbps
    if told.measured_gbps is not None:
        hours = copy_hours(gigabytes, told.measured_gbps)
        source = f"{gigabytes:.3g} GB {what} / {told.measured_gbps:g} Gbit/s measured"
        return _Duration(hours, "predicted", source)
    if declared is None and by_host and offer.network_gbps is not None:
        # what sends them gives one host less than the fastest cards could take
        gbps = min(offer.network_gbps, float(_table()["store_gbps"]["value"]))
        hours = copy_hours(gigabytes, gbps, share)
        source = f"{gigabytes:.3g} GB {what} / ({gbps:g} Gbit/s to {offer.name} * {share:g})"
        return _Duration(hours, "predicted", source)
    if declared is None:
        return _Duration(None, "unknown", f"{gigabytes:.3g} GB {what}, but network.bandwidth_gbps is not given")
    source = f"{gigabytes:.3g} GB {what} / (network.bandwidth_gbps {declared:g} * {share:g})"
    return _Duration(copy_hours(gigabytes, declared, share), "predicted", source)


def _load_test(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if not told.fleet_rps:
        return _assumed("load-test")
    requests = profile.load.requests
    hours = 2 * requests / told.fleet_rps / 3600  # once for its shape, once for the gates beside the old side
    return _Duration(hours, "predicted", f"2 * {requests} requests / {told.fleet_rps:.3g} requests/s")


def _old_ttl(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    if told.old_ttl_s is not None:
        return _Duration(told.old_ttl_s / 3600, "measured", f"the old record's TTL {told.old_ttl_s:g} s, waited once")
    entry = _table()["old_ttl_s"]
    return _Duration(float(entry["value"]) / 3600, "assumed", str(entry["source"]))


def _switch(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    plan, gate = profile.switch, float(_table()["gate_s"]["value"])
    hours = len(plan.steps) * (2 * plan.ttl_s + gate) / 3600
    source = f"{len(plan.steps)} steps * (2 * switch.ttl_s {plan.ttl_s} + {gate:g} s); {_table()['gate_s']['source']}"
    return _Duration(hours, "predicted", source)


def _watch(profile: Profile, offer: Offer, told: Circumstances) -> _Duration:
    return _Duration(profile.watch.seconds / 3600, "declared", f"watch.seconds {profile.watch.seconds}")


_COMPUTED = {
    "approval-1": _approval,
    "quota": _quota,
    "image": _image,
    "weights": _weights,
    "load-test": _load_test,
    "approval-2": _approval,
    "data": _data,
    "second-pass": _second_pass,
    "old-ttl": _old_ttl,
    "switch": _switch,
    "watch": _watch,
}


def _critical(after: Mapping[str, tuple[str, ...]], ends: Mapping[str, float]) -> tuple[str, ...]:
    """Back from the switch along what each step waits for longest."""
    path = [SWITCH]
    while before := after[path[-1]]:
        path.append(max(before, key=lambda name: ends[name]))
    return tuple(reversed(path))


def _latest(
    names: list[str],
    after: Mapping[str, tuple[str, ...]],
    durations: Mapping[str, _Duration],
    ends: Mapping[str, float],
) -> dict[str, float]:
    """Until when each step may end without delaying the last one."""
    latest = dict.fromkeys(names, ends[VERDICT])
    for name in reversed(names):
        for before in after[name]:
            latest[before] = min(latest[before], latest[name] - (durations[name].hours or 0.0))
    return latest


def _longer(path: tuple[str, ...], durations: Mapping[str, _Duration], total: float, plan: float) -> tuple[str, ...]:
    """Which steps of the path make it longer than planned, with their share; empty where it fits."""
    if total <= plan:
        return ()
    weighty = sorted(
        (name for name in path if (durations[name].hours or 0) > 0), key=lambda n: -(durations[n].hours or 0)
    )
    said, excess = [], total - plan
    for name in weighty:
        hours = durations[name].hours or 0.0
        said.append(f"{name}: {hours:.3g} h of {total:.3g} h ({durations[name].basis}: {durations[name].source})")
        excess -= hours
        if excess <= 0:
            break
    return tuple(said)


@cache
def _table() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("timeline.yaml").read_text(encoding="utf-8"))
    return told
