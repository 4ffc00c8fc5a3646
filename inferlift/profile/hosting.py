"""Where the service lives now, how users are moved, and what it may cost."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from inferlift.profile.base import Positive, Reference, Section, impossible
from inferlift.profile.dns import Dns, Guard


class Hosting(Section):
    """Present hosting as a plan reads it: what it is and what it costs. null is not known (the audit may tell)."""

    kind: (
        Literal["virtual-server", "dedicated-server", "cloud-instance", "container", "managed-api", "own-hardware"]
        | None
    ) = Field(None, description="what the service runs on now")
    endpoint: Literal["openai", "rest", "grpc", "kserve", "queue"] | None = Field(
        None, description="how it is called now: OpenAI's API, another over HTTP, gRPC, KServe v2, or a queue"
    )
    bill_monthly: float | None = Field(None, ge=0, allow_inf_nan=False, description="of the last month, in `currency`")
    currency: Literal["EUR", "USD"] | None = Field(None, description="of the bill; null: the budget's")
    contract_end: str | None = Field(
        None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="ISO date until which it is paid whatever is decided"
    )
    cores: Positive | None = Field(None, description="CPU cores of the present host")
    ram_gb: Positive | None = Field(None, description="gigabytes of memory of the present host")
    gpu: str | None = Field(None, description="GPU model of the present host; 'none': it has none")
    gpus: int | None = Field(None, ge=0, description="GPUs of the present host")
    logs: str | None = Field(None, description="path or glob of access logs, for the audit; null: none are kept")


class Data(Section):
    """What has to be copied, without the model's weights."""

    state: Literal["none", "read-only", "read-write"] = Field(
        "none", description="what the service does with its data; read-write needs a freeze or a way back for writes"
    )
    size_gb: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="gigabytes to copy to the new side, without the model's weights"
    )
    ingest_gb_per_day: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="gigabytes that are added or changed a day"
    )

    source: str | None = Field(
        None, description="s3://BUCKET/PREFIX, or a folder on the old host; null: the one that the old side tells"
    )
    limit_mb_per_s: Positive | None = Field(
        None, description="megabytes a second that the copy may take of each line; null: no limit"
    )
    freeze: str | None = Field(
        None, description="command on the old host that stops its writes before the last pass; may run twice"
    )
    thaw: str | None = Field(
        None, description="command on the old host that lets it write again, for the way back; may run twice"
    )

    @model_validator(mode="after")
    def _some(self) -> Data:
        if (self.freeze is None) != (self.thaw is None):
            key = "thaw" if self.thaw is None else "freeze"
            raise impossible(key, "freeze and thaw go together; expected both or neither")
        if self.state == "none" and (self.size_gb or self.ingest_gb_per_day):
            key = "size_gb" if self.size_gb else "ingest_gb_per_day"
            raise impossible(key, "there is data, but state is none; expected state read-only or read-write")
        if self.state == "read-only" and self.ingest_gb_per_day:
            why = "data that changes is not read-only for the copy; nearest: state read-write, or null here"
            raise impossible("ingest_gb_per_day", why)
        return self


class ImageRegistry(Section):
    """Where the image is pushed, by digest, and pulled by model hosts. Without one it is copied as an archive."""

    address: str = Field(min_length=1, description="HOST[:PORT][/PATH]; one of AWS' logs in by itself")
    user: str = Field("", description="who logs in")
    password: Reference | None = None
    ca: str | None = Field(None, description="path of the CA that vouches for it; null: the system's")
    deadline_s: Positive = Field(600, description="seconds in which each host must have pulled the image")

    @model_validator(mode="after")
    def _both(self) -> ImageRegistry:
        if bool(self.user) != (self.password is not None):
            raise impossible("password", "user and password go together; expected both or neither")
        return self


class Switch(Section):
    """How users are moved by DNS."""

    ttl_s: int = Field(60, ge=1, description="TTL while weights move")
    steps: tuple[int, ...] = Field((1, 10, 50, 100), description="percent on the new side")
    min_samples: int = Field(30, gt=0, description="pinned synthetic requests to the new side at each step")
    failures_to_roll_back: int = Field(2, gt=0, description="gate failures in a row before it goes back by itself")
    quality_samples: int = Field(4, ge=0, description="of load.quality_prompts, asked at each look; 0: none")
    approve_from: int | None = Field(
        None, ge=1, le=100, description="each step from this percent on waits for `invoke approve`; null: none waits"
    )
    webhook: Reference | None = Field(None, description="URL that is told of holds and roll-backs; null: nobody is")
    dns: Dns | None = None
    guard: Guard = Guard()

    @model_validator(mode="after")
    def _rising(self) -> Switch:
        if list(self.steps) != sorted(set(self.steps)) or not self.steps or self.steps[-1] != 100 or self.steps[0] < 1:
            raise impossible("steps", "must rise from at least 1 to 100, each once")
        return self


