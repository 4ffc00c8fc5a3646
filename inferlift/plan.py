"""What would be done and what it costs, as one document with a hash; two approvals are held against it.

The first approval covers build, poc and load (money is spent), the second migrate, scale and switch (more money,
users are moved) and is made on measured numbers.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Literal

from inferlift.artifacts import Figure, Measurement, Sizing, Status
from inferlift.errors import Held, Refusal
from inferlift.ledger import digest
from inferlift.migration import ORDER, Approver, release, stages
from inferlift.stages.base import Context, Stage

Part = Literal["first", "second"]
COVERS: dict[Part, tuple[str, ...]] = {"first": ("build", "poc", "load"), "second": ("migrate", "scale", "switch")}
PRICE_TOLERANCE = 1.05  # prices within 5 % are the same plan


def document(ctx: Context, part: Part) -> dict[str, Any]:
    """Everything an approval stands for. Prices in steps of 5 %, unknowns typed as unknown."""
    measured = ctx.optional("load", Measurement) if part == "second" else None
    sizing = measured.sizing if measured else ctx.optional("size", Sizing)
    return {
        "profile": digest(ctx.profile),
        "target": ctx.profile.target,
        "stages": list(COVERS[part]),
        "verdict": sizing.verdict if sizing else "unknown: size has not run",
        "choice": sizing.choice if sizing else "unknown: size has not run",
        "replicas": [sizing.replicas, sizing.spare] if sizing and part == "second" else [1, 0],
        "cost per hour": _tolerant(sizing.cost_per_hour) if sizing else "unknown: size has not run",
        "gates": [[g.name, g.verdict] for g in measured.gates] if measured else [],
    }


def next_part(ctx: Context) -> Part:
    """The approval that comes next: the second once the load test is done."""
    row = ctx.ledger.stage("load")
    return "second" if row is not None and row.status is Status.DONE else "first"


def plan_hash(doc: dict[str, Any]) -> str:
    return digest(doc)[:12]


def show(ctx: Context) -> tuple[list[str], dict[str, Any]]:
    """The plan in lines, and the document with its hash. Changes nothing.

    On a target that costs money its account is asked first. Raises Refusal where nobody is signed in.
    """
    from inferlift.stages import _account

    account = _account.ask(ctx)
    table, lines = stages(), []
    # a service that exists is looked at first; the lab's old world is nobody's
    for name in ("world", *ORDER) if ctx.profile.origin is not None else ORDER:
        row = ctx.ledger.stage(name)
        state = row.status.value if row else Status.PENDING.value
        ctx.stage = name
        if row is not None and row.status in (Status.DONE, Status.NOT_APPLICABLE):
            lines.append(f"{name:<8} [{state}] {row.message or 'verified by the next deploy, repeated where it moved'}")
            continue
        if (why := table[name].applicable(ctx)) is not None:
            lines.append(f"{name:<8} not applicable: {why}")
            continue
        lines.append(f"{name:<8} [{state}]")
        lines += [f"{'':<10}{line}" for line in table[name].preview(ctx)]
    if account.checks:
        lines += ["account, for the fleet at its full size", *_account.lines(account)]
    part = next_part(ctx)
    doc = document(ctx, part)
    measured = ctx.optional("load", Measurement)
    sizing = measured.sizing if measured else ctx.optional("size", Sizing)
    lines.append("")
    if sizing is None:
        lines.append("cost      unknown until the audit and the sizing have run (./invoke size)")
    else:
        lines.append(f"cost      {money(sizing.cost_per_hour)}, {money(sizing.cost_per_1000)}")
        lines.append(f"verdict   {sizing.verdict}: {sizing.why}")
    lines.append(f"approval  the {part} one covers {', '.join(COVERS[part])}; plan {plan_hash(doc)}")
    more = {"account": [c.model_dump() for c in account.checks], "usd_per_hour": account.usd_per_hour}
    return lines, {"hash": plan_hash(doc), "part": part, **doc, **(more if account.checks else {})}


def approver(*, ask: bool, given: str | None) -> Approver:
    """The lab approves itself unless `ask`; elsewhere a terminal or `--plan HASH`."""

    def approve(ctx: Context, stage: Stage) -> None:
        if stage.approval == "none":
            return
        row = ctx.ledger.stage(stage.name)
        if row is not None and row.status is Status.DONE:
            return
        part = stage.approval
        _hold_on_verdict(ctx, part)
        doc = document(ctx, part)
        known = ctx.ledger.document(f"approval:{part}")
        by = f"approved_by:{part}"
        if ask and known is not None and ctx.ledger.document(by) == "the lab":
            known = None  # approved by itself; who asks is asked
        if known == doc:
            if given is not None:
                _match(ctx, doc, given)
            return
        if known is not None and ask:
            moved = [k for k in doc if doc[k] != known.get(k)]
            raise_moved(ctx, part, moved, known, doc, given)
        elif given is not None:
            _match(ctx, doc, given)
        elif ask:
            _ask(ctx, part, doc)
        ctx.ledger.set_document(f"approval:{part}", doc)
        ctx.ledger.set_document(by, "the operator" if ask or given is not None else "the lab")

    return approve


def raise_moved(
    ctx: Context, part: Part, moved: list[str], known: dict[str, Any], doc: dict[str, Any], given: str | None
) -> None:
    """What moved since the approval is named and refused, unless the new plan's own hash is given."""
    if given is not None and _is(given, doc):
        return
    raise Refusal(
        f"the {part} approval no longer holds",
        why="; ".join(f"{k}: approved {known.get(k)!r}, now {doc[k]!r}" for k in moved),
        next_command=f"./invoke plan --profile {ctx.profile.name}, then deploy --plan {plan_hash(doc)}",
    )


