"""Secrets are references (`env:NAME`, `file:PATH`); the value is read at the last moment and never stored or logged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from inferlift.errors import DeclarationError


def resolve(reference: str) -> str:
    """The secret behind a reference. Raises DeclarationError naming the reference, never the value."""
    scheme, _, rest = reference.partition(":")
    if scheme == "env" and rest in os.environ:
        return os.environ[rest]
    if scheme == "file":
        with contextlib.suppress(OSError, ValueError):
            return Path(rest).read_text(encoding="utf-8").strip()
    # what is no reference may be the secret itself: it is not repeated
    named = repr(reference) if scheme in ("env", "file") and rest else "given"
    raise DeclarationError(
        f"the secret {named} cannot be read",
        why="a reference is env:NAME of a set variable or file:PATH of a readable file",
        next_command="set the variable or write the file, then run the same command again",
    )
