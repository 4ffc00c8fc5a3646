"""What every DNS back end offers: read, propose, apply, verify. One small class each."""

from __future__ import annotations

from typing import Literal, Protocol

from inferlift.artifacts import Artifact
from inferlift.dns.record import Journal, RecordState, fqdn, show


class Desired(Artifact):
    """What a name shall be. `journal` None takes the journal away: the record is given back."""

    kind: Literal["simple", "weighted"]
    weights: dict[str, int]
    ttl_s: int
    journal: Journal | None


class Change(Artifact):
    """One reviewed step: applied only while the record still is `before`."""

    name: str
    before: RecordState
    after: RecordState
    inverse: Desired
    text: str


class Backend(Protocol):
    """A place where a name's answers are decided.

    `read` raises Retryable when it cannot be answered: a failed read is never an empty set. `propose` raises
    Refusal when a guard says no. `apply` raises Refusal when the record is not `change.before` any more, Retryable
    or Uncertain when the write failed. `verify` reads again and raises Refusal if it is not `change.after`.
    """

    owner: str  # who writes: stands in every journal
    run: str  # this attempt
    possible: tuple[int, ...] | None  # percents on the new side it can give; None: any. Else a record is never weighted

    def read(self, name: str) -> RecordState: ...

    def propose(self, state: RecordState, desired: Desired) -> Change: ...

    def apply(self, change: Change) -> None: ...

    def verify(self, change: Change) -> RecordState: ...


def inverse_of(state: RecordState) -> Desired:
    """The way back from a change: what stood there before it, journal included."""
    kind: Literal["simple", "weighted"] = "weighted" if state.kind == "weighted" else "simple"
    return Desired(kind=kind, weights=state.weights, ttl_s=state.ttl_s or 0, journal=state.journal)


def text_of(state: RecordState, desired: Desired, engine: str) -> str:
    """The difference in words; octoDNS' own plan output prints no weights."""
    before = f"{state.kind} {show(state.weights)} ttl {state.ttl_s} s"
    after = f"{desired.kind} {show(desired.weights)} ttl {desired.ttl_s} s"
    step = f" [{desired.journal.phase} #{desired.journal.sequence}]" if desired.journal else " [journal removed]"
    return f"{fqdn(state.name)} {before} -> {after}{step} ({engine})"