def money(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{figure.value:.4g} {figure.unit} ({figure.basis})"


def _match(ctx: Context, doc: dict[str, Any], given: str) -> None:
    if not _is(given, doc):
        raise Refusal(
            f"plan {given} is not the plan as things stand ({plan_hash(doc)})",
            why="the profile, the prices, the measured numbers or the stages differ from what was approved",
            next_command=f"./invoke plan --profile {ctx.profile.name}",
        )


def _is(given: str, doc: dict[str, Any]) -> bool:
    """A hash may be shortened, but not to where chance would match."""
    return len(given) >= 6 and plan_hash(doc).startswith(given)


def _ask(ctx: Context, part: Part, doc: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        # the second comes after money was spent: the run is held there, not refused
        raise (Refusal if part == "first" else Held)(
            f"the {part} approval is needed and there is no terminal to ask on",
            why=f"it covers {', '.join(COVERS[part])}",
            next_command=f"./invoke deploy --profile {ctx.profile.name} --ask --plan {plan_hash(doc)}",
        )
    for key, value in doc.items():
        ctx.progress.note(f"  {key:<14} {_readable(value)}")
    ctx.progress.note(f"Approve plan {plan_hash(doc)} ({', '.join(COVERS[part])})? Type yes and Enter.")
    if sys.stdin.readline().strip().lower() != "yes":
        raise Held(
            f"plan {plan_hash(doc)} was not approved",
            next_command=f"./invoke deploy --profile {ctx.profile.name} --ask",
        )


def _hold_on_verdict(ctx: Context, part: Part) -> None:
    """Only go passes on. The second approval goes by the measured sizing; each verdict is overruled for itself."""
    measured = ctx.optional("load", Measurement) if part == "second" else None
    sizing = measured.sizing if measured else ctx.optional("size", Sizing)
    if sizing is None or sizing.verdict == "go" or ctx.overruled("size", sizing.why):
        release(ctx.ledger, "size")
        return
    ctx.ledger.set_document("held", {"stage": "size", "why": sizing.why})
    raise Held(
        f"the verdict is {sizing.verdict}",
        why=sizing.why,
        next_command=f"./invoke approve --profile {ctx.profile.name} --reason '...'",
    )


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(": ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value) or "none yet"
    return f"{value[:12]}..." if isinstance(value, str) and len(value) == 64 else str(value)


def _tolerant(figure: Figure) -> str:
    if figure.value is None:
        return f"unknown ({figure.source})"
    if figure.value == 0:
        return f"0 {figure.unit}"
    step = round(math.log(figure.value) / math.log(PRICE_TOLERANCE))
    return f"about {PRICE_TOLERANCE**step:.3g} {figure.unit}"
