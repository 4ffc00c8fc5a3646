"""A block of lines, as the readers hand it on."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from inferlift.audit.formats import Format


@dataclass(frozen=True)
class Block:
    """Lines without their ends, and the rows among them that are refused unread, with the reason."""

    lines: pl.Series
    refused: dict[int, str] = field(default_factory=dict)
    format: Format | None = None  # where the lines themselves said another one than the log's

    def part(self, begin: int, end: int, wanted: Format) -> Block:
        refused = {row - begin: why for row, why in self.refused.items() if begin <= row < end}
        return Block(self.lines.slice(begin, end - begin), refused, wanted)
