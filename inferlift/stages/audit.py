"""audit: the old system's logs, read in a pinned window -> Evidence."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from inferlift import ssh
from inferlift.artifacts import Artifact, Check, Evidence, World
from inferlift.errors import CheckFailed
from inferlift.stages.base import Context, Stage

LOGS_S = 3600  # for the old side's logs to arrive


class AuditStage(Stage):
    name = "audit"
    artifact = Evidence

    def key(self, ctx: Context) -> dict[str, Any]:
        world = ctx.world()
        return {
            "log": [world.log_glob, world.address] if world else None,
            "routes": [r.path for r in world.contract.routes] if world else None,
        }

    def applicable(self, ctx: Context) -> str | None:
        there = ctx.profile.lab is not None or ctx.profile.origin is not None
        return None if there else "no old side is declared whose logs could be read"

    def preview(self, ctx: Context) -> list[str]:
        world = ctx.world()
        later = ", once the lab is up" if ctx.profile.raised is not None else ""
        where = f"{world.log_glob} on {world.origin.name}" if world else f"the old side's access logs{later}"
        return [f"read {where}; nothing is changed"]

    def run(self, ctx: Context) -> Evidence:
        from inferlift.audit import audit

        world = ctx.need("world", World)
        # The window ends now and is kept in the evidence: a later look at grown logs can be held against it.
        # Stamps are whole seconds, and one counts once its second is over: the logs are read right after.
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
        ctx.say("reading the old side's logs")
        time.sleep(max((until - datetime.now(UTC)).total_seconds(), 0))
        evidence = audit(fetch_logs(ctx), routes=[r.path for r in world.contract.routes], until=until)
        if evidence.inference_n == 0:
            raise CheckFailed(
                "the old side's log holds no inference request",
                why=f"{evidence.quality.lines} lines read, {evidence.quality.refused} refused",
                next_command="check the routes of origin.contract",
            )
        return evidence

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """The evidence file is what was recorded (checked on reading), and the log it came from still stands."""
        world = ctx.world()
        if world is None:
            return [Check(name="old log", ok=False, detail="the old world is gone")]
        if world.lab is None:  # whoever keeps it rotates it; the evidence pins what was read
            return [Check(name="old log", ok=True, skipped=True, detail="its owner's; looked at with the old side")]
        size = ssh.run(world.origin, f"cat {world.log_glob} | wc -l", timeout_s=20).stdout.strip()
        lines = artifact.quality.lines if isinstance(artifact, Evidence) else 0
        return [
            Check(name="old log", ok=int(size or 0) >= lines, detail=f"{size} lines, {lines} of them in the evidence")
        ]

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Evidence)  # noqa: S101
        met = [t.name for t in artifact.triggers if t.verdict == "met"]
        p95 = artifact.latency.p95_ms
        return (
            f"{artifact.inference_n} inference requests, P95 {'unknown' if p95 is None else f'{p95:.0f} ms'}, "
            f"triggers met: {', '.join(met) or 'none'}"
        )


def fetch_logs(ctx: Context) -> list[Path]:
    """The old side's logs, copied to this run's folder."""
    from inferlift import process

    world = ctx.need("world", World)
    folder = ctx.path("logs", "origin")
    host = world.origin
    address = f"[{host.address}]" if ":" in host.address else host.address
    process.run(  # months of logs over a slow line: what came before a break is kept
        ["rsync", "-az", "--partial", "-e", " ".join(["ssh", *ssh.options(host), "-p", str(host.ssh_port)]),
         f"{host.user}@{address}:{world.log_glob}", f"{folder}/"],
        timeout_s=LOGS_S,
    )  # fmt: skip
    pattern = Path(world.log_glob).name
    return sorted(folder.glob(pattern))
