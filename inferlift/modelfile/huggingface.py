"""A Hugging Face config.json: sizes, attention, number format, and the parameters counted from them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferlift.errors import DeclarationError
from inferlift.modelfile import encoders, parameters
from inferlift.modelfile.fields import Fields, Figures, wrong
from inferlift.modelfile.parameters import COUNTED, Counts, Shape
from inferlift.modelfile.quantization import bits_of, format_of

# Sizes are read as stated, parameters are not counted: the profile declares them.
PLAIN = frozenset(
    ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "llama4_text", "olmo2", "granite", "mimo", "exaone4", "cohere"]
)
MOST_BYTES = 4 * 2**20
_TEXT = ("text_config", "language_config", "llm_config", "thinker_config")
# What a family's own class takes where the file leaves a key out (configuration_FAMILY.py of
# https://github.com/huggingface/transformers): always, and in the text part of a nested model, which states only what
# differs from its class.
_LLAMA = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {"head_dim": 256, "sliding_window_pattern": 6},
    "gemma2": {"head_dim": 256, "sliding_window_pattern": 2},
    "gemma": {"head_dim": 256},
    "falcon": {"max_position_embeddings": 2048},
}
_NESTED: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA | {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
_ALIASES = {"qwen2_vl_text": "qwen2_vl", "qwen2_5_vl_text": "qwen2_vl", "qwen2_5_vl": "qwen2_vl"}


def read(path: Path) -> Figures:
    """Figures of the model; parameters only of families whose modules are known. Raises DeclarationError."""
    whole = _load(path)
    alone = whole.text("model_type")
    if alone in encoders.TEXT:
        return encoders.text(whole, _dtype(whole, whole))
    if alone in encoders.IMAGES:
        return encoders.image(whole, _dtype(whole, whole))
    if alone in encoders.OTHER_IMAGES:
        raise encoders.unsized(whole)
    text = whole.inner(*_TEXT) or whole
    family = _family(text)
    if family not in COUNTED | PLAIN:
        raise wrong(path.name, f"{text.prefix}model_type", f"{family[:40]!r} is not known{_near(family)}")
    text = Fields(text.file, text.values, text.prefix, _defaults(family, text.prefix != ""))
    shape = _shape(whole, text)
    known: dict[str, Any] = {
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab": shape.vocab,
        "tied_embeddings": shape.tied,
        "context": text.integer("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
        "intermediate": text.maybe("intermediate_size", "ffn_hidden_size"),
        "experts": text.maybe("n_routed_experts", "num_local_experts", "num_experts"),
        "experts_per_token": text.maybe("num_experts_per_tok", "experts_per_token"),
        "expert_intermediate": text.maybe("moe_intermediate_size"),
        **_attention(text, shape),
    }
    if known["experts"]:
        known["expert_intermediate"] = known["expert_intermediate"] or known["intermediate"]
    counts = parameters.count(family, text, shape) if family in COUNTED else None
    encoder = whole.inner("vision_config") if counts else None
    vision = parameters.vision(encoder, shape.hidden) if encoder else None
    known |= _numbers(_quantized(path, whole, text), _dtype(whole, text), counts, vision)
    return {key: value for key, value in known.items() if value is not None}


def kind(path: Path) -> str:
    """The profile's task that the model is of. Raises DeclarationError."""
    return encoders.kind_of(_load(path))


def _load(path: Path) -> Fields:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise wrong(path.name, "file", f"is larger than {MOST_BYTES // 2**20} MB; that is no config.json")
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"is no JSON ({str(error)[:60]})"
        raise DeclarationError(
            f"{path.name}: {why}", why="expected a Hugging Face config.json or a GGUF file"
        ) from None
    except OSError as error:
        raise wrong(path.name, "file", f"cannot be read: {error.strerror or error}") from None
    if not isinstance(values, dict):
        raise wrong(path.name, "file", "expected a section of keys, as in a Hugging Face config.json")
    return Fields(path.name, values)


def _family(text: Fields) -> str:
    """The model_type; of a nested text part without one, that of the common base."""
    found = text.text("model_type")
    return _ALIASES.get(found, found) or ("llama" if text.prefix else "")


def _defaults(family: str, nested: bool) -> dict[str, Any]:
    own = {**_DEFAULTS.get(family, {}), **(_NESTED.get(family, {}) if nested else {})}
    # The base class ties embeddings, and a top-level file leaves out what is as in the base class.
    return own if nested else {"tie_word_embeddings": True, **own}


