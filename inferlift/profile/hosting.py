"""Where the service lives now, how users are moved, and what it may cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from inferlift.profile.base import Positive, Reference, Section, impossible


class Origin(Section):
    """Present hosting. In the lab the world provides it (`lab:` below)."""

    name: str = Field(description="DNS name that users call")
    logs: str = Field(description="path or glob of the access logs")
    ssh: str | None = Field(None, description="user@host of the old host; null: logs are local")
    certificate: str | None = Field(None, description="path of the PEM chain for the name")
    certificate_key: Reference | None = None
    key_header: str = Field("Authorization", description="header with the users' key")
    key: Reference | None = None
    routes: dict[str, str] = Field({}, description="path as users call it: path as the app is called")
    dockerfile: str | None = Field(None, description="path of the Alpine Dockerfile")


class Data(Section):
    state: Literal["none", "read-only", "read-write"] = Field(
        "none", description="what the service does with its data; read-write needs a freeze or a way back for writes"
    )


class Switch(Section):
    ttl_s: int = Field(60, ge=1, description="TTL while weights move")
    steps: tuple[int, ...] = Field((1, 10, 50, 100), description="percent on the new side")
    min_samples: int = Field(30, gt=0, description="pinned synthetic requests to the new side at each step")
    failures_to_roll_back: int = Field(2, gt=0, description="gate failures in a row before it goes back by itself")

    @model_validator(mode="after")
    def _rising(self) -> Switch:
        if list(self.steps) != sorted(set(self.steps)) or not self.steps or self.steps[-1] != 100 or self.steps[0] < 1:
            raise impossible("steps", "must rise from at least 1 to 100, each once")
        return self


class WatchPlan(Section):
    seconds: int = Field(48 * 3600, gt=0, description="how long the new side is watched after the switch")


class Lab(Section):
    """The old world to raise in the lab, and how large the new hosts are."""

    zone: str = "demo.test"
    host: str = "ai"
    ttl_s: int = Field(10, ge=1, description="TTL of the old record")
    origin_cpus: Positive = Field(0.5, description="cores of the old host")
    traffic_requests: int = Field(300, ge=0, description="real requests sent to the old side before the audit")
    traffic_users: int = Field(6, gt=0, description="of them at once")
    workload: str = Field("chat", description="folder under templates/workloads with Dockerfile, app and data")
    model_cpus: Positive = Field(0.7, description="cores of each model host")
    model_memory_mb: int = Field(1500, gt=0, description="MiB of each model host")
    users: int = Field(2, ge=0, description="requests a second that the lab's users send during the switch")


class Budget(Section):
    currency: Literal["EUR", "USD"] = Field("EUR", description="of all costs shown")
    usd_rate: Positive = Field(description="USD for one unit of `currency`")
    usd_rate_source: str = Field(description="where the rate is from, or that it is an assumption")
    usd_rate_date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="ISO date of the rate")
