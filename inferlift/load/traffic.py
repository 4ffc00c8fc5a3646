"""The real traffic of the old world: what is sent before the audit looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from inferlift.artifacts import LoadRun
from inferlift.load.client import LoadPlan, run
from inferlift.load.protocols import Protocol
from inferlift.load.target import Target


def drive(
    target: Target,
    requests: int,
    users: int,
    prompts: Sequence[str],
    samples: Path,
    *,
    max_tokens: int = 8,
    deadline_s: float = 900.0,
    say: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
    protocol: Protocol | None = None,
) -> LoadRun:
    """`requests` real requests by `users` at once, each waiting for its answer (closed loop)."""
    plan = LoadPlan(
        target=target,
        requests=requests,
        prompts=prompts,
        samples=samples,
        users=users,
        max_tokens=max_tokens,
        request_timeout_s=target.timeout_s,
        deadline_s=deadline_s,
        label="traffic",
        protocol=protocol,
    )
    return run(plan, say, stop)
