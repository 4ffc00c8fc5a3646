"""The log formats (formats.yaml), formats named or pasted by the user, and mappings of generic JSON and CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.audit import templates
from inferlift.audit.templates import Field
from inferlift.errors import DeclarationError

UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Format:
    """How a line is read. `pattern` is for Python's re and Rust's regex alike; JSON formats have none."""

    name: str
    fields: tuple[Field, ...]
    stamp: str  # start | end | none
    source: str
    pattern: str = ""
    open: bool = True  # the pattern's last group is the rest of the line
    pairs: tuple[tuple[str, Field], ...] = ()
    must: tuple[tuple[tuple[str, ...], str], ...] = ()  # JSON keys that tell the format, with a pattern
    ask: tuple[str, ...] = ()  # formats to choose from: the log does not say the unit
    unasked: tuple[str, ...] = ()  # names of durations without a unit
    only_named: bool = False
    csv: bool = False

    @property
    def timed(self) -> bool:
        return any(f.means in ("duration", "created") for f in (*self.fields, *(f for _, f in self.pairs)))

    def compiled(self) -> re.Pattern[str]:
        return _compiled(self.pattern)


@cache
def variables() -> dict[str, Field]:
    return {name: Field(**row) for name, row in _table()["variables"].items()}


@cache
def formats() -> tuple[Format, ...]:
    return tuple(_format(row) for row in _table()["formats"])


def named(name: str) -> Format:
    """A format by its name, a log_format or LogFormat line, or the path of a file with such a line or a mapping.

    Raises DeclarationError for what is none of these.
    """
    for candidate in formats():
        if candidate.name == name:
            return candidate
    if (found := templates.pasted(name)) is not None:
        return _pasted(*found)
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"format file {name} cannot be read", why=str(error)) from None
    if text is not None:
        if (found := templates.pasted(text)) is not None and ("log_format" in text or "LogFormat" in text):
            return _pasted(*found)
        return _mapping(name, text)
    known = ", ".join(candidate.name for candidate in formats())
    raise DeclarationError(
        f"there is no log format {name!r}",
        why=f"known formats: {known}",
        next_command="name one of these, paste the log_format line, or name a file that holds it or a mapping",
    )


def generic(keys: Sequence[tuple[str, ...]], *, separator: str | None = None) -> Format | None:
    """A format for JSON keys, or for the columns of a CSV header, whose names are known; None without a time.

    A duration whose name says no unit is not guessed: it is listed in `unasked`.
    """
    aliases, table = _table()["aliases"], variables()
    of_name = {alias.lower(): variable for variable, names in aliases.items() for alias in names}
    chosen: dict[str, Field] = {}
    fields: list[Field] = []
    unasked = []
    for key in keys:
        dotted, last = ".".join(key).lower(), key[-1].lower()
        variable = of_name.get(dotted) or of_name.get(last)
        field = table[variable] if variable else Field("")
        if field.means and field.means in chosen and field.means != "time":
            field = Field("")
        if not field.means and last in _table()["asks"]:
            unasked.append(".".join(key))
        if field.means:
            chosen.setdefault(field.means, field)
        fields.append(replace(field, key=key, shape=""))
    if "time" not in chosen or not {"status", "request", "path", "duration"} & set(chosen):
        return None
    name = "csv" if separator else "json"
    built = Format(name, tuple(f for f in fields if f.means), "end", "column names", unasked=tuple(unasked))
    if separator is None:
        return built
    return replace(built, pattern=_csv(fields, separator), open=False, csv=True)


def _mapping(name: str, text: str) -> Format:
    """kind: json | csv; stamp: start | end; fields: {time: {key, type, unit}, duration: {key, unit}, path: key ...}."""
    try:
        row = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DeclarationError(f"mapping {name} is no YAML", why=str(error).splitlines()[0]) from None
    example = "kind: json, stamp: end, fields: {time: {key: ts, type: iso}, duration: {key: took, unit: ms}, path: url}"
    if not isinstance(row, dict) or row.get("kind") not in ("json", "csv") or not isinstance(row.get("fields"), dict):
        raise DeclarationError(
            f"mapping {name} is not understood", why="expected kind and fields", next_command=example
        )
    means = {field.means for field in variables().values() if field.means}
    fields = []
    for meaning, told in row["fields"].items():
        told = told if isinstance(told, dict) else {"key": told}
        if meaning not in means or not isinstance(told.get("key"), str):
            raise DeclarationError(
                f"mapping {name}: {meaning!r} is not understood", why=f"known: {', '.join(sorted(means))}"
            )
        if meaning in ("duration", "first_byte", "upstream") and told.get("unit") not in UNITS:
            raise DeclarationError(f"mapping {name}: {meaning} has no unit", why=f"one of {', '.join(UNITS)}")
        if meaning == "time" and told.get("type") not in ("clf", "iso", "epoch", "haproxy"):
            raise DeclarationError(f"mapping {name}: time has no type", why="clf, iso, haproxy, or epoch with a unit")
        fields.append(Field(meaning, told.get("type", ""), told.get("unit", ""), key=tuple(told["key"].split("."))))
    if not any(field.means == "time" for field in fields):
        raise DeclarationError(
            f"mapping {name} names no time", why="without one nothing can be placed", next_command=example
        )
    separator = str(row.get("separator", ",")).replace("tab", "\t")
    stamp = row.get("stamp", "end")
    if row["kind"] == "json":
        return Format(name, tuple(fields), stamp, name)
    columns = row.get("columns")
    if not isinstance(columns, list):
        raise DeclarationError(f"mapping {name} names no columns", why="a CSV mapping lists its columns in order")
    of_key = {field.key[0]: field for field in fields}
    ordered = [of_key.get(str(column), Field("")) for column in columns]
    used = tuple(field for field in ordered if field.means)
    return Format(name, used, stamp, name, pattern=_csv(ordered, separator), open=False, csv=True)


def _csv(fields: Sequence[Field], separator: str) -> str:
    inner = templates.SHAPES["csv"].replace("SEPARATOR", "\\t" if separator == "\t" else separator)
    cells = [f"({inner})" if field.means else f"(?:{inner})" for field in fields]
    literal = "\\t" if separator == "\t" else f"[{separator}]"
    return literal.join(cells)


def _pasted(name: str, template: str, stamp: str) -> Format:
    pattern, fields = templates.compiled(template, variables())
    return Format(name, fields, stamp, "the log_format given", pattern=pattern)


def _format(row: Mapping[str, Any]) -> Format:
    table = variables()
    common: dict[str, Any] = {
        "name": row["name"],
        "stamp": row["stamp"],
        "source": row["source"],
        "ask": tuple(row.get("ask", ())),
        "only_named": row.get("only_named", False),
    }
    if row.get("kind") == "json":
        keys = [(variable, tuple(key.split("."))) for variable, key in row["keys"].items()]
        must = tuple((tuple(key.split(".")), pattern) for key, pattern in row["must"].items())
        return Format(fields=tuple(replace(table[v], key=key, shape="") for v, key in keys), must=must, **common)
    closed = row.get("closed", False)
    pattern, fields = templates.compiled(row["template"], table, closed=closed)
    pairs = tuple((key, table[variable]) for key, variable in row.get("pairs", {}).items())
    return Format(fields=fields, pattern=pattern, open=not closed, pairs=pairs, **common)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "formats.yaml").read_text(encoding="utf-8"))
    return table


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.S)
