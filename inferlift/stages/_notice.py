"""Somebody is told when a run is held or took users back: the profile's `switch.webhook`, or nobody."""

from __future__ import annotations

from typing import Literal

from inferlift.stages.base import Context


def tell(ctx: Context, event: Literal["held", "rolled back"], why: str) -> None:
    """Raises nothing: a hook that is away stops no run."""
    hook = ctx.profile.switch.webhook
    if hook is None:
        return
    from inferlift.dns import notice

    notice.post(hook, event, ctx.profile.name, why, by=f"{ctx.stage} of {ctx.owner}", say=ctx.progress.note)
