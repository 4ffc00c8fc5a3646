"""Models that read and do not write, from their config.json: encoders of text (embeddings) and of images.

Parameters are counted from the module definitions of https://github.com/huggingface/transformers
(src/transformers/models/FAMILY/modeling_FAMILY.py); tests compare them with the published counts.
"""

from __future__ import annotations

from typing import Any

from inferlift.errors import DeclarationError
from inferlift.modelfile.fields import Fields, Figures

# Positions that a family keeps beyond those a text may have (its padding index lies before the first).
_BEFORE_THE_FIRST = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "mpnet": 2}
TEXT = frozenset(["bert", "distilbert", "modernbert", *_BEFORE_THE_FIRST])
IMAGES = frozenset(["vit", "deit", "dinov2", "clip_vision_model", "siglip_vision_model"])
# Image models whose config.json states no sizes to count from.
OTHER_IMAGES = frozenset(
    ["resnet", "convnext", "convnextv2", "efficientnet", "mobilenet_v2", "mobilenet_v1", "swin", "swinv2", "regnet",
     "detr", "rt_detr", "yolos", "segformer", "mask2former", "beit", "timm_wrapper", "donut-swin", "trocr"]
)  # fmt: skip


def kind_of(config: Fields) -> str:
    """The profile's task that a model of this config.json is of."""
    family = config.text("model_type")
    if family in TEXT:
        return "embeddings"
    if family in IMAGES | OTHER_IMAGES:
        return "image"
    return "multimodal" if config.inner("vision_config", "visual") else "chat"


def text(config: Fields, dtype: str | None) -> Figures:
    """Figures of a text encoder; the task `embeddings` is sized by them. Raises DeclarationError where a key lacks."""
    family = config.text("model_type")
    hidden = config.integer("hidden_size", "dim")
    layers = config.integer("num_hidden_layers", "n_layers")
    heads = config.integer("num_attention_heads", "n_heads")
    width = config.integer("intermediate_size", "hidden_dim")
    vocab = config.integer("vocab_size")
    places = config.integer("max_position_embeddings")
    norm = 2 * hidden
    if family == "modernbert":  # no biases, no table of positions, the MLP gated
        tables = vocab * hidden + hidden
        each = 4 * hidden**2 + 3 * hidden * width + 2 * hidden
        rest = 0  # the first layer's norm is none, the last one's is: even
    else:
        kinds = 0 if family == "distilbert" else config.maybe("type_vocab_size", least=0)
        kinds = (0 if family == "mpnet" else 2 if family == "bert" else 1) if kinds is None else kinds
        tables = (vocab + places + kinds) * hidden + norm
        each = 4 * (hidden**2 + hidden) + 2 * hidden * width + width + hidden + 2 * norm
        rest = 0 if family == "distilbert" else hidden**2 + hidden  # the pooler
        if family == "mpnet":  # positions relative to each other, one table for all layers
            rest += (config.maybe("relative_attention_num_buckets") or 32) * heads
    known: dict[str, Any] = {
        "parameters_total": tables + layers * each + rest,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(hidden // heads, 1),
        "vocab": vocab,
        "intermediate": width,
        "tied_embeddings": True,  # there is no head
        "context": max(places - _BEFORE_THE_FIRST.get(family, 0), 1),
        "weight_format": dtype or "fp32",  # as their classes are made where the file says nothing
    }
    return {key: value for key, value in known.items() if value is not None}


def image(config: Fields, dtype: str | None) -> Figures:
    """Figures of a plain vision transformer; the task `image` is sized by its operations.

    FLOP of an image = 2 a weight and patch + attention 4 L n^2 h. Raises DeclarationError where a key lacks.
    """
    hidden, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    width = config.maybe("intermediate_size") or hidden * (config.maybe("mlp_ratio") or 4)
    side, patch = config.integer("image_size"), config.integer("patch_size")
    patches = max(side // patch, 1) ** 2
    family = config.text("model_type")
    first = 0 if family == "siglip_vision_model" else 2 if family == "deit" else 1  # tokens before the patches
    each = 4 * (hidden**2 + hidden) + 2 * hidden * width + width + hidden + 4 * hidden
    each += 2 * hidden if family == "dinov2" else 0  # a scale after attention and after the MLP
    embed = 3 * patch**2 * hidden
    tables = embed + hidden * (1 + first) + (patches + first) * hidden
    tables += hidden if family == "dinov2" else 0  # what stands for a masked patch
    pooler = hidden**2 + hidden if family in ("vit", "deit") else 0
    tokens = patches + first
    known: dict[str, Any] = {
        "parameters_total": tables + layers * each + 2 * hidden + pooler,
        "flops_per_item": float(2 * layers * each * tokens + 4 * layers * tokens**2 * hidden + 2 * embed * patches),
        "weight_format": dtype or "fp32",  # as their classes are made where the file says nothing
    }
    return {key: value for key, value in known.items() if value is not None}


def unsized(config: Fields) -> DeclarationError:
    """What to say of an image model whose file has no sizes to count from."""
    family = config.text("model_type")[:40]
    return DeclarationError(
        f"{config.file}: {family!r} is an image model whose file does not say how large it is",
        why="the task image is sized by parameters and by the operations of one image",
        next_command="leave `config` out; declare model.parameters_total, and model.flops_per_item: twice the"
        " multiply-adds that its authors publish (ResNet-50 at 224 pixels: 2 * 4.09e9)",
    )
