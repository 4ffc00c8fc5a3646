"""What one host of an offer reaches, held against the profile's targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferlift.artifacts import Interval, ItemRate, Memory
from inferlift.profile import Profile
from inferlift.sizing import image_tokens
from inferlift.sizing.hardware import Gpu, Layout
from inferlift.sizing.memory import Need, kv_bytes_per_token, weights_bytes

ONE_GPU = Layout()
TTFT, TOTAL, TOKENS_PER_S = "p95_ttft_ms", "p95_total_ms", "min_tokens_per_s"


@dataclass(frozen=True)
class Served:
    """One host at work. `reached` and `ranges` are by the profile's target keys; ranges where they are known."""

    name: str
    memory: Memory
    rate: float  # requests/s of the host
    explain: str
    reached: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, Interval] = field(default_factory=dict)
    gpu: Gpu | None = None
    layout: Layout = ONE_GPU
    copies: int = 1
    sessions: int | None = None  # of one copy
    need: Need | None = None
    tokens_per_s: Interval | None = None  # of one copy
    items: ItemRate | None = None
    beyond: str = ""

    def misses(self, profile: Profile) -> list[tuple[str, float, float]]:
        """Targets that are out of reach: (key, wanted, reached)."""
        found = []
        for key, value in self.reached.items():
            wanted = getattr(profile.targets, key)
            if wanted is not None and over(key, value, wanted) > 0:
                found.append((key, wanted, value))
        return found

    def doubtful(self, profile: Profile) -> list[str]:
        """Targets that the prediction meets, and the unlucky end of its range does not."""
        return [
            key for key, found in self.ranges.items()
            if (wanted := getattr(profile.targets, key)) is not None
            and over(key, found.value, wanted) <= 0 < over(key, unlucky(key, found), wanted)
        ]  # fmt: skip


@dataclass(frozen=True)
class Unserved:
    name: str
    memory: Memory
    why: str


def over(key: str, value: float, wanted: float) -> float:
    """By what share a target is missed; 0 where it is met."""
    return max(0.0, wanted / value - 1 if key == TOKENS_PER_S else value / wanted - 1)


def unlucky(key: str, found: Interval) -> float:
    return found.low if key == TOKENS_PER_S else found.high


def network_ms(profile: Profile) -> float:
    """What the network may take of each answer, by the profile: targets are what users see."""
    return profile.network.latency_budget_ms or 0.0


def context_of(profile: Profile) -> int:
    """Tokens that a session is given: as declared, else its longest request, images included."""
    declared = profile.server.context_per_slot
    return declared or min(profile.model.context, profile.requests.longest + image_context(profile)) or 1


def image_context(profile: Profile) -> int:
    """Tokens that the images of one request take in the context; 0 without images or without a rule for them."""
    asked = profile.requests
    if asked.image_tokens is not None:
        return asked.image_tokens * asked.images_per_request
    family = image_tokens.family_of(profile.model.name)
    if asked.image_width is None or asked.image_height is None or family is None:
        return 0
    told = image_tokens.image_tokens(asked.image_width, asked.image_height, family)
    return told.tokens * asked.images_per_request if told.in_context else 0


def no_memory(profile: Profile) -> Memory:
    """What is asked for wherever it runs: weights, and a token's keys and values."""
    weights = weights_bytes(profile.model)
    per_token = kv_bytes_per_token(profile.model) if profile.model.layers else 0
    return Memory(
        weights_bytes=weights, kv_bytes_per_token=per_token, kv_bytes=0, overhead_bytes=0, total_bytes=weights,
        explain=(),
    )  # fmt: skip
