"""One self-contained HTML page about a migration, from the artifacts alone."""

from __future__ import annotations

from inferlift.report.data import (
    Approval,
    Attempt,
    FaultRow,
    Overruled,
    ProfileSummary,
    ReportData,
    Rollback,
    StageRow,
)
from inferlift.report.render import render

__all__ = [
    "Approval",
    "Attempt",
    "FaultRow",
    "Overruled",
    "ProfileSummary",
    "ReportData",
    "Rollback",
    "StageRow",
    "render",
]
