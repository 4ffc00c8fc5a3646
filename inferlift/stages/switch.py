"""switch: users moved by DNS, a step at a time, gated on both sides, with the way back prepared -> Cutover."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from inferlift.artifacts import Artifact, Check, Cutover, ParityCase, Service, SwitchStep, World
from inferlift.errors import CheckFailed, Held, InferliftError, Refusal, Retryable
from inferlift.ledger import Intent, now
from inferlift.stages import _answers, _edge, _fleet, _guarding, _moving, _notice, _old_side, _users, _wanted
from inferlift.stages._common import protocol
from inferlift.stages.base import Context, Settled, Stage, all_back

PARITY_REQUESTS = 12
NOT_RECORDED = "no requests were recorded on the old side (origin.body_log or origin.recorded)"


class Parity(Artifact):
    cases: tuple[ParityCase, ...]


class Attempt(Artifact):
    name: str


class SwitchStage(Stage):
    name = "switch"
    artifact = Cutover
    approval = "second"

    def applicable(self, ctx: Context) -> str | None:
        return _fleet.queued(ctx, "no name of users' is moved")

    def key(self, ctx: Context) -> dict[str, Any]:
        """Only the endpoints it moves between: an edited profile never replays a switch over live users."""
        world, service = ctx.world(), ctx.ledger.document("service")
        return {
            "name": world.contract.name if world else None,
            "old": world.address if world else None,
            "new": service["endpoint"]["address"] if service else None,
            **({"sites": sorted(_edge.addresses(ctx))} if len(_edge.addresses(ctx)) > 1 else {}),
        }

    def preview(self, ctx: Context) -> list[str]:
        plan, world = ctx.profile.switch, ctx.world()
        name = world.contract.name if world else "the users' name"
        return [
            _replay(world),
            f"lower the TTL of {name} to {plan.ttl_s} s and wait one old TTL",
            f"move weights {' -> '.join(map(str, plan.steps))} %; {plan.failures_to_roll_back} bad gates move back",
            *([f"wait for an approval of each step from {plan.approve_from} % on"] if plan.approve_from else []),
            "a guard on the monitor host takes users back when nobody is there" if plan.guard.enabled else "no guard",
        ]

    def run(self, ctx: Context) -> Cutover:
        world, service = ctx.need("world", World), _fleet.current(ctx)
        if ctx.options.explicit:  # someone decided: a deploy may go on with what a kill leaves of it
            for document in ("rollback", "taken"):
                ctx.ledger.drop_document(document)
        self._hold_after_guard(ctx, world)
        self._hold_after_rollback(ctx)
        if (kept := self._put_right(ctx)) is not None:
            return kept
        parity = ctx.step("parity", lambda: Parity(cases=self._parity(ctx, world)), Parity)
        if not parity.cases:
            ctx.progress.note(f"{'':<8} parity not looked at: {NOT_RECORDED}")
        different = [c for c in parity.cases if not c.same]
        if different:
            ctx.ledger.forget_steps("switch")
            raise CheckFailed(
                f"{len(different)} of {len(parity.cases)} recorded requests are answered differently by the new side",
                why="; ".join(f"{c.request}: {c.detail}" for c in different[:3]),
                next_command=f"compare the two sides, then ./invoke switch --profile {ctx.profile.name}",
            )
        guarded = ctx.step("guard", lambda: _guarding.ensure(ctx, world), _guarding.Guarded)
        ctx.progress.note(f"{'':<8} no guard: {guarded.why}" if guarded.why else f"{'':<8} guarded; {guarded.open}")
        # One attempt keeps its name through kills: the record's journal tells whose roll-back is whose.
        attempt = ctx.step("attempt", lambda: Attempt(name=ctx.ledger.run), Attempt).name
        if (ctx.ledger.document("switch_steps") or {}).get("attempt") != attempt:
            ctx.ledger.set_document("switch_steps", {"attempt": attempt, "steps": []})
        _wanted.lift_expiry(ctx)
        with _users.running(ctx, world, "switch"):
            try:
                outcome = self._switch(ctx, world, service, attempt).run()
            except (Held, CheckFailed, Refusal):  # a kill or Ctrl-C leaves the question open, an end does not
                ctx.ledger.drop_document("waiting")
                raise
        ctx.ledger.drop_document("waiting")
        cutover = Cutover(
            name=world.contract.name, old=world.address, new=service.endpoint.address,
            ttl_before_s=outcome.ttl_before_s, ttl_s=outcome.ttl_s, steps=_kept_steps(ctx), parity=parity.cases,
            rehearsed_rollback_s=outcome.rehearsed_rollback_s,
            users=_users.counts(ctx, world, service.endpoint.address, "switch", since_run=attempt),
            rolled_back=outcome.rolled_back, rollback_s=outcome.rollback_s, why=outcome.why,
            backend=ctx.profile.switch.dns.kind if ctx.profile.switch.dns else "powerdns",
            sides=_users.sides(ctx, world, service.endpoint.address, "switch", since_run=attempt),
            guard=guarded.why, guard_open=guarded.open,
            old_side=None if outcome.rolled_back else _who_is_left(ctx, world, left_at(ctx)),
        )  # fmt: skip
        if outcome.rolled_back:
            _moving.thaw(ctx)
            ctx.ledger.set_document("rolled_back", cutover)
            # a plain deploy does not move users again into what has just failed them
            ctx.ledger.set_document(
                "rollback", {"at": now(), "seconds": outcome.rollback_s, "why": f"by itself: {outcome.why}"}
            )
            all_back(ctx.ledger)
            _notice.tell(ctx, "rolled back", outcome.why)
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
        backend = self._backend(ctx, world)
        authority, resolver = _answers.servers(ctx, world)
        parts = _edge.legs(ctx, world)
        new = {name: parts[name].endpoint.address if name in parts else artifact.new for name in
               _edge.names(ctx, world, backend)}  # fmt: skip
        return [
            check
            for name, address in new.items()
            for check in dns.verify(
                backend, name, {artifact.old if artifact.rolled_back else address: 100},
                authority=authority, resolver=resolver, net=_answers.net(ctx, world, backend),
            )
        ]  # fmt: skip

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        """Somebody else moved users: that is for a person to decide."""
        self._hold_after_guard(ctx, ctx.need("world", World))
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

        if intent.action == "expiry":
            return _fleet.settle_fleet(ctx, intent)
        if "sequence" not in intent.planned:
            return "absent"  # not a write to the record
        world = ctx.need("world", World)
        name = next((n for n in _edge.legs(ctx, world) if intent.subject.startswith(n)), world.contract.name)
        outcome = dns.settle(self._backend(ctx, world).read(name), intent.planned)
        return outcome if outcome in ("done", "absent") else "unknown"

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Cutover)  # noqa: S101
        moved = f"{artifact.name} at {artifact.new} in {len(artifact.steps)} steps"
        if not artifact.users:
            return moved  # nobody plays a real service's users: the gates of each step say what was seen
        failed = sum(u.failed for u in artifact.users)
        seen = sum(u.old + u.new + u.failed for u in artifact.users)
        return f"{moved}; {failed} of {seen} user requests failed"

    def rollback(self, ctx: Context) -> float:
        """All users back to the old side, verified at authority and resolver. Returns seconds."""
        world, service = ctx.need("world", World), _fleet.current(ctx)
        return float(self._switch(ctx, world, service).rollback())

    def give_back(self, ctx: Context) -> None:
        """Before the fleet goes, and with nobody on it: the record of a service that exists as it was found (the lab's
        stays for the next switch), and nothing beside it. Raises Refusal unless the old side alone is answered."""
        world = ctx.world()
        if world is None or ctx.ledger.document("service") is None:
            return
        if _edge.legs(ctx, world):
            _edge.give_back(ctx, world, self._backend(ctx, world))
        elif world.lab is None and ctx.ledger.stage("switch") is not None:
            self._switch(ctx, world, _fleet.current(ctx)).restore()

    def users_at(self, ctx: Context) -> dict[str, int] | None:
        """The record's weights now; None when the name does not exist. Raises Retryable when it cannot be read."""
        world = ctx.need("world", World)
        backend = self._backend(ctx, world)
        found: dict[str, int] = {}
        for name in _edge.names(ctx, world, backend):
            state = backend.read(name)
            if state.kind == "foreign":
                raise Retryable(f"the record of {name} is not one that inferlift understands")
            if state.kind == "absent":
                return None
            found |= {a: max(w, found.get(a, 0)) for a, w in state.weights.items()}
        return found

    def _hold_after_guard(self, ctx: Context, world: World) -> None:
        """The guard took users back while nobody was there: as a roll-back, until someone decides."""
        backend = self._backend(ctx, world)
        states = [backend.read(name) for name in _edge.names(ctx, world, backend)]
        told = [(state, why) for state in states if (why := _guarding.acted(ctx, state)) is not None]
        if not told:
            return
        state, why = told[0]
        sequence = state.journal.sequence
        if ctx.options.explicit:
            ctx.ledger.set_document("guard_seen", sequence)
        if ctx.ledger.document("guard_seen") == sequence:
            return
        ctx.ledger.set_document("guard_seen", sequence)
        ctx.ledger.set_document(
            "rollback", {"at": now(), "seconds": None, "by": "guard", "why": f"by the guard: {why}"}
        )
        ctx.ledger.forget_steps("switch")
        all_back(ctx.ledger)
        self._hold_after_rollback(ctx)

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
            + ("" if back["seconds"] is not None or back.get("by") else ", not seen to its end"),
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
        from inferlift.dns import settings

        return settings.backend(
            _answers.settings(ctx, world), names=(world.contract.name, *_edge.legs(ctx, world)),
            addresses=tuple(sorted({world.address} | _edge.addresses(ctx))), owner=ctx.owner,
            run=attempt or ctx.ledger.run,
        )  # fmt: skip

    def _switch(self, ctx: Context, world: World, service: Service, attempt: str = "") -> Any:
        """Of the users' name; of a fleet at several sites of all regions' names, one after another."""
        from inferlift.dns.switch import Switch

        backend = self._backend(ctx, world, attempt)
        authority, resolver = _answers.servers(ctx, world)

        def one(name: str, part: Service) -> Switch:
            return Switch(
                backend=backend, name=name, old=world.address, new=part.endpoint.address, plan=ctx.profile.switch,
                ttl_before=world.ttl_s, gates=self._gates(ctx, world, part, name), clock=time.time, sleep=time.sleep,
                on_intent=ctx.intent, say=ctx.say, authority=authority, resolver=resolver,
                on_step=lambda step: _keep_step(ctx, step), approved=lambda weight: _approved(ctx, attempt, weight),
                net=_answers.net(ctx, world, backend),
            )  # fmt: skip

        return _edge.switch(ctx, world, backend, one) if _edge.legs(ctx, world) else one(world.contract.name, service)

    def _gates(self, ctx: Context, world: World, service: Service, name: str) -> Callable[[int], Any]:
        """Both sides: pinned requests to the new one, what users see, its metrics, the old side's log."""
        from inferlift.stages._judging import Judge

        return Judge(ctx, world, service, name if name != world.contract.name else None)

    def _parity(self, ctx: Context, world: World) -> tuple[ParityCase, ...]:
        from inferlift.load.parity import parity, parse_recorded

        if not (where := world.body_log or world.recorded):
            return ()
        asked = protocol(ctx)
        known_by = asked.recorded if asked else "messages"
        recorded = parse_recorded(_old_side.recorded(world), known_by=known_by)[:PARITY_REQUESTS]
        if not recorded:
            raise CheckFailed("the old side recorded no request to replay", why=f"{where} holds none")
        reads, old = asked.answer if asked else None, _fleet.origin_target(ctx)
        parts = _edge.sites(_fleet.current(ctx))
        return tuple(c for p in parts for c in parity(old, _fleet.target_of(ctx, p), recorded, ctx.say, reads=reads))


