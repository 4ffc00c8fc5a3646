"""What a tool is, and the table of those that inferlift uses (tools.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tool:
    """One thing the machine needs. `version` is None when it is absent or has none."""

    name: str
    present: bool
    version: str | None
    needed_by: tuple[str, ...]
    detail: str
    bring: str


@dataclass(frozen=True)
class Spec:
    """A row of tools.yaml; fields that a kind of tool does not have are empty."""

    name: str
    needed_by: tuple[str, ...]
    targets: tuple[str, ...]
    needs: tuple[str, ...]
    root: bool
    duration: str
    source: str
    version: str = ""
    at_least: str = ""
    installer: str = ""
    exec_version: str = ""
    exec_sum: str = ""
    packages: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    free_mb: int = 0

    def tool(self, *, present: bool, version: str | None, detail: str) -> Tool:
        return Tool(
            name=self.name,
            present=present,
            version=version if present else None,
            needed_by=self.needed_by,
            detail=detail,
            bring=f".venv/bin/python -m inferlift.toolchain {self.name}",
        )


@cache
def catalogue() -> dict[str, Spec]:
    """All rows by name, in an order in which they can be made."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "tools.yaml").read_text(encoding="utf-8"))["tools"]
    return {name: _spec(name, row) for name, row in rows.items()}


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version ("v3.250.1-alpha" -> (3, 250, 1)); () when there are none."""
    numbers: list[int] = []
    for part in text.strip().removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def _spec(name: str, row: dict[str, Any]) -> Spec:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Spec(name=name, **fields)
