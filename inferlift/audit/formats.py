"""The log formats (formats.yaml), formats named or pasted by the user, and mappings of generic JSON and CSV."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Callable, Mapping, Sequence
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
    separator: str = ","
    mapped: tuple[Field, ...] = ()  # of a user's mapping: what must be found in the log

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
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else None
    except ValueError as error:  # no UTF-8, or a NUL in the name
        raise DeclarationError(f"format file {name!r} cannot be read", why=str(error)) from None
    except OSError as error:
        text = None
        if error.errno != errno.ENAMETOOLONG:
            raise DeclarationError(f"format file {name} cannot be read", why=str(error)) from None
    if text is not None:
        if (found := templates.pasted(text)) is not None and ("log_format" in text or "LogFormat" in text):
            return _pasted(*found)
        return _mapping(name, text)
    known = ", ".join(candidate.name for candidate in formats())
    raise DeclarationError(
        f"there is no log format {name[:80]!r}",
        why=f"known formats: {known}{_near(name, [candidate.name for candidate in formats()])}",
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
        variable = of_name.get(dotted) or of_name.get(last) or of_name.get(_plain(last))
        field = table[variable] if variable else Field("")
        if field.means and field.means in chosen and field.means != "time":
            field = Field("")
        if not field.means and {last, _plain(last)} & set(_table()["asks"]):
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
    return replace(built, pattern=_csv(fields, separator), open=False, csv=True, separator=separator)


def of_columns(mapping: Format, columns: Sequence[str]) -> Format:
    """A CSV mapping whose columns stand in this order."""
    of_key = {field.key[0]: field for field in mapping.mapped}
    ordered = [of_key.get(column, Field("")) for column in columns]
    used = tuple(field for field in ordered if field.means)
    return replace(mapping, fields=used, pattern=_csv(ordered, mapping.separator))


def _plain(name: str) -> str:
    """`Duration (ms)`, `duration-ms` and `durationMs` are one name."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[\W_]+", "_", name).strip("_").lower()


_EXAMPLE = "kind: json, stamp: end, fields: {time: {key: ts, type: iso}, duration: {key: took, unit: ms}, path: url}"
_ROW_KEYS = ("kind", "stamp", "fields", "columns", "separator")
_FIELD_KEYS = ("key", "type", "unit")
_TIME_TYPES = ("clf", "iso", "haproxy", "epoch")


def _mapping(name: str, text: str) -> Format:
    """kind: json | csv; stamp: start | end; fields: {time: {key, type, unit}, duration: {key, unit}, path: key ...};
    csv: columns (in order; else the header says them) and separator."""

    def wrong(what: str, why: str) -> DeclarationError:
        return DeclarationError(f"mapping {name}{what}", why=why, next_command=f"for example {_EXAMPLE}")

    try:
        row = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise wrong(" is no YAML", str(error).splitlines()[0] if str(error) else "nested too deeply") from None
    if not isinstance(row, dict) or row.get("kind") not in ("json", "csv") or not isinstance(row.get("fields"), dict):
        raise wrong(" is not understood", "expected kind and fields")
    for key in row:
        if key not in _ROW_KEYS:
            raise wrong(f": {key!r} is not understood", f"known: {', '.join(_ROW_KEYS)}{_near(key, _ROW_KEYS)}")
    stamp, separator = row.get("stamp", "end"), str(row.get("separator", ","))
    separator = "\t" if separator in ("tab", "\\t") else separator
    if stamp not in ("start", "end"):
        raise wrong(f": stamp {stamp!r} is not understood", "start or end: what of the request its time marks")
    if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in '"\n\r':
        raise wrong(f": separator {separator!r} is not understood", "one sign such as , ; | or tab")
    fields = tuple(_mapped(meaning, told, wrong) for meaning, told in row["fields"].items())
    if not any(field.means == "time" for field in fields):
        raise wrong(" names no time", "without one nothing can be placed")
    if row["kind"] == "json":
        return Format(name, fields, stamp, name, mapped=fields)
    flat = tuple(replace(field, key=(".".join(field.key),)) for field in fields)
    built = Format(name, flat, stamp, name, open=False, csv=True, separator=separator, mapped=flat)
    columns = row.get("columns")
    if columns is None:
        return built  # the header says them
    if not isinstance(columns, list) or not columns:
        raise wrong(": columns is no list", "the names in their order, or leave it out where the file has a header")
    columns = [str(column) for column in columns]
    for field in flat:
        if field.key[0] not in columns:
            raise wrong(
                f": {field.means}'s column {field.key[0]!r} is none of its columns",
                f"columns: {', '.join(columns)}{_near(field.key[0], columns)}",
            )
    return of_columns(built, columns)


def _mapped(meaning: Any, told: Any, wrong: Callable[[str, str], DeclarationError]) -> Field:
    means = sorted({field.means for field in variables().values() if field.means} - {"unknown_duration", "created"})
    told = told if isinstance(told, dict) else {"key": told}
    if meaning not in means:
        raise wrong(f": {meaning!r} is not understood", f"known: {', '.join(means)}{_near(meaning, means)}")
    if not isinstance(told.get("key"), str) or not told["key"]:
        raise wrong(f": {meaning} names no key", "a key, or {key: ..., unit: ...}")
    for key in told:
        if key not in _FIELD_KEYS:
            raise wrong(f": {meaning}'s {key!r} is not understood", f"known: {', '.join(_FIELD_KEYS)}")
    unit, kind = told.get("unit", ""), told.get("type", "")
    if meaning in ("duration", "first_byte", "upstream") and unit not in UNITS:
        problem = f"has no unit {unit!r}" if unit else "has no unit"
        raise wrong(f": {meaning} {problem}", f"one of {', '.join(UNITS)}{_near(unit, UNITS)}")
    if meaning == "time" and kind not in _TIME_TYPES:
        problem = f"has no type {kind!r}" if kind else "has no type"
        raise wrong(f": time {problem}", "clf, iso, haproxy, or epoch with a unit")
    if kind == "epoch" and unit not in UNITS:
        raise wrong(
            f": a Unix time {f'has no unit {unit!r}' if unit else 'needs a unit'}", f"one of {', '.join(UNITS)}"
        )
    return Field(meaning, kind if meaning == "time" else "", unit, key=tuple(told["key"].split(".")))


def _near(word: Any, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(str(word), known, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _csv(fields: Sequence[Field], separator: str) -> str:
    sign = f"\\x{ord(separator):02x}"
    inner = templates.SHAPES["csv"].replace("SEPARATOR", sign)
    return sign.join(f" *({inner}) *" if field.means else f" *(?:{inner}) *" for field in fields)


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
