"""The same workload with its weights in fewer bits: what may be cheaper, if its quality is shown first."""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.profile import Model, Profile
from inferlift.profile.formats import average_bits, weight_format

# What each format is offered in, in the order of their bits. Engines other than vLLM have formats of their own.
FEWER = {"fp32": ("fp8", "awq-int4"), "bf16": ("fp8", "awq-int4"), "fp16": ("fp8", "awq-int4"), "fp8": ("awq-int4",)}


@dataclass(frozen=True)
class Variant:
    name: str
    profile: Profile
    why: str  # the quality criterion, and what is known of the loss


def variants(profile: Profile) -> list[Variant]:
    """The formats with fewer bits that the server could take; none for a model without token output."""
    model = profile.model
    if profile.server.engine != "vllm" or model.weight_format is None or not model.layers:
        return []
    found = []
    for name in FEWER.get(model.weight_format, ()):
        told = weight_format(name)
        plain = {**model.model_dump(exclude={"weight_bits"}), "weight_format": name}
        if told is None or average_bits(plain) is None:
            continue  # where embeddings stay at 16 bit, hidden and vocab say how large they are
        changed = profile.model_copy(update={"model": Model.model_validate(plain)})
        loss = f"; known loss: {told.known_loss}" if told.known_loss else ""
        found.append(Variant(name, changed, f"only with its quality shown: {told.quality}{loss}"))
    return found
