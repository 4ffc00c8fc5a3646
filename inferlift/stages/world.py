"""The lab's old world: old host with its traffic, authoritative DNS, resolver -> World. Not one of the nine stages."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, Configured, LoadRun, World
from inferlift.errors import CheckFailed
from inferlift.ledger import Intent
from inferlift.stages.base import Context, Settled, Stage
from inferlift.stages.load import _prompts
from inferlift.tree import tree_digest


class WorldStage(Stage):
    name = "world"
    artifact = World

    def key(self, ctx: Context) -> dict[str, Any]:
        lab = ctx.profile.lab
        assert lab is not None  # noqa: S101
        roles = ctx.root / "playbooks" / "roles"
        return {
            "zone": [lab.zone, lab.host, lab.ttl_s],
            "origin_cpus": lab.origin_cpus,
            "workload": tree_digest(ctx.root / "templates" / "workloads" / lab.workload),
            "roles": [tree_digest(roles / r) for r in ("origin", "authority", "resolver", "llamacpp")],
            "traffic": [lab.traffic_requests, lab.traffic_users],
        }

    def preview(self, ctx: Context) -> list[str]:
        lab = ctx.profile.lab
        assert lab is not None  # noqa: S101
        return [
            f"raise the old world: origin, authority, resolver; send {lab.traffic_requests} requests to the old side"
        ]

    def run(self, ctx: Context) -> World:
        from inferlift import provision
        from inferlift.load import probe
        from inferlift.load.traffic import drive

        lab = ctx.profile.lab
        assert lab is not None  # noqa: S101
        made = ctx.step(
            "provision",
            lambda: provision.apply_world(
                f"{ctx.owner}/world", ctx.path("world"), ctx.tools(), lab.origin_cpus, lab.zone, lab.host, ctx.say
            ),
            provision.WorldHosts,
            subject=f"{ctx.owner}/world",
        )
        world = self._describe(ctx, made)
        ctx.step("configure", lambda: self._configure(ctx, world), Configured)
        bad = [c for c in probe.complete(_origin(ctx, world), 2, ctx.say) if not c.ok]
        if bad:
            raise CheckFailed("the old side does not answer", why=bad[0].detail, next_command="./invoke lab up -v")
        if lab.traffic_requests:
            run = ctx.step(
                "traffic",
                lambda: drive(
                    _origin(ctx, world), lab.traffic_requests, lab.traffic_users, _prompts(ctx),
                    max_tokens=ctx.profile.requests.output_tokens,
                    samples=ctx.path("samples") / f"traffic-{ctx.ledger.run}.jsonl", say=ctx.say,
                ),
                LoadRun,
                planned={"requests": lab.traffic_requests},
            )  # fmt: skip
            world = world.model_copy(update={"requests_sent": run.counts.ok})
        return world

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift import provision

        assert isinstance(artifact, World)  # noqa: S101
        hosts = (artifact.origin, artifact.authority, artifact.resolver)
        return provision.verify_world(hosts, f"{ctx.owner}/world", ctx.tools())

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        if intent.action == "provision":
            from inferlift import provision

            provision.settle(ctx.path("world"), ctx.tools(), ctx.say)
            return "adopted"
        return "absent"

    def undo(self, ctx: Context) -> list[str]:
        from inferlift import provision

        return provision.destroy_world(f"{ctx.owner}/world", ctx.path("world"), ctx.tools(), ctx.say)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, World)  # noqa: S101
        return f"{artifact.contract.name} at {artifact.origin.address}, {artifact.requests_sent} requests sent to it"

    def _describe(self, ctx: Context, made: Any) -> World:
        from inferlift.configure.world import describe

        lab = ctx.profile.lab
        assert lab is not None  # noqa: S101
        return describe(made, lab, folder=ctx.path("world"), root=ctx.root)

    def _configure(self, ctx: Context, world: World) -> Configured:
        from inferlift import configure, toolchain
        from inferlift.configure.world import world_variables

        toolchain.ensure(["wheels"], ctx.say)
        variables, secrets = world_variables(world, ctx.profile, folder=ctx.path("world"), wheels=toolchain.wheels())
        hosts = (world.origin, world.authority, world.resolver)
        return configure.apply(hosts, "world.yml", variables, secrets, ctx.run_folder / "ansible" / "world", ctx.say)


def _origin(ctx: Context, world: World) -> Any:
    from inferlift.load.target import from_contract

    return from_contract(world.contract, address=world.origin.address, timeout_s=ctx.profile.load.request_timeout_s)
