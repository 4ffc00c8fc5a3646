"""watch: the moved workload judged from stored history, so that nothing needs to keep running -> Watch."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from inferlift.artifacts import Artifact, Check, Cutover, Evidence, Scaled, Service, Sizing, Watch, World
from inferlift.errors import CheckFailed, Held, InferliftError, Retryable
from inferlift.stages import _edge, _fleet, _guarding, _users
from inferlift.stages._plan import declared_bill, planned
from inferlift.stages.base import Context, Stage


class Window(Artifact):
    start: datetime
    end: datetime


class Drift(Artifact):
    checks: tuple[Check, ...]


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
        looked = ctx.ledger.finished_step(self.name, ctx.key, "drift", "") is not None
        # beside the waiting, which it does not lengthen
        looking = ThreadPoolExecutor(1, "drift").submit(ctx.drift) if ctx.drift is not None and not looked else None
        with _users.running(ctx, world, "watch"):
            while (left := (window.end - datetime.now(UTC)).total_seconds()) > 0:
                ctx.say(f"watching, {left:.0f} s left")
                time.sleep(min(left, 1.0))
        drift = ctx.step("drift", lambda: Drift(checks=tuple(looking.result()) if looking else ()), Drift).checks
        watched = ctx.step("judge", lambda: self._judge(ctx, window, drift), Watch)
        for line in [*_lines(watched), *(f"drift: {c.name}: {c.detail}" for c in drift if not c.ok and not c.skipped)]:
            ctx.progress.note(f"{'':<8} {line}")
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
        ctx.step("stand-down", lambda: _guarding.stand_down(ctx), _guarding.Guarded)
        return watched

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """The history it was judged from is still being written: every target answers its scrape, at every site."""
        from inferlift.observe import Prometheus, up

        parts = _edge.sites(_fleet.current(ctx))
        found = [(part.endpoint.site, up(Prometheus.of(part))) for part in parts]
        several = len(parts) > 1
        return [
            c.model_copy(update={"name": f"{site}: {c.name}"}) if several else c
            for site, checks in found
            for c in checks
        ]

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

    def _judge(self, ctx: Context, window: Window, drift: tuple[Check, ...]) -> Watch:
        """Each site by its own monitor's history: one that fails is not made up for by another.

        Raises Held where a monitor does not answer, unless another site has failed: that decides.
        """
        from inferlift.observe import joined, unasked

        plan, parts = self._plan(ctx), _edge.sites(_fleet.current(ctx))
        several = len(parts) > 1
        found: dict[str, Watch] = {}
        silent: dict[str, str] = {}
        for part in parts:
            site = part.endpoint.site
            held_against = replace(plan, bill_monthly=None) if several else plan  # the old bill was for all of it
            try:
                found[site] = self._judge_site(ctx, window, part, held_against)
            except Retryable as error:
                silent[site] = f"{error.what}: {error.why}"
        failed = next((w for w in found.values() if w.verdict == "fail"), None)
        if silent and failed is None:  # no data never passes, and is no failure of the service
            raise Held(
                "the watch cannot be judged" + (f" at {', '.join(silent)}" if several else ""),
                why="; ".join(silent.values()),
                next_command=f"mend the monitor (./invoke scale --profile {ctx.profile.name}), then ./invoke watch",
            )
        if failed is not None:
            found |= {site: unasked(failed, why) for site, why in silent.items()}
        watched = joined(found, plan) if several else next(iter(found.values()))
        return watched.model_copy(update={"drift": drift})

    def _plan(self, ctx: Context) -> Any:
        """What the whole fleet is held against; the replicas are those of a site."""
        from inferlift.observe import Plan

        scaled, evidence = ctx.need("scale", Scaled), ctx.optional("audit", Evidence)
        return Plan(
            profile=ctx.profile, sizing=scaled.sizing, replicas=0,
            bill_monthly=evidence.bill_monthly if evidence and evidence.bill_monthly else declared_bill(ctx.profile),
        )  # fmt: skip

    def _judge_site(self, ctx: Context, window: Window, service: Service, plan: Any) -> Watch:
        """Raises Retryable where its monitor does not answer."""
        from inferlift.observe import Prometheus, judge

        evidence, sizing = ctx.optional("audit", Evidence), plan.sizing
        return judge(
            Prometheus.of(service), ctx.profile, window.start, window.end, cost_per_hour=sizing.cost_per_hour,
            gpu=any(h.gpu for h in service.fleet.by_role("model")), plan=replace(plan, replicas=service.replicas),
            replan=lambda peak: _for_peak(ctx, evidence, sizing, peak),
        )  # fmt: skip


def _for_peak(ctx: Context, evidence: Evidence | None, now: Sizing, peak_rps: float) -> Sizing | None:
    """The plan for the peak that was measured, with the rate of one replica that the load test measured."""
    measured = now.rate_per_replica if now.rate_per_replica.basis == "measured" else None
    asked = ctx.profile.requests.model_copy(update={"per_minute_peak": peak_rps * 60})
    try:
        return planned(ctx.profile.model_copy(update={"requests": asked}), evidence, measured)
    except (InferliftError, ValueError, ArithmeticError) as error:
        ctx.progress.note(f"{'':<8} no plan for the measured peak: {error}")
        return None


def _lines(watched: Watch) -> list[str]:
    """Use and costs, and what is due: for people."""
    found = [
        f"{j.name}: {j.verdict}: {j.why}"
        + (f"; {j.saving_monthly.value:,.2f} {j.saving_monthly.unit} less" if j.saving_monthly else "")
        for j in watched.judgements
    ]
    return found + [f"due: {t.name}: {t.why}" for t in watched.triggers if t.verdict == "met"]
