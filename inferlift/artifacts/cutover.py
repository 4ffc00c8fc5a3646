"""Data moved, replicas accepted, users moved, the watch over them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from inferlift.artifacts.base import Artifact, Check, Figure, Gate, Verdict
from inferlift.artifacts.evidence import Trigger
from inferlift.artifacts.fleet import Service
from inferlift.artifacts.load import LoadRun
from inferlift.artifacts.sizing import Sizing


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


class Series(Artifact):
    name: str
    unit: str
    points: tuple[tuple[float, float], ...]  # (unix seconds, value)


class UserCounts(Artifact):
    """What users saw during the switch."""

    client: str  # "resolving" | "keep-alive"
    old: int
    new: int
    failed: int


class StubbornClient(Artifact):
    """Who still asks the old side after the switch: by address and user agent."""

    address: str
    agent: str
    requests: int
    last: datetime


class Quiet(Artifact):
    """What the old side's own log says. `quiet` None: it cannot be said yet, and the old side stays."""

    quiet: bool | None
    why: str
    window_s: float
    last: datetime | None = None  # a user's last request there
    unread: int = 0  # lines of the log that could not be read
    clients: tuple[StubbornClient, ...] = ()  # most requests first


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
    backend: str = ""  # what decided the answers: "powerdns", "route53", "rfc2136", "gateway"
    old_side: Quiet | None = None  # None: its log was not looked at yet
    sides: tuple[Series, ...] = ()  # share of each client's answers that came from the new side, over time
    guard: str = ""  # why there was none; empty: one stood by
    guard_open: str = ""  # what its credentials could not be kept from


class Judgement(Artifact):
    """What was measured held against what was planned, or paid before. No gate: users are served either way."""

    name: str
    verdict: Literal["as planned", "too low", "too high", "unknown"]
    figure: Figure
    against: Figure | None
    saving_monthly: Figure | None = None  # in the budget's currency; None: there is none, or it cannot be told
    why: str


class Watch(Artifact):
    start: datetime
    end: datetime
    gates: tuple[Gate, ...]
    figures: dict[str, Figure]
    series: tuple[Series, ...]
    verdict: Verdict
    why: str
    judgements: tuple[Judgement, ...] = ()
    triggers: tuple[Trigger, ...] = ()  # of the next step: met means that it is due
    replanned: Sizing | None = None  # the plan for what was measured; None where it could not be made
    drift: tuple[Check, ...] = ()  # what is not as it was left: hosts, configuration, DNS
