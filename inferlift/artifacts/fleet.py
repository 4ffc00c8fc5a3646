"""Images, the desired fleet, what a target made of it, the serving endpoint."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

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
    sbom: str = ""  # path of the list of what it holds (CycloneDX JSON); beside it, in .difference.txt, what changed


class Images(Artifact):
    images: tuple[Image, ...]


class Delivered(Artifact):
    """Images on the model hosts before they are started: the user's, in a registry, and the model server's own."""

    references: tuple[str, ...]  # HOST/REPOSITORY@sha256:...
    bytes_sent: int
    seconds: float  # of sending
    checks: tuple[Check, ...]  # one a host: its digest, and how long it took


class HostGroup(Artifact):
    role: Literal["gateway", "model", "monitor"]
    count: int = Field(ge=0)
    cpus: float
    memory_bytes: int
    site: str = "lab"
    instance_type: str | None = None  # as the cloud calls it; None in the lab
    market: Literal["on-demand", "spot"] = "on-demand"


def _range(value: str) -> str:
    from ipaddress import IPv4Network

    try:
        IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"expected an IPv4 range such as 198.51.100.0/24, or one address/32: {error}") from None
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    """Limits: https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"""
    for key, text in value.items():
        if key.lower().startswith(("aws:", "inferlift:")) or key in ("Name", "managed-by") or not key:
            raise ValueError(f"the tag {key!r} is not free: aws:, inferlift:, Name and managed-by are taken")
        if len(key) > 128 or len(text) > 256:
            raise ValueError(f"the tag {key[:20]!r} is too long: 128 characters for a key, 256 for a value")
    if len(value) > 40:
        raise ValueError("expected at most 40 tags: AWS takes 50, ours among them")
    return value


def _id(kind: str, pattern: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {kind}")
        return value

    return AfterValidator(check)


Range = Annotated[str, AfterValidator(_range)]
Subnet = Annotated[str, _id("the id of a subnet: subnet-0123...", r"subnet-[0-9a-f]{8,17}")]


class AwsSettings(Artifact):
    """What the operator decides about an AWS account. Everything has a safe default."""

    region: Annotated[str, _id("a region: eu-central-1", r"[a-z]{2}(-[a-z]+)+-\d")] | None = Field(
        None, description="where hosts are made; null: the first that may be used and offers it"
    )
    edge: tuple[str, ...] = Field(
        (), description="further sites, each with a gateway and model hosts: regions, or Local Zones of `region`"
    )
    cidr: Range = Field("10.80.0.0/16", description="address range of the network that is made, at least a /20")
    vpc_id: Annotated[str, _id("the id of a network: vpc-0123...", r"vpc-[0-9a-f]{8,17}")] | None = Field(
        None, description="an existing network to use instead of making one"
    )
    public_subnets: tuple[Subnet, ...] = Field(
        (), description="of the existing network: for gateways and load balancer"
    )
    private_subnets: tuple[Subnet, ...] = Field((), description="of the existing network: for model hosts and monitor")
    user_ranges: tuple[Range, ...] = Field(
        (), description="address ranges that may call port 443; must be stated (0.0.0.0/0: everybody)"
    )
    admin_ranges: tuple[Range, ...] = Field(
        (), description="address ranges that may reach the bastion's SSH; empty: no bastion, Session Manager alone"
    )
    image: Literal["dlami", "ubuntu"] = Field(
        "dlami", description="of GPU hosts: AWS' Deep Learning base image with its driver, or plain Ubuntu"
    )
    front: Literal["nlb", "alb", "none"] = Field(
        "nlb", description="nlb passes TCP through to the gateway; alb ends TLS itself; none: the gateway's own address"
    )
    certificate_arn: Annotated[str, _id("arn:aws:acm:...", r"arn:aws[a-z-]*:acm:.+")] | None = Field(
        None, description="front alb: the certificate in AWS' certificate manager"
    )
    gateway_type: str = Field("c7i.large", description="EC2 type of each gateway")
    monitor_type: str = Field("c7i.large", description="EC2 type of each monitor")
    root_gb: int = Field(100, ge=20, description="gigabytes of each host's system disk (gp3)")
    data_gb: int = Field(0, ge=0, description="gigabytes of each model host's data disk (gp3); 0: none")
    disk_iops: int = Field(3000, ge=3000, le=80000, description="of the data disk, operations a second")
    disk_mb_per_s: int = Field(250, ge=125, le=2000, description="of the data disk, megabytes a second")
    shared_weights_gb: int = Field(
        0, ge=0, description="gigabytes of a shared file system (FSx for Lustre) that all model hosts read; 0: none"
    )
    expires_hours: int | None = Field(
        72,
        gt=0,
        description="hours after which hosts of the proof of concept are taken away by AWS itself; null: never",
    )
    budget_email: Annotated[str, _id("an address: ops@example.org", r"[^@\s]+@[^@\s]+")] | None = Field(
        None, description="who is told when `budget.monthly` is nearly spent"
    )
    capacity_block_id: Annotated[str, _id("the id of a reservation: cr-0123...", r"cr-[0-9a-f]{8,17}")] | None = Field(
        None, description="a capacity block that was bought (cr-...)"
    )
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(
        {}, description="further tags on everything that is made"
    )


class AwsSite(Artifact):
    """One place of the fleet: a region, or a Local Zone of the first site's region."""

    name: str  # "eu-central-1", or a Local Zone: "eu-central-1-ham-1a"
    region: str
    cidr: str
    zones: tuple[str, ...] = ()  # names in the order of preference; empty until they were asked for
    images: dict[str, str] = Field(default_factory=dict)  # role -> AMI id, pinned
    root_devices: dict[str, str] = Field(default_factory=dict)  # role -> name of that image's system disk
    reservations: dict[str, str] = Field(default_factory=dict)  # zone -> capacity reservation for the model hosts
    public: dict[str, str] = Field(default_factory=dict)  # zone -> subnet, where an existing network is used
    private: dict[str, str] = Field(default_factory=dict)
    border_group: str | None = None  # of a Local Zone's public addresses


