"""What a load run sends and how it reads the answer. A new protocol is one small class."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from inferlift.errors import DeclarationError
from inferlift.load import http1
from inferlift.load.answer import Answer
from inferlift.load.target import Target


class Protocol:
    """Subclasses give `body` and, where the answer is no OpenAI one, `answer`."""

    name: ClassVar[str]
    default_route: ClassVar[str] = "/"
    transport: ClassVar[Literal["http", "grpc"]] = "http"
    method: str = "POST"
    content_type: str = "application/json"
    streams: bool = False

    def body(self, i: int) -> bytes:
        """The body of request `i`, the same at every call. Raises DeclarationError where it cannot be made."""
        raise NotImplementedError

    def apart(self, run: str) -> Protocol:
        """The same requests with texts that only the run of this name sends, where this protocol can do that."""
        return self

    def answer(self, gaps: dict[int, int] | None = None) -> Answer:
        """What reads one answer."""
        return Answer(gaps=gaps)

    def accepts(self, status: int) -> bool:
        return status == 200

    def head(self, target: Target) -> Callable[[bytes], bytes]:
        """From a body to the whole request as it goes out. Raises DeclarationError for an unreadable key."""
        host = target.url.split("/", 3)[2]
        headers = {**target.headers(), "Content-Type": self.content_type}
        try:
            whole = http1.request(self.method, host, target.route, headers, b"")
        except ValueError:  # also of letters that no header can hold
            raise DeclarationError(
                "a header or the route holds a line break, a space or a letter that HTTP cannot carry",
                why="it is in the URL (%20 is a space there), the name of the key's header, or the key",
            ) from None  # the error itself may repeat the key
        before = whole.removesuffix(b"0\r\n\r\n")
        return lambda body: b"%s%d\r\n\r\n%s" % (before, len(body), body)

    @property
    def prefix_cache(self) -> str:
        """What a server's cache can have done to the figures."""
        return "possible: the same requests are sent again and again"

    def shown(self) -> Any:
        """The first body as it goes out, to be read by people; never a secret."""
        body = self.body(0)
        try:
            return json.loads(body)
        except ValueError:
            return f"{len(body)} bytes of {self.content_type}"


class Checked(Answer):
    """A whole answer of any kind, judged by a function: it returns what is wrong, or None."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[bytes], str | None]) -> None:
        super().__init__()
        self._check = check

    def body(self, data: bytes, now: float) -> None:
        self.bad_json = None
        problem = self._check(data)
        if problem is not None:
            self.error = problem
        self.done = True
        self.chunks = 1

    def problem(self) -> tuple[str, str] | None:
        return ("content", self.error) if self.error is not None else None
