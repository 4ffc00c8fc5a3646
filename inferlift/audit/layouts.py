"""The bulk of the lines, in columns: a layout is one concrete form of a format (its pairs in one order), learned from
lines that were read one by one, and matched against whole blocks at once."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections import Counter
from dataclasses import dataclass
from threading import Lock

import polars as pl

from inferlift.audit import convert
from inferlift.audit.formats import Format, formats
from inferlift.audit.parse import Captured, capture, pairs, shown, wrong
from inferlift.audit.templates import QUOTED, REST, SHAPES, Field

MAX_LAYOUTS = 12
SAMPLE = 200
LEARN = 20  # lines that are left over, from which on a new layout pays
_MARK = f"row-{secrets.token_hex(16)}"
ONE_BY_ONE = 4000  # lines of a block that are read singly before the columns say which are worth it


@dataclass(frozen=True)
class Layout:
    format: Format
    pattern: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Rows:
    """What was understood of a block, in log order, and which rows were not, with the reason."""

    frame: pl.DataFrame  # convert.SCHEMA
    refused: dict[int, str]
    ask: frozenset[str]  # names of the formats or fields whose unit the log does not say


class LineReader:
    """Reads blocks by the chosen format; a line that does not fit it is tried against all others."""

    def __init__(self, chosen: Format, zone: str = "UTC") -> None:
        self._chosen, self._zone = chosen, zone
        self._others = [other for other in formats() if other.name != chosen.name and not other.only_named]
        self._layouts: list[Layout] = []
        self._learning = Lock()

    def read(self, lines: pl.Series, refused: dict[int, str]) -> Rows:
        left = pl.DataFrame({"row": pl.int_range(len(lines), dtype=pl.UInt32, eager=True), "line": lines})
        if refused:
            left = left.filter(~pl.col("row").is_in(list(refused)))
        found: list[convert.Converted] = []
        for layout in tuple(self._layouts):
            left = self._match(layout, left, found)
        while left.height >= LEARN and (learned := self._learned(left)) is not None:
            left = self._match(learned, left, found)
        refused = dict(refused)
        if not self._chosen.pattern and left.height:
            begins = left["line"].str.contains(r"^\s*\{")
            left = pl.concat([self._objects(left.filter(begins), found), left.filter(~begins)])
        self._singly(left, found, refused)
        frames = []
        for part in found:
            refused.update(part.refused)
            frames.append(part.frame)
        whole = pl.concat(frames) if frames else convert.empty()
        return Rows(
            whole.sort("row") if len(frames) > 1 else whole,
            refused,
            frozenset().union(*(part.ask for part in found)),
        )

    def _match(self, layout: Layout, left: pl.DataFrame, found: list[convert.Converted]) -> pl.DataFrame:
        if not left.height:
            return left
        groups = left["line"].str.extract_groups(f"^(?s:{layout.pattern})$").struct.unnest()
        groups.columns = [f"c{i}" for i in range(groups.width)]
        taken = groups["c0"].is_not_null()
        count = taken.sum()
        if not count:
            return left
        groups = groups.insert_column(0, left["row"])
        lines = left["line"]
        if count < left.height:
            groups, lines, left = groups.filter(taken), lines.filter(taken), left.filter(~taken)
        else:
            left = left.clear()
        found.append(convert.converted(groups, layout.fields, layout.format, self._zone, lines))
        return left

    def _objects(self, left: pl.DataFrame, found: list[convert.Converted]) -> pl.DataFrame:
        """JSON lines, all at once; a stretch that holds a broken one is halved until few lines are left.

        The engine reads them as one array: a line that is cut within a text swallows the next ones, and one that holds
        two objects becomes two rows. So each line carries its number under a name that no line can know.
        """
        wanted = self._chosen
        if not left.height:
            return left
        keys = [*(field.key for field in wanted.fields), *(key for key, _ in wanted.must)]
        rest = pl.col("line").str.replace(r"^\s*\{", "")
        marked = pl.concat_str(pl.lit(f'{{"{_MARK}":'), pl.col("row").cast(pl.String), pl.lit(","), rest)
        objects = None
        with contextlib.suppress(pl.exceptions.PolarsError):
            decoded = left.select(marked.str.json_decode(_struct([(_MARK,), *keys])).alias("j"))
            numbers = decoded["j"].struct.field(_MARK).cast(pl.UInt32, strict=False)
            objects = decoded if numbers.equals(left["row"], check_names=False, null_equal=False) else None
        if objects is None:
            if left.height <= 200:
                return left
            half = left.height // 2
            return pl.concat([self._objects(left[:half], found), self._objects(left[half:], found)])
        groups = objects.select(_inside(key).alias(f"c{i}") for i, key in enumerate(keys))
        count = len(wanted.fields)
        times = [f"c{i}" for i, field in enumerate(wanted.fields) if field.means == "time"]
        fits = pl.any_horizontal(pl.col(times).is_not_null())
        for i, (_, pattern) in enumerate(wanted.must, count):
            fits = fits & (pl.col(f"c{i}").str.contains(pattern) if pattern else pl.col(f"c{i}").is_not_null())
        mask = groups.select(fits.fill_null(False)).to_series()
        groups = groups.select(f"c{i}" for i in range(count)).insert_column(0, left["row"]).filter(mask)
        found.append(convert.converted(groups, wanted.fields, wanted, self._zone, left["line"].filter(mask)))
        return left.filter(~mask)

    def _learned(self, left: pl.DataFrame) -> Layout | None:
        """The commonest new layout among some of the lines, if it is worth a pass over all of them."""
        with self._learning:  # blocks are read in several threads
            return self._learn(left) if len(self._layouts) < MAX_LAYOUTS else None

    def _learn(self, left: pl.DataFrame) -> Layout | None:
        some = left["line"].gather_every(max(1, left.height // SAMPLE)).head(SAMPLE)
        known = {layout.pattern for layout in self._layouts}
        layouts: dict[str, Layout] = {}
        counts: Counter[str] = Counter()
        for line in some:
            captured = self._captured(line)
            layout = _layout(line, captured) if captured else None
            if layout is not None and layout.pattern not in known:
                layouts[layout.pattern] = layout
                counts[layout.pattern] += 1
        if not counts:
            return None
        pattern, count = counts.most_common(1)[0]
        if count * 20 < len(some):
            return None
        self._layouts.append(layouts[pattern])
        return layouts[pattern]

    def _singly(self, left: pl.DataFrame, found: list[convert.Converted], refused: dict[int, str]) -> None:
        hopeless = left.clear()
        if left.height > ONE_BY_ONE:
            like = pl.lit(False)
            for known in (self._chosen, *self._others):
                text = rf"^(?s:{known.pattern})$" if known.pattern else r"^\s*\{.*\}\s*$"
                like = like | pl.col("line").str.contains(text)
            hopeless, left = left.filter(~like), left.filter(like)
        groups: dict[tuple[str, tuple[Field, ...]], list[tuple[int, str, Captured]]] = {}
        for row, line in left.iter_rows():
            captured = self._captured(line)
            if captured is None:
                refused[row] = self._why(line)
            elif captured.format is self._chosen and (why := wrong(captured)):
                refused[row] = why  # no other format makes an impossible value right
            else:
                groups.setdefault((captured.format.name, captured.fields), []).append((row, line, captured))
        for row, line in hopeless.iter_rows():
            refused[row] = self._why(line)
        for (_, fields), rows in groups.items():
            columns = {f"c{i}": [captured.values[i] for _, _, captured in rows] for i in range(len(fields))}
            frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
            frame.insert_column(0, pl.Series("row", [row for row, _, _ in rows], dtype=pl.UInt32))
            lines = pl.Series([line for _, line, _ in rows])
            found.append(convert.converted(frame, fields, rows[0][2].format, self._zone, lines))

    def _captured(self, line: str) -> Captured | None:
        captured = capture(line, self._chosen)
        if captured is not None:
            return captured
        for other in self._others:  # several formats may follow each other in one file
            captured = capture(line, other)
            if captured is not None and not wrong(captured):
                return captured
        return None

    def _why(self, line: str) -> str:
        if not line.strip():
            return "blank"
        if line.startswith("#") and self._chosen.name == "cloudfront":
            return "a comment"
        return f"does not have the fields of {self._chosen.name}: {shown(line)}"


def _layout(line: str, found: Captured) -> Layout | None:
    """None for what only a line-by-line reading takes."""
    wanted = found.format
    if not wanted.pattern:
        return None
    head = wanted.pattern.removesuffix(REST)
    if not wanted.pairs:
        return Layout(wanted, head + (r"(?:[ \t].*)?" if wanted.open else ""), wanted.fields)
    match = wanted.compiled().fullmatch(line)
    rest = (match.groups()[-1] if match else None) or ""
    of_key, fields, end = dict(wanted.pairs), list(wanted.fields), 0
    for key, _, pair in pairs(rest):
        end, field, quoted = pair.end(), of_key.get(key), pair[2] is not None
        inner = QUOTED if quoted else _bare(pair[3])
        if field is not None:
            fields.append(field)
        inner = f"({inner})" if field is not None else f"(?:{inner})"
        head += rf'[ \t]+{key}="{inner}"' if quoted else rf"[ \t]+{key}={inner}"
    if rest[end:].strip():  # what follows the pairs is none itself
        head += r"[ \t]+(?:[^\w \t]|\w{1,40}(?:[^\w=]|$)).*"
    return Layout(wanted, head, tuple(fields))


def _bare(value: str) -> str:
    """Of the kind that was seen: a pattern that allows every kind is matched three times slower."""
    for kind in (r"-|[0-9]+(?:\.[0-9]+)?", SHAPES["list"], r'[^ \t"][^ \t]*'):
        if re.fullmatch(kind, value):
            return kind
    return ""


def _struct(keys: list[tuple[str, ...]]) -> pl.Struct:
    tree: dict[str, list[tuple[str, ...]]] = {}
    for key in keys:
        tree.setdefault(key[0], []).append(key[1:])
    return pl.Struct([pl.Field(n, pl.String if () in inner else _struct(inner)) for n, inner in tree.items()])


def _inside(key: tuple[str, ...]) -> pl.Expr:
    found = pl.col("j")
    for part in key:
        found = found.struct.field(part)
    return found.replace("", None)
