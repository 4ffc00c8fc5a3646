"""What a load run is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.load.protocols import Chat, Protocol
from inferlift.load.target import Target


@dataclass(frozen=True)
class LoadPlan:
    """`users` (closed loop: each sends its next request when the last is answered) or `schedule_s` (open loop:
    send times in seconds since the start), never both. Request i asks prompt i modulo their number."""

    target: Target
    requests: int
    prompts: Sequence[str]
    samples: Path
    users: int | None = None
    schedule_s: tuple[float, ...] | None = None
    max_tokens: int = 16
    request_timeout_s: float = 120.0
    deadline_s: float = 3600.0
    label: str = "load"
    stream: bool = True
    protocol: Protocol | None = None  # what is sent and how it is read; None: chat, from the prompts
    texts: str = ""  # the name that sets this run's texts apart, where the protocol has been told one
    ramp_s: float | None = None  # closed loop: over how long the users begin; None: a moment
    slo_ttft_ms: float | None = None  # what a request must meet to count as goodput
    slo_total_ms: float | None = None

    @property
    def sends(self) -> Protocol:
        if self.protocol is not None:
            return self.protocol
        return Chat(self.prompts, self.max_tokens, stream=self.stream, model=self.target.model)

    def __post_init__(self) -> None:
        if self.requests < 1 or not (self.prompts or self.protocol):
            raise DeclarationError("a load run needs at least one request and one prompt")
        if (self.users is None) == (self.schedule_s is None):
            raise DeclarationError("a load run is either by users (closed loop) or by schedule (open loop)")
        if self.users is not None and self.users < 1:
            raise DeclarationError("a closed loop needs at least one user")
        if self.schedule_s is not None and len(self.schedule_s) != self.requests:
            raise DeclarationError(f"the schedule has {len(self.schedule_s)} send times for {self.requests} requests")
