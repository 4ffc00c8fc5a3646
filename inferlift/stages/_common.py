"""What several stages need of the profile."""

from __future__ import annotations

from typing import Any

from inferlift.stages.base import Context


def sizing_part(ctx: Context) -> dict[str, Any]:
    p = ctx.profile
    return {
        "model": p.model, "server": p.server, "requests": p.requests, "targets": p.targets,
        "operations": p.operations, "budget": p.budget, "task": p.task, "target": p.target, "network": p.network,
        "data": p.data, "hosting": p.hosting, "static": p.static, "tco": p.tco,
        "lab": [p.lab.model_cpus, p.lab.model_memory_mb] if p.lab else None,
    }  # fmt: skip


def questions(ctx: Context) -> tuple[str, ...]:
    """The questions that are asked, one a line."""
    path = ctx.root / "profiles" / "demo" / "questions.txt"
    return (
        tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()) if path.exists() else ()
    )
