"""Which format lines have, as far as the lines themselves tell it: known ones by trial, JSON keys, CSV headers."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from inferlift.audit.block import Block
from inferlift.audit.formats import Format, formats, generic, of_columns
from inferlift.audit.parse import at_key, capture, epoch_unit, json_object, number, shown, stamp_us, wrong
from inferlift.audit.templates import Field
from inferlift.errors import DeclarationError

SEPARATORS = ",;\t|"
_CLOUDFRONT = "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html"


def choose(lines: Sequence[str]) -> Format | None:
    """The format that understands most of the lines, durations counting double; None if none understands any."""
    best: tuple[float, Format] | None = None
    for candidate in (*(known for known in formats() if not known.only_named), *_told_by(lines)):
        score = 0.0
        for left, line in zip(range(len(lines), 0, -1), lines, strict=True):
            if best is not None and score + 2 * left <= best[0]:
                break  # it cannot become better than the best any more
            found = capture(line, candidate)
            if found is None or wrong(found):
                continue
            means = {field.means for field, value in zip(found.fields, found.values, strict=True) if value}
            score += 2 if means & {"duration", "created"} else 1.5 if "unknown_duration" in means else 1
        if score and (best is None or score > best[0]):
            best = (score, candidate)
    return best[1] if best else None


def resolved(wanted: Format, lines: Sequence[str]) -> Format:
    """A named format held against the log's first lines: a CSV mapping finds its columns by the header, in any order,
    and a mapping's keys must occur.

    Raises DeclarationError for a key or a column that does not.
    """
    if not wanted.mapped:
        return wanted
    lines = [line for line in lines if line.strip()]
    if wanted.csv:
        first = lines[0] if lines else ""
        if (found := of_header(wanted, first, lines[1] if len(lines) > 1 else "")) is not None:
            return found
        if wanted.pattern:  # its columns were declared, so no header is needed
            return wanted
        cells = _cells(first, wanted.separator)
        missing = [field for field in wanted.mapped if field.key[0] not in cells]
        raise _never(wanted, missing, cells, "the first line")
    objects = [data for line in lines if (data := json_object(line)) is not None]
    missing = [field for field in wanted.mapped if not any(_holds(data, field.key) for data in objects)]
    if objects and missing:
        keys = dict.fromkeys(".".join(key) for data in objects[:200] for key in _keys(data))
        raise _never(wanted, missing, list(keys), f"the first {len(objects)} objects")
    return wanted


def unread(lines: Sequence[str], chosen: Format) -> str:
    """An example of what most lines hold after the fields of a format without durations; "" where that is nothing."""
    if not chosen.open or not chosen.pattern:
        return ""
    rests = []
    for line in lines:
        match = chosen.compiled().fullmatch(line)
        found = capture(line, chosen)
        if match is None or found is None or any(field.means in ("duration", "created") for field in found.fields):
            continue
        rests.append((match.groups()[-1] or "").strip())
    told = [rest for rest in rests if any(sign.isdigit() for sign in rest)]
    return shown(told[0], 40) if len(told) * 2 > len(lines) else ""


def of_header(chosen: Format, line: str, after: str = "") -> Format | None:
    """The same table by another header; None where the line is none. `after`: the line that follows it."""
    if not chosen.csv:
        return None
    cells = _cells(line, chosen.separator)
    if chosen.mapped:
        if not all(field.key[0] in cells for field in chosen.mapped):
            return None
        return of_columns(chosen, cells)
    return _table([(cell,) for cell in cells], chosen.separator, _cells(after, chosen.separator))


def by_header(source: Iterable[Block], chosen: Format) -> Iterator[Block]:
    """Blocks cut where a CSV's header comes (again), each with the format that it tells: files of one set may hold
    their columns in different orders, and a value would otherwise be read as another."""
    current = chosen
    for block in source:
        if not chosen.csv:
            yield block
            continue
        begin = 0
        for row in _headers(block.lines, chosen):
            if (found := of_header(chosen, block.lines[row], _line(block.lines, row + 1))) is None:
                continue
            if row > begin:
                yield block.part(begin, row, current)
            header = block.part(row, row + 1, found)
            yield replace(header, refused={0: "the header"})
            begin, current = row + 1, found
        if begin < len(block.lines):
            yield block.part(begin, len(block.lines), current)


def _headers(lines: pl.Series, chosen: Format) -> list[int]:
    """Rows that may be headers: they hold the name of the time's column."""
    keys = chosen.mapped or chosen.fields
    names = [field.key[-1] for field in keys if field.means == "time" and field.key]
    if not names:
        return []
    return lines.str.contains(names[0], literal=True).fill_null(False).arg_true().to_list()


