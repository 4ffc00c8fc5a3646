"""What the load test measured."""

from __future__ import annotations

from datetime import datetime

from inferlift.artifacts.base import Artifact, Gate, Verdict
from inferlift.artifacts.evidence import Percentiles
from inferlift.artifacts.sizing import Sizing


class Counts(Artifact):
    """planned = sent + unsent; sent = ok + sum(errors)."""

    planned: int
    sent: int
    ok: int
    errors: dict[str, int]  # connect, tls, timeout, reset, http_4xx, http_5xx, error_event, truncated, content
    retried: int = 0  # keep-alive connections closed before the first byte, retried once

    @property
    def unsent(self) -> int:
        return self.planned - self.sent

    @property
    def balanced(self) -> bool:
        return self.sent == self.ok + sum(self.errors.values()) and self.sent <= self.planned


class Quality(Artifact):
    n: int
    correct: int
    share: float | None
    wrong: tuple[str, ...] = ()


class LoadRun(Artifact):
    """One run against one endpoint. `latencies_ms`/`ttfts_ms` are thinned for plots (<= 200 points, sorted)."""

    label: str
    started: datetime
    seconds: float
    counts: Counts
    total: Percentiles
    ttft: Percentiles | None
    tokens_out: int | None  # from the servers' usage records, never from chunks
    rate_rps: float | None  # ok requests a second
    in_flight_peak: int
    send_delay_p95_ms: float | None
    client_limited: bool
    samples: str  # path of the file with every sample (JSON lines)
    latencies_ms: tuple[float, ...] = ()
    ttfts_ms: tuple[float, ...] = ()
    in_flight: tuple[tuple[float, int], ...] = ()  # (second, in flight)
    client_limit: str = ""  # why the client itself may have moved a figure; empty: it cannot have
    loop_lag_p95_ms: float | None = None
    connections: int | None = None  # opened for all requests sent


class Measurement(Artifact):
    run: LoadRun
    saturated_rps: float | None = None  # of one replica, in the closed-loop warm-up
    origin: Percentiles  # the old side, from its log unless `origin_live`
    origin_live: LoadRun | None = None
    quality: Quality
    gates: tuple[Gate, ...]
    verdict: Verdict
    sizing: Sizing  # redone with the measured rate
