"""What the audit found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator

from inferlift.artifacts.base import Artifact, Figure

# Share of the requests in each hour of the day, UTC: 24 numbers that come to 1.
HourShares = Annotated[tuple[float, ...], AfterValidator(lambda shares: _whole_day(shares))]


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
    per_s: float | None = None  # mean over the whole span
    first_byte: Percentiles | None = None
    sent_bytes: int | None = None
    inference: bool = True


class HourFigures(Artifact):
    """Inference requests of one hour: of the calendar (2026-10-10T13, UTC), or of the day where the log is long."""

    hour: str
    n: int
    errors: int
    latency: Percentiles
    statuses: dict[str, int] | None = None
    sent_bytes: int | None = None  # null where none is logged; by the hour of the stamp


class Extrapolation(Artifact):
    """What a straight line through (requests in flight, latency) says about more users than the log ever saw.

    Intervals are 95 %, from a jackknife over stretches of time: requests that follow each other are alike.
    """

    users: int
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    error_share: float | None
    error_low: float | None
    error_high: float | None
    most_in_flight: int  # that the log saw
    ms_per_request_in_flight: float | None
    n: int
    stretches: int
    why: str = ""


class Trigger(Artifact):
    """A reason to move, as the figures see it."""

    name: str
    verdict: Literal["met", "not met", "no data"]
    figure: Figure
    threshold: float | None
    why: str


class Finding(Artifact):
    """Something in the software that is cheaper to change than the hardware."""

    name: str
    verdict: Literal["found", "not found", "no data"]
    figure: Figure
    why: str
    advice: str = ""


class TrafficShape(Artifact):
    """What the load test replays: gaps and sizes of real inference requests, in order, at most 5000."""

    gaps_s: tuple[float, ...]
    request_bytes: tuple[int, ...]
    routes: dict[str, float]  # route -> share
    per_minute_peak: int
    in_flight_peak: int
    arrivals_by_hour: HourShares | None = None  # of the inference requests
    dispersion: float | None = None  # variance over mean of arrivals in 10 s: 1 is random, above is bursty
    request_bytes_p50: float | None = None
    request_bytes_p95: float | None = None


class LogQuality(Artifact):
    lines: int
    understood: int
    refused: int
    examples: tuple[str, ...] = ()  # "line 7: why", at most three
    notes: tuple[str, ...] = ()  # files left out, and why; what was assumed
    questions: tuple[str, ...] = ()  # what the log does not say and only its owner knows
    formats: dict[str, int] | None = None  # lines of each
    without_duration: int | None = None  # inference requests
    gaps: tuple[str, ...] = ()  # the longest silences
    steps_back: int | None = None  # times that the clock went backwards
    largest_step_back_s: float | None = None
    zones: tuple[str, ...] = ()
    repeated_lines: int | None = None  # the same line again within a block of 2 MiB


class GpuUse(Artifact):
    """GPU use over time, from nvidia-smi, dmon, DCGM or Prometheus.

    Utilisation is the share of time in which any kernel ran, not how much of the GPU it used (NVML).
    """

    source: str
    gpus: int
    samples: int
    models: tuple[str, ...]
    idle_share: float | None  # of the samples with a utilisation
    mean_percent: float | None
    p95_percent: float | None
    memory_used_max_mib: float | None
    memory_used_min_mib: float | None
    memory_total_mib: float | None
    power_mean_w: float | None
    without_value: int  # samples that say [N/A] or the like
    seconds: float | None  # covered; null where the readings carry no time
    # true: the figures are of the readings in the log's own time; false: none lies in it; null: no times to tell by
    matched: bool | None = None
    start: datetime | None = None
    end: datetime | None = None
    notes: tuple[str, ...] = ()


class ServerMetrics(Artifact):
    """What a model server counted since it started (vLLM or Triton)."""

    server: str
    requests: int | None
    failed: int | None
    over_500_share: float | None  # exact from a bucket that ends at 500 ms, else null
    clock: Literal["total", "first_byte", "first_token"] | None
    mean_ms: float | None
    queue_mean_ms: float | None
    batch_mean: float | None
    prefix_hit_share: float | None
    waiting: float | None
    notes: tuple[str, ...] = ()


class Bill(Artifact):
    months: tuple[tuple[str, float], ...]  # (2026-10, amount)
    currency: str
    growth_quarter: float | None  # last month over the one three months before, minus 1
    notes: tuple[str, ...] = ()


class HostLook(Artifact):
    """A live look at the old host. Null: the host could not say."""

    host: str
    at: str
    cores: int | None = None
    load_1m: float | None = None
    cpu_busy_share: float | None = None
    io_wait_share: float | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    disk_read_mb_s: float | None = None
    network_mb_s: float | None = None
    network_limit_mb_s: float | None = None
    gpus: tuple[str, ...] | None = None
    driver: str | None = None
    gpu_percent: float | None = None
    model_processes: tuple[str, ...] = ()
    model_kept_in_memory: bool | None = None
    notes: tuple[str, ...] = ()


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
    day_curve: HourShares | None = None
    cacheable_share: float | None = None
    oversized_share: float | None = None
    batched: bool | None = None
    model_kept_in_memory: bool | None = None
    sessions: int | None = None
    # false: the log has no times, so start, end and all that needs a clock are not known (per_minute_peak is no figure)
    stamped: bool = True
    guessed_routes: bool = False  # which requests are inference was guessed, not declared
    other_routes: tuple[RouteFigures, ...] = ()
    hours: tuple[HourFigures, ...] = ()
    in_flight_curve: tuple[tuple[float, int], ...] = ()  # (seconds since start, most in flight in that slice)
    # the least and the most that may have been in flight at once, where stamps are whole seconds; null where they are
    # finer, so that in_flight_peak is exact
    in_flight_bounds: tuple[int, int] | None = None
    rate_curve: tuple[tuple[float, float], ...] = ()  # (seconds since start, inference requests a second in that slice)
    at_1000: Extrapolation | None = None
    findings: tuple[Finding, ...] = ()  # software first
    sent_bytes: int | None = None
    gpu: GpuUse | None = None
    servers: tuple[ServerMetrics, ...] = ()
    bill: Bill | None = None
    host: HostLook | None = None


def _whole_day(shares: tuple[float, ...]) -> tuple[float, ...]:
    if len(shares) != 24:
        raise ValueError(f"expected 24 shares, one an hour, got {len(shares)}")
    if not all(0 <= share <= 1 for share in shares) or not abs(sum(shares) - 1) <= 0.01:
        raise ValueError(f"expected shares of a day that come to 1, got {sum(shares):.4g} in all")
    return shares
