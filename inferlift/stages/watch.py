"""watch: the moved workload judged from stored history, so that nothing needs to keep running -> Watch."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from inferlift.artifacts import Artifact, Check, Cutover, Scaled, Watch, World
from inferlift.errors import CheckFailed, Held
from inferlift.stages import _fleet, _users
from inferlift.stages.base import Context, Stage


class Window(Artifact):
    start: datetime
    end: datetime


class WatchStage(Stage):
    name = "watch"
    artifact = Watch

    def applicable(self, ctx: Context) -> str | None:
        return _fleet.queued(ctx, "it has no gateway and no monitor to be judged from")

    def key(self, ctx: Context) -> dict[str, Any]:
        row = ctx.ledger.stage("switch")
        return {"cutover": row.digest if row else None, "seconds": ctx.profile.watch.seconds}

    def preview(self, ctx: Context) -> list[str]:
        return [f"judge {ctx.profile.watch.seconds} s of stored metrics: latency, errors, utilisation, cost"]

    def run(self, ctx: Context) -> Watch:
        ctx.need("switch", Cutover)
        world, seconds = ctx.need("world", World), ctx.profile.watch.seconds
        start = datetime.now(UTC)
        window = ctx.step("window", lambda: Window(start=start, end=start + timedelta(seconds=seconds)), Window)
        with _users.running(ctx, world, "watch"):
            while (left := (window.end - datetime.now(UTC)).total_seconds()) > 0:
                ctx.say(f"watching, {left:.0f} s left")
                time.sleep(min(left, 1.0))
        watched = ctx.step("judge", lambda: self._judge(ctx, window), Watch)
        if watched.verdict == "fail":
            raise CheckFailed(
                "the watch found the new side wanting",
                why=watched.why,
                next_command=f"./invoke rollback --profile {ctx.profile.name}",
            )
        if watched.verdict == "inconclusive" and not ctx.overruled("watch", watched.why):
            raise Held(
                "the watch does not decide",
                why=watched.why,
                next_command=f"./invoke watch --profile {ctx.profile.name}, or ./invoke approve with a reason",
            )
        return watched

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """The history it was judged from is still being written: every target answers its scrape."""
        from inferlift.observe import up

        return up(self._client(ctx))

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Watch)  # noqa: S101
        return f"{artifact.verdict}: {artifact.why}"

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        """The verdict stands; what is missing now is the monitor's."""
        raise CheckFailed(
            "the monitor misses metrics",
            why="; ".join(f"{c.name}: {c.detail}" for c in findings),
            next_command=f"./invoke scale --profile {ctx.profile.name}",
        )

    def _client(self, ctx: Context) -> Any:
        from inferlift.observe import Prometheus

        service = _fleet.current(ctx)
        return Prometheus(service.monitor_url, service.ca, service.monitor_user, service.monitor_password)

    def _judge(self, ctx: Context, window: Window) -> Watch:
        from inferlift.observe import judge

        sizing = ctx.need("scale", Scaled).sizing
        return judge(self._client(ctx), ctx.profile, window.start, window.end, cost_per_hour=sizing.cost_per_hour)
