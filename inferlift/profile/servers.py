"""The model servers that are known: servers.yaml, which roles, planner and profiles read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("servers.yaml")


@cache
def servers() -> dict[str, dict[str, Any]]:
    """kind -> its entry."""
    import yaml  # read when asked for: whoever only holds targets against figures needs no YAML

    table: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table


def known(kind: str) -> str:
    """Raises ValueError for a server that has no entry."""
    if kind not in servers():
        raise ValueError(f"{kind!r} is not one of {', '.join(servers())}")
    return kind
