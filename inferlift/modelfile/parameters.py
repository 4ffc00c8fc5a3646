"""Counts a transformer's parameters from its config.json, by what they are part of.

Counts follow the module definitions of the families in https://github.com/huggingface/transformers (src/transformers/
models/FAMILY/modeling_FAMILY.py); tests compare them with the published counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.modelfile.fields import Fields

DENSE = frozenset(
    [
        "llama",
        "mistral",
        "ministral",
        "qwen2",
        "qwen3",
        "phi3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "smollm3",
        "qwen3_vl_text",
        "mllama_text_model",
        "qwen2_vl",
    ]
)
EXPERTS = frozenset(["mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "gpt_oss", "minimax_m2"])
LATENT = frozenset(["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"])
OTHER = frozenset(["falcon"])
COUNTED = DENSE | EXPERTS | LATENT | OTHER

MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Shape:
    """The sizes that the count starts from."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool


@dataclass(frozen=True)
class Counts:
    """Parameters of the whole model by what they are part of; `dense` is MLPs and shared experts, `small` the rest."""

    embeddings: int  # table and head
    attention: int
    dense: int
    routed: int  # of experts that a token may be sent to
    small: int  # norms, routers, biases of norms
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0

    @property
    def total(self) -> int:
        return self.embeddings + self.attention + self.dense + self.routed + self.small

    @property
    def active(self) -> int:
        """Of one token; all where there are no experts."""
        return self.total - (self.routed - self.routed * self.experts_per_token // self.experts if self.experts else 0)


def count(family: str, text: Fields, shape: Shape) -> Counts:
    """Raises DeclarationError where a key that the family needs is missing."""
    if family == "falcon":
        return _falcon(text, shape)
    attention = _latent(text, shape) if family in LATENT else _grouped(family, text, shape)
    norms = shape.hidden * (4 if family in ("gemma2", "gemma3_text") else 2)
    if family.startswith(("qwen3", "gemma3")):
        norms += 2 * shape.head_dim
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    sparse = 0 if family in DENSE else _sparse_layers(text, shape.layers)
    plain = shape.layers - sparse
    width = text.integer("intermediate_size") if plain else 0
    bias = 2 * width + shape.hidden if text.flag("mlp_bias") else 0
    dense = plain * (3 * shape.hidden * width + bias)
    if not sparse:
        return Counts(embeddings, shape.layers * attention, dense, 0, shape.layers * norms + shape.hidden)
    experts = text.integer("n_routed_experts", "num_local_experts", "num_experts")
    each = text.integer("moe_intermediate_size", "intermediate_size")
    one = 3 * shape.hidden * each + (2 * each + shape.hidden if family == "gpt_oss" else 0)
    router = experts * shape.hidden
    if family in LATENT or family in ("gpt_oss", "minimax_m2"):
        router += experts  # a bias or correction each
    shared = text.maybe("shared_expert_intermediate_size", "shared_intermediate_size", least=0) or 0
    shared += (text.maybe("n_shared_experts", least=0) or 0) * each
    dense += sparse * 3 * shape.hidden * shared
    if family == "qwen2_moe":
        router += shape.hidden  # gate of the shared expert
    return Counts(
        embeddings,
        shape.layers * attention,
        dense,
        sparse * experts * one,
        shape.layers * norms + sparse * router + shape.hidden,
        experts,
        text.integer("num_experts_per_tok", "experts_per_token", most=experts),
        each,
    )


def _sparse_layers(text: Fields, layers: int) -> int:
    """Layers with experts."""
    if layers > MOST_LAYERS:
        return 0  # no model has so many: the declaration's own check refuses it
    first = text.maybe("first_k_dense_replace", least=0) or 0
    step = text.maybe("decoder_sparse_step", "moe_layer_freq") or 1
    plain = {one for one in text.items("mlp_only_layers") if isinstance(one, int)}
    return sum(1 for layer in range(first, layers) if (layer + 1) % step == 0 and layer not in plain)


def _grouped(family: str, text: Fields, shape: Shape) -> int:
    """Parameters of one layer's attention: queries and output, keys and values, biases where the family has them."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = shape.hidden * (2 * queries + 2 * keys)
    if family.startswith("qwen2"):
        return weights + queries + 2 * keys
    if text.flag("attention_bias"):
        weights += queries + 2 * keys + shape.hidden
    return weights + (shape.heads if family == "gpt_oss" else 0)  # sinks


def _latent(text: Fields, shape: Shape) -> int:
    """Multi-head latent attention (https://arxiv.org/abs/2405.04434): low-rank queries, keys and values."""
    rank, rope = text.integer("kv_lora_rank"), text.integer("qk_rope_head_dim")
    nope, value = text.integer("qk_nope_head_dim"), text.integer("v_head_dim")
    wide = shape.heads * (nope + rope)
    low = text.maybe("q_lora_rank")
    queries = shape.hidden * low + low + low * wide if low else shape.hidden * wide
    keys = shape.hidden * (rank + rope) + rank + rank * shape.heads * (nope + value)
    return queries + keys + shape.heads * value * shape.hidden


def _falcon(text: Fields, shape: Shape) -> Counts:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = shape.hidden * (2 * queries + 2 * keys)
    norms = (4 if text.flag("new_decoder_architecture") else 2) * shape.hidden
    return Counts(
        shape.vocab * shape.hidden * (1 if shape.tied else 2),
        shape.layers * attention,
        shape.layers * 8 * shape.hidden**2,
        0,
        shape.layers * norms + 2 * shape.hidden,
    )


def vision(config: Fields, text_hidden: int) -> int | None:
    """Parameters of an image encoder and what joins it to the text; None where its sizes are not stated.

    A plain vision transformer: 4 h^2 of attention and 2 h * i of MLP a layer (3 where gated), patches, positions.
    """
    hidden = config.maybe("embed_dim", "hidden_size")
    layers = config.maybe("num_hidden_layers", "depth")
    patch = config.maybe("patch_size")
    if hidden is None or layers is None or patch is None:
        return None
    width = config.maybe("intermediate_size") or hidden * (config.maybe("mlp_ratio") or 4)
    family = config.text("model_type")
    gated = family in ("qwen2_5_vl", "pixtral")
    layers += config.maybe("num_global_layers", least=0) or 0
    one = 4 * hidden**2 + (3 if gated else 2) * hidden * width
    frames = config.maybe("temporal_patch_size") or 1
    patches = 3 * frames * patch**2 * hidden
    side = config.maybe("image_size")
    positions = config.maybe("num_position_embeddings") or ((side // patch) ** 2 if side else 0)
    merge = config.maybe("spatial_merge_size")
    if merge and config.maybe("depth"):  # qwen: neighbouring patches are joined, then a two-layer MLP
        joined = hidden * merge**2
        out = config.maybe("out_hidden_size") or text_hidden
        join = (joined**2 + joined * out) * (1 + len(config.items("deepstack_visual_indexes")))
    elif family == "mllama_vision_model":
        join = config.integer("vision_output_dim") * text_hidden
    elif family == "siglip_vision_model":
        join = hidden * text_hidden
    else:
        join = hidden * text_hidden + text_hidden**2
    return layers * one + patches + positions * hidden + join
