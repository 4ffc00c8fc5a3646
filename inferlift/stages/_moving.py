"""What is moved onto the fleet beside its configuration, the image and the data, and what is taken away from hosts that
stay. Shared by poc, migrate, scale and switch."""

from __future__ import annotations

from inferlift import ssh
from inferlift.artifacts import Delivered, Fleet, Images, Transfer, World
from inferlift.ledger import now
from inferlift.stages.base import Context

DATA = "/srv/data"


def deliver(ctx: Context, fleet: Fleet) -> None:
    """The image into the registry, where there is one, and onto the model hosts before they are told to start it."""
    from inferlift.images import delivery, registry

    declared, images = ctx.profile.registry, ctx.need("build", Images).images
    if declared is None or not images:
        return
    image = images[0]
    tag = f"localhost/inferlift-app:{image.digest[7:19]}"  # as the role container names it

    def work() -> Delivered:
        there = registry.at(declared.address, declared.user, declared.password or "", declared.ca, name=image.name)
        pushed = registry.push(image, there, ctx.say)
        checks = delivery.pull(
            fleet.by_role("model"), pushed.reference, tag, there, ctx.say, deadline_s=declared.deadline_s
        )
        return Delivered(
            reference=pushed.reference, bytes_sent=pushed.bytes_sent, seconds=pushed.seconds, checks=tuple(checks)
        )

    subject = f"{image.digest} {fleet.generation}"
    ctx.step("deliver", work, Delivered, subject=subject, planned={"registry": declared.address})


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
    configure.apply(hosts, "remove.yml", {}, {}, ctx.path("fleet"), ctx.say)
    transfer.remove([h for h in hosts if h.role == "model"], DATA)
