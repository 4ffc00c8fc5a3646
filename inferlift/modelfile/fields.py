"""Typed access to the keys of a model's own description, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferlift.errors import DeclarationError

Figures = dict[str, int | float | str | bool]
LARGEST = 2**48  # no real figure is larger; keeps products of several within reason


@dataclass(frozen=True)
class Fields:
    """One level of a description. `file` and `prefix` are for the messages; `defaults` are the family's own."""

    file: str
    values: Mapping[str, Any]
    prefix: str = ""
    defaults: Mapping[str, Any] | None = None

    def integer(self, *names: str, least: int = 1, most: int = LARGEST) -> int:
        """The first of the keys that is there. Raises DeclarationError where none is, or it is no such number."""
        found = self.maybe(*names, least=least, most=most)
        if found is None:
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise lacks(self.file, f"{self.prefix}{names[0]}", others)
        return found

    def maybe(self, *names: str, least: int = 1, most: int = LARGEST) -> int | None:
        """The same; None where no key is there or it is null."""
        for name in names:
            value = self.value(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                shown = repr(value)[:40]
                raise wrong(self.file, f"{self.prefix}{name}", f"expected a whole number from {least}, got {shown}")
            return value
        return None

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(self.file, f"{self.prefix}{name}", f"expected true or false, got {repr(value)[:40]}")
        return value is True

    def text(self, name: str) -> str:
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def inner(self, *names: str) -> Fields | None:
        """A nested description; None where none of the keys holds one."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, dict):
                return Fields(self.file, value, f"{self.prefix}{name}.")
        return None

    def items(self, name: str) -> list[Any]:
        value = self.value(name)
        return value if isinstance(value, list) else []

    def value(self, name: str) -> Any:
        found = self.values.get(name)
        return (self.defaults or {}).get(name) if found is None else found


def lacks(file: str, key: str, others: str = "") -> DeclarationError:
    return DeclarationError(
        f"{file}: lacks {key}{others}",
        why="the model's figures are computed from it",
        next_command="give a whole file, or declare the figures under `model:` (docs/profile.md lists every key)",
    )


def wrong(file: str, key: str, why: str) -> DeclarationError:
    return DeclarationError(f"{file}: {key}: {why}", why="the file does not describe a model")
