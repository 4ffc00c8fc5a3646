"""scale: replicas for the measured peak and one spare, accepted with every user in flight at once -> Scaled."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from inferlift.artifacts import Artifact, Check, Figure, Gate, LoadRun, Measurement, Scaled, Service
from inferlift.errors import CheckFailed
from inferlift.ledger import Intent, digest, now
from inferlift.stages import _configuring, _edge, _fleet, _wanted
from inferlift.stages._common import protocol, questions
from inferlift.stages.base import Context, Settled, Stage

BURST_S = 4.0


class ScaleStage(Stage):
    name = "scale"
    artifact = Scaled
    approval = "second"

    def applicable(self, ctx: Context) -> str | None:
        return _fleet.queued(ctx, "hosts come with the jobs and go with them")

    def key(self, ctx: Context) -> dict[str, Any]:
        measured = ctx.optional("load", Measurement)
        poc = ctx.ledger.document("key:poc")
        return {
            "replicas": [measured.sizing.replicas, measured.sizing.spare] if measured else None,
            "service": digest(poc) if poc else None,
            "in_flight": ctx.profile.requests.in_flight_peak,
            "deadline": ctx.profile.targets.acceptance_deadline_s,
        }

    def preview(self, ctx: Context) -> list[str]:
        measured = ctx.optional("load", Measurement)
        n = (
            f"{measured.sizing.replicas}+{measured.sizing.spare}"
            if measured
            else "as many replicas as the load test says"
        )
        return [
            f"raise the fleet to {n} model hosts",
            f"{ctx.profile.requests.in_flight_peak} requests in flight at once, twice; then one replica is killed",
            "no host beyond these is needed later: another size of host is made in place, held for an approval once "
            "users are there",
        ]

    def run(self, ctx: Context) -> Scaled:
        measured = ctx.need("load", Measurement)
        sizing = measured.sizing
        wanted = sizing.replicas + sizing.spare
        service = _fleet.serve(ctx, _wanted.desired(ctx, scale=wanted))
        limit_s, why = self._deadline(ctx, measured)
        ctx.say(f"deadline for {ctx.profile.requests.in_flight_peak} in flight: {limit_s:.0f} s ({why})")
        whole = ctx.step("acceptance", lambda: self._whole(ctx, service, limit_s), LoadRun,
                         planned={"deadline_s": limit_s})  # fmt: skip
        loss = ctx.step("loss", lambda: self._with_loss(ctx, service, limit_s), Loss,
                        subject=service.fleet.by_role("model")[-1].name, planned={"deadline_s": limit_s})  # fmt: skip
        gates = (
            _in_time("all answered by the deadline", whole, limit_s, allowed=0),
            _in_time(
                "all but those on the lost replica answered by the deadline", loss.run, limit_s, allowed=loss.in_flight
            ),
        )
        result = Scaled(
            service=service, sizing=sizing, acceptance=whole, deadline_s=limit_s, with_loss=loss.run,
            lost_host=loss.host, in_flight_on_lost=loss.in_flight, gates=gates,
        )  # fmt: skip
        bad = [g for g in gates if g.verdict != "pass"]
        if bad:
            raise CheckFailed(
                f"{wanted} replicas do not carry {ctx.profile.requests.in_flight_peak} requests in flight",
                why="; ".join(f"{g.name}: {g.why}" for g in bad),
                next_command=f"raise operations.spare or targets.acceptance_deadline_s in {ctx.profile_path}",
            )
        return result

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """As many replicas as were accepted take requests at the gateway."""
        from inferlift.configure import gateway

        assert isinstance(artifact, Scaled)  # noqa: S101
        gateways = _fleet.current(ctx).fleet.by_role("gateway")
        up = [sum(s.status.startswith("UP") for s in gateway.servers(host)) for host in gateways]
        want = artifact.sizing.replicas + artifact.sizing.spare
        told = f"{', '.join(map(str, up))} of {want} take requests at the gateway"
        return [Check(name="replicas", ok=min(up) >= want, detail=told)]

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Scaled:
        """Replicas back to what was accepted; the acceptance itself is not repeated."""
        assert isinstance(artifact, Scaled)  # noqa: S101
        want = artifact.sizing.replicas + artifact.sizing.spare
        service = _fleet.serve(ctx, _wanted.desired(ctx, scale=want))
        return artifact.model_copy(update={"service": service})

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        """Power that was cut on purpose comes back, whatever becomes of the stage."""
        if intent.action == "loss":
            from inferlift import provision

            for host in _fleet.current(ctx).fleet.by_role("model"):
                if host.name == intent.subject:
                    provision.power_on(host, ctx.tools())
        return _fleet.settle_fleet(ctx, intent)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Scaled)  # noqa: S101
        return (
            f"{artifact.service.replicas} replicas; {artifact.acceptance.in_flight_peak} in flight answered in "
            f"{artifact.acceptance.seconds:.0f} s of {artifact.deadline_s:.0f} s; with {artifact.lost_host} killed: "
            f"{sum(artifact.with_loss.counts.errors.values())} failed of {artifact.in_flight_on_lost} in flight on it"
        )

    def _deadline(self, ctx: Context, measured: Measurement) -> tuple[float, str]:
        from inferlift.sizing import deadline_s

        given = ctx.profile.targets.acceptance_deadline_s
        if given is not None:
            return given, "targets.acceptance_deadline_s"
        # A burst keeps every replica saturated, so the saturated rate counts, not the one offered in the load test.
        rate = measured.saturated_rps or measured.sizing.rate_per_replica.value or 1.0
        seconds, why = deadline_s(ctx.profile.requests.in_flight_peak, measured.sizing.replicas, rate)
        return seconds + BURST_S, f"{why}, and {BURST_S:.0f} s to open the connections and notice a loss"

    def _whole(self, ctx: Context, service: Service, limit_s: float) -> LoadRun:
        """Every replica takes part: one that was just configured may not have passed the gateway's look at it yet."""
        _configuring.wait_up(ctx, service)
        return self._burst(ctx, service, limit_s, "acceptance")

    def _burst(self, ctx: Context, service: Service, limit_s: float, label: str) -> LoadRun:
        from inferlift.load.client import LoadPlan, run

        users = ctx.profile.requests.in_flight_peak
        plan = LoadPlan(
            target=_fleet.target_of(ctx, _edge.sites(service)[0]), requests=users, users=users, prompts=questions(ctx),
            max_tokens=ctx.profile.requests.output_tokens,
            # a request may take the whole deadline: it waits in the gateway's queue
            request_timeout_s=max(ctx.profile.load.request_timeout_s, limit_s), deadline_s=limit_s * 1.5,
            label=label, samples=self._samples(ctx, label), protocol=protocol(ctx),
        )  # fmt: skip
        return run(plan, ctx.say)

    def _with_loss(self, ctx: Context, service: Service, limit_s: float) -> Loss:
        """Cut the last replica's power once a third of the requests are answered; give it back when all is over."""
        from inferlift import provision

        victim, tools = _edge.sites(service)[0].fleet.by_role("model")[-1], ctx.tools()
        _configuring.wait_up(ctx, service)
        third = ctx.profile.requests.in_flight_peak // 3
        samples = self._samples(ctx, "one-lost")
        over, cut = threading.Event(), threading.Event()

        def cut_when_third_is_answered() -> None:
            while not over.wait(0.1):
                if samples.exists() and samples.read_bytes().count(b"\n") >= third:
                    provision.power_off(victim, tools)
                    cut.set()
                    return

        watcher = threading.Thread(target=cut_when_third_is_answered, daemon=True)
        watcher.start()
        try:
            run = self._burst(ctx, service, limit_s, "one-lost")
        finally:
            over.set()
            watcher.join(timeout=60)
            provision.power_on(victim, tools)
        _configuring.wait_up(ctx, service)
        if not cut.is_set():
            raise CheckFailed(
                f"{victim.name} was not killed: too few requests were answered",
                why=f"{run.counts.ok} of {run.counts.planned} answered",
                next_command=f"./invoke scale --profile {ctx.profile.name}",
            )
        # The gateway never lets more than `slots` requests onto one replica: no more can have been in flight there.
        return Loss(run=run, host=victim.name, in_flight=ctx.profile.server.slots)

    def _samples(self, ctx: Context, label: str) -> Path:
        return ctx.path("samples") / f"scale-{label}-{ctx.ledger.run}.jsonl"


class Loss(Artifact):
    """The run in which one replica was killed."""

    run: LoadRun
    host: str
    in_flight: int  # at most, on that replica, at the kill


def _in_time(name: str, run: LoadRun, limit_s: float, *, allowed: int) -> Gate:
    """Counts and a deadline, not latency: client and hosts may share cores."""
    failed = run.counts.planned - run.counts.ok
    ok = failed <= allowed and run.seconds <= limit_s and run.counts.balanced
    why = f"{failed} failed or unsent ({allowed} allowed), {run.seconds:.1f} s of {limit_s:.0f} s"
    return Gate(
        name=name, verdict="pass" if ok else "fail", target=limit_s, why=why,
        figure=Figure(value=run.seconds, unit="s", basis="measured", source=run.label, at=now(), n=run.counts.ok),
    )  # fmt: skip
