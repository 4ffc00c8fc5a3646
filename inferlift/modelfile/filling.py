"""Fills the keys of a profile's `model` that its `config` file supplies; what contradicts the file is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferlift.errors import DeclarationError
from inferlift.modelfile import read
from inferlift.profile.formats import contradicts

# A declared value may differ by this share where the file's is counted, not stated.
_LOOSE = {"parameters_total": 0.02, "parameters_active": 0.05, "vision_parameters": 0.1}
_UNQUANTIZED = frozenset(["fp32", "bf16", "fp16"])


def fill(plain: Any, root: Path) -> list[tuple[str, str]]:
    """Adds what the file named by `model.config` says to `plain` (a profile as read from YAML); declared keys win.

    Returns findings as pairs of key and what is wrong: a file that cannot be read, a declared key that contradicts it.
    """
    model = plain.get("model") if isinstance(plain, dict) else None
    config = model.get("config") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(config, str) or not config:
        return []
    try:
        known = read(root / config)
    except DeclarationError as error:
        return [("model.config", "; ".join(part for part in (error.what, error.next_command) if part))]
    found = [
        (f"model.{key}", f"{model[key]} is declared, {Path(config).name} says {value}")
        for key, value in known.items()
        if _contradicts(key, model.get(key), value)
    ]
    if (bits := known.get("weight_bits")) and contradicts(known.get("weight_format"), float(bits), known):
        del known[
            "weight_format"
        ]  # most of a mixed file is in another format than its name says: what is stored counts
    pair = {"weight_bits", "weight_format"}
    # A declared format or bits stand for each other: the file's other one would not fit to it.
    own = pair if any(model.get(key) is not None for key in pair) else set()
    for key, value in known.items():
        if model.get(key) is None and key not in own:
            model[key] = value
    return found


def _contradicts(key: str, declared: Any, value: Any) -> bool:
    """A smaller context is a choice, an unquantised model may be quantised; bits and operations are anybody's own."""
    if declared is None or key in ("weight_bits", "flops_per_item"):
        return False
    if key == "context":
        return isinstance(declared, int) and declared > value
    if key == "weight_format":
        return value not in _UNQUANTIZED and declared != value
    if key in _LOOSE:
        return isinstance(declared, int | float) and abs(declared - value) > _LOOSE[key] * value
    return bool(declared != value)
