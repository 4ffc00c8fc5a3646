"""migrate: the data folder from the old side to every model host, verified by checksums -> Transfer."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, Transfer
from inferlift.errors import Refusal
from inferlift.stages import _fleet
from inferlift.stages.base import Context, Stage


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
            "source": f"{world.origin.name}:{world.data_path}" if world else None,
        }

    def preview(self, ctx: Context) -> list[str]:
        world = ctx.world()
        source = f"{world.origin.name}:{world.data_path}" if world else "the old side's data folder"
        return [
            f"copy {source} to {_fleet.DATA} on each model host, twice, compared by checksums; only read at the source"
        ]

    def run(self, ctx: Context) -> Transfer:
        if ctx.profile.data.state == "read-write":
            raise Refusal(
                "data that users write cannot be moved by this version",
                why="it needs a freeze or a way back for writes, else a roll-back would lose them",
                next_command="set data.state to read-only once the old side no longer writes",
            )
        fleet = _fleet.current(ctx).fleet
        return ctx.step(
            "copy",
            lambda: _fleet.copy_data(ctx, fleet),
            Transfer,
            subject=", ".join(h.name for h in fleet.by_role("model")),
        )

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift.transfer import verify

        assert isinstance(artifact, Transfer)  # noqa: S101
        return verify(artifact, _fleet.current(ctx).fleet.by_role("model"), _fleet.DATA)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Transfer)  # noqa: S101
        second = artifact.passes[-1].files if len(artifact.passes) > 1 else 0
        return f"{artifact.files} files, {artifact.bytes / 1e6:.1f} MB, checksums equal, {second} in the second pass"
