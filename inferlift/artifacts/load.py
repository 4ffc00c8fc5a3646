"""What the load test measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from inferlift.artifacts.base import Artifact, Gate, Verdict
from inferlift.artifacts.evidence import Percentiles
from inferlift.artifacts.sizing import Sizing


class Counts(Artifact):
    """planned = sent + unsent; sent = ok + sum(errors)."""

    planned: int
    sent: int
    ok: int
    # connect, tls, timeout, reset, http_4xx, http_5xx, error_event, truncated, content, interrupted
    errors: dict[str, int]
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
    range: tuple[float, float] | None = None  # 95 % range of the share (Wilson)
    kinds: dict[str, tuple[int, int]] = Field(default_factory=dict)  # check -> (right, asked)


class Spread(Artifact):
    """A measured distribution in ms: nearest rank; None where there are too few (p90 < 10, p95 < 20, p99 < 100)."""

    n: int
    p50_ms: float
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float


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
    protocol: str = "chat"
    users: int | None = None  # of a closed loop
    offered_rps: float | None = None  # of an open loop
    connect: Spread | None = None  # of each connection opened
    tls: Spread | None = None
    first_content: Spread | None = None  # first token of the answer itself, after any reasoning
    gaps: Spread | None = None  # between two texts of one answer, in steps of 0.01 ms
    per_token: Spread | None = None  # (last token - first) / (tokens - 1), tokens by the server's usage record
    total_p95_range_ms: tuple[float, float] | None = None  # 95 % confidence, by order statistics
    ttft_p95_range_ms: tuple[float, float] | None = None
    prompt_tokens: int | None = None
    tokens_per_s: float | None = None
    goodput_share: float | None = None  # answers within the given limits, over all planned
    goodput_rps: float | None = None
    cpu_share: float | None = None  # of one core, by the sending loop
    kernel_times: bool | None = None  # whether arrivals carry the kernel's time, and not the client's own
    body: Any = None  # of the first request, as it went out
    failures: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # class of error -> its first details
    workers: int | None = None  # Locust workers that sent; None: this process
    starved: int = 0  # of the connect errors: requests for which the client's own machine had no socket
    behind: str = ""  # why an open loop's rate was not kept up; empty: it was, or there was none
    prefix_cache: str = ""  # what a server's cache of prompt beginnings can have done to the figures


class Measurement(Artifact):
    run: LoadRun
    saturated_rps: float | None = None  # of one replica, in the closed-loop warm-up
    origin: Percentiles  # the old side, from its log unless `origin_live`
    origin_live: LoadRun | None = None
    quality: Quality
    gates: tuple[Gate, ...]
    verdict: Verdict
    sizing: Sizing  # redone with the measured rate
