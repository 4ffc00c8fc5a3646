"""What the plan says beyond memory and money: items a second, batches, the chain, compatibility, the timeline."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from inferlift.artifacts.base import Artifact, Basis

COVERAGE = 0.9  # share of cases in which the true value lies within an Interval


class Interval(Artifact):
    """A predicted value and the range in which it lies in 9 of 10 cases."""

    value: float
    low: float
    high: float
    unit: str

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"expected low <= value <= high, got {self.low}, {self.value}, {self.high}")
        return self


class ItemRate(Artifact):
    """How many items (images, texts) one copy of a model works off on one device."""

    device: str
    batch: int  # at which latency_ms holds
    items_per_s: Interval  # under full load
    latency_ms: Interval  # P95 of a batch on a device that has nothing else to do
    basis: Basis
    source: str
    explain: tuple[str, ...]  # the formula with the numbers in it
    beyond: str = ""  # where the question lies outside of what was measured; "" inside


class Batching(Artifact):
    """What the server is told about batches. Which of the fields it reads depends on its kind."""

    preferred_batch_size: int  # 1: no batching
    max_queue_delay_us: int  # longest wait for a batch to fill
    max_sequences: int | None = None  # decoded at once (vLLM max_num_seqs, llama.cpp slots)
    max_batched_tokens: int | None = None  # prompt tokens of one step (vLLM max_num_batched_tokens)
    latency_ms: float | None  # P95 expected with these settings; None: not predicted
    utilisation: float | None  # share of the time the device is busy at the arrival rate
    meets_target: bool | None  # None: no target, or no prediction
    explain: tuple[str, ...]
    settings: dict[str, int]  # as the server's own configuration calls them


LinkVerdict = Literal["ok", "exception", "too small", "unknown"]


class ChainLink(Artifact):
    """One link between the user's request and its answer: what is needed, what the offer has."""

    name: str
    unit: str
    needed: float | None  # None: nothing asks for it
    rule: float | None  # the checklist's figure, which an exception may undercut
    has: float | None  # None: unknown
    has_basis: Basis
    load: float | None  # used at the peak; None: unknown
    utilisation: float | None  # load / has
    verdict: LinkVerdict
    exception: str = ""  # its name, where the checklist's figure is undercut on purpose
    why: str
    source: str


class Chain(Artifact):
    links: tuple[ChainLink, ...]
    bottleneck: str | None  # the link with the highest utilisation at the peak; None: none is known
    why: str

    @property
    def too_small(self) -> tuple[ChainLink, ...]:
        return tuple(link for link in self.links if link.verdict == "too small")


class CompatCheck(Artifact):
    """One thing that must agree before money is spent."""

    name: str
    verdict: Literal["pass", "fail", "unknown"]
    detail: str
    next_step: str = ""  # what to do about a fail or an unknown
    source: str = ""


class TimelineStep(Artifact):
    """Hours from the start; `slack_hours` is how much later it may end without delaying the switch."""

    name: str
    hours: float | None  # None: unknown
    basis: Basis
    source: str
    after: tuple[str, ...]
    starts_at: float
    ends_at: float
    slack_hours: float
    critical: bool


class Timeline(Artifact):
    steps: tuple[TimelineStep, ...]
    critical_path: tuple[str, ...]
    hours_to_switch: float  # until all users can be on the new side, at the earliest
    hours_to_verdict: float  # the watched time included
    plan_hours: float  # what was planned: 48
    fits_plan: bool | None  # None: something on the way is unknown
    longer: tuple[str, ...]  # what makes it longer than planned, longest first
    unknown: tuple[str, ...]
