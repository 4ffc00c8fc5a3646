"""migrate: the data folder from the old side to every model host, verified by checksums -> Transfer."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, Transfer
from inferlift.errors import Held, InferliftError, Refusal
from inferlift.ledger import Intent
from inferlift.stages import _fleet, _moving
from inferlift.stages.base import Context, Settled, Stage


class MigrateStage(Stage):
    name = "migrate"
    artifact = Transfer
    approval = "second"

    def applicable(self, ctx: Context) -> str | None:
        if ctx.profile.data.state == "none":
            return "the workload keeps no data (data.state: none)"
        return _fleet.queued(ctx, "they read and write the bucket, and no host keeps data")

    def key(self, ctx: Context) -> dict[str, Any]:
        world = ctx.world()
        return {
            "data": ctx.profile.data,
            "source": ctx.profile.data.source or (f"{world.origin.name}:{world.data_path}" if world else None),
        }

    def preview(self, ctx: Context) -> list[str]:
        world = ctx.world()
        source = f"{world.origin.name}:{world.data_path}" if world else "the old side's data folder"
        data = ctx.profile.data
        limit = "" if data.limit_mb_per_s is None else f", at most {data.limit_mb_per_s:g} MB/s"
        lines = [
            f"copy {data.source or source} to {_moving.DATA} on each model host, twice, compared by checksums{limit}; "
            "only read at the source"
        ]
        return lines if data.freeze is None else [*lines, f"before the second pass, on the old host: {data.freeze}"]

    def run(self, ctx: Context) -> Transfer:
        data = ctx.profile.data
        if data.state == "read-write" and data.freeze is None:
            raise Refusal(
                "data that users write cannot be moved without a freeze and a way back",
                why="what is written on the old side during the switch would be lost on the new one",
                next_command=f"declare data.freeze and data.thaw in {ctx.profile_path}",
            )
        if data.freeze is not None and ctx.ledger.document("rollback") is not None and not ctx.options.explicit:
            raise Held(
                "the old side would be frozen again",
                why="its users were taken back, and nobody has asked for a new switch",
                next_command=f"./invoke migrate --profile {ctx.profile.name}, then ./invoke switch",
            )
        fleet = _fleet.current(ctx).fleet
        try:
            return ctx.step(
                "copy",
                lambda: _moving.copy_data(ctx, fleet),
                Transfer,
                subject=", ".join(h.name for h in fleet.by_role("model")),
            )
        except (InferliftError, KeyboardInterrupt):
            _moving.thaw(ctx, copied=False)
            raise

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        """A copy that was killed begins with the source as it is: its writers go on until they are stopped again."""
        _moving.thaw(ctx, copied=False)
        return "absent"

    def undo(self, ctx: Context) -> list[str]:
        _moving.thaw(ctx)
        return []

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift.transfer import verify

        assert isinstance(artifact, Transfer)  # noqa: S101
        return verify(artifact, _fleet.current(ctx).fleet.by_role("model"), _moving.DATA)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Transfer)  # noqa: S101
        second = artifact.passes[-1].files if len(artifact.passes) > 1 else 0
        return f"{artifact.files} files, {artifact.bytes / 1e6:.1f} MB, checksums equal, {second} in the second pass"
