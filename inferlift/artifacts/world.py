"""The old and the new world as declared and found: contract, hosts, the old side."""

from __future__ import annotations

from typing import Literal

from inferlift.artifacts.base import Artifact


class Route(Artifact):
    """A path the users call, and what the new server calls it."""

    path: str  # as users call it, e.g. /api/chat
    upstream: str  # as the app behind the gateway calls it, e.g. /v1/chat/completions


class Contract(Artifact):
    """What users rely on. File fields are paths on the operator's machine; secrets are references."""

    name: str  # the DNS name users call
    certificate: str  # path, PEM chain for `name`
    certificate_key: str  # secret reference, e.g. file:/path
    ca: str | None = None  # path of the CA the clients trust; None: the system's
    key_header: str  # e.g. X-Api-Key
    key: str  # secret reference
    routes: tuple[Route, ...]
    max_body_bytes: int = 65536


class Jump(Artifact):
    """The host that SSH goes through where another is not reached directly; the same key opens it."""

    address: str
    host_key: str  # pinned, as a host's own
    user: str = "root"
    ssh_port: int = 22


class Host(Artifact):
    """A machine that Ansible reaches over SSH. `expected` is hardware the plan counts on, checked by validators."""

    name: str
    role: Literal["gateway", "model", "monitor", "origin", "authority", "resolver"]
    address: str
    user: str = "root"
    ssh_port: int = 22
    ssh_key: str  # path of the private key on the operator's machine
    host_key: str  # "ssh-ed25519 AAAA...": pinned, never learned on first use
    site: str = "lab"
    cpus: float | None = None
    memory_bytes: int | None = None
    gpu: str | None = None
    jump: Jump | None = None  # None: reached directly
    container: str | None = None  # podman id in the lab, instance id on a cloud, machine:ID of an own host


class RaisedLab(Artifact):
    """What the lab made for an old world of its own."""

    label: str  # owner label value, unique to the clone and the profile
    network: str
    subnet: str
    authority: Host
    resolver: Host
    dns_api: str  # http(s) URL of the PowerDNS API
    dns_key: str  # secret reference
    guard_api: str = ""  # where the guard's own key may change this one zone; empty: nowhere
    guard_key: str | None = None  # secret reference
    requests_sent: int = 0  # real requests sent to the old side before the audit


class World(Artifact):
    """What exists before the migration: an old world that the lab raised, or a service that was found as it is."""

    origin: Host
    address: str  # where users' name points on the old side; a host behind another address is reached elsewhere
    contract: Contract
    zone: str  # e.g. demo.test.; empty where a gateway's weights decide
    ttl_s: int  # of the old record
    log_glob: str  # access logs on the origin host
    body_log: str = ""  # request bodies as JSON lines on the origin host, for the parity replay; empty: none are kept
    recorded: str = ""  # or requests recorded before, a file of JSON lines on the operator's machine
    data_path: str = ""  # data folder on the origin host; empty: the profile's data.source names it
    resolvers: tuple[str, ...] = ()  # addresses of name servers that know the name, as users and monitor ask them
    lab: RaisedLab | None = None  # None: found, and not ours to change

    @property
    def made(self) -> RaisedLab:
        """Raises LookupError where nothing was made: callers are for the lab's world alone."""
        if self.lab is None:
            raise LookupError(f"the old side of {self.contract.name} was found, not raised")
        return self.lab

    @property
    def authority(self) -> Host:
        return self.made.authority

    @property
    def resolver(self) -> Host:
        return self.made.resolver
