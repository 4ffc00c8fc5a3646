"""Pictures in JSON, as a text recognition service takes them: {"image": base64} in, {"text": ...} out."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from inferlift.errors import DeclarationError
from inferlift.load.answer import Answer, keys_of
from inferlift.load.protocols import Protocol
from inferlift.load.quality import Case, case_of


class Pictures(Protocol):
    """Request i sends file i modulo their number."""

    name: ClassVar[str] = "pictures"
    recorded: ClassVar[str] = "image"  # key by which a recorded body is known as one of these

    def __init__(self, files: Sequence[Path]) -> None:
        if not files:
            raise DeclarationError("a run of pictures needs at least one file")
        self._bodies = tuple(body_of(file) for file in files)

    def body(self, i: int) -> bytes:
        return self._bodies[i % len(self._bodies)]

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return Read()


class Read(Answer):
    """The text of one answer, and the keys that came with it."""

    __slots__ = ()

    def body(self, data: bytes, now: float) -> None:
        self.done = True
        try:
            document = json.loads(data)
            text = document["text"]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            self.bad_json = data[:80].decode(errors="replace")
            return
        self.chunks = 1
        self.texts.append(text)
        keys_of(document, "", self.keys)


def body_of(file: Path) -> bytes:
    """Raises DeclarationError for a file that cannot be read."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DeclarationError(f"the picture {file} cannot be read", why=str(error)) from None
    return json.dumps({"image": base64.b64encode(data).decode()}).encode()


def load_pictures(path: Path) -> tuple[Case, ...]:
    """Cases of a JSON-lines file with `image` (a path beside it) in place of a prompt.

    Raises DeclarationError with file and line of what is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"the pictures' list {path} cannot be read", why=str(error)) from None
    cases = [_case(line, path, k) for k, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise DeclarationError(f"{path} names no picture", why='expected lines like {"image": ..., "answer": ...}')
    return tuple(cases)


def _case(line: str, path: Path, number: int) -> Case:
    place = f"{path}:{number}"
    try:
        raw = json.loads(line)
        image = raw.pop("image")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DeclarationError(f"{place}: expected an object with image and answer") from None
    if not isinstance(image, str) or not (path.parent / image).is_file():
        raise DeclarationError(f"{place}: there is no picture {image}")
    return case_of(json.dumps({"check": "exact", **raw, "prompt": str(path.parent / image)}), place)
