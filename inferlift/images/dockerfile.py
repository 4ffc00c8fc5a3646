"""A Dockerfile as its logical instructions; joined again, their raw text is the file, byte for byte.

Follows the reference of the Dockerfile format: parser directives, comments and blank lines inside continued
instructions, the escape directive, heredocs of RUN, COPY and ADD.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from inferlift.errors import DeclarationError

KEYWORDS = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)
_HEREDOC = re.compile(r"(?<![<\w$])\d*<<(?P<dash>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z_][\w.]*)(?P=quote)(?![\w<])")


@dataclass(frozen=True)
class Heredoc:
    """The body lies in the instruction's raw text at `start:end`; the delimiter line follows it."""

    name: str
    start: int
    end: int
    line: int  # of the body's first line, in the file
    expand: bool  # an unquoted delimiter: variables are expanded by the builder (COPY, ADD)
    strip_tabs: bool


@dataclass(frozen=True)
class Node:
    """An instruction, or (keyword "") blank and comment lines between instructions."""

    keyword: str
    raw: str
    line: int
    value: tuple[int, int] = (0, 0)  # where the arguments lie in `raw`, flags such as --mount included
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def arguments(self) -> str:
        """The arguments in one line: continuations joined, comment lines inside dropped."""
        return joined(self.raw[self.value[0] : self.value[1]])

    @property
    def exec_form(self) -> list[str] | None:
        """The words of a JSON array form, flags left aside; None for a shell form."""
        text = self.arguments[self.flags_end(self.arguments) :].strip()
        try:
            words = json.loads(text) if text.startswith("[") else None
        except ValueError:
            return None
        return words if isinstance(words, list) and all(isinstance(w, str) for w in words) else None

    @property
    def script(self) -> bool:
        """Whether heredocs are run by a shell (RUN <<EOF, RUN bash <<EOF), not read as data by a program."""
        command = self.arguments[self.flags_end(self.arguments) :]
        shells = r"(?:\S*/)?(?:ba|a|da)?sh\b[^<;&|]*"
        return self.keyword == "RUN" and bool(re.fullmatch(rf"(?:{shells})?<<-?[\"']?\w+[\"']?\s*", command))

    @staticmethod
    def flags_end(arguments: str) -> int:
        """Where leading `--flag=...` words end."""
        found = re.match(r"(?:\s*--[a-z][\w-]*(?:=(?:\"[^\"]*\"|[^\s\\])*)?(?:\s|\\\n|\\\r\n)+)*", arguments)
        return found.end() if found else 0

    def line_at(self, offset: int) -> int:
        return self.line + self.raw.count("\n", 0, offset)

    def with_raw(self, raw: str) -> Node:
        return replace(self, raw=raw)


@dataclass(frozen=True)
class Dockerfile:
    nodes: tuple[Node, ...]
    escape: str = "\\"

    def text(self) -> str:
        return "".join(n.raw for n in self.nodes)


def joined(text: str) -> str:
    """Continued lines as one, as a shell or the builder sees them (either escape character)."""
    kept: list[str] = []
    for number, line in enumerate(text.splitlines()):
        if number and line.lstrip().startswith("#"):
            continue
        bare = line.rstrip()
        kept.append(bare[:-1] if bare.endswith(("\\", "`")) else line)
    return "".join(kept).strip()


def parse(text: str) -> Dockerfile:
    """Raises DeclarationError, with the line, where the text is no Dockerfile."""
    lines = text.splitlines(keepends=True)
    escape = _escape_directive(lines)
    nodes: list[Node] = []
    index = 0
    while index < len(lines):
        bare = lines[index].strip()
        if not bare or bare.startswith("#"):
            nodes.append(Node("", lines[index], index + 1))
            index += 1
            continue
        node, index = _instruction(lines, index, escape)
        nodes.append(node)
    if not any(n.keyword == "FROM" for n in nodes):
        raise DeclarationError(
            "the Dockerfile has no FROM line", why=f"{len(lines)} lines read", next_command="check the path given"
        )
    return Dockerfile(tuple(nodes), escape)


def _escape_directive(lines: list[str]) -> str:
    for line in lines:
        found = re.match(r"\s*#\s*([a-z]+)\s*=\s*(\S+)\s*$", line, re.IGNORECASE)
        if not found:
            break
        if found.group(1).lower() == "escape" and found.group(2) in ("\\", "`"):
            return found.group(2)
    return "\\"


def _instruction(lines: list[str], first: int, escape: str) -> tuple[Node, int]:
    index = first
    while index < len(lines):
        bare = lines[index].strip()
        skipped = index > first and (not bare or bare.startswith("#"))
        index += 1
        if not skipped and not bare.endswith(escape):
            break
    raw = "".join(lines[first:index])
    found = re.match(r"\s*([A-Za-z]+)", raw)
    keyword = found.group(1).upper() if found else ""
    if found is None or keyword not in KEYWORDS:
        raise DeclarationError(
            f"line {first + 1} is no Dockerfile instruction: {lines[first].strip()[:60]!r}",
            why="expected one of " + ", ".join(sorted(KEYWORDS)),
            next_command="correct that line",
        )
    value = (found.end(), len(raw.rstrip()))
    inner = re.match(r"\s*(RUN|COPY|ADD)\b", raw[found.end() :], re.IGNORECASE) if keyword == "ONBUILD" else None
    heredocs: list[Heredoc] = []
    if keyword in ("RUN", "COPY", "ADD") or inner:
        for mark in _HEREDOC.finditer(raw[: value[1]]):
            if not _quoted(raw[found.end() : mark.start()]):
                raw, index = _read_heredoc(lines, index, raw, mark, heredocs, first)
    return Node(keyword, raw, first + 1, value, tuple(heredocs)), index


def _read_heredoc(
    lines: list[str], index: int, raw: str, mark: re.Match[str], heredocs: list[Heredoc], first: int
) -> tuple[str, int]:
    start, line = len(raw), index + 1
    while index < len(lines):
        text = lines[index].rstrip("\r\n")
        if (text.lstrip("\t") if mark["dash"] else text) == mark["name"]:
            heredocs.append(Heredoc(mark["name"], start, len(raw), line, not mark["quote"], bool(mark["dash"])))
            return raw + lines[index], index + 1
        raw += lines[index]
        index += 1
    raise DeclarationError(
        f"the heredoc {mark['name']} begun in line {first + 1} has no end",
        why=f"no line holds {mark['name']} alone",
        next_command="close the heredoc",
    )


def _quoted(before: str) -> bool:
    """Whether a position after `before` lies inside quotes."""
    quote, position = "", 0
    while position < len(before):
        char = before[position]
        if char == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        position += 1
    return bool(quote)
