"""What is needed and what that costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from inferlift.artifacts.base import Artifact, Figure
from inferlift.artifacts.cost import Costs, Tco
from inferlift.artifacts.planning import Batching, Chain, CompatCheck, Interval, Timeline

Verdict = Literal["go", "conditional", "defer", "stay", "optimise-first", "buy-as-service"]


class Memory(Artifact):
    weights_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    overhead_bytes: int
    total_bytes: int
    explain: tuple[str, ...]  # the formulas with the numbers in them
    # of the fullest GPU of a copy; None where there is no GPU
    gpu_bytes: int | None = None
    gpu_available_bytes: int | None = None


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
    count: int | None = None  # how many there are; None: as many as are asked for
    region: str | None = None
    offered: bool | None = None  # in that region; None: unknown
    source: str
    date: str
    note: str = ""
    usd_spot_per_hour: float | None = None  # where hosts may be taken away; None: unknown
    spot_source: str = ""
    spot_date: str = ""
    usd_reserved_per_hour: float | None = None  # for one year, nothing paid ahead; None: unknown
    usd_dedicated_per_hour: float | None = None  # on hardware of one customer's own, without the region's fee
    dedicated_source: str = ""
    dedicated_date: str = ""
    reserve_only: bool = False  # not sold by the hour: a block of days has to be reserved
    zones: tuple[str, ...] = ()  # ids of the zones that offer it
    arch: str | None = None  # "x86_64", "arm64"
    network_gbps: float | None = None  # baseline
    nvme_gb: float | None = None  # local
    nvme_mb_s: float | None = None  # read, of all local drives together


class OfferResult(Artifact):
    offer: str  # instance type, or "lab host 0.7 CPU"
    fits: bool
    replicas: int | None
    usd_per_hour: Figure
    per_1000: Figure  # in the profile's currency
    reason: str  # why chosen or rejected
    region: str | None = None
    sold_as: Literal["on demand", "spot", "reserved", "owned"] = "on demand"
    hosts: int | None = None  # with the spare ones
    layout: str = ""  # "2 x tp 4"; "" where there is no GPU to divide
    misses: tuple[str, ...] = ()  # targets that look out of reach


class Serving(Artifact):
    """How one host of the choice serves the workload, as predicted."""

    gpu: str | None = None  # as sizing/gpus.csv calls it
    copies: int = 1  # of the model on one host
    tensor: int = 1  # GPUs that share each layer of a copy
    pipeline: int = 1  # stages of a copy
    sessions: int | None = None  # requests decoded at once by one copy
    reached: dict[str, Interval] = Field(default_factory=dict)  # target's key -> predicted
    tokens_per_s: Interval | None = None  # of one copy
    items_per_s: Interval | None = None  # of one host; images or texts
    beyond: str = ""  # where the question lies outside of what the prediction was fitted on


class Unreachable(Artifact):
    """A target that no offer meets, and the nearest that one does."""

    target: str  # key of the profile's targets
    wanted: float
    nearest: float | None  # None: nobody can tell
    unit: str
    where: str  # the offer that comes nearest


class Alternative(Artifact):
    """What else could be done: nearly as asked for less, in another format, as a service."""

    kind: Literal["nearly", "safe", "format", "service"]
    name: str
    per_1000: Figure
    why: str


class Sizing(Artifact):
    verdict: Verdict
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
    # what the planner adds; None or empty where it does not apply or is not known
    mean_rps: Figure | None = None  # over a day
    region: str | None = None
    sold_as: Literal["on demand", "spot", "reserved", "owned"] = "on demand"
    serving: Serving | None = None
    unreachable: tuple[Unreachable, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    software: tuple[str, ...] = ()  # what the audit says could be done without moving
    batching: Batching | None = None
    chain: Chain | None = None
    compat: tuple[CompatCheck, ...] = ()
    timeline: Timeline | None = None
    costs: Costs | None = None
    tco: Tco | None = None
