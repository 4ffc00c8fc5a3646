"""load: the 1000-request test of the proof of concept, in the old traffic's shape -> Measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferlift.artifacts import Artifact, Check, Evidence, Figure, LoadRun, Measurement, Quality, Service
from inferlift.errors import CheckFailed, Held
from inferlift.ledger import digest, now
from inferlift.stages import _edge, _fleet
from inferlift.stages._common import protocol, quality_cases, questions, sizing_part
from inferlift.stages._plan import planned
from inferlift.stages.base import Context, Stage

# The shape is offered at this share of what a short saturated warm-up reached: a test at the edge of what the
# replica can do, without a queue that only grows.
OFFERED = 0.92
WARM_UP_SHARE = 0.06


class LoadStage(Stage):
    name = "load"
    artifact = Measurement
    approval = "first"

    def applicable(self, ctx: Context) -> str | None:
        return _fleet.queued(ctx, "their time is the jobs' own, and no user waits for an answer")

    def key(self, ctx: Context) -> dict[str, Any]:
        poc, evidence = ctx.ledger.document("key:poc"), ctx.optional("audit", Evidence)
        return {
            # what was served, by meaning: a host made anew from the same document answers the same
            "service": digest(poc) if poc else None,
            "load": ctx.profile.load,
            "sizing": sizing_part(ctx),
            "in_flight_peak": evidence.in_flight_peak if evidence else None,
            "prompts": digest(questions(ctx)),
        }

    def preview(self, ctx: Context) -> list[str]:
        kind = {"image": "pictures", "multimodal": "questions about pictures"}.get(
            ctx.profile.task, "streaming requests"
        )
        lines = [f"send {ctx.profile.load.requests} {kind} to the new side, and the quality prompts"]
        if ctx.options.load_origin:
            lines.append(f"send {ctx.profile.load.origin_requests} requests to the old side (--load-origin)")
        return lines

    def run(self, ctx: Context) -> Measurement:
        from inferlift.load.gates import gates, verdict

        service = _edge.sites(_fleet.current(ctx))[0]  # one site carries the load: all are alike
        evidence = ctx.need("audit", Evidence)
        if service.replicas > 1:
            ctx.say(f"{service.replicas} replicas are present; the shape is scaled to them")
        warm = ctx.step("warm-up", lambda: self._warm_up(ctx, service), LoadRun)
        run = ctx.step("requests", lambda: self._requests(ctx, service, evidence, warm), LoadRun,
                       planned={"requests": ctx.profile.load.requests})  # fmt: skip
        quality = ctx.step("quality", lambda: self._quality(ctx, service), Quality)
        origin_live = None
        if ctx.options.load_origin:
            origin_live = ctx.step("origin", lambda: self._origin(ctx), LoadRun)
        found = gates(ctx.profile.targets, run, quality)
        rate = Figure(
            value=run.rate_rps / service.replicas if run.rate_rps else None, unit="requests/s", basis="measured",
            source=f"{run.counts.ok} requests against {service.replicas} replica(s)", at=now(), n=run.counts.ok,
        )  # fmt: skip
        measured = Measurement(
            run=run,
            saturated_rps=warm.rate_rps / service.replicas if warm.rate_rps else None,
            origin=origin_live.total if origin_live else evidence.latency,
            origin_live=origin_live,
            quality=quality,
            gates=found,
            verdict=verdict(found),
            sizing=planned(ctx.profile, evidence, rate),
        )
        self._decide(ctx, measured)
        return measured

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """Every sample is still there and adds up to the counts."""
        assert isinstance(artifact, Measurement)  # noqa: S101
        path = Path(artifact.run.samples)
        if not path.exists():
            return [Check(name="samples", ok=False, detail=f"{path} is gone")]
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
        sent = artifact.run.counts.sent
        return [Check(name="samples", ok=lines >= sent, detail=f"{lines} samples kept, {sent} requests sent")]

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Measurement)  # noqa: S101
        run, quality = artifact.run, artifact.quality
        ttft = run.ttft.p95_ms if run.ttft else None
        return (
            f"{artifact.verdict}: {run.counts.ok} of {run.counts.planned} ok at {run.rate_rps or 0:.1f}/s, P95 TTFT "
            f"{'unknown' if ttft is None else f'{ttft:.0f} ms'}, quality {quality.correct}/{quality.n}"
        )

    def _warm_up(self, ctx: Context, service: Service) -> LoadRun:
        from inferlift.load.client import LoadPlan, run

        users = ctx.profile.server.slots * service.replicas * 2
        count = max(int(ctx.profile.load.requests * WARM_UP_SHARE), 40, users * 2)
        return run(self._plan(ctx, service, LoadPlan, "warm-up", requests=count, users=users), ctx.say)

    def _requests(self, ctx: Context, service: Service, evidence: Evidence, warm: LoadRun) -> LoadRun:
        from inferlift.load.client import LoadPlan, replay_schedule, run

        if not warm.rate_rps:
            raise CheckFailed(
                "the warm-up got no answer",
                why=", ".join(f"{n} x {k}" for k, n in warm.counts.errors.items()) or "nothing was sent",
                next_command=f"./invoke poc --profile {ctx.profile.name}",
            )
        count = ctx.profile.load.requests
        schedule = replay_schedule(evidence.shape, count, warm.rate_rps * OFFERED)
        return run(self._plan(ctx, service, LoadPlan, "new", requests=count, schedule_s=schedule), ctx.say)

    def _plan(self, ctx: Context, service: Service, plan: Any, label: str, **more: Any) -> Any:
        requests = more["requests"]
        return plan(
            target=_fleet.target_of(ctx, service),
            prompts=questions(ctx),
            max_tokens=ctx.profile.requests.output_tokens,
            request_timeout_s=ctx.profile.load.request_timeout_s,
            deadline_s=max(120.0, requests * 1.5),
            label=label,
            protocol=protocol(ctx),
            samples=ctx.path("samples") / f"{ctx.stage}-{label}-{ctx.ledger.run}.jsonl",
            **more,
        )

    def _quality(self, ctx: Context, service: Service) -> Quality:
        from inferlift.load.quality import assess

        cases = quality_cases(ctx)
        if not cases:
            return Quality(n=0, correct=0, share=None)
        return assess(_fleet.target_of(ctx, service), cases, users=2, protocol=protocol(ctx))

    def _origin(self, ctx: Context) -> LoadRun:
        from inferlift.load.client import LoadPlan, run

        count = ctx.profile.load.origin_requests
        plan = LoadPlan(
            target=_fleet.origin_target(ctx), requests=count, users=2, prompts=questions(ctx),
            max_tokens=ctx.profile.requests.output_tokens, request_timeout_s=ctx.profile.load.request_timeout_s,
            deadline_s=600, label="old", protocol=protocol(ctx),
            samples=ctx.path("samples") / f"load-old-{ctx.ledger.run}.jsonl",
        )  # fmt: skip
        return run(plan, ctx.say)

    def _decide(self, ctx: Context, measured: Measurement) -> None:
        bad = [g for g in measured.gates if g.verdict == measured.verdict]
        why = "; ".join(f"{g.name}: {g.why}" for g in bad)
        if measured.verdict == "fail":
            raise CheckFailed(
                "the new side does not meet its targets",
                why=why,
                next_command=f"change the targets or the server, then ./invoke deploy --profile {ctx.profile.name}",
            )
        if measured.verdict == "inconclusive" and not ctx.overruled("load", why):
            raise Held(
                "the load test does not decide",
                why=why,
                next_command=f"./invoke approve --profile {ctx.profile.name} --reason '...'",
            )
