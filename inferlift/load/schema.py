"""The part of JSON Schema that answers of models are checked with.

type, enum, const, properties, required, additionalProperties (true or false), items, minItems, maxItems, minLength,
maxLength, pattern, minimum, maximum. Any other word is refused: ignored, it would let everything pass.
(JSON Schema 2020-12, validation vocabulary.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
SILENT = ("title", "description", "$schema", "$id", "default", "examples")
KNOWN = (
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "minLength", "maxLength", "pattern", "minimum", "maximum", *SILENT,
)  # fmt: skip
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def fits(reply: str, schema: Any) -> bool:
    """Whether the reply is JSON (alone, or in one fenced block) that the schema allows."""
    fenced = _FENCE.search(reply)
    try:
        value = json.loads(fenced.group(1) if fenced else reply)
    except ValueError:
        return False
    return allows(schema, value)


def check(schema: Any) -> None:
    """Raises ValueError for a schema with a word that is not checked here."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise ValueError("a schema is an object")
    for word, value in schema.items():
        if word not in KNOWN:
            raise ValueError(f"the schema word {word!r} is not checked here; known: {', '.join(KNOWN)}")
        if word == "type" and not all(t in TYPES for t in (value if isinstance(value, list) else [value])):
            raise ValueError(f"unknown type {value!r}")
        if word == "properties":
            for part in value.values():
                check(part)
        elif word == "items":
            check(value)
        elif word == "pattern":
            re.compile(value)
        elif word == "additionalProperties" and not isinstance(value, bool):
            raise ValueError("additionalProperties is true or false here")


def allows(schema: Any, value: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    kinds = schema.get("type")
    if kinds is not None and not any(TYPES[kind](value) for kind in (kinds if isinstance(kinds, list) else [kinds])):
        return False
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if isinstance(value, dict):
        return _object(schema, value)
    if isinstance(value, list):
        within = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return within and all(allows(schema.get("items", True), item) for item in value)
    if isinstance(value, str):
        within = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return within and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
    if TYPES["number"](value):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def _object(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    if schema.get("additionalProperties", True) is False and not set(value) <= set(known):
        return False
    return all(allows(part, value[name]) for name, part in known.items() if name in value)


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b
