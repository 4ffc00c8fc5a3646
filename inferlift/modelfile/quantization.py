"""What a config.json's quantization_config means: the format's name and the real bits a weight."""

from __future__ import annotations

import fnmatch
from typing import Any

from inferlift.modelfile.fields import Fields, wrong
from inferlift.modelfile.parameters import Counts

# Bits a quantised weight: number and its share of the scales (and zero points) of its group.
_NUMBER = {"fp8": 8.0, "int8": 8.0, "nvfp4": 4.5, "mxfp4": 4.25, "bnb-nf4": 4.5, "bnb-int8": 8.0}


def format_of(config: Fields) -> str:
    """The name of the weight format in formats.csv. Raises DeclarationError where the method is not known."""
    method = config.text("quant_method").lower()
    if not method and config.value("quant_algo"):
        method = "modelopt"
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round", "auto_round"):
        bits = config.integer("bits", "w_bit", most=16)
        return {4: "awq-int4" if "awq" in method else "gptq-int4", 8: "gptq-int8"}.get(bits) or _unknown(
            config, f"{bits} bits of {method}"
        )
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method == "mxfp4":
        return "mxfp4"
    if method == "bitsandbytes":
        return "bnb-nf4" if config.flag("load_in_4bit") else "bnb-int8"
    if method.startswith("modelopt"):
        name = str(config.value("quant_algo")).upper()
        return {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "awq-int4"}.get(name) or _unknown(config, name)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(config)
    return _unknown(config, method or "no quant_method")


def bits_of(name: str, config: Fields, counts: Counts, vision: int) -> float:
    """Bits a weight, average over the whole model: what the format leaves alone stays at 16 bit."""
    inner = _weights(config)
    group = config.maybe("group_size", "q_group_size", least=-1) or (inner.maybe("group_size") if inner else None)
    bits = _NUMBER.get(name)
    if bits is None:  # integers in groups: one 16-bit scale a group, and zero points unless symmetric
        number = 8 if name.endswith("int8") else 4
        zero = 0 if name == "w4a16" and not (inner and inner.value("symmetric") is False) else number
        bits = number + (16 + zero) / group if group and group > 0 else float(number)
    left = _left_alone(config)
    total, kept = counts.total + vision, counts.embeddings + counts.small + vision
    if name == "mxfp4" or _matches(left, "model.layers.1.self_attn.q_proj"):
        kept += counts.attention
    if _matches(left, "model.layers.1.mlp.shared_experts.up_proj") or _matches(left, "model.layers.1.mlp.up_proj"):
        kept += counts.dense
    return bits + (16 - bits) * kept / total


def _compressed(config: Fields) -> str:
    weights = _weights(config)
    if weights is None:
        return _unknown(config, "compressed-tensors without config_groups")
    bits, kind = weights.integer("num_bits", most=16), weights.text("type")
    if bits == 8:
        return "fp8" if kind == "float" else "int8"
    if bits == 4:
        return "nvfp4" if kind == "float" else "w4a16"
    return _unknown(config, f"{bits} bits of compressed-tensors")


def _weights(config: Fields) -> Fields | None:
    groups = config.inner("config_groups")
    for name in groups.values if groups else ():
        group = groups.inner(name) if groups else None
        if group and (weights := group.inner("weights")):
            return weights
    return None


def _left_alone(config: Fields) -> list[str]:
    found: list[Any] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        found += config.items(key)
    return [one for one in found if isinstance(one, str)][:10_000]


def _matches(patterns: list[str], module: str) -> bool:
    parents = [module.rsplit(".", cut)[0] for cut in range(3)]
    return any(fnmatch.fnmatchcase(parent, pattern) for pattern in patterns for parent in parents)


def _unknown(config: Fields, what: str) -> str:
    raise wrong(
        config.file,
        f"{config.prefix}quant_method",
        f"{what[:60]} is not known; declare model.weight_bits and the other figures without `config`",
    )
