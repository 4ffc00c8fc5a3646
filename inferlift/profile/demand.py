"""What is asked of the service and what it must reach."""

from __future__ import annotations

from pydantic import Field, model_validator

from inferlift.profile.base import Positive, Section, Share, impossible


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
