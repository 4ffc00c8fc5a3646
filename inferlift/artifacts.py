"""What flows between the stages: frozen models, and nothing else passes.

Units are part of the field names (`_ms`, `_bytes`, `_s`) or of the Figure. `None` is unknown and never zero.
Times are timezone-aware UTC.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["pass", "fail", "inconclusive"]
Basis = Literal["measured", "predicted", "assumed", "declared", "unknown"]


class Artifact(BaseModel):
    """Base: frozen, and closed against unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(Artifact):
    """One number that somebody may defend: value, unit, how it is known, from where, when, from how many samples."""

    value: float | None
    unit: str
    basis: Basis
    source: str
    at: str | None = None  # ISO date or time the figure stems from
    n: int | None = None


class Check(Artifact):
    """One line of a validator's or a verification's answer."""

    name: str
    ok: bool
    detail: str = ""
    skipped: bool = False  # not applicable here; `detail` says why. A skipped check is never proof.


class Gate(Artifact):
    """A target held against a figure."""

    name: str
    verdict: Verdict
    target: float | None
    figure: Figure
    why: str


# --- the old and the new world -------------------------------------------------------------------------------


class Route(Artifact):
    """A path the users call, and what the new server calls it."""

    path: str  # as users call it, e.g. /api/chat
    upstream: str  # as the app behind the gateway calls it, e.g. /v1/chat/completions


class Contract(Artifact):
    """What users rely on. File fields are paths on the operator's machine; secrets are references."""

    name: str  # the DNS name users call
    certificate: str  # path, PEM chain for `name`
    certificate_key: str  # secret reference, e.g. file:/path
    ca: str | None = None  # path of the CA the clients trust; None: the system's
    key_header: str  # e.g. X-Api-Key
    key: str  # secret reference
    routes: tuple[Route, ...]
    max_body_bytes: int = 65536


class Host(Artifact):
    """A machine that Ansible reaches over SSH. `expected` is hardware the plan counts on, checked by validators."""

    name: str
    role: Literal["gateway", "model", "monitor", "origin", "authority", "resolver"]
    address: str
    user: str = "root"
    ssh_port: int = 22
    ssh_key: str  # path of the private key on the operator's machine
    host_key: str  # "ssh-ed25519 AAAA...": pinned, never learned on first use
    site: str = "lab"
    cpus: float | None = None
    memory_bytes: int | None = None
    gpu: str | None = None
    container: str | None = None  # podman id in the lab, instance id on a cloud


class World(Artifact):
    """The lab's old world: what exists before the migration."""

    label: str  # owner label value, unique to the clone and the profile
    network: str
    subnet: str
    origin: Host
    authority: Host
    resolver: Host
    contract: Contract
    zone: str  # e.g. demo.test.
    dns_api: str  # http(s) URL of the PowerDNS API
    dns_key: str  # secret reference
    ttl_s: int
    log_glob: str  # access logs on the origin host
    body_log: str  # request bodies as JSON lines on the origin host, for the parity replay
    data_path: str  # read-only data folder on the origin host
    dockerfile: str  # Alpine Dockerfile on the operator's machine
    requests_sent: int = 0  # real requests sent to the old side before the audit


# --- audit ---------------------------------------------------------------------------------------------------


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


# --- size ----------------------------------------------------------------------------------------------------


class Memory(Artifact):
    weights_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    overhead_bytes: int
    total_bytes: int
    explain: tuple[str, ...]  # the formulas with the numbers in them


class Offer(Artifact):
    """One kind of host. Sizes are None where the profile says them (lab) or nobody does (own hosts)."""

    name: str
    gpu: str | None = None  # as the cloud's API calls it
    gpu_count: int = 0
    gpu_fraction: float = 1.0  # below 1: a slice of one GPU
    vram_mib: int | None = None  # usable, of one GPU
    vcpu: float | None = None
    ram_gib: float | None = None
    usd_per_hour: float | None = None  # on demand, the compute alone; None: unknown
    region: str | None = None
    offered: bool | None = None  # in that region; None: unknown
    source: str
    date: str
    note: str = ""


class OfferResult(Artifact):
    offer: str  # instance type, or "lab host 0.7 CPU"
    fits: bool
    replicas: int | None
    usd_per_hour: Figure
    per_1000: Figure  # in the profile's currency
    reason: str  # why chosen or rejected


class Sizing(Artifact):
    verdict: Literal["go", "conditional", "defer", "stay", "optimise-first", "buy-as-service"]
    why: str
    memory: Memory
    peak_rps: Figure  # requests a second to be served at the peak
    rate_per_replica: Figure  # requests/s, predicted by `size`, measured after `load`
    replicas: int  # for the peak, without the spare
    spare: int  # N+1
    offers: tuple[OfferResult, ...]
    choice: str
    cost_per_hour: Figure
    cost_per_1000: Figure
    currency: str
    notes: tuple[str, ...] = ()


