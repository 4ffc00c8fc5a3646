"""The declaration of one migration: what the workload is, what it must reach, where it is hosted now.

Every key has a unit in its name or its description. Loading and its errors: `declaration.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from inferlift.artifacts.fleet import AwsSettings
from inferlift.profile.base import Positive, Reference, Section, Share, impossible, impossibles
from inferlift.profile.demand import Load, NamedTask, Network, Operations, Requests, Targets, Task
from inferlift.profile.hosting import (
    Budget,
    Data,
    Hosting,
    ImageRegistry,
    Lab,
    OwnHost,
    Static,
    Switch,
    WatchPlan,
)
from inferlift.profile.model import Model, Server
from inferlift.profile.origin import Origin
from inferlift.profile.rules import contradictions
from inferlift.profile.tco import Tco

__all__ = [
    "ROOT", "Budget", "Data", "Hosting", "Lab", "Load", "Model", "Network", "Operations", "Origin", "OwnHost",
    "Positive", "Profile", "Reference", "Requests", "Section", "Server", "Share", "Static", "Switch", "Targets",
    "Task", "Tco", "WatchPlan", "impossible",
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


class Profile(Section):
    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,30}$", description="as the file is called; names folders, hosts and records"
    )
    description: str = Field("", description="one line for people")
    target: Literal["lab", "aws", "static"] = Field(
        "lab", description="where the new side is: hosts made here, EC2 instances, or hosts that exist already"
    )
    task: NamedTask = Field("chat", description="what is inferred; decides which of `requests` must be given")
    model: Model
    server: Server = Server()
    requests: Requests
    targets: Targets = Targets()
    load: Load = Load()
    operations: Operations = Operations()
    network: Network = Network()
    hosting: Hosting = Hosting()
    origin: Origin | None = None
    data: Data = Data()
    registry: ImageRegistry | None = None
    switch: Switch = Switch()
    watch: WatchPlan = WatchPlan()
    budget: Budget
    tco: Tco = Tco()
    lab: Lab | None = None
    aws: AwsSettings = AwsSettings()
    static: Static | None = None

    @model_validator(mode="after")
    def _whole(self) -> Profile:
        if found := contradictions(self):
            raise impossibles(found)
        return self

    @property
    def raised(self) -> Lab | None:
        """The old world that the lab raises; None where the old side is a service that exists, or there is none."""
        return self.lab if self.origin is None else None

    @property
    def interruptible(self) -> bool:
        """Whether hosts may be taken away while they work: then spot hosts are offers too."""
        allowed = self.operations.spot_allowed
        return self.task == "batch" if allowed is None else allowed
