"""What a report is made of: the artifacts found so far, how the stages stand, and what people decided.

Everything but the profile's summary may be missing: a partial run has a report too.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from inferlift.artifacts import (
    Artifact,
    Cutover,
    Evidence,
    Gate,
    Images,
    LoadRun,
    Measurement,
    Quality,
    Scaled,
    Service,
    Sizing,
    Status,
    SwitchStep,
    Transfer,
    Watch,
    World,
)

STAGES = ("audit", "size", "build", "poc", "load", "migrate", "scale", "switch", "watch")


class ProfileSummary(Artifact):
    """What was declared, as far as the report speaks of it. None is "not declared"."""

    name: str
    description: str = ""
    target: str
    model: str
    parameters: int | None = None
    server: str
    requests_in_flight: int | None = None
    per_minute_peak: float | None = None
    p95_ttft_ms: float | None = None
    p95_total_ms: float | None = None
    min_tokens_per_s: float | None = None
    error_share: float | None = None
    quality: float | None = None
    max_cost_per_1000: float | None = None
    currency: str = ""
    usd_rate: float | None = None
    usd_rate_source: str = ""
    usd_rate_date: str = ""
    data_state: str = ""


class StageRow(Artifact):
    """How one stage stands. `summary` is its own line about its result, empty where there is none."""

    name: str
    status: Status = Status.PENDING
    seconds: float | None = None
    started: str | None = None  # ISO time, UTC
    finished: str | None = None  # ISO time, UTC
    message: str = ""
    summary: str = ""


class Approval(Artifact):
    """One plan that was approved: what it stood for. `part` is first or second."""

    part: str
    hash: str
    covers: tuple[str, ...] = ()
    document: dict[str, Any] = Field(default_factory=dict)


class Overruled(Artifact):
    """A verdict that a person overruled, with the reason given."""

    stage: str
    reason: str
    at: str | None = None
    overruled: str = ""


class Attempt(Artifact):
    """What a stage measured that did not end done: shown, and never mixed with accepted results."""

    stage: str
    runs: tuple[LoadRun, ...] = ()
    quality: Quality | None = None
    gates: tuple[Gate, ...] = ()
    deadline_s: float | None = None
    lost_host: str | None = None
    steps: tuple[SwitchStep, ...] = ()


class FaultRow(Artifact):
    """One fault that was rehearsed here, and how it ended; `seconds` until the command that met it had ended."""

    fault: str
    what: str
    typed: str
    outcome: str
    exit: int | None
    expected_exit: int
    users: str
    seconds: float
    ok: bool


class Rollback(Artifact):
    """Users taken back to the old side on command."""

    at: str
    seconds: float | None = None


class ReportData(Artifact):
    """Everything a report can show. `notes` name what could not be read."""

    generated: str  # ISO time, UTC
    version: str
    profile: ProfileSummary
    stages: tuple[StageRow, ...] = ()
    world: World | None = None
    evidence: Evidence | None = None
    sizing: Sizing | None = None
    images: Images | None = None
    service: Service | None = None
    measurement: Measurement | None = None
    transfer: Transfer | None = None
    scaled: Scaled | None = None
    cutover: Cutover | None = None
    watch: Watch | None = None
    faults: tuple[FaultRow, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    # LoadRun.samples -> (second, answers a second)
    rates: dict[str, tuple[tuple[float, float], ...]] = Field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()
    overruled: tuple[Overruled, ...] = ()
    held: dict[str, Any] | None = None  # {stage, why}
    rollback: Rollback | None = None
    lock: dict[str, Any] = Field(default_factory=dict)
    price_notes: tuple[str, ...] = ()  # what there is to say of the age of the prices that the plan stands on
    notes: tuple[str, ...] = ()

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one that the ledger does not know is pending."""
        return next((row for row in self.stages if row.name == name), StageRow(name=name))

    def rows(self) -> tuple[StageRow, ...]:
        """The nine stages in their order, whatever the ledger holds."""
        return tuple(self.stage(name) for name in STAGES)

    def attempt(self, stage: str) -> Attempt | None:
        return next((a for a in self.attempts if a.stage == stage), None)