# --- build ---------------------------------------------------------------------------------------------------


class LineChange(Artifact):
    line: int
    before: str
    after: str
    why: str


class Image(Artifact):
    name: str
    digest: str  # sha256:... of the manifest in the OCI archive
    archive: str  # path of the OCI archive on the operator's machine
    bytes: int
    base: str
    dockerfile: str  # path of the rewritten Dockerfile
    changes: tuple[LineChange, ...]
    checks: tuple[Check, ...]


class Images(Artifact):
    images: tuple[Image, ...]


# --- poc, scale ----------------------------------------------------------------------------------------------


class HostGroup(Artifact):
    role: Literal["gateway", "model", "monitor"]
    count: int = Field(ge=0)
    cpus: float
    memory_bytes: int
    site: str = "lab"


class DesiredFleet(Artifact):
    """The one fleet document. Floors by stage: nobody shrinks below another stage's floor by accident."""

    label: str  # owner label value of every resource of the fleet
    groups: tuple[HostGroup, ...]
    floors: dict[str, int]  # stage -> model hosts it needs


class Endpoint(Artifact):
    site: str
    address: str
    port: int = 443


class Fleet(Artifact):
    """What a target made of the desired fleet."""

    label: str
    network: str | None
    subnet: str | None
    hosts: tuple[Host, ...]
    endpoints: tuple[Endpoint, ...]
    registry: str | None = None
    generation: str  # digest of the hosts' identities: changes when a host is replaced

    def by_role(self, role: str) -> tuple[Host, ...]:
        return tuple(h for h in self.hosts if h.role == role)


class Configured(Artifact):
    """One playbook run, judged by the hosts expected."""

    hosts: dict[str, dict[str, int]]  # host -> {ok, changed, failed, unreachable, skipped}
    changed: int
    seconds: float
    skipped: tuple[str, ...] = ()  # what a role said it could not do here, and why


class Service(Artifact):
    """A serving endpoint, proved by real completions in a row."""

    fleet: Fleet
    configured: Configured
    endpoint: Endpoint
    contract: Contract
    replicas: int
    checks: tuple[Check, ...]
    monitor_url: str
    monitor_user: str
    monitor_password: str  # secret reference
    ca: str  # path of the CA of the fleet's own endpoints
    versions: dict[str, str] = {}


# --- load ----------------------------------------------------------------------------------------------------


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


# --- migrate, scale, switch, watch ---------------------------------------------------------------------------


class TransferPass(Artifact):
    files: int
    bytes_total: int
    bytes_sent: int
    seconds: float


class Transfer(Artifact):
    source: str
    destinations: tuple[str, ...]
    manifest: str  # sha256 over the sorted (path, size, sha256) lines
    files: int
    bytes: int
    passes: tuple[TransferPass, ...]
    checks: tuple[Check, ...]


class Scaled(Artifact):
    service: Service
    sizing: Sizing
    acceptance: LoadRun
    deadline_s: float
    with_loss: LoadRun  # one replica killed in the middle
    lost_host: str
    in_flight_on_lost: int  # at the kill: an upper bound for the failures allowed
    gates: tuple[Gate, ...]


class ParityCase(Artifact):
    request: str
    same: bool
    detail: str


class SwitchStep(Artifact):
    weight: int  # of the new side, percent
    at: datetime
    authority_share: float | None  # of answers that named the new side
    asked: int
    resolver_answers: tuple[str, ...]
    gates: tuple[Gate, ...]
    seconds: float


class UserCounts(Artifact):
    """What users saw during the switch."""

    client: str  # "resolving" | "keep-alive"
    old: int
    new: int
    failed: int


class Cutover(Artifact):
    name: str
    old: str
    new: str
    ttl_before_s: int
    ttl_s: int
    steps: tuple[SwitchStep, ...]
    parity: tuple[ParityCase, ...]
    rehearsed_rollback_s: float | None
    users: tuple[UserCounts, ...]
    rolled_back: bool
    rollback_s: float | None = None
    why: str = ""


class Series(Artifact):
    name: str
    unit: str
    points: tuple[tuple[float, float], ...]  # (unix seconds, value)


class Watch(Artifact):
    start: datetime
    end: datetime
    gates: tuple[Gate, ...]
    figures: dict[str, Figure]
    series: tuple[Series, ...]
    verdict: Verdict
    why: str


class Status(StrEnum):
    """How a stage stands in the ledger."""

    DONE = "done"
    SKIPPED = "skipped"
    NOT_APPLICABLE = "not applicable"
    HELD = "held"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    PENDING = "pending"