def _replay(world: World | None) -> str:
    if world is not None and not (world.body_log or world.recorded):
        return f"nothing is replayed on both sides: {NOT_RECORDED}"
    return f"replay {PARITY_REQUESTS} recorded requests on both sides and compare"


def _keep_step(ctx: Context, step: SwitchStep) -> None:
    """A step that ended is kept at once: a run that goes on after a kill still reports it."""
    kept = ctx.ledger.document("switch_steps") or {"attempt": "", "steps": []}
    ctx.ledger.set_document("switch_steps", {**kept, "steps": [*kept["steps"], step]})


def _kept_steps(ctx: Context) -> tuple[SwitchStep, ...]:
    kept = ctx.ledger.document("switch_steps") or {"steps": []}
    return tuple(SwitchStep.model_validate(s) for s in kept["steps"])


def _approved(ctx: Context, attempt: str, weight: int) -> bool:
    """May this weight be set? Where the profile says so it waits for `invoke approve`, which need not stop this run."""
    wanted = ctx.profile.switch.approve_from
    if wanted is None or weight < wanted:
        return True
    step = {"attempt": attempt, "weight": weight}
    given = ctx.ledger.document("step_approved")
    if given is not None and {k: given[k] for k in step} == step:
        ctx.progress.note(f"{'':<8} {weight} % approved: {given['reason']}")
        ctx.ledger.drop_document("waiting")
        return True
    waiting = ctx.ledger.document("waiting")
    if waiting is None or {k: waiting[k] for k in step} != step:
        ctx.ledger.set_document("waiting", {**step, "stage": "switch", "since": now()})
        ctx.progress.note(
            f"{'':<8} {weight} % waits for an approval: ./invoke approve --profile {ctx.profile.name} --reason '...'"
        )
        _notice.tell(ctx, "held", f"{weight} % waits for an approval")
    return False


def left_at(ctx: Context) -> datetime:
    """When the last weight was set: since then every user should be on the new side."""
    return max((s.at for s in _kept_steps(ctx) if s.weight == 100), default=datetime.now(UTC))


def _who_is_left(ctx: Context, world: World, since: datetime) -> Any:
    """Who still asks the old side. Nothing is decided by it here: `invoke decommission` looks again."""
    try:
        return _old_side.quiet(world, since=since, window_s=ctx.profile.operations.quiet_s)
    except InferliftError as error:
        ctx.progress.note(f"{'':<8} the old side's log was not read: {error.what}")
        return None
