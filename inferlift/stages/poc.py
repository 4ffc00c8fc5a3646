"""poc: one replica of the new side, made by Pulumi and configured by Ansible -> Service."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, DesiredFleet, Images, Service, Sizing
from inferlift.ledger import Intent
from inferlift.stages import _configuring, _fleet, _wanted
from inferlift.stages.base import Context, Settled, Stage


class PocStage(Stage):
    name = "poc"
    artifact = Service
    approval = "first"

    def key(self, ctx: Context) -> dict[str, Any]:
        sizing, images = ctx.optional("size", Sizing), ctx.optional("build", Images)
        world = ctx.world()
        return {
            "host": _wanted.document(ctx, {"poc": 1}),
            "choice": sizing.choice if sizing else None,
            "image": [i.digest for i in images.images] if images else None,
            "server": ctx.profile.server,
            "model": ctx.profile.model,
            "contract": world.contract if world else None,
            "roles": _configuring.roles_digest(ctx),
        }

    def preview(self, ctx: Context) -> list[str]:
        from inferlift import provision

        lines = provision.in_words(self._wanted(ctx), ctx.folder)
        there = ctx.profile.registry
        return lines if there is None else [*lines, f"push the image to {there.address}, pull it on the model hosts"]

    def run(self, ctx: Context) -> Service:
        return _fleet.serve(ctx, self._wanted(ctx))

    def _wanted(self, ctx: Context) -> DesiredFleet:
        """One replica. A queue costs nothing without jobs: it gets its whole limit at once."""
        if ctx.profile.task == "batch":
            return _wanted.desired(ctx, poc=_wanted.sized(ctx).replicas)
        return _wanted.desired(ctx, poc=1)

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """The fleet as it should stand now, whichever stage raised it last."""
        return _fleet.verify_service(ctx, _fleet.current(ctx))

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        return _fleet.settle_fleet(ctx, intent)

    def undo(self, ctx: Context) -> list[str]:
        return _fleet.destroy(ctx)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Service)  # noqa: S101
        skipped = f", {len(artifact.configured.skipped)} things skipped here" if artifact.configured.skipped else ""
        if artifact.contract is None:
            return f"{artifact.endpoint.address} takes jobs"
        hosts, checks = len(artifact.fleet.hosts), len(artifact.checks)
        return f"{hosts} hosts, {checks} checks ok, answers at {artifact.endpoint.address}{skipped}"