def _shape(whole: Fields, text: Fields) -> Shape:
    hidden = text.integer("hidden_size", "n_embd", "d_model")
    heads = text.integer("num_attention_heads", "n_head", "num_heads")
    kv_heads = text.maybe("num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
    if _family(text) == "falcon" and not text.flag("new_decoder_architecture"):
        kv_heads = 1 if text.flag("multi_query") else heads
    tied = text.flag("tie_word_embeddings") or (text.prefix != "" and whole.flag("tie_word_embeddings"))
    return Shape(
        text.integer("num_hidden_layers", "n_layer", "num_layers"),
        hidden,
        heads,
        kv_heads,
        text.maybe("head_dim") or max(hidden // heads, 1),
        text.integer("vocab_size"),
        tied,
    )


def _attention(text: Fields, shape: Shape) -> dict[str, Any]:
    """What is kept of past tokens."""
    if text.maybe("kv_lora_rank") is not None:
        nope, rope = text.integer("qk_nope_head_dim"), text.integer("qk_rope_head_dim")
        kept = {"kv_lora_rank": text.integer("kv_lora_rank"), "rope_dim": rope, "head_dim": nope + rope}
        return {"attention": "latent", "kv_heads": shape.heads} | kept
    kinds = [str(kind) for kind in text.items("layer_types")][: shape.layers]
    keeping = [kind for kind in kinds if "attention" in kind and "linear" not in kind]
    found: dict[str, Any] = {"kv_layers": len(keeping)} if 0 < len(keeping) < len(kinds) else {}
    window = text.maybe("sliding_window", least=0) or None
    if window is None or (text.value("use_sliding_window") is False):
        return found
    windowed = sum(1 for kind in kinds if "sliding" in kind)
    place = _place(["sliding" in kind for kind in kinds])
    if not kinds:
        every = text.maybe("sliding_window_pattern")
        windowed = shape.layers - shape.layers // every if every else shape.layers
        if text.flag("use_sliding_window"):
            windowed = shape.layers - min(text.maybe("max_window_layers", least=0) or 0, shape.layers)
            place = "last"
    if not windowed or window >= (text.maybe("max_position_embeddings") or 0):
        return found
    return found | {"attention": "sliding", "window": window, "window_layers": windowed, "window_place": place}


def _place(windowed: list[bool]) -> str:
    """Where the layers with a window lie, as the profile calls it."""
    if any(windowed) and not all(windowed):
        if windowed == sorted(windowed):
            return "last"
        if windowed == sorted(windowed, reverse=True):
            return "first"
    return "spread"


def _quantized(path: Path, whole: Fields, text: Fields) -> Fields | None:
    """What says how the weights are quantised: in the file, or in the hf_quant_config.json that lies beside it."""
    found = whole.inner("quantization_config", "compression_config") or text.inner("quantization_config")
    beside = path.with_name(path.name.replace("config.json", "hf_quant_config.json"))
    if found is None and beside != path and beside.is_file():
        return _load(beside).inner("quantization")
    return found


def _numbers(quantized: Fields | None, dtype: str | None, counts: Counts | None, vision: int | None) -> dict[str, Any]:
    """Number format and, where the parameters could be counted, how many there are and their real bits."""
    named = format_of(quantized) if quantized else dtype
    found: dict[str, Any] = {"weight_format": named}
    if counts is None:
        return found
    total = counts.total + (vision or 0)
    found |= {"parameters_total": total, "vision_parameters": vision}
    if counts.experts:
        found["parameters_active"] = counts.active + (vision or 0)
    if quantized and named:
        found["weight_bits"] = bits_of(named, quantized, counts, vision or 0)
    return found


def _near(family: str) -> str:
    known = COUNTED | PLAIN | encoders.TEXT | encoders.IMAGES
    near = difflib.get_close_matches(family[:40], sorted(known), n=1, cutoff=0.7)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    keys = "parameters_total, layers, heads, kv_heads, head_dim, weight_bits, context"
    return f"{hint}; without `config`, declare its figures: {keys}".replace("?; w", "? W")


def _dtype(whole: Fields, text: Fields) -> str | None:
    for fields in (whole, text):
        for key in ("torch_dtype", "dtype"):
            if (name := fields.text(key)) in ("bfloat16", "float16", "float32"):
                return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[name]
    return None
