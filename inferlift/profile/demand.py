"""What is asked of the service, what it must reach, and how it is to be run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from inferlift.profile.base import Positive, Section, Share, impossible, impossibles

Task = Literal["chat", "image", "batch", "multimodal", "embeddings"]
TASKS: tuple[str, ...] = get_args(Task)
# What is asked for now and then and is not inference of these kinds: refused by name, with what can be done instead.
OTHER_TASKS = {
    "training": "inferlift moves inference; a trained model is moved with the task it serves",
    "fine-tuning": "inferlift moves inference; the tuned model is moved with the task it serves",
    "finetuning": "inferlift moves inference; the tuned model is moved with the task it serves",
    "image-generation": "nothing here predicts diffusion models; `image` is recognition (classes, boxes, text)",
    "video-generation": "nothing here predicts diffusion models; `multimodal` reads images and writes text",
    "video": "nothing here predicts video models; single frames are the task `image` or `multimodal`",
    "speech": "nothing here predicts speech models",
    "transcription": "nothing here predicts speech models",
    "agents": "the model calls behind an agent are the task `chat`, with its long inputs as the input lengths",
    "rag": "its generation is the task `chat` (the retrieved text counts as input), its index `embeddings`",
    "completion": "the task `chat` covers every text in, text out",
    "classification": "of images: `image`; of text in bulk: `batch`; of text on a connection: `embeddings`",
    "reranking": "the task `embeddings` covers models that read and do not write",
}
WRITES_TOKENS = frozenset({"chat", "multimodal"})  # an answer is streamed, token by token
HOURS_OF_A_DAY = 24

NamedTask = Annotated[Task, BeforeValidator(lambda value: _known_task(value))]


class Requests(Section):
    """What is asked. Which keys a task needs: text tasks token lengths, tasks with images their sizes."""

    per_minute_peak: Positive | None = Field(
        None, le=1e9, description="requests that arrive in the busiest minute; null: taken from the audit"
    )
    in_flight_peak: int = Field(1000, gt=0, description="users whose requests are in flight at once")
    sessions: int | None = Field(
        None, gt=0, description="conversations open at once, whose context is kept; null: taken from the audit"
    )
    input_tokens_p50: int = Field(0, ge=0, description="tokens of a request, median; 0: the task has no text")
    input_tokens_p95: int = Field(0, ge=0, description="tokens of a request, 95th percentile; 0: no text")
    output_tokens: int = Field(0, ge=0, description="tokens of a reply asked for, mean; 0: the task writes no text")
    output_tokens_p95: int | None = Field(
        None, gt=0, description="tokens of a reply, 95th percentile; null: all as long as output_tokens"
    )
    image_width: int | None = Field(None, gt=0, le=100_000, description="pixels of an image as it is sent")
    image_height: int | None = Field(None, gt=0, le=100_000, description="pixels of an image as it is sent")
    image_tokens: int | None = Field(
        None, gt=0, description="tokens that the model makes of one image; null: by its family and the image's size"
    )
    images_per_request: int = Field(1, gt=0, description="images in one request, where the task has images")
    cpu_ms: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="CPU milliseconds of pre- and postprocessing (decode, resize, tokenise) a request; null: unknown",
    )
    day_curve: tuple[Share, ...] | None = Field(
        None,
        description="24 numbers, hour by hour UTC, relative to the busiest hour = 1; null: taken from the audit",
    )
    growth_per_month: float = Field(0.0, ge=-1, le=10, description="0.1 = 10 % a month")
    growth_months: int = Field(12, ge=0, le=120, description="months ahead that the peak is planned for")

    @model_validator(mode="after")
    def _ordered(self) -> Requests:
        found = []
        if self.input_tokens_p95 < self.input_tokens_p50:
            found.append(("input_tokens_p95", f"is below input_tokens_p50 ({self.input_tokens_p50})"))
        if self.output_tokens_p95 is not None and self.output_tokens_p95 < self.output_tokens:
            found.append(("output_tokens_p95", f"is below output_tokens ({self.output_tokens})"))
        if (self.image_width is None) != (self.image_height is None):
            missing = "image_width" if self.image_width is None else "image_height"
            found.append((missing, "missing; width and height go together"))
        if self.day_curve is not None:
            if len(self.day_curve) != HOURS_OF_A_DAY:
                found.append(("day_curve", f"expected 24 numbers, one an hour, got {len(self.day_curve)}"))
            elif max(self.day_curve) != 1:
                found.append(("day_curve", f"the busiest hour must be 1; the largest is {max(self.day_curve):g}"))
        if found:
            raise impossibles(found)
        return self

    @property
    def longest(self) -> int:
        """Tokens that one request needs at its longest: p95 in, p95 out."""
        return self.input_tokens_p95 + (self.output_tokens_p95 or self.output_tokens)


class Targets(Section):
    """What must be reached; null is no target."""

    p95_ttft_ms: Positive | None = Field(None, description="time to the first token, 95th percentile")
    p95_total_ms: Positive | None = Field(None, description="time to the last byte, 95th percentile")
    min_tokens_per_s: Positive | None = Field(None, description="tokens a second that each user sees at least")
    error_share: Share = Field(0.0, description="share of requests that may fail")
    quality: Share | None = Field(None, description="share of checkable prompts answered right")
    max_cost_per_1000: Positive | None = Field(None, description="of 1000 requests, in the budget's currency")
    acceptance_deadline_s: Positive | None = Field(
        None, description="all in-flight-peak requests answered by then; null: from the measured rate"
    )

    @model_validator(mode="after")
    def _not_contradictory(self) -> Targets:
        first, total = self.p95_ttft_ms, self.p95_total_ms
        if first is not None and total is not None and first > total:
            why = (
                f"the first token ({first:g} ms) may come later than the last byte ({total:g} ms)"
                f"; nearest that can be met: p95_ttft_ms {total:g}, or p95_total_ms {first:g}"
            )
            raise impossible("p95_ttft_ms", why)
        return self


class Load(Section):
    """The load test."""

    requests: int = Field(1000, gt=0, le=1_000_000, description="of the load test")
    origin_requests: int = Field(40, gt=0, description="cap of the live sample of the old side (--load-origin)")
    request_timeout_s: Positive = Field(120, description="a request that takes longer has failed")
    quality_prompts: str | None = Field(None, description="path of a JSON-lines file of prompts with answers")


class Operations(Section):
    """How the service is run, and what is allowed for it."""

    spare: int = Field(1, ge=0, le=10_000, description="replicas beyond the peak's need (N+1)")
    failure_domain: Literal["host", "zone"] = Field(
        "host", description="what may fail without users noticing: one host, or a whole availability zone"
    )
    availability: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="share of the time that users are served, 0.999 = 44 minutes a month without; null: none"
    )
    quiet_s: int = Field(300, ge=1, description="destroy and decommission refuse while users came within this time")
    residency: tuple[str, ...] = Field(
        (), description="where data may be: beginnings of region names (eu-central, us), 'eu' alone: the European Union"
    )
    regions: tuple[str, ...] = Field((), description="regions that may be used; empty: all that residency allows")
    hardware: tuple[str, ...] = Field(
        (), description="what may serve: `cpu`, or GPUs as the offers name them (T4, A10G, H100); empty: anything"
    )
    tenancy: Literal["shared", "dedicated"] = Field(
        "shared", description="dedicated: no other customer's machine on the same hardware"
    )
    log_requests: bool = Field(True, description="whether the text of requests may be kept in logs")
    model_change: Literal["rolling", "blue-green"] = Field(
        "rolling", description="how a new model comes: host by host, or beside the old one (twice the hosts meanwhile)"
    )
    model_changes_per_year: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="how often the model is replaced; null: not known"
    )
    spot_allowed: bool | None = Field(
        None, description="hosts that may be taken away at two minutes' notice; null: for the task batch alone"
    )
    reservation: Literal["none", "on-demand-capacity", "capacity-block", "1y", "3y"] = Field(
        "none", description="capacity held or bought ahead: an on-demand reservation, a block of days, 1 or 3 years"
    )
    quota_vcpus: int | None = Field(
        None, ge=0, description="vCPUs that the account may run now of the family wanted; null: not known"
    )
    approvals_hours: float = Field(
        24, ge=0, allow_inf_nan=False, description="hours that people take for both approvals, in all (expected)"
    )
    deadline_hours: Positive | None = Field(
        None, description="task batch: hours from the moment a request arrives until its answer must be there"
    )

    @model_validator(mode="after")
    def _agree(self) -> Operations:
        found = []
        for key in ("residency", "regions"):
            if not all(part.strip() for part in getattr(self, key)):
                found.append((key, "has an empty name"))
        if outside := [region for region in self.regions if not self.resides(region)]:
            allowed = ", ".join(self.residency)
            why = f"{', '.join(outside)} lies outside of residency ({allowed}); nearest: leave it out, or add it there"
            found.append(("regions", why))
        if self.spot_allowed and self.availability is not None:
            why = (
                f"hosts that can be taken away at any time promise no availability of {self.availability:g}"
                "; nearest: spot_allowed false, or availability null"
            )
            found.append(("spot_allowed", why))
        if self.spot_allowed and self.reservation != "none":
            why = f"spot hosts cannot be reserved ({self.reservation}); nearest: spot_allowed false or reservation none"
            found.append(("spot_allowed", why))
        if found:
            raise impossibles(found)
        return self

    def resides(self, region: str) -> bool:
        """Whether data may be in that region of a cloud."""
        return not self.residency or any(_within(region, prefix) for prefix in self.residency)


class Network(Section):
    """What the way between users and service has to carry; null is no requirement, or not known."""

    latency_budget_ms: Positive | None = Field(
        None, description="milliseconds that the network may take of a request, both ways"
    )
    bandwidth_gbps: Positive | None = Field(
        None, description="gigabits a second of the link over which data is copied to the new side"
    )
    egress_gb_per_month: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="gigabytes a month that leave the service"
    )


# Regions of AWS whose name begins with eu but that lie outside of the European Union (London, Zurich).
# Source: https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html
NOT_IN_THE_UNION = ("eu-west-2", "eu-central-2")


def _within(region: str, prefix: str) -> bool:
    if prefix.lower() == "eu":
        return region.startswith("eu") and not region.startswith(NOT_IN_THE_UNION)
    return region.startswith(prefix.lower())


def _known_task(value: Any) -> Any:
    if isinstance(value, str) and (why := OTHER_TASKS.get(value.strip().lower().replace("_", "-").replace(" ", "-"))):
        raise ValueError(f"{value!r} is not one of {', '.join(TASKS)}: {why}")
    return value