class BatchQueue(Artifact):
    """A queue of jobs on hosts that come and go."""

    instance_types: tuple[str, ...]
    market: Literal["on-demand", "spot"]
    max_vcpus: int
    job_vcpus: int
    job_memory_mib: int
    job_gpus: int = 0
    image: str | None = None  # of the job, by digest; None: `current` in the registry that is made
    retries: int = 5  # of a job whose host was taken away
    timeout_s: int = 3600  # of one job


class AwsPlan(Artifact):
    """What a fleet needs on AWS beyond its host counts; nothing in it is looked up when the program runs."""

    settings: AwsSettings
    sites: tuple[AwsSite, ...]
    account: str | None = None  # twelve digits; None until it was asked for
    nodes_per_replica: int = 1  # above 1: EFA and a cluster placement group
    spread_zones: bool = False  # model hosts over two zones
    tenancy: Literal["shared", "dedicated"] = "shared"
    reservation: Literal["none", "on-demand-capacity", "capacity-block", "1y", "3y"] = "none"
    store: bool = True  # a bucket and a registry for weights, data and images
    batch: BatchQueue | None = None
    guard_rights: dict[str, str] = Field(
        default_factory=dict
    )  # site -> IAM policy of its monitor, which guards the name
    expires_at: str | None = None  # UTC, ISO 8601 to the minute; None: does not expire
    budget_usd: float | None = None  # a month


class OwnMachine(Artifact):
    """A host that exists already, as the profile declares it."""

    name: str  # within the fleet: model-1
    role: Literal["gateway", "model", "monitor"]
    address: str
    ssh_port: int = 22
    cores: float
    memory_bytes: int
    gpu: str | None = None
    gpus: int = 0
    network_gbps: float | None = None


class StaticPlan(Artifact):
    """Hosts to use; none is made. Paths are on the operator's machine, ~ is the operator's home."""

    machines: tuple[OwnMachine, ...]
    ssh_key: str
    known_hosts: str


class DesiredFleet(Artifact):
    """The one fleet document. Floors by stage: nobody shrinks below another stage's floor by accident."""

    label: str  # owner label value of every resource of the fleet
    groups: tuple[HostGroup, ...]
    floors: dict[str, int]  # stage -> model hosts it needs
    aws: AwsPlan | None = None  # None: not on AWS
    static: StaticPlan | None = None  # None: hosts are made


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
    stores: dict[str, str] = Field(default_factory=dict)  # what keeps data: bucket, file system, queue
    aws: AwsPlan | None = None  # as it was resolved: zones, images; for the lock file

    def by_role(self, role: str) -> tuple[Host, ...]:
        return tuple(h for h in self.hosts if h.role == role)

    def at_sites(self) -> tuple[Fleet, ...]:
        """Its part at each site, in the order of its endpoints, none of which reaches another. Itself at one site."""
        names = tuple(dict.fromkeys(e.site for e in self.endpoints))
        if len(names) < 2:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "hosts": tuple(h for h in self.hosts if h.site == name),
                    "endpoints": tuple(e for e in self.endpoints if e.site == name),
                }
            )
            for name in names
        )


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
    endpoint: Endpoint  # of a queue: its name, where jobs are handed in
    contract: Contract | None  # None: a queue, which no user calls
    replicas: int
    checks: tuple[Check, ...]
    monitor_url: str = ""  # "" and what follows: a queue has no monitor of its own
    monitor_user: str = ""
    monitor_password: str = ""  # secret reference
    ca: str = ""  # path of the CA of the fleet's own endpoints
    versions: dict[str, str] = Field(default_factory=dict)
