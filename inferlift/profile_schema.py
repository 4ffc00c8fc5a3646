"""The JSON schema of a profile: for editors, and for saying in words what a key expects."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter, ValidationError

from inferlift.profile import Profile

Location = tuple[str | int, ...]


def schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a profile file, for editors. With `extends` no other key is required."""
    whole = _whole_schema()
    partial = json.loads(json.dumps(whole).replace('"#/$defs/', '"#/$defs/Partial'))
    definitions = dict(whole["$defs"])
    for name, definition in partial["$defs"].items():
        for word in ("required", "if", "else"):
            definition.pop(word, None)
        definitions["Partial" + name] = definition
    extends = {"type": "string", "description": "profile (name or path) that this one changes"}
    branches: list[dict[str, Any]] = []
    for branch, required in ((partial, ["extends", "name"]), (whole, whole["required"])):
        properties = {"extends": extends, **branch["properties"]}
        branches.append(
            {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inferlift profile",
        "if": {"required": ["extends"]},
        "then": branches[0],
        "else": branches[1],
        "$defs": definitions,
    }


def expected(location: Location) -> str:
    described = _describe(at(location))
    description = at(location).get("description", "")
    return f"{described} ({description.splitlines()[0]})" if description else described


def _describe(part: dict[str, Any]) -> str:
    part = _resolved(part)
    if "anyOf" in part:
        return " or ".join(_describe(option) for option in part["anyOf"])
    if "const" in part:
        return repr(part["const"])
    if "enum" in part:
        return "one of " + ", ".join(map(str, part["enum"]))
    words = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "array": "a list",
        "object": "a section of `key: value` lines",
        "boolean": "true or false",
        "null": "null",
    }
    text = words.get(str(part.get("type")), "another value")
    bounds = (
        ("exclusiveMinimum", "above"),
        ("minimum", "of at least"),
        ("maximum", "of at most"),
        ("exclusiveMaximum", "below"),
        ("pattern", "matching"),
        ("maxLength", "of at most this many characters:"),
    )
    limits = [f"{word} {part[key]}" for key, word in bounds if key in part]
    if part.get("type") == "array" and isinstance(part.get("items"), dict):
        limits.append(f"of {_describe(part['items'])} each")
    return " ".join([text, " and ".join(limits)]).strip()


def choices(part: dict[str, Any]) -> list[str]:
    part = _resolved(part)
    options = [choice for option in part.get("anyOf", ()) for choice in choices(option)]
    return options + [str(value) for value in part.get("enum", [part["const"]] if "const" in part else [])]


def takes(part: dict[str, Any], kind: str) -> bool:
    """Whether a value of that JSON type may stand there."""
    part = _resolved(part)
    return part.get("type") == kind or any(takes(option, kind) for option in part.get("anyOf", ()))


def problem(location: Location, value: Any) -> str:
    """Why this value may not stand at that key, by the key's own type alone; "" where it may."""
    model: Any = Profile
    for step in location[:-1]:
        model = _inner(model.model_fields[str(step)].annotation)
    info = model.model_fields[str(location[-1])]
    kind: Any = Annotated[info.annotation, info]
    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return error.errors(include_url=False)[0]["msg"]
    return ""


def _inner(annotation: Any) -> Any:
    """The section in `Section` or `Section | None`."""
    return next((part for part in get_args(annotation) if part is not type(None)), annotation)


def is_secret(location: Location) -> bool:
    """Whether what stands there may be a secret's value, typed in by mistake."""
    part = at(location)
    return any(_resolved(option).get("secret") for option in (part, *part.get("anyOf", ())))


def shown(value: Any, *, secret: bool) -> str:
    kind = {
        str: "text",
        bool: "true/false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a section",
        type(None): "nothing (null)",
    }[type(value)]
    if secret or isinstance(value, list | dict) or value is None:
        return kind
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return f"{kind if isinstance(value, str) else ''} {text if len(text) < 60 else text[:57] + '...'}".strip()


@cache
def _whole_schema() -> dict[str, Any]:
    return Profile.model_json_schema()


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in part:
        target: dict[str, Any] = _whole_schema()["$defs"][part["$ref"].rsplit("/", 1)[-1]]
        return {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    return part


def at(location: Location) -> dict[str, Any]:
    """The schema of the key at `location`; empty where there is none."""
    part = _whole_schema()
    for step in location:
        part = _section(part)
        if isinstance(step, int):
            items = part.get("items", part.get("prefixItems", [{}])[0])
            part = items if isinstance(items, dict) else {}
        else:
            more = part.get("additionalProperties")
            part = part.get("properties", {}).get(step) or (more if isinstance(more, dict) else {})
    return _resolved(part)


def section(location: Location) -> dict[str, Any]:
    """The schema of the section there; of one that may be null, of what it is otherwise."""
    return _section(at(location))


def _section(part: dict[str, Any]) -> dict[str, Any]:
    part = _resolved(part)
    for option in part.get("anyOf", ()):
        if _resolved(option).get("type") != "null":
            return _resolved(option)
    return part


@cache
def all_keys() -> list[str]:
    found: list[str] = []
    for key, part in _whole_schema()["properties"].items():
        found.append(key)
        found += [f"{key}.{inner}" for inner in _section(part).get("properties", {})]
    return found


def nearest(word: str, candidates: list[str]) -> str | None:
    """The candidate that was probably meant, None where none is near."""
    found = difflib.get_close_matches(word[:100], candidates, n=1, cutoff=0.6)
    return found[0] if found else None


def table() -> str:
    """Every key as a Markdown table, for docs/profile.md. `*` must be given."""
    return "\n".join(["| key | value | default | meaning |", "| --- | --- | --- | --- |", *_rows(_whole_schema(), "")])


def _rows(section: dict[str, Any], prefix: str) -> list[str]:
    rows = []
    for key, part in section["properties"].items():
        star = "*" if key in section.get("required", ()) else ""
        inner, listed = _section(part), _resolved(part).get("items")
        meaning = _meaning(part).replace("|", "\\|")
        if "properties" in inner:
            meaning = str(inner.get("description", "")).splitlines()[0] if inner.get("description") else ""
            rows.append(f"| **`{prefix}{key}`**{star} | section | | {meaning} |")
            rows += _rows(inner, f"{prefix}{key}.")
            continue
        default = f"`{json.dumps(part['default'])}`" if "default" in part else ""
        rows.append(f"| `{prefix}{key}`{star} | {_describe(part)} | {default} | {meaning} |")
        if isinstance(listed, dict) and "properties" in _resolved(listed):
            rows += _rows(_resolved(listed), f"{prefix}{key}.0.")
    return rows


def _meaning(part: dict[str, Any]) -> str:
    whole = _resolved(part)
    return str(
        whole.get("description") or next((text for one in whole.get("anyOf", ()) if (text := _meaning(one))), "")
    )


if __name__ == "__main__":  # python -m inferlift.profile_schema: the keys' table in docs/profile.md, written anew
    page = Path(__file__).resolve().parents[1] / "docs" / "profile.md"
    before, _, _ = page.read_text(encoding="utf-8").partition("| key | value |")
    page.write_text(before + table() + "\n", encoding="utf-8")
