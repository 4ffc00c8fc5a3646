"""The declaration of one migration: what the workload is, what it must reach, where it is hosted now.

Every key has a unit in its name or its description. Loading and its errors: `declaration.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from inferlift.profile.base import Positive, Reference, Section, Share, impossible
from inferlift.profile.demand import Load, Operations, Requests, Targets
from inferlift.profile.hosting import Budget, Data, Lab, Origin, Switch, WatchPlan
from inferlift.profile.model import Model, Server

__all__ = [
    "ROOT", "Budget", "Data", "Lab", "Load", "Model", "Operations", "Origin", "Positive", "Profile", "Reference",
    "Requests", "Section", "Server", "Share", "Switch", "Targets", "WatchPlan", "impossible",
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


class Profile(Section):
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    description: str = ""
    target: Literal["lab", "aws", "static"] = "lab"
    task: Literal["chat"] = "chat"
    model: Model
    server: Server = Server()
    requests: Requests
    targets: Targets = Targets()
    load: Load = Load()
    operations: Operations = Operations()
    origin: Origin | None = None
    data: Data = Data()
    switch: Switch = Switch()
    watch: WatchPlan = WatchPlan()
    budget: Budget
    lab: Lab | None = None

    @model_validator(mode="after")
    def _whole(self) -> Profile:
        if self.target == "lab" and self.lab is None:
            raise impossible("target", "target lab needs a `lab:` section")
        if self.target != "lab" and self.origin is None:
            raise impossible("target", f"target {self.target} needs an `origin:` section")
        longest = self.requests.input_tokens_p95 + self.requests.output_tokens
        slot = self.server.context_per_slot or self.model.context
        if slot > self.model.context:
            raise impossible("server.context_per_slot", f"exceeds the model's context ({self.model.context})")
        if longest > slot:
            why = f"input_tokens_p95 + output_tokens ({longest}) exceed the context a request gets ({slot})"
            raise impossible("requests", why)
        if self.targets.quality is not None and self.load.quality_prompts is None:
            raise impossible("targets.quality", "needs load.quality_prompts: a file of prompts with answers")
        if self.target == "lab" and self.data.state == "read-write":
            raise impossible("data.state", "the lab's data is a read-only folder; expected none or read-only")
        return self
