"""size: what the workload needs and what that costs -> Sizing."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Artifact, Check, Evidence, Sizing
from inferlift.ledger import digest
from inferlift.stages._common import sizing_part
from inferlift.stages._plan import offers_of, planned, services_of
from inferlift.stages.base import Context, Stage


class SizeStage(Stage):
    name = "size"
    artifact = Sizing

    def key(self, ctx: Context) -> dict[str, Any]:
        from inferlift.sizing import evidence_inputs

        evidence = ctx.optional("audit", Evidence)
        return {
            "profile": sizing_part(ctx),
            # only what the sizing reads: a re-audit that changes none of it stops here
            "evidence": None if evidence is None else evidence_inputs(evidence),
            "prices": digest([offers_of(ctx.profile), [[s.name, s.per_1000] for s in services_of(ctx.profile)]]),
        }

    def preview(self, ctx: Context) -> list[str]:
        return ["compute memory, replicas and cost from the profile and the evidence; nothing is changed"]

    def run(self, ctx: Context) -> Sizing:
        return compute(ctx)

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        same = compute(ctx) == artifact
        return [Check(name="sizing", ok=same, detail="computed again: the same" if same else "computed again: differs")]

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Sizing)  # noqa: S101
        return describe(artifact)


def compute(ctx: Context) -> Sizing:
    return planned(ctx.profile, ctx.optional("audit", Evidence))


def describe(sizing: Sizing) -> str:
    cost = sizing.cost_per_1000.value
    return (
        f"{sizing.verdict}: {sizing.replicas}+{sizing.spare} x {sizing.choice}, "
        f"{'cost unknown' if cost is None else f'{cost:.4f} {sizing.currency} per 1000'} "
        f"({sizing.cost_per_1000.basis})"
    )
