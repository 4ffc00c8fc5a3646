"""The end of the old side: offered only when its own log is quiet, shown before it is done, and taken back on command.

Until then it stays as the way back. Nothing is deleted: in the lab its services are stopped; elsewhere the steps are
text for whoever runs that host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferlift import ssh
from inferlift.artifacts import Cutover, Status, World
from inferlift.artifacts.cutover import Quiet
from inferlift.errors import CheckFailed, Refusal
from inferlift.ledger import now
from inferlift.stages import _fleet, _guarding, _old_side
from inferlift.stages._raised import origin_services
from inferlift.stages.base import Context
from inferlift.stages.switch import SwitchStage, left_at

DOCUMENT = "decommissioned"
MOST_NAMED = 10  # clients that a refusal lists


@dataclass(frozen=True)
class Step:
    """`do` None: somebody does it by hand. `back`: how it is taken back, in words."""

    text: str
    back: str
    do: Callable[[], object] | None = None


def offered(ctx: Context) -> Quiet:
    """What the old side's log says, when the end may be offered.

    Raises Refusal naming what stands against it: users are not all moved, the watch has not passed, or clients still
    come (by address and agent). Raises Retryable when the log cannot be read: that is no quiet one.
    """
    again = f"./invoke decommission --profile {ctx.profile.name}"
    cutover = ctx.optional("switch", Cutover)
    for name in ("switch", "watch"):
        row = ctx.ledger.stage(name)
        if row is None or row.status is not Status.DONE or cutover is None:
            raise Refusal(
                f"the old side is the way back: {name} is {'pending' if row is None else row.status.value}",
                why=row.message if row is not None else "",
                next_command=f"./invoke deploy --profile {ctx.profile.name}",
            )
    assert cutover is not None  # noqa: S101
    if bad := [c for c in SwitchStage().verify(ctx, cutover) if not c.ok]:
        raise Refusal(
            "users are not all on the new side",
            why="; ".join(f"{c.name}: {c.detail}" for c in bad),
            next_command=f"./invoke status --profile {ctx.profile.name}",
        )
    seen = _old_side.quiet(ctx.need("world", World), since=left_at(ctx), window_s=ctx.profile.operations.quiet_s)
    ctx.ledger.set_document("old_side", seen)
    if not seen.quiet:
        raise Refusal(
            f"the old side is not quiet yet: {seen.why}",
            why="; ".join(
                f"{c.address} ({c.agent}): {c.requests} requests, the last {c.last:%H:%M:%S}"
                for c in seen.clients[:MOST_NAMED]
            )
            or "nobody came since users left, but not for long enough",
            next_command=f"talk to those clients or wait, then {again}",
        )
    return seen


def steps(ctx: Context) -> list[Step]:
    """What is done to the old side, in this order."""
    world = ctx.need("world", World)
    monitors = _fleet.current(ctx).fleet.by_role("monitor")
    host = f"{world.origin.user}@{world.origin.address}"
    found = [
        Step(
            f"{m.name}: stop the guard; it would give users to a side that is off",
            "the next switch starts it",
            lambda m=m: _guarding.stop(m),  # type: ignore[misc]
        )
        for m in monitors
    ]
    if ctx.profile.raised is None:
        name = world.contract.name
        return [*found, Step(f"by hand, on {host}: stop what answers {name} there",
                             "start it again there, then it answers a request")]  # fmt: skip
    lab, units = ctx.profile.target == "lab", " ".join(origin_services(ctx))
    command = f"systemctl disable --now {units}"
    return [
        *found,
        Step(
            f"{world.origin.name}: {command}" if lab else f"by hand, on {host}: {command}",
            f"systemctl enable --now {units}, then it answers a request",
            (lambda: ssh.run(world.origin, command)) if lab else None,
        ),
    ]


def decommission(ctx: Context, *, apply: bool) -> tuple[Quiet | None, list[Step]]:
    """What would be done, and with `apply` do it. A second time it does nothing. Raises what `offered` raises."""
    ctx.stage, ctx.key = "switch", "decommission"
    known = ctx.ledger.document(DOCUMENT)
    seen = None if known is not None and known["done"] else offered(ctx)
    planned = steps(ctx)
    if not apply or seen is None:
        return seen, planned
    # Said before it is done: after a kill in between, the way back starts the old side first.
    ctx.ledger.set_document(DOCUMENT, {"at": now(), "done": False})
    for step in planned:
        with ctx.intent("decommission", step.text, {}, {"back": step.back}):
            if step.do is not None:
                step.do()
    ctx.ledger.set_document(DOCUMENT, {"at": now(), "done": True})
    return seen, planned


def undo(ctx: Context, *, wait_s: float = 90) -> bool:
    """The old side runs again and answers; False where it was not taken away. Raises CheckFailed when it does not."""
    from inferlift.load import probe

    if ctx.ledger.document(DOCUMENT) is None:
        return False
    world = ctx.need("world", World)
    if ctx.profile.target == "lab" and ctx.profile.raised is not None:
        ssh.run(world.origin, f"systemctl enable --now {' '.join(origin_services(ctx))}")
    target: Any = _fleet.origin_target(ctx)
    bad = [c for c in probe.complete(target, 2, ctx.say, wait_s=wait_s) if not c.ok]
    if bad:
        raise CheckFailed(
            "the old side was started and does not answer, so it is no way back yet",
            why=bad[0].detail,
            next_command=f"look at {world.origin.name}, then ./invoke decommission --profile {ctx.profile.name} --undo",
        )
    ctx.ledger.drop_document(DOCUMENT)
    return True
