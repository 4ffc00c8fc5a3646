"""switch: users moved by DNS, a step at a time, gated on both sides, with the way back prepared -> Cutover."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from inferlift import ssh
from inferlift.artifacts import Artifact, Check, Cutover, Figure, Gate, ParityCase, SwitchStep, World
from inferlift.errors import CheckFailed, Held, Retryable
from inferlift.ledger import Intent, now
from inferlift.stages import _fleet, _users
from inferlift.stages._common import questions
from inferlift.stages.base import Context, Settled, Stage, all_back

PARITY_REQUESTS = 12


class Parity(Artifact):
    cases: tuple[ParityCase, ...]


class Attempt(Artifact):
    name: str


class SwitchStage(Stage):
    name = "switch"
    artifact = Cutover
    approval = "second"

    def key(self, ctx: Context) -> dict[str, Any]:
        """Only the endpoints it moves between: an edited profile never replays a switch over live users."""
        world, service = ctx.world(), ctx.ledger.document("service")
        return {
            "name": world.contract.name if world else None,
            "old": world.origin.address if world else None,
            "new": service["endpoint"]["address"] if service else None,
        }

    def preview(self, ctx: Context) -> list[str]:
        plan, world = ctx.profile.switch, ctx.world()
        name = world.contract.name if world else "the users' name"
        return [
            f"replay {PARITY_REQUESTS} recorded requests on both sides and compare",
            f"lower the TTL of {name} to {plan.ttl_s} s and wait one old TTL",
            f"move weights {' -> '.join(map(str, plan.steps))} %; {plan.failures_to_roll_back} bad gates move back",
        ]

    def run(self, ctx: Context) -> Cutover:
        world, service = ctx.need("world", World), _fleet.current(ctx)
        if ctx.options.explicit:  # someone decided: a deploy may go on with what a kill leaves of it
            ctx.ledger.drop_document("rollback")
            ctx.ledger.drop_document("taken")
        self._hold_after_rollback(ctx)
        if (kept := self._put_right(ctx)) is not None:
            return kept
        parity = ctx.step("parity", lambda: Parity(cases=self._parity(ctx, world)), Parity)
        different = [c for c in parity.cases if not c.same]
        if different:
            ctx.ledger.forget_steps("switch")
            raise CheckFailed(
                f"{len(different)} of {len(parity.cases)} recorded requests are answered differently by the new side",
                why="; ".join(f"{c.request}: {c.detail}" for c in different[:3]),
                next_command=f"compare the two sides, then ./invoke switch --profile {ctx.profile.name}",
            )
        # One attempt keeps its name through kills: the record's journal tells whose roll-back is whose.
        attempt = ctx.step("attempt", lambda: Attempt(name=ctx.ledger.run), Attempt).name
        if (ctx.ledger.document("switch_steps") or {}).get("attempt") != attempt:
            ctx.ledger.set_document("switch_steps", {"attempt": attempt, "steps": []})
        with _users.running(ctx, world, "switch"):
            outcome = self._switch(ctx, world, service.endpoint.address, attempt).run()
        cutover = Cutover(
            name=world.contract.name, old=world.origin.address, new=service.endpoint.address,
            ttl_before_s=world.ttl_s, ttl_s=ctx.profile.switch.ttl_s, steps=_kept_steps(ctx), parity=parity.cases,
            rehearsed_rollback_s=outcome.rehearsed_rollback_s,
            users=_users.counts(ctx, world, service.endpoint.address, "switch", since_run=attempt),
            rolled_back=outcome.rolled_back, rollback_s=outcome.rollback_s, why=outcome.why,
        )  # fmt: skip
        if outcome.rolled_back:
            _fleet.thaw(ctx)
            ctx.ledger.set_document("rolled_back", cutover)
            # a plain deploy does not move users again into what has just failed them
            ctx.ledger.set_document(
                "rollback", {"at": now(), "seconds": outcome.rollback_s, "why": f"by itself: {outcome.why}"}
            )
            all_back(ctx.ledger)
            raise CheckFailed(
                "the switch rolled itself back: users are on the old side",
                why=outcome.why,
                next_command=f"mend the new side, then ./invoke switch --profile {ctx.profile.name}",
            )
        lost = ", ".join(f"{u.client}: {u.failed} failed" for u in cutover.users)
        if (failed := sum(u.failed for u in cutover.users)) and not ctx.overruled("switch", lost):
            raise Held(
                f"{failed} requests of users failed during the switch",
                why=lost,
                next_command=f"./invoke rollback --profile {ctx.profile.name}, or ./invoke approve with a reason",
            )
        ctx.ledger.drop_document("rollback")
        ctx.ledger.drop_document("taken")
        return cutover

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift import dns

        assert isinstance(artifact, Cutover)  # noqa: S101
        world = ctx.need("world", World)
        weights = {artifact.old: 100} if artifact.rolled_back else {artifact.new: 100}
        return dns.verify(
            self._backend(ctx, world), artifact.name, weights, authority=world.authority.address,
            resolver=world.resolver.address,
        )  # fmt: skip

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        """Somebody else moved users: that is for a person to decide."""
        why = "; ".join(f"{c.name}: {c.detail}" for c in findings)
        ctx.ledger.set_document("taken", {"at": now(), "why": why})
        raise Held(
            "the DNS record is not as the switch left it",
            why=why,
            next_command=f"./invoke rollback --profile {ctx.profile.name} (all users to the old side), "
            f"or ./invoke switch --profile {ctx.profile.name} (all users to the new side)",
        )

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        """The record and its journal say what was written; the switch goes on from there."""
        from inferlift import dns

        if "sequence" not in intent.planned:
            return "absent"  # not a write to the record
        world = ctx.need("world", World)
        outcome = dns.settle(self._backend(ctx, world).read(world.contract.name), intent.planned)
        return outcome if outcome in ("done", "absent") else "unknown"

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Cutover)  # noqa: S101
        failed = sum(u.failed for u in artifact.users)
        seen = sum(u.old + u.new + u.failed for u in artifact.users)
        return (
            f"{artifact.name} at {artifact.new} in {len(artifact.steps)} steps; {failed} of {seen} user requests failed"
        )

    def rollback(self, ctx: Context) -> float:
        """All users back to the old side, verified at authority and resolver. Returns seconds."""
        world, service = ctx.need("world", World), _fleet.current(ctx)
        return float(self._switch(ctx, world, service.endpoint.address).rollback())

    def users_at(self, ctx: Context) -> dict[str, int] | None:
        """The record's weights now; None when the name does not exist. Raises Retryable when it cannot be read."""
        world = ctx.need("world", World)
        state = self._backend(ctx, world).read(world.contract.name)
        if state.kind == "foreign":
            raise Retryable(f"the record of {world.contract.name} is not one that inferlift understands")
        return dict(state.weights) if state.kind != "absent" else None

    def _hold_after_rollback(self, ctx: Context) -> None:
        """Someone took users back: they are not moved again until someone says so."""
        back = ctx.ledger.document("rollback")
        approved = (ctx.ledger.document("approved") or {}).get("switch")
        if back is None or (approved and approved["at"] > back["at"]):
            return
        raise Held(
            "users were taken back to the old side",
            why=f"rollback at {back['at']}"
            + (f" {back['why']}" if back.get("why") else "")
            + ("" if back["seconds"] is not None else ", not seen to its end"),
            next_command=f"./invoke switch --profile {ctx.profile.name}",
        )

    def _put_right(self, ctx: Context) -> Cutover | None:
        """After someone else moved users: the old result where DNS says so again, None where a person decided.

        Raises Held as long as neither is so.
        """
        taken = ctx.ledger.document("taken")
        if taken is None:
            return None
        was = ctx.optional("switch", Cutover)
        if was is None:
            return None
        findings = [c for c in self.verify(ctx, was) if not c.ok and not c.skipped]
        if not findings:
            ctx.ledger.drop_document("taken")
            return was
        approved = (ctx.ledger.document("approved") or {}).get("switch")
        if approved and approved["at"] > taken["at"]:
            return None
        self.repair(ctx, was, findings)
        return None

    def _backend(self, ctx: Context, world: World, attempt: str = "") -> Any:
        from inferlift.dns.powerdns import PowerDns

        service = ctx.ledger.document("service")
        addresses = {world.origin.address} | ({service["endpoint"]["address"]} if service else set())
        return PowerDns(
            world.dns_api, world.dns_key, world.zone, ca=world.contract.ca, names=(world.contract.name,),
            addresses=tuple(sorted(addresses)), owner=ctx.owner, run=attempt or ctx.ledger.run,
        )  # fmt: skip

    def _switch(self, ctx: Context, world: World, new: str, attempt: str = "") -> Any:
        from inferlift.dns.switch import Switch

        return Switch(
            backend=self._backend(ctx, world, attempt), name=world.contract.name, old=world.origin.address, new=new,
            plan=ctx.profile.switch, ttl_before=world.ttl_s, gates=self._gates(ctx, world), clock=time.time,
            sleep=time.sleep, on_intent=ctx.intent, say=ctx.say, authority=world.authority.address,
            resolver=world.resolver.address, on_step=lambda step: _keep_step(ctx, step),
        )  # fmt: skip

    def _gates(self, ctx: Context, world: World) -> Callable[[int], tuple[Gate, ...]]:
        """Both sides: pinned synthetic requests to the new one, what users really see, the old side's log."""
        from inferlift.load.client import LoadPlan, run
        from inferlift.load.gates import gates

        service = _fleet.current(ctx)
        # quality was judged by the load test; here the same replicas answer
        targets = ctx.profile.targets.model_copy(update={"quality": None})

        def judge(weight: int) -> tuple[Gate, ...]:
            began = datetime.now(UTC)
            count = ctx.profile.switch.min_samples
            plan = LoadPlan(
                target=_fleet.target_of(ctx, service), requests=count, users=min(count, ctx.profile.server.slots),
                prompts=questions(ctx), max_tokens=ctx.profile.requests.output_tokens, request_timeout_s=30,
                deadline_s=120, label=f"{weight} %",
                samples=ctx.path("samples") / f"switch-{weight}-{ctx.ledger.run}.jsonl",
            )  # fmt: skip
            new_side = gates(targets, run(plan, ctx.say), None, minimum_requests=count)
            return (*new_side, _users.gate(ctx, "switch", began), _old_side(world, began))

        return judge

    def _parity(self, ctx: Context, world: World) -> tuple[ParityCase, ...]:
        from inferlift.load.parity import parity, parse_recorded

        text = ssh.run(world.origin, f"tail -n 400 {world.body_log}", timeout_s=30).stdout
        recorded = parse_recorded(text)[:PARITY_REQUESTS]
        if not recorded:
            raise CheckFailed("the old side recorded no request to replay", why=f"{world.body_log} is empty")
        return parity(_fleet.origin_target(ctx), _fleet.target_of(ctx, _fleet.current(ctx)), recorded, ctx.say)