class WatchPlan(Section):
    """How long the moved workload is watched."""

    seconds: int = Field(48 * 3600, gt=0, description="how long the new side is watched after the switch")
    webhook: Reference | None = Field(
        None, description="env:NAME or file:PATH of the URL that the monitor tells of alerts; null: nobody is told"
    )


class Lab(Section):
    """The old world to raise in the lab, and how large the new hosts are."""

    zone: str = Field("demo.test", description="DNS zone that the lab's name server answers for")
    host: str = Field("ai", description="name in that zone that users call")
    ttl_s: int = Field(10, ge=1, description="TTL of the old record")
    origin_cpus: Positive = Field(0.5, description="cores of the old host")
    traffic_requests: int = Field(300, ge=0, description="real requests sent to the old side before the audit")
    traffic_users: int = Field(6, gt=0, description="of them at once")
    workload: str = Field("chat", description="folder under templates/workloads with Dockerfile, app and data")
    model_cpus: Positive = Field(0.7, description="cores of each model host")
    model_memory_mb: int = Field(1500, gt=0, description="MiB of each model host")
    users: int = Field(2, ge=0, description="requests a second that the lab's users send during the switch")


class OwnHost(Section):
    """Hosts of one kind that exist already."""

    name: str = Field(min_length=1, description="what they are called in plans")
    role: Literal["model", "gateway", "monitor"] = Field(
        "model", description="what they are for: serving the model, taking the users' requests, or watching"
    )
    addresses: tuple[Annotated[str, AfterValidator(lambda text: _reachable(text))], ...] = Field(
        (), description="IP address of each, with :PORT where SSH is not on 22; planning needs none"
    )
    count: int = Field(1, gt=0, description="of them")
    cores: Positive = Field(description="CPU cores of each")
    ram_gb: Positive = Field(description="gigabytes of memory of each")
    gpu: str | None = Field(None, description="GPU model of each, as inferlift/sizing/gpus.csv names it; null: none")
    gpus: int = Field(0, ge=0, description="GPUs of each")
    network_gbps: Positive | None = Field(None, description="gigabits a second of each; null: not known")
    disk_mb_per_s: Positive | None = Field(None, description="megabytes a second that each reads; null: not known")
    cost_per_hour: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="of one host, in the budget's currency; null: not known"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_addresses(cls, told: Any) -> Any:
        listed = told.get("addresses") if isinstance(told, dict) else None
        if not isinstance(listed, list | tuple):
            return told
        return {"count": max(1, len(listed)), **told, "addresses": tuple(listed)}

    @model_validator(mode="after")
    def _counted(self) -> OwnHost:
        if self.addresses and len(self.addresses) != self.count:
            raise impossible("count", f"is {self.count}, and {len(self.addresses)} addresses are given")
        if (self.gpu is None) != (self.gpus == 0):
            raise impossible("gpus", "gpu and gpus go together; expected both or neither")
        return self


class Static(Section):
    """Hosts that exist already (on-prem, any GPU cloud), for the target static."""

    hosts: tuple[OwnHost, ...] = Field(description="each kind of host, at least one")
    ssh_key: str = Field("~/.ssh/id_ed25519", description="path of the private key that root on the hosts accepts")
    known_hosts: str = Field(
        "~/.ssh/known_hosts", description="path of the file with the hosts' own keys, which are never learned by us"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Static:
        given = [address for kind in self.hosts for address in kind.addresses]
        if twice := sorted({a for a in given if given.count(a) > 1}):
            raise impossible("hosts", f"{', '.join(twice)} is given twice; a host has one role")
        return self


class Budget(Section):
    """The currency of all costs shown, and what the new side may cost."""

    currency: Literal["EUR", "USD"] = Field("EUR", description="of all costs shown")
    usd_rate: Annotated[float, Field(ge=1e-4, le=1e4)] = Field(description="USD for one unit of `currency`")
    usd_rate_source: str = Field(description="where the rate is from, or that it is an assumption")
    usd_rate_date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="ISO date of the rate")
    monthly: Positive | None = Field(None, description="limit of what the new side may cost a month; null: none")


def own_address(text: str) -> tuple[str, int]:
    """Address and SSH port of `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises ValueError."""
    host, port = text, "22"
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or "22"
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("expected a port from 1 to 65535 after the address")
    return str(ipaddress.ip_address(host)), int(port)


def _reachable(text: str) -> str:
    try:
        own_address(text)
    except ValueError as error:
        raise ValueError(f"expected an IP address, with :PORT where SSH is not on 22 ({error})") from None
    return text
