"""Pictures in requests: as a text recognition service takes them, {"image": base64} in and {"text": ...} out, and as a
chat's model that sees takes them, with a question beside each."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from inferlift.errors import DeclarationError
from inferlift.load.answer import Answer, keys_of
from inferlift.load.protocols import Chat, Protocol
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


class Sights(Chat):
    """Request i asks about the picture of case i modulo their number, in a streamed chat."""

    name: ClassVar[str] = "chat about pictures"
    recorded: ClassVar[str] = "messages"

    def __init__(self, cases: Sequence[Case], max_tokens: int) -> None:
        if not cases:
            raise DeclarationError("a run of pictures needs at least one file")
        super().__init__([[_about(case)] for case in cases], max_tokens)


def _about(case: Case) -> dict[str, Any]:
    """A message with the picture before the question, in OpenAI's content parts."""
    kind = mimetypes.guess_type(case.picture)[0] or "image/png"
    url = f"data:{kind};base64,{_coded(Path(case.picture))}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": case.prompt}]
    return {"role": "user", "content": parts}


def body_of(file: Path) -> bytes:
    """Raises DeclarationError for a file that cannot be read."""
    return json.dumps({"image": _coded(file)}).encode()


def _coded(file: Path) -> str:
    try:
        return base64.b64encode(file.read_bytes()).decode()
    except OSError as error:
        raise DeclarationError(f"the picture {file} cannot be read", why=str(error)) from None


def load_sights(path: Path) -> tuple[Case, ...]:
    """Cases of a JSON-lines file with `image` (a path beside it), `prompt` and `answer`. Raises as `load_pictures`."""
    return _load(path, seen=True)


def load_pictures(path: Path) -> tuple[Case, ...]:
    """Cases of a JSON-lines file with `image` (a path beside it) in place of a prompt.

    Raises DeclarationError with file and line of what is wrong.
    """
    return _load(path, seen=False)


def _load(path: Path, *, seen: bool) -> tuple[Case, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"the pictures' list {path} cannot be read", why=str(error)) from None
    cases = [_case(line, path, k, seen) for k, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise DeclarationError(f"{path} names no picture", why='expected lines like {"image": ..., "answer": ...}')
    return tuple(cases)


def _case(line: str, path: Path, number: int, seen: bool) -> Case:
    place = f"{path}:{number}"
    try:
        raw = json.loads(line)
        image = raw.pop("image")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DeclarationError(f"{place}: expected an object with image and answer") from None
    if not isinstance(image, str) or not (path.parent / image).is_file():
        raise DeclarationError(f"{place}: there is no picture {image}")
    at = str(path.parent / image)
    if seen:
        return case_of(json.dumps({**raw, "picture": at}), place)
    return case_of(json.dumps({"check": "exact", **raw, "prompt": at}), place)