def _line(lines: pl.Series, row: int) -> str:
    return str(lines[row]) if row < len(lines) else ""


def _told_by(lines: Sequence[str]) -> list[Format]:
    """Formats that only these lines tell: keys of JSON objects, a CSV header, CloudFront's #Fields."""
    found: list[Format | None] = []
    for line in lines[:50]:
        if line.startswith("#Fields:"):
            found.append(_cloudfront(line.removeprefix("#Fields:").split()))
        elif (data := json_object(line)) is not None:
            built = generic(list(_keys(data)))
            found.append(
                _timed(built, {field.key: at_key(data, field.key) for field in built.fields}) if built else None
            )
        if any(found):
            break
    told = [line for line in lines if line.strip()]
    first, second = told[0] if told else "", told[1] if len(told) > 1 else ""
    separator = max(SEPARATORS, key=first.count)
    if separator in first and not first.startswith(("{", "#")):
        found.append(_table([(cell,) for cell in _cells(first, separator)], separator, _cells(second, separator)))
    return [one for one in found if one is not None]


def _table(columns: Sequence[tuple[str, ...]], separator: str, row: Sequence[str]) -> Format | None:
    built = generic(columns, separator=separator)
    if built is None:
        return None
    return _timed(built, dict(zip(columns, row, strict=False)))


def _timed(built: Format, values: Mapping[tuple[str, ...], str | None]) -> Format:
    """The kind of each time by the value that was seen: a Unix time's unit is the one that gives a year of ours."""
    return replace(built, fields=tuple(_kind(field, values.get(field.key)) for field in built.fields))


def _kind(field: Field, value: str | None) -> Field:
    if field.means != "time" or not value:
        return field
    if (told := number(value)) is not None:
        unit = epoch_unit(told)
        return replace(field, type="epoch", unit=unit) if unit else field
    kinds = (field.type, "iso", "clf", "haproxy")
    fitting = (kind for kind in kinds if kind != "epoch" and stamp_us(value, replace(field, type=kind)) is not None)
    return replace(field, type=next(fitting, field.type))


def _cells(line: str, separator: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    except csv.Error:
        return []


def _cloudfront(names: Sequence[str]) -> Format | None:
    """The standard log's columns in the order that its own header gives; date and time are one stamp, in UTC."""
    if tuple(names[:2]) != ("date", "time"):
        return None
    built = generic([("time",), *((name,) for name in names[2:])], separator="\t")
    if built is None:
        return None
    fields = tuple(replace(field, type="date_tab_time") if field.means == "time" else field for field in built.fields)
    cells = ["([0-9-]{10}\\t[0-9:]{8})"]
    wanted = {field.key[0] for field in fields}
    cells += ["([^\\t]*)" if name in wanted else "[^\\t]*" for name in names[2:]]
    return replace(built, name="cloudfront", pattern="\\t".join(cells), fields=fields, csv=False,
                   source=_CLOUDFRONT)  # fmt: skip


def _never(wanted: Format, missing: Sequence[Field], known: Sequence[str], where: str) -> DeclarationError:
    told = []
    for field in missing:
        key = ".".join(field.key)
        near = difflib.get_close_matches(key, known, 1, 0.5) or [
            name for name in known if name.rsplit(".", 1)[-1] == field.key[-1]
        ]
        told.append(f"{field.means}: {key!r}" + (f" (the nearest is {near[0]!r})" if near else ""))
    return DeclarationError(
        f"mapping {wanted.name}: {'; '.join(told)} never occurs in {where}",
        why=f"there is: {', '.join(list(known)[:20]) or 'nothing that looks like columns'}",
        next_command="mend the mapping, or leave out what the log does not hold",
    )


def _holds(data: Any, key: tuple[str, ...]) -> bool:
    for part in key:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def _keys(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for key, value in data.items():
        if isinstance(value, dict) and len(above) < 3:
            yield from _keys(value, (*above, key))
        else:
            yield (*above, key)