def _keep_step(ctx: Context, step: SwitchStep) -> None:
    """A step that ended is kept at once: a run that goes on after a kill still reports it."""
    kept = ctx.ledger.document("switch_steps") or {"attempt": "", "steps": []}
    ctx.ledger.set_document("switch_steps", {**kept, "steps": [*kept["steps"], step]})


def _kept_steps(ctx: Context) -> tuple[SwitchStep, ...]:
    kept = ctx.ledger.document("switch_steps") or {"steps": []}
    return tuple(SwitchStep.model_validate(s) for s in kept["steps"])


def _old_side(world: World, since: datetime) -> Gate:
    """Errors in the old side's own log since the step began."""
    from inferlift.audit import audit

    newest = world.log_glob.rstrip("*")
    lines = ssh.run(world.origin, f"tail -n 2000 {newest}", timeout_s=20).stdout.splitlines()
    # an empty log (just rotated) holds no error either
    seen = audit(lines, routes=[r.path for r in world.contract.routes], since=since) if lines else None
    n, errors = (seen.inference_n, seen.errors) if seen else (0, 0)
    figure = Figure(
        value=errors / n if n else None,
        unit="share",
        basis="measured" if n else "unknown",
        source="the old side's access log",
        at=now(),
        n=n,
    )
    why = f"{errors} of {n} requests failed on the old side" if n else "the old side saw no request in this step"
    return Gate(name="old side errors", verdict="fail" if errors else "pass", target=0.0, figure=figure, why=why)
