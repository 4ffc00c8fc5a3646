"""Captured texts turned into columns of one schema: times in UTC microseconds, durations in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from inferlift.audit.formats import Format
from inferlift.audit.parse import EARLIEST_US, FACTORS, LATEST_US, MAX_DURATION_S, Captured, shown, wrong
from inferlift.audit.templates import Field

SCHEMA: dict[str, pl.DataType] = {
    "row": pl.UInt32(),
    "stamp": pl.Int64(),  # null where the log has no times
    "whole": pl.Boolean(),  # the stamp has no fraction: the event lies somewhere in that second
    "started": pl.Boolean(),  # the stamp marks the start of the request
    "method": pl.String(),
    "path": pl.String(),
    "status": pl.UInt16(),  # 0: never answered
    "duration": pl.Int64(),
    "first": pl.Int64(),
    "upstream": pl.Int64(),
    "sent": pl.Int64(),
    "received": pl.Int64(),
    "session": pl.String(),
    "body": pl.UInt64(),
    "zone": pl.String(),  # as written; null where a time needs none
    "format": pl.String(),
}
_CLF, _HAPROXY = "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S%.f"
_REQUEST = r"^([A-Z]{1,20}) ([^\s?]+)(?:\?\S*)?(?: HTTP/[0-9](?:\.[0-9])?)?$"
_SOME = 20_000  # refused rows of a block that are looked at one by one for a reason


@dataclass(frozen=True)
class Converted:
    frame: pl.DataFrame  # SCHEMA
    refused: dict[int, str]
    ask: frozenset[str]


def empty() -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMA)


def converted(groups: pl.DataFrame, fields: Sequence[Field], wanted: Format, zone: str, lines: pl.Series) -> Converted:
    """`groups`: row, then a text column c0, c1 ... for each field. Rows with impossible values come refused."""
    of: dict[str, list[tuple[Field, str]]] = {}
    for i, field in enumerate(fields):
        of.setdefault(field.means, []).append((field, f"c{i}"))
    if wanted.csv:
        cells = pl.col(pl.String).str.strip_chars(" ")
        quoted = cells.str.strip_prefix('"').str.strip_suffix('"').str.replace_all('""', '"', literal=True)
        groups = groups.with_columns(pl.when(cells.str.starts_with('"')).then(quoted).otherwise(cells))
        if wanted.separator != ",":  # a comma that does not separate may be a decimal point
            groups = groups.with_columns(pl.col(pl.String).str.replace(r"^([0-9]+),([0-9]+)$", "${1}.${2}"))
    stamp, whole = _time(groups, of.get("time", []), zone)
    durations = _amount(groups, of.get("duration", []))
    created, _ = _time(groups, of.get("created", []), zone)
    if created is not None:
        between = pl.when(stamp >= created).then(stamp - created)
        durations = between if durations is None else pl.coalesce(durations, between)
    status = pl.coalesce(*(_status(c) for _, c in of["status"])) if "status" in of else None
    method, path, extra = _request(groups, of)
    null = {name: pl.lit(None, dtype=kind) for name, kind in SCHEMA.items()}
    columns = {
        "row": pl.col("row"),
        "stamp": stamp,
        "whole": whole,
        "started": pl.lit(wanted.stamp == "start"),
        "method": method,
        "path": path,
        "status": status,
        "duration": durations,
        "first": _amount(groups, of.get("first_byte", [])),
        "upstream": _amount(groups, of.get("upstream", [])),
        "sent": _amount(groups, of.get("sent", [])),
        "received": _amount(groups, of.get("received", [])),
        "session": _text(of.get("session", [])),
        "body": None if "body" not in of else pl.when(pl.col(of["body"][0][1]).is_in(["-", ""]).not_())
        .then(pl.col(of["body"][0][1]).hash(7)),
        "zone": _zone(of.get("time", [])),
        "format": pl.lit(wanted.name),
    }  # fmt: skip
    source = groups if extra is None else groups.hstack(extra)
    frame = source.select(
        (null[name] if given is None else given.cast(SCHEMA[name], strict=False)).alias(name)
        for name, given in columns.items()
    )
    bad = pl.lit(False)
    if stamp is not None:
        bad = bad | ~pl.col("stamp").is_between(EARLIEST_US, LATEST_US, closed="left").fill_null(False)
    if durations is not None:
        bad = bad | (pl.col("duration") > int(MAX_DURATION_S * 1e6)).fill_null(False)
    if status is not None:
        told = source.select(pl.any_horizontal(pl.col(c).is_in(["-", ""]).not_() for _, c in of["status"])).to_series()
        bad = bad | (pl.col("status").is_null() & told)
    mask = frame.select(bad).to_series()
    refused: dict[int, str] = {}
    if mask.any():
        refused = _reasons(groups.filter(mask), fields, wanted, lines.filter(mask))
        frame = frame.filter(~mask)
    ask = frozenset([*([wanted.name] if wanted.ask else []), *wanted.unasked])
    return Converted(frame, refused, ask if frame.height else frozenset())


def _time(groups: pl.DataFrame, told: Sequence[tuple[Field, str]], zone: str) -> tuple[pl.Expr | None, pl.Expr | None]:
    """Microseconds, the finest of several; and whether they name whole seconds only."""
    found: list[tuple[pl.Expr, pl.Expr]] = []
    for field, column in sorted(told, key=lambda pair: pair[0].type != "epoch"):
        text = pl.col(column)
        if field.type == "epoch":
            us = (_number(text) * FACTORS[field.unit]).round().cast(pl.Int64, strict=False)
            whole = us % 1_000_000 == 0 if field.unit != "s" else ~text.str.contains(".", literal=True)
        elif field.type == "clf":
            us, whole = _stamp(text.str.strip_chars("[]"), _CLF), pl.lit(True)
        elif field.type == "haproxy":
            us, whole = _naive(text, _HAPROXY, zone), ~text.str.contains(".", literal=True)
        elif field.type == "date_tab_time":
            us, whole = _naive(text, "%Y-%m-%d\t%H:%M:%S", "UTC"), pl.lit(True)
        else:
            iso = text.str.replace(" UTC", "Z", literal=True).str.replace(" ", "T", literal=True)
            iso = iso.str.replace(",", ".", literal=True)
            us = pl.coalesce(_stamp(iso, "%Y-%m-%dT%H:%M:%S%.f%#z"), _naive(iso, "%Y-%m-%dT%H:%M:%S%.f", zone))
            whole = ~iso.str.contains(".", literal=True)
        found.append((us, whole))
    if not found:
        return None, None
    if len(found) == 1:
        return found[0]
    told_by = pl.lit(True)
    for us, whole in reversed(found):
        told_by = pl.when(us.is_not_null()).then(whole).otherwise(told_by)
    return pl.coalesce(us for us, _ in found), told_by


def _stamp(text: pl.Expr, layout: str) -> pl.Expr:
    return text.str.to_datetime(layout, strict=False, time_unit="us").dt.epoch("us")


def _naive(text: pl.Expr, layout: str, zone: str) -> pl.Expr:
    """A time without a zone; the hour that summer time repeats is taken as the earlier one."""
    moment = text.str.to_datetime(layout, strict=False, time_unit="us")
    if zone != "UTC":
        moment = moment.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return moment.dt.epoch("us")


def _number(text: pl.Expr) -> pl.Expr:
    """Finite and not negative, else null."""
    value = text.cast(pl.Float64, strict=False)
    return pl.when(value.is_finite() & (value >= 0)).then(value)


def _amount(groups: pl.DataFrame, told: Sequence[tuple[Field, str]]) -> pl.Expr | None:
    """Durations in microseconds, bytes as they are; of several the last that is logged, or their sum (`add`)."""
    if not told:
        return None
    values = []
    for field, column in told:
        value = _number(pl.col(column))
        if field.shape == "list" and groups[column].str.contains_any([",", ":"]).any():
            tries = pl.col(column).str.extract_all(r"[0-9]+(?:\.[0-9]+)?").list.eval(pl.element().cast(pl.Float64))
            value = pl.when(tries.list.len() > 0).then(tries.list.sum())
        values.append((value * FACTORS[field.unit or "us"]).round().cast(pl.Int64, strict=False))
    if all(field.add for field, _ in told):
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total
    return values[0] if len(values) == 1 else pl.coalesce(reversed(values))


def _status(column: str) -> pl.Expr:
    text = pl.col(column)
    code = pl.when(text == "-1").then(0).otherwise(text.cast(pl.UInt16, strict=False))
    return pl.when((code == 0) | code.is_between(100, 999)).then(code)


def _request(
    groups: pl.DataFrame, of: dict[str, list[tuple[Field, str]]]
) -> tuple[pl.Expr | None, pl.Expr | None, pl.DataFrame | None]:
    """Method and path without query; null for what is no HTTP request (TLS bytes, `-`, nothing)."""
    told, verb, parts = _text(of.get("path", [])), _text(of.get("method", [])), None
    if told is not None:
        told = told.str.replace(r"\?.*$", "").str.replace(r"^https?://[^/]*", "")
    if "request" in of:
        parts = groups[of["request"][0][1]].str.extract_groups(_REQUEST).struct.unnest()
        parts.columns = ["m", "p"]
        path = pl.col("p")
        if parts["p"].str.starts_with("http").any():
            path = path.str.replace(r"^https?://[^/]*", "").replace("", "/")
        told = path if told is None else pl.coalesce(path, told)
        verb = pl.col("m") if verb is None else pl.coalesce(pl.col("m"), verb)
    return verb, told, parts


def _text(told: Sequence[tuple[Field, str]]) -> pl.Expr | None:
    if not told:
        return None
    return pl.coalesce(pl.when(pl.col(c).is_in(["-", ""]).not_()).then(pl.col(c)) for _, c in told)


def _zone(told: Sequence[tuple[Field, str]]) -> pl.Expr | None:
    """The offset as it is written, "none" where a time of day has none, null for Unix time."""
    for field, column in told:
        if field.type == "clf":
            return pl.col(column).str.strip_chars("]").str.slice(-5)
        if field.type == "haproxy":
            return pl.lit("none")
        if field.type == "iso":
            return pl.col(column).str.extract(r"(Z|UTC|[+-][0-9]{2}:?[0-9]{2})$").fill_null("none")
    return None


def _reasons(groups: pl.DataFrame, fields: Sequence[Field], wanted: Format, lines: pl.Series) -> dict[int, str]:
    reasons = {}
    for i, (row, *values) in enumerate(groups.iter_rows()):
        why = wrong(Captured(wanted, tuple(fields), tuple(values))) if i < _SOME else "like those before it"
        reasons[row] = why or f"a value is not understood, or a time that the zone skips: {shown(lines[i])}"
    return reasons
