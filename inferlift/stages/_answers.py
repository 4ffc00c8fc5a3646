"""Where the answers to the users' name are made, and who is asked for them: by the profile, else the lab's own."""

from __future__ import annotations

from typing import Any

from inferlift import secret
from inferlift.artifacts import World
from inferlift.errors import Retryable
from inferlift.stages.base import Context


def settings(ctx: Context, world: World) -> Any:
    """The back end's settings: as the profile says, else the lab's own name server."""
    from inferlift.profile.dns import Dns

    if ctx.profile.switch.dns is not None:
        return ctx.profile.switch.dns
    lab = world.made
    return Dns(kind="powerdns", url=lab.dns_api, key=lab.dns_key, zone=world.zone, ca=world.contract.ca)


def servers(ctx: Context, world: World) -> tuple[tuple[str, ...], str]:
    """(authorities, resolver) that are asked."""
    from inferlift.dns import authorities

    dns = ctx.profile.switch.dns
    if dns is None:
        return (world.authority.address,), world.resolver.address
    if dns.kind == "haproxy":
        return (dns.front or "",), dns.front or ""
    resolver = dns.resolver or authorities.system_resolver()
    return dns.authority or authorities.discover(world.contract.name, resolver=resolver)[1], resolver


def users_resolver(ctx: Context, world: World) -> str | None:
    """The resolver that a client by name asks; None: as this machine resolves."""
    dns = ctx.profile.switch.dns
    if dns is None:
        return world.resolver.address
    return dns.resolver


def answered(ctx: Context, world: World, name: str) -> str:
    """The address that the resolver gives now for a name. Raises Retryable where it gives none."""
    from inferlift.dns import answers

    resolver = servers(ctx, world)[1]
    found, _ = answers.resolver_answers(resolver, name)
    if not found:
        raise Retryable(f"the resolver {resolver} has no address for {name}")
    return found[0]


def net(ctx: Context, world: World, backend: Any) -> Any:
    from inferlift.dns import pinned
    from inferlift.dns import settings as back_end

    # a gateway counts what reaches its sides: with the users' key, but on no route of theirs, whose log is judged
    contract = world.contract
    probe = pinned.Probe(
        f"https://{contract.name}/", ca=contract.ca,
        headers={contract.key_header: lambda: secret.resolve(contract.key)},
    )  # fmt: skip
    return back_end.net(settings(ctx, world), backend, 53, lambda front: pinned.sent(probe, front))
