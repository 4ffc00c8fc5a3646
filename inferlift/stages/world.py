"""The old side before anything is moved -> World. Not one of the nine stages, walked before them.

Raised by the lab (`_raised`), or a service that exists and is only looked at (`_found`): `origin:` decides.
"""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, World
from inferlift.ledger import Intent
from inferlift.stages._found import Found
from inferlift.stages._raised import Raised
from inferlift.stages.base import Context, Settled, Stage


class WorldStage(Stage):
    name = "world"
    artifact = World

    def applicable(self, ctx: Context) -> str | None:
        there = ctx.profile.origin is not None or ctx.profile.lab is not None
        return None if there else "no old side is declared"

    def key(self, ctx: Context) -> dict[str, Any]:
        return _side(ctx).key(ctx)

    def preview(self, ctx: Context) -> list[str]:
        return _side(ctx).preview(ctx)

    def run(self, ctx: Context) -> Artifact:
        return _side(ctx).run(ctx)

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        return _side(ctx).verify(ctx, artifact)

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        return _side(ctx).repair(ctx, artifact, findings)

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        return _side(ctx).settle(ctx, intent)

    def undo(self, ctx: Context) -> list[str]:
        return _side(ctx).undo(ctx)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, World)  # noqa: S101
        return (Raised() if artifact.lab is not None else Found()).summary(artifact)


def _side(ctx: Context) -> Stage:
    return Raised() if ctx.profile.raised is not None else Found()
