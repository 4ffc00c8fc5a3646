"""What the parts of provisioning hand to each other."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from inferlift.artifacts import Artifact, Host


@dataclass(frozen=True)
class Tools:
    """Where the engine and the lab's image are; whoever calls knows, this package looks for nothing."""

    pulumi_bin: Path  # the `pulumi` executable
    python_plugin: Path | None  # folder with pulumi-language-python, for plain `pulumi up`; not needed here
    host_image: str
    podman_env: dict[str, str] = field(default_factory=dict)


class WorldHosts(Artifact):
    """The hosts of the lab's old world."""

    label: str
    network: str
    subnet: str
    origin: Host
    authority: Host
    resolver: Host


class Drift(Artifact):
    """One resource that is not as the state remembers it."""

    resource: str  # e.g. "host model-1"
    change: str  # gone | changed | new


class HostSpec(Artifact):
    """All that a lab host is made from. Another digest means another host."""

    owner: str
    name: str
    role: str
    image: str
    cpus: float
    memory_bytes: int
    public_key: str
    site: str = "lab"

    @property
    def container(self) -> str:
        return container_name(self.owner, self.name)

    @property
    def network(self) -> str:
        return network_name(self.owner)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:16]


def slug(owner: str) -> str:
    """An owner label as a part of podman and file names."""
    return re.sub(r"[^a-zA-Z0-9_.-]", "-", owner)


def network_name(owner: str) -> str:
    return f"inferlift-{slug(owner)}"


def container_name(owner: str, name: str) -> str:
    return f"inferlift-{slug(owner)}-{name}"
