"""The fleet's hosts as the playbook leaves them: all at once, or one drained host at a time where users are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from inferlift.artifacts import Configured, Contract, Fleet, Host, Images, Offer, Service, Sizing, World
from inferlift.errors import CheckFailed
from inferlift.stages._common import server_wheels
from inferlift.stages.base import Context
from inferlift.tree import tree_digest

PLAYBOOK_S = 900  # for all of it but the model's weights


def configure_fleet(
    ctx: Context, fleet: Fleet, *, only: Sequence[str] = (), tags: Sequence[str] = (), check: bool = False
) -> Configured:
    """The playbook over all hosts or `only` some, all roles or those of `tags`; a second run changes nothing.

    Each site is configured by itself: it knows nothing of the others.
    """
    parts = [(part, [h.name for h in part.hosts if h.name in only]) for part in fleet.at_sites()]
    wanted = [(part, names) for part, names in parts if names or not only]
    return _together([_configure_site(ctx, part, only=names, tags=tags, check=check) for part, names in wanted])


def _configure_site(ctx: Context, fleet: Fleet, *, only: Sequence[str], tags: Sequence[str], check: bool) -> Configured:
    from inferlift import configure

    wheels = server_wheels(ctx, ctx.profile.server.kind)
    folder = ctx.path("fleet")
    configure.fleet_certificates(folder / "tls", fleet)
    sizing = ctx.optional("size", Sizing)
    models = configure.model_variables(
        ctx.profile,
        fleet,
        sizing,
        offer=_offer(ctx, sizing),
        secrets=keys(ctx),
        root=ctx.root,
        wheels=wheels,
    )
    made = configure.fleet_variables(
        ctx.profile,
        fleet,
        contract_of(ctx),
        ctx.need("build", Images),
        secrets=keys(ctx),
        tls_folder=folder / "tls",
        wheels=wheels,
        workers=[h.name for copy in configure.clusters(fleet) for h in copy[1:]],
        resolvers=_resolvers(ctx),
        model_cost_per_hour=_model_cost(ctx),
    )
    made = models.over(made)
    return configure.apply(
        fleet.hosts, "site.yml", made.variables, made.secrets, folder, ctx.say, tags, only, check=check,
        timeout_s=PLAYBOOK_S + (ctx.profile.server.deadline_s if "weights_models" in made.variables else 0),
    )  # fmt: skip


def configure_under_users(ctx: Context, fleet: Fleet, was: Fleet) -> Configured:
    """Users are on the fleet that `was`: a model host that would change is drained first, one host at a time."""
    return _together([_site_under_users(ctx, part, was) for part in fleet.at_sites()])


def _site_under_users(ctx: Context, fleet: Fleet, was: Fleet) -> Configured:
    from inferlift.configure import gateway as gateway_api

    before = {h.name: h.container for h in was.hosts}
    standing = [h.name for h in fleet.by_role("model") if before.get(h.name) == h.container]
    would = configure_fleet(ctx, fleet, only=standing, check=True).hosts if standing else {}
    touched = [name for name in standing if would[name]["changed"]]
    done = [configure_fleet(ctx, fleet, only=[h.name for h in fleet.hosts if h.name not in touched])]
    gateway = fleet.by_role("gateway")[0]
    for left in gateway_api.servers(gateway):
        if left.status.startswith("DRAIN"):  # of a run that was killed while it changed that host
            gateway_api.undrain(gateway, left.name)
    for name in touched:
        ctx.say(f"{name} changes: drained first")
        try:
            gateway_api.drain(gateway, name)
            done.append(configure_fleet(ctx, fleet, only=[name]))
        finally:
            gateway_api.undrain(gateway, name)
        _wait_up(ctx, gateway, [name])
    return _together(done)


def _together(done: Sequence[Configured]) -> Configured:
    return Configured(
        hosts={name: counts for one in done for name, counts in one.hosts.items()},
        changed=sum(one.changed for one in done),
        seconds=sum(one.seconds for one in done),
        skipped=tuple(dict.fromkeys(line for one in done for line in one.skipped)),
    )


def wait_up(ctx: Context, service: Service) -> None:
    """Until the gateway sends requests to every replica. Raises CheckFailed naming those that stay away."""
    for part in service.fleet.at_sites():
        _wait_up(ctx, part.by_role("gateway")[0], [h.name for h in part.by_role("model")])


def _wait_up(ctx: Context, gateway: Host, names: Sequence[str], *, limit_s: float = 90) -> None:
    from inferlift.configure import gateway as gateway_api

    deadline = time.monotonic() + limit_s
    while True:
        up = {s.name for s in gateway_api.servers(gateway) if s.status.startswith("UP")}
        if not (missing := [n for n in names if n not in up]):
            return
        if time.monotonic() > deadline:
            raise CheckFailed(
                f"the gateway sends nothing to {', '.join(missing)}",
                why=f"not up after {limit_s:.0f} s",
                next_command=f"./invoke {ctx.stage} --profile {ctx.profile.name} -v",
            )
        ctx.say(f"waiting for {', '.join(missing)}")
        time.sleep(0.5)


def keys(ctx: Context) -> dict[str, str]:
    """References to the fleet's own keys and password."""
    from inferlift import configure

    return configure.fleet_secrets(ctx.path("fleet") / "secrets")


def contract_of(ctx: Context) -> Contract:
    return ctx.need("world", World).contract


def roles_digest(ctx: Context) -> str:
    return tree_digest(ctx.root / "playbooks") + tree_digest(ctx.root / "templates")


def _offer(ctx: Context, sizing: Sizing | None) -> Offer | None:
    """What the plan chose, for its local disks; only hosts with GPUs are told of them."""
    from inferlift.stages._plan import offers_of

    if sizing is None or sizing.serving is None or sizing.serving.gpu is None:
        return None
    named = [one for one in offers_of(ctx.profile) if one.name == sizing.choice]
    return next((one for one in named if one.region == sizing.region), None)


def _resolvers(ctx: Context) -> tuple[str, ...]:
    """Name servers that the monitor asks for the users' name: in the lab the old world's, else those declared."""
    world = ctx.world()
    return world.resolvers if world is not None else ()


def _model_cost(ctx: Context) -> float | None:
    """An hour of one model host by the plan; None where its price is unknown."""
    sizing = ctx.optional("size", Sizing)
    hour = sizing.cost_per_hour.value if sizing is not None else None
    return None if sizing is None or hour is None else round(hour / (sizing.replicas + sizing.spare), 6)
