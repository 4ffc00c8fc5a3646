"""Images, the desired fleet, what a target made of it, the serving endpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from inferlift.artifacts.base import Artifact, Check
from inferlift.artifacts.world import Contract, Host


class LineChange(Artifact):
    line: int
    before: str
    after: str
    why: str


class Image(Artifact):
    name: str
    digest: str  # sha256:... of the manifest in the OCI archive
    archive: str  # path of the OCI archive on the operator's machine
    bytes: int
    base: str
    dockerfile: str  # path of the rewritten Dockerfile
    changes: tuple[LineChange, ...]
    checks: tuple[Check, ...]


class Images(Artifact):
    images: tuple[Image, ...]


class HostGroup(Artifact):
    role: Literal["gateway", "model", "monitor"]
    count: int = Field(ge=0)
    cpus: float
    memory_bytes: int
    site: str = "lab"


class DesiredFleet(Artifact):
    """The one fleet document. Floors by stage: nobody shrinks below another stage's floor by accident."""

    label: str  # owner label value of every resource of the fleet
    groups: tuple[HostGroup, ...]
    floors: dict[str, int]  # stage -> model hosts it needs


class Endpoint(Artifact):
    site: str
    address: str
    port: int = 443


class Fleet(Artifact):
    """What a target made of the desired fleet."""

    label: str
    network: str | None
    subnet: str | None
    hosts: tuple[Host, ...]
    endpoints: tuple[Endpoint, ...]
    registry: str | None = None
    generation: str  # digest of the hosts' identities: changes when a host is replaced

    def by_role(self, role: str) -> tuple[Host, ...]:
        return tuple(h for h in self.hosts if h.role == role)


class Configured(Artifact):
    """One playbook run, judged by the hosts expected."""

    hosts: dict[str, dict[str, int]]  # host -> {ok, changed, failed, unreachable, skipped}
    changed: int
    seconds: float
    skipped: tuple[str, ...] = ()  # what a role said it could not do here, and why


class Service(Artifact):
    """A serving endpoint, proved by real completions in a row."""

    fleet: Fleet
    configured: Configured
    endpoint: Endpoint
    contract: Contract
    replicas: int
    checks: tuple[Check, ...]
    monitor_url: str
    monitor_user: str
    monitor_password: str  # secret reference
    ca: str  # path of the CA of the fleet's own endpoints
    versions: dict[str, str] = Field(default_factory=dict)
