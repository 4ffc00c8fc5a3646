"""The ways back: users to the old side, the fleet removed, the lab taken down. Each refuses what would be unsafe."""

from __future__ import annotations

from inferlift.artifacts import Service, Status
from inferlift.decommission import undo
from inferlift.errors import InferliftError, Refusal, Retryable
from inferlift.ledger import now
from inferlift.migration import stages
from inferlift.stages import _fleet
from inferlift.stages.base import Context, all_back
from inferlift.stages.switch import SwitchStage

FLEET_STAGES = ("poc", "load", "migrate", "scale", "switch", "watch")
OF_THE_WORLD = ("world", "audit", "size", "load", "migrate", "scale", "switch", "watch")


def rollback(ctx: Context) -> float:
    """All users to the old side. Returns the seconds until authority and resolver said so."""
    ctx.stage, ctx.key = "switch", "rollback"
    if ctx.ledger.stage("switch") is None:
        raise Refusal(
            "there is nothing to roll back",
            why="no switch was begun: users are on the old side",
            next_command=f"./invoke status --profile {ctx.profile.name}",
        )
    if undo(ctx):
        ctx.progress.note("the old side had been taken away: it runs again and answers")
    before = ctx.ledger.document("rollback")
    # Said before it is done: after a kill in between, no deploy moves users there again by itself.
    ctx.ledger.set_document("rollback", {"at": now(), "seconds": None})
    try:
        seconds = SwitchStage().rollback(ctx)
    except Refusal:  # nothing was written
        if before is None:
            ctx.ledger.drop_document("rollback")
        else:
            ctx.ledger.set_document("rollback", before)
        raise
    stages()["migrate"].undo(ctx)
    row = ctx.ledger.stage("switch")
    ctx.ledger.forget_steps("switch")
    if row is not None:
        ctx.ledger.mark("switch", Status.HELD, "rolled back: all users are on the old side")
    ctx.ledger.set_document("rollback", {"at": now(), "seconds": seconds})
    all_back(ctx.ledger)
    ctx.ledger.drop("watch")
    return seconds


def destroy(ctx: Context, *, delete_data: bool = False) -> list[str]:
    """Remove the fleet, nothing else. Returns what is left of it by label: an empty list is proved, not assumed.

    What holds data on a paid target is kept and named, unless `delete_data`.
    Raises Refusal while DNS points at the fleet, or its gateway saw users within `operations.quiet_s`.
    """
    ctx.stage, ctx.key = "poc", "destroy"
    _refuse_if_used(ctx)
    SwitchStage().give_back(ctx)
    with ctx.intent("destroy", f"{ctx.owner}/fleet", {"hosts": _hosts(ctx)}, {"hosts": []}):
        stages()["migrate"].undo(ctx)
        left = _fleet.destroy(ctx, delete_data=delete_data)
    if not left:
        _forget(ctx, FLEET_STAGES)
    return left


def lab_down(ctx: Context) -> list[str]:
    """Remove the old world. Returns what is left of it by label.

    Raises Refusal while DNS points at the fleet: the way back for its users needs the old world.
    """
    ctx.stage, ctx.key = "world", "down"
    _refuse_if_needed(ctx)
    with ctx.intent("down", f"{ctx.owner}/world", {}, {}):
        left = stages()["world"].undo(ctx)
    if not left:
        _forget(ctx, OF_THE_WORLD)
    return left


def _forget(ctx: Context, names: tuple[str, ...]) -> None:
    """What was learned of something that is gone is not mixed with what comes after it."""
    ctx.ledger.drop(*names)
    for document in ("switch_steps", "rolled_back", "rollback", "held", "approved", "decommissioned", "old_side"):
        ctx.ledger.drop_document(document)


def _refuse_if_needed(ctx: Context) -> None:
    service = ctx.ledger.document("service")
    if service is None or ctx.world() is None:
        return
    try:
        weights = SwitchStage().users_at(ctx) or {}
    except InferliftError:
        return  # a world that cannot say where its users are is no way back for them either
    if new := [a for a in (e["address"] for e in service["fleet"]["endpoints"]) if weights.get(a, 0) > 0]:
        raise Refusal(
            "the old world is the way back for users who are on the fleet",
            why=", ".join(f"{a} has weight {weights[a]} in DNS" for a in new),
            next_command=f"./invoke rollback --profile {ctx.profile.name}",
        )


def _refuse_if_used(ctx: Context) -> None:
    from inferlift import provision
    from inferlift.configure import gateway as gateway_api

    fleet = provision.read_fleet(f"{ctx.owner}/fleet", ctx.folder, ctx.tools())
    if fleet is None:
        return
    addresses = {e.address for e in fleet.endpoints}
    back = f"./invoke rollback --profile {ctx.profile.name}"
    if _old_side_stands(ctx):
        try:
            weights = SwitchStage().users_at(ctx) or {}
        except Retryable as error:
            raise Refusal(
                "it is not known where DNS points, so the fleet is kept",
                why=error.what,
                next_command=back
                if ctx.profile.raised is None
                else f"{back}, or ./invoke lab down --profile {ctx.profile.name} to give the old world up",
            ) from None
        if pointing := {a: w for a, w in weights.items() if a in addresses and w > 0}:
            raise Refusal(
                "DNS points at the fleet",
                why=", ".join(f"{a} has weight {w}" for a, w in pointing.items()),
                next_command=back,
            )
    quiet = ctx.profile.operations.quiet_s
    gateways = [h for h in fleet.hosts if h.role == "gateway"]
    for gateway in gateways:
        try:
            seen = gateway_api.requests_since(gateway, quiet)
        except Retryable:
            continue  # a host that does not answer serves nobody
        if seen:
            raise Refusal(
                f"the gateway saw {seen} users' requests within the last {quiet} s",
                why="clients that keep a connection or an old answer are still on the fleet",
                next_command=f"wait until it is quiet, then ./invoke destroy --profile {ctx.profile.name}",
            )


def _old_side_stands(ctx: Context) -> bool:
    """Is there a record that may lead users to the fleet? The lab's is gone with its world; a found one stays."""
    from inferlift import provision

    world = ctx.world()
    if world is None or world.lab is None:
        return world is not None
    return provision.read_world(f"{ctx.owner}/world", ctx.folder, ctx.tools()) is not None


def _hosts(ctx: Context) -> list[str]:
    body = ctx.ledger.document("service")
    return [h.name for h in Service.model_validate(body).fleet.hosts] if body else []
