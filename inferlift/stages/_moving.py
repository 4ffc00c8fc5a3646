"""What is moved onto the fleet beside its configuration, the image and the data, and what is taken away from hosts that
stay. Shared by poc, migrate, scale and switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inferlift import ssh
from inferlift.artifacts import Check, Delivered, Fleet, Images, Transfer, World
from inferlift.ledger import now
from inferlift.stages.base import Context

if TYPE_CHECKING:
    from inferlift.images.registry import Registry

DATA = "/srv/data"


def deliver(ctx: Context, fleet: Fleet, prepare: Callable[[Sequence[str]], object]) -> None:
    """Images onto the model hosts by digest, before they are told to start them: the user's by way of the registry,
    where there is one, and the model server's own. `prepare` brings podman to the hosts named."""
    from inferlift.images import delivery, registry

    declared, images, server = ctx.profile.registry, ctx.need("build", Images).images, ctx.profile.server
    image = images[0] if declared is not None and images else None
    if image is None and server.image is None:
        return
    models = fleet.by_role("model")

    def work() -> Delivered:
        if bare := delivery.without_podman(models):
            prepare([host.name for host in bare])
        references, checks, sent, seconds = list[str](), list[Check](), 0, 0.0
        if image is not None and declared is not None:
            there = registry.at(declared.address, declared.user, declared.password or "", declared.ca, name=image.name)
            pushed = registry.push(image, there, ctx.say)
            tag = f"localhost/inferlift-app:{image.digest[7:19]}"  # as the role container names it
            checks += delivery.pull(models, pushed.reference, tag, there, ctx.say, deadline_s=declared.deadline_s)
            references, sent, seconds = [pushed.reference], pushed.bytes_sent, pushed.seconds
        if server.image is not None:
            there = _registry_of(ctx, server.image)
            checks += delivery.pull(models, server.image, None, there, ctx.say, deadline_s=server.deadline_s)
            references.append(server.image)
        return Delivered(references=tuple(references), bytes_sent=sent, seconds=seconds, checks=tuple(checks))

    names = [name for name in (image.digest if image else None, server.image) if name]
    subject = f"{' '.join(names)} {fleet.generation}"
    planned = {"registry": declared.address if declared is not None else None, "server": server.image}
    ctx.step("deliver", work, Delivered, subject=subject, planned=planned)


def _registry_of(ctx: Context, reference: str) -> Registry:
    """With the declared login where it is the declared registry's, with AWS' own, else with none."""
    from inferlift.images import registry

    declared, host = ctx.profile.registry, reference.partition("/")[0]
    if declared is not None and declared.address.partition("/")[0] == host:
        return registry.at(declared.address, declared.user, declared.password or "", declared.ca)
    return registry.at(host)


def copy_data(ctx: Context, fleet: Fleet) -> Transfer:
    from inferlift import transfer

    world, data, models = ctx.need("world", World), ctx.profile.data, fleet.by_role("model")
    limit = None if data.limit_mb_per_s is None else max(1, round(data.limit_mb_per_s * 1e6 / 1024))
    writers = None if data.freeze is None else lambda: freeze(ctx)
    if data.source is not None and "://" in data.source:
        return transfer.copy_s3(data.source, models, DATA, ctx.path("data"), ctx.say, limit, freeze=writers)
    path = data.source or world.data_path
    return transfer.copy(world.origin, path, models, DATA, ctx.path("data"), ctx.say, limit, freeze=writers)


def freeze(ctx: Context) -> None:
    """The old side stops writing. That it did is noted before, so that whatever happens it is let go again."""
    data = ctx.profile.data
    if data.freeze is None:
        return
    ctx.ledger.set_document("frozen", {"at": now(), "thaw": data.thaw})
    ctx.say("the old side's writes are stopped")
    ssh.run(ctx.need("world", World).origin, data.freeze, timeout_s=300)


def thaw(ctx: Context, *, copied: bool = True) -> None:
    """The old side may write again; its copies, if any, are out of date from then on. Nothing where none is frozen."""
    frozen = ctx.ledger.document("frozen")
    if frozen is None:
        return
    ssh.run(ctx.need("world", World).origin, frozen["thaw"], timeout_s=300)
    ctx.say("the old side may write again: before users are moved, its data is copied once more")
    ctx.ledger.drop_document("frozen")
    if copied:
        ctx.ledger.drop("migrate")


def strip(ctx: Context) -> None:
    """Hosts that outlive the fleet: the roles and the data are taken away again; nothing to do where hosts are made."""
    from inferlift import configure, provision, transfer

    hosts = provision.staying_hosts(f"{ctx.owner}/fleet", ctx.folder)
    if not hosts:
        return
    for line in configure.apply(hosts, "remove.yml", {}, {}, ctx.path("fleet"), ctx.say).skipped:
        ctx.say(line)
    transfer.remove([h for h in hosts if h.role == "model"], DATA)
