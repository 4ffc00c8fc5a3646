"""What the audit found."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from inferlift.artifacts.base import Artifact, Figure


class Percentiles(Artifact):
    """Exact, nearest rank, from every sample; None where there are too few (p95 < 20, p99 < 100 samples)."""

    n: int
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    clock: Literal["total", "first_byte", "first_token"]


class RouteFigures(Artifact):
    route: str
    n: int
    errors: int
    latency: Percentiles


class Trigger(Artifact):
    """A reason to move, as the figures see it."""

    name: str
    verdict: Literal["met", "not met", "no data"]
    figure: Figure
    threshold: float | None
    why: str


class TrafficShape(Artifact):
    """What the load test replays: gaps and sizes of real inference requests, in order, at most 5000."""

    gaps_s: tuple[float, ...]
    request_bytes: tuple[int, ...]
    routes: dict[str, float]  # route -> share
    per_minute_peak: int
    in_flight_peak: int


class LogQuality(Artifact):
    lines: int
    understood: int
    refused: int
    examples: tuple[str, ...] = ()  # "line 7: why", at most three
    notes: tuple[str, ...] = ()  # files left out, and why


class Evidence(Artifact):
    """What the old system really does."""

    start: datetime
    end: datetime
    n: int
    inference_n: int
    errors: int
    error_share: float | None
    latency: Percentiles  # of inference requests, total clock
    routes: tuple[RouteFigures, ...]
    per_minute_peak: int
    in_flight_peak: int
    triggers: tuple[Trigger, ...]
    shape: TrafficShape
    quality: LogQuality
    statuses: dict[str, int]
    # what later audits tell; null until they do
    first_byte: Percentiles | None = None
    gpu_idle_share: float | None = None
    gpu_model: str | None = None
    bill_growth_quarter: float | None = None
    bill_monthly: Figure | None = None
    growth_per_month: float | None = None
    day_curve: tuple[float, ...] | None = None
    cacheable_share: float | None = None
    oversized_share: float | None = None
    batched: bool | None = None
    model_kept_in_memory: bool | None = None
    sessions: int | None = None
