"""A fleet at several sites: each site's own part of it, and the names that its region's users are sent to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inferlift.artifacts import Service, World
from inferlift.configure import HEALTH_PATH, MONITOR_PORT
from inferlift.errors import Refusal
from inferlift.profile import Profile
from inferlift.stages import _answers
from inferlift.stages.base import Context


def sites(service: Service) -> tuple[Service, ...]:
    """The service as each site has it, in the fleet's order: its own hosts, endpoint and monitor. One for one site."""
    parts = service.fleet.at_sites()
    if len(parts) < 2:
        return (service,)
    monitors = [part.by_role("monitor")[0].address for part in parts]
    return tuple(
        service.model_copy(
            update={
                "fleet": part,
                "endpoint": part.endpoints[0],
                "replicas": len(part.by_role("model")),
                "monitor_url": f"https://{monitor}:{MONITOR_PORT}",
            }
        )
        for part, monitor in zip(parts, monitors, strict=True)
    )


def legs(ctx: Context, world: World) -> dict[str, Service]:
    """Name that a region's users are sent to -> that region's service; empty where the fleet has one site."""
    body = ctx.ledger.document("service")
    found = sites(Service.model_validate(body)) if body else ()
    if len(found) < 2:
        return {}
    from inferlift.dns.latency import regional

    return {regional(world.contract.name, region_of(part)): part for part in found}


def region_of(service: Service) -> str:
    site = service.endpoint.site
    known = service.fleet.aws.sites if service.fleet.aws is not None else ()
    return next((s.region for s in known if s.name == site), site)


def addresses(ctx: Context) -> set[str]:
    """Where the new side answers, at every site."""
    body = ctx.ledger.document("service")
    return {part.endpoint.address for part in sites(Service.model_validate(body))} if body else set()


def names(ctx: Context, world: World, backend: Any) -> tuple[str, ...]:
    """The names that decide where users go now: the regions' where they stand, else the users' own."""
    found = legs(ctx, world)
    return tuple(found) if found and _regions(ctx, world, backend).read().kind == "spread" else (world.contract.name,)


def switch(ctx: Context, world: World, backend: Any, one: Callable[[str, Service], Any]) -> Any:
    """What drives the switch of all regions; `one(name, service)` makes that of a region's name."""
    from inferlift.dns.edge import Edge, Leg

    found = legs(ctx, world)
    backend.health_checks.update(_checks(ctx, world, backend, tuple(found.values())))
    return Edge(
        _regions(ctx, world, backend),
        tuple(Leg(region_of(part), name, part.endpoint.address) for name, part in found.items()),
        lambda leg: one(leg.name, found[leg.name]),
        _answers.servers(ctx, world)[0],
        _answers.net(ctx, world, backend),
        ctx.say,
    )


def give_back(ctx: Context, world: World, backend: Any) -> None:
    """One name again, and no health check of ours left."""
    from inferlift.dns import health

    try:
        _regions(ctx, world, backend).unmake()
    except Refusal as refusal:  # somebody else's by now: it says nothing of the fleet any more
        ctx.progress.note(f"{'':<8} the regions of {world.contract.name} stay: {refusal}")
    for gone in health.remove_health_checks(backend.api(), ctx.owner):
        ctx.say(f"removed health check {gone}")


def guard_rights(profile: Profile) -> Callable[[str, bool], str] | None:
    """On Route 53 a guard writes as the host that it is on: IAM policy of a region's monitor, by region and whether it
    is one of several. None where a guard has a key of its own, or there is none."""
    dns, lab, origin = profile.switch.dns, profile.lab, profile.origin
    if dns is None or dns.kind != "route53" or not profile.switch.guard.enabled or not (lab or origin):
        return None
    from inferlift.dns import guard
    from inferlift.dns.latency import regional

    users = origin.name if origin is not None else f"{lab.host}.{lab.zone}" if lab is not None else ""

    def policy(region: str, several: bool) -> str:
        at = regional(users, region) if several else users
        return guard.narrowing(dns.kind, at, dns.zone or "", zone_id=dns.zone_id or "")["policy"]

    return policy


def _regions(ctx: Context, world: World, backend: Any) -> Any:
    from inferlift.dns.latency import Regions

    wanted = [region_of(part) for part in legs(ctx, world).values()]
    return Regions(backend, world.contract.name, world.address, wanted, ctx.intent, ctx.say)


def _checks(ctx: Context, world: World, backend: Any, parts: tuple[Service, ...]) -> dict[str, str]:
    """A health check of each site's gateway, made once: id by address."""
    from inferlift.dns import health

    found = {}
    for part in parts:
        at = part.endpoint
        found[at.address] = health.health_check(
            backend.api(), ctx.owner, world.contract.name, at.address, path=HEALTH_PATH, port=at.port
        )
    return found
