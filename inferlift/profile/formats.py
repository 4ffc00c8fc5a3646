"""Number formats of weights and of the KV cache: bits with scales, what stays at 16 bit, what a GPU must have."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SMALL = 1_000_000_000  # parameters below which a file's average is often well above its format's
_KV_BITS = {"fp16": 16.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.0, "q8_0": 8.5, "q4_0": 4.5}


@dataclass(frozen=True)
class WeightFormat:
    name: str
    bits: float  # a weight, scales included: of the layers' matrices where keeps_16, else of the whole file
    keeps_16: bool  # embeddings and head stay at 16 bit
    min_compute: float | None  # compute capability that computes in it natively; None: any
    min_compute_slow: float | None  # capability from which it runs at all (weights unpacked first); None: any
    quality: str  # what to check before it replaces the 16-bit model
    known_loss: str  # as published; "" where none is known
    source: str


@cache
def weight_formats() -> Mapping[str, WeightFormat]:
    """The table formats.csv by name."""
    with Path(__file__).with_name("formats.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["format"]: WeightFormat(
                row["format"],
                float(row["bits"]),
                row["keeps_16"] == "yes",
                float(row["min_compute"]) if row["min_compute"] else None,
                float(row["min_compute_slow"]) if row["min_compute_slow"] else None,
                row["quality"],
                row["known_loss"],
                row["source"],
            )
            for row in csv.DictReader(file)
        }


def weight_format(name: object) -> WeightFormat | None:
    return weight_formats().get(name) if isinstance(name, str) else None


def kv_bits_of(name: object) -> float | None:
    """Bits a value of the KV cache, block scales included (q8_0, q4_0: 32 values and one 16-bit scale)."""
    return _KV_BITS.get(name) if isinstance(name, str) else None


def kv_format_names() -> list[str]:
    return list(_KV_BITS)


def unknown_format(name: str, known: Sequence[str] | None = None) -> str:
    """What to say of a name that is in no table."""
    choices = list(known or weight_formats())
    near = difflib.get_close_matches(name[:100].lower(), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}? Expected" if near else "; expected"
    return f"unknown format {name[:60]!r}{hint} one of {', '.join(choices)}"


def contradicts(name: object, bits: float, model: Mapping[str, Any]) -> str:
    """Why a whole-file average of `bits` cannot be of that format; "" where it can.

    A GGUF average is of one published model: small ones keep more of theirs in wider types (rows that no block divides,
    embeddings), up to 1.66 times for a Q2_K of 135 million parameters. Where embeddings and head stay at 16 bit, so may
    more (attention of gpt-oss, layers that a quantiser leaves out), but never all.
    """
    form = weight_format(name)
    if form is None:
        return ""
    total = _count(model.get("parameters_total"))
    wide = 1.25 if total >= SMALL else 1.8
    least, most = form.bits * 0.8, form.bits * wide
    if form.bits >= 16:
        least, most = form.bits * 0.95, form.bits * 1.05
    elif form.keeps_16:
        least, most = form.bits * 0.99, max(12.0, (average_bits(model) or 0.0) * 1.25)
    if least <= bits <= most:
        return ""
    usual = average_bits(model) or form.bits
    return (
        f"{bits:g} bits a weight are not {name}, which comes to {usual:.4g}; leave weight_bits out, or name the format"
        " that has them"
    )


def average_bits(model: Mapping[str, Any]) -> float | None:
    """Bits a weight over the whole model that follow from `weight_format`; None where figures are missing.

    Where the format leaves embeddings and head at 16 bit, `hidden` and `vocab` are needed (and `tied_embeddings`,
    false unless said).
    """
    form = weight_format(model.get("weight_format"))
    if form is None:
        return None
    if not form.keeps_16:
        return form.bits
    total, hidden, vocab = (_count(model.get(key)) for key in ("parameters_total", "hidden", "vocab"))
    if not (total and hidden and vocab):
        return None
    tables = hidden * vocab * (1 if model.get("tied_embeddings") is True else 2)
    kept = tables + _count(model.get("vision_parameters"))
    if kept >= total:
        return None
    return form.bits + (16 - form.bits) * kept / total


def _count(value: object) -> int:
    """A whole number above 0; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
