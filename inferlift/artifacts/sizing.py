"""What is needed and what that costs."""

from __future__ import annotations

from typing import Literal

from inferlift.artifacts.base import Artifact, Figure


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
