"""Reads a model's figures from a Hugging Face config.json or the header of a GGUF file, for the keys of `Model`.

Reads only; every length that a file states is bounded before it is believed.
"""

from __future__ import annotations

from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.modelfile.fields import Figures
from inferlift.modelfile.gguf import MAGIC
from inferlift.modelfile.gguf import read as read_gguf
from inferlift.modelfile.huggingface import kind
from inferlift.modelfile.huggingface import read as read_huggingface

__all__ = ["Figures", "read", "task_of"]


def read(path: Path) -> Figures:
    """What the file says of the model, by the names of the keys of `Model`; only what it really says.

    A folder stands for its config.json. Raises DeclarationError, naming the file and the key that is missing or wrong.
    """
    path, start = _found(path)
    return read_gguf(path) if start == MAGIC else read_huggingface(path)


def task_of(path: Path) -> str:
    """The profile's task that a model of this file is of, as far as the file tells. Raises DeclarationError."""
    path, start = _found(path)
    return "chat" if start == MAGIC else kind(path)


def _found(path: Path) -> tuple[Path, bytes]:
    """The file, and its first bytes."""
    try:
        if path.is_dir():
            path = path / "config.json"
        if not path.is_file():
            raise DeclarationError(
                f"{path.name}: {'is not a regular file' if path.exists() else 'no such file'}",
                why="model.config is the path of a Hugging Face config.json or of a GGUF file",
            )
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path.name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return path, start
