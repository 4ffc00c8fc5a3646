"""What flows between the stages: frozen models, and nothing else passes.

Units are part of the field names (`_ms`, `_bytes`, `_s`) or of the Figure. `None` is unknown and never zero.
Times are timezone-aware UTC.
"""

from inferlift.artifacts.base import Artifact, Basis, Check, Figure, Gate, Status, Verdict
from inferlift.artifacts.cutover import (
    Cutover,
    ParityCase,
    Scaled,
    Series,
    SwitchStep,
    Transfer,
    TransferPass,
    UserCounts,
    Watch,
)
from inferlift.artifacts.evidence import Evidence, LogQuality, Percentiles, RouteFigures, TrafficShape, Trigger
from inferlift.artifacts.fleet import (
    Configured,
    DesiredFleet,
    Endpoint,
    Fleet,
    HostGroup,
    Image,
    Images,
    LineChange,
    Service,
)
from inferlift.artifacts.load import Counts, LoadRun, Measurement, Quality
from inferlift.artifacts.sizing import Memory, Offer, OfferResult, Sizing
from inferlift.artifacts.world import Contract, Host, Route, World

__all__ = [
    "Artifact",
    "Basis",
    "Check",
    "Configured",
    "Contract",
    "Counts",
    "Cutover",
    "DesiredFleet",
    "Endpoint",
    "Evidence",
    "Figure",
    "Fleet",
    "Gate",
    "Host",
    "HostGroup",
    "Image",
    "Images",
    "LineChange",
    "LoadRun",
    "LogQuality",
    "Measurement",
    "Memory",
    "Offer",
    "OfferResult",
    "ParityCase",
    "Percentiles",
    "Quality",
    "Route",
    "RouteFigures",
    "Scaled",
    "Series",
    "Service",
    "Sizing",
    "Status",
    "SwitchStep",
    "TrafficShape",
    "Transfer",
    "TransferPass",
    "Trigger",
    "UserCounts",
    "Verdict",
    "Watch",
    "World",
]
