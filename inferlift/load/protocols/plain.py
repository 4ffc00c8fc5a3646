"""Images as plain POST bodies, and any HTTP API by a Jinja body and a check."""

from __future__ import annotations

import copy
import json
import mimetypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from inferlift.errors import DeclarationError
from inferlift.load.answer import Answer
from inferlift.load.protocols.base import Checked, Protocol

BOUNDARY = "inferlift-7f3a9c5e1b2d4680"


class Image(Protocol):
    """Image files posted in turn: raw, or as a form (`field` names the part), as OCR and vision services take them."""

    name: ClassVar[str] = "image"

    def __init__(self, files: Sequence[Path], *, field: str | None = None, check: Check | None = None) -> None:
        if not files:
            raise DeclarationError("an image run needs at least one file")
        self._check = check or Check()
        kinds = {mimetypes.guess_type(path.name)[0] or "application/octet-stream" for path in files}
        if field is None and len(kinds) > 1:
            raise DeclarationError(f"files of one kind are posted raw, got {', '.join(sorted(kinds))}")
        self.content_type = f"multipart/form-data; boundary={BOUNDARY}" if field else kinds.pop()
        self._bodies = tuple(_file(path, field) for path in files)

    def body(self, i: int) -> bytes:
        return self._bodies[i % len(self._bodies)]

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return Checked(self._check.wrong)


class Generic(Protocol):
    """Any HTTP route: `template` is the body (Jinja, with `i`, `run` and the row's keys), `rows` are taken in turn.

    `run` is another text in every run (see `apart`): with `i` it makes each request one that no cache has met.
    """

    name: ClassVar[str] = "http"

    def __init__(
        self,
        template: str,
        rows: Sequence[Mapping[str, Any]] = ({},),
        *,
        check: Check | None = None,
        method: str = "POST",
        content_type: str = "application/json",
    ) -> None:
        import jinja2
        from jinja2.sandbox import SandboxedEnvironment

        environment = SandboxedEnvironment(
            undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
        )
        self.rows, self._check, self.method, self.content_type = tuple(rows), check or Check(), method, content_type
        self._error, self.run = jinja2.TemplateError, ""
        try:
            self._template = environment.from_string(template)
        except jinja2.TemplateError as error:
            raise DeclarationError("the body's template is wrong", why=str(error)) from None
        self.body(0)  # a template that cannot be filled is a user's mistake, told before anything is sent

    def body(self, i: int) -> bytes:
        try:
            return self._template.render({"i": i, "run": self.run, **self.rows[i % len(self.rows)]}).encode()
        except self._error as error:
            raise DeclarationError(f"the body of request {i} cannot be made", why=str(error)) from None

    def apart(self, run: str) -> Protocol:
        found = copy.copy(self)
        found.run = run
        return found

    @property
    def prefix_cache(self) -> str:
        if self.apart("one").body(0) != self.apart("other").body(0) and self.body(0) != self.body(len(self.rows)):
            return "avoided: each body holds its run's name and its request's number"
        return "possible: bodies are sent again; a template with {{ run }} and {{ i }} makes each its own"

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        return Checked(self._check.wrong)

    def accepts(self, status: int) -> bool:
        return 200 <= status < 300


class Check:
    """What a good answer is: a regular expression found in it, or a value at a path of its JSON (`a.b.0.c`)."""

    def __init__(self, *, matches: str | None = None, path: str | None = None, equals: Any = None) -> None:
        self.path, self.equals = path, equals
        try:
            self._pattern = re.compile(matches.encode()) if matches is not None else None
        except re.error as error:
            raise DeclarationError(f"the check {matches!r} is no regular expression", why=str(error)) from None

    def wrong(self, data: bytes) -> str | None:
        """What is wrong with this answer; None when it is good."""
        if self._pattern is not None and not self._pattern.search(data):
            return f"nothing matches in {data[:80]!r}"
        if self.path is None:
            return None if data or self._pattern is not None else "an empty answer"
        try:
            value = json.loads(data)
            for part in self.path.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]
        except (ValueError, KeyError, IndexError, TypeError):
            return f"no {self.path} in {data[:80]!r}"
        if self.equals is not None and value != self.equals:
            return f"{self.path} is {str(value)[:60]!r}, expected {self.equals!r}"
        return None


def _file(path: Path, field: str | None) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DeclarationError(f"the image {path} cannot be read", why=str(error)) from None
    if field is None:
        return data
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    name = re.sub(r'["\r\n]', "_", path.name)
    disposition = f'form-data; name="{field}"; filename="{name}"'
    head = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\nContent-Type: {kind}\r\n\r\n"
    return head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
