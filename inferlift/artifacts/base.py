"""What every artifact is made of: figures that know where they come from, checks, gates, a stage's status."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

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


class Status(StrEnum):
    """How a stage stands in the ledger."""

    DONE = "done"
    SKIPPED = "skipped"
    NOT_APPLICABLE = "not applicable"
    HELD = "held"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    PENDING = "pending"
