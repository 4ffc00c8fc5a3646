"""YAML with positions, for files that people write: bounded, without tags, booleans only `true` and `false`.

Built on libyaml's events, so that duplicate keys, alias bombs and deep nesting are seen before they cost anything.
Scalars follow YAML 1.2's core schema: `yes`, `no`, `on`, `off`, `NO` and `010` stay text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 24
MAX_NODES = 20_000  # with aliases expanded

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, at one place."""

    path: Path
    line: int
    text: str


@dataclass
class Node:
    """A value and where it stands; `line` is the key's line where there is a key."""

    kind: Literal["map", "list", "scalar"]
    path: Path
    line: int
    scalar: Any = None
    children: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    size: int = 1

    def plain(self) -> Any:
        if self.kind == "map":
            return {key: node.plain() for key, node in self.children.items()}
        if self.kind == "list":
            return [node.plain() for node in self.items]
        return self.scalar


class Unreadable(Exception):
    """The text cannot be understood at all from `problem` on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


def compose(data: bytes, path: Path) -> tuple[Node | None, list[Problem]]:
    """The tree of the one document in `data` (None: nothing but blanks and comments), and what is wrong with it.

    Raises Unreadable on wrong encoding or syntax, alias bombs and too deep nesting.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Unreadable(Problem(path, line, f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}")) from None
    composer = _Composer(path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        if "\t" in _line(text, mark.line if mark else 0):
            said += "; indent with spaces, tabs are not allowed in YAML"
        raise Unreadable(Problem(path, mark.line + 1 if mark else 1, f"not YAML: {said}")) from None
    except yaml.YAMLError as error:
        at = getattr(error, "position", None) or 0
        reason = getattr(error, "reason", "unreadable")
        raise Unreadable(Problem(path, text[:at].count("\n") + 1, f"not YAML: {reason}")) from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(Problem(path, 1, f"not YAML: {type(error).__name__}")) from None
    return composer.root, composer.problems


@dataclass
class _Open:
    node: Node
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    skip: bool = False  # the value of a key that was refused


class _Composer:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0
        self._size = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise Unreadable(Problem(self.path, line, "a second document starts here; one file is one profile"))
        elif isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor or "")
            if node is None:
                text = f"the alias *{event.anchor} names no anchor before it (or one that holds the alias itself)"
                raise Unreadable(Problem(self.path, line, text))
            self._place(node, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._tag(event, line)
            if self._stack and self._stack[-1].node.kind == "map" and self._stack[-1].key is None:
                self._key(event.value.encode("utf-8", "replace").decode(), line)
                return
            node = Node("scalar", self.path, line, scalar=self._scalar(event, line))
            if event.anchor:
                self._anchors[event.anchor] = node
            self._place(node, line)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._tag(event, line)
            self._anchors.pop(event.anchor or "", None)
            if len(self._stack) >= MAX_DEPTH:
                raise Unreadable(Problem(self.path, line, f"nested more than {MAX_DEPTH} levels deep"))
            if self._stack and self._stack[-1].node.kind == "map" and self._stack[-1].key is None:
                raise Unreadable(Problem(self.path, line, "a key must be plain text, not a list or a mapping"))
            kind: Literal["map", "list"] = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
            self._stack.append(_Open(Node(kind, self.path, line), event.anchor))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            done = self._stack.pop()
            if done.anchor:
                self._anchors[done.anchor] = done.node
            self._place(done.node, done.node.line)

    def _key(self, key: str, line: int) -> None:
        opened = self._stack[-1]
        before = opened.node.children.get(key)
        opened.key, opened.key_line, opened.skip = key, line, before is not None or key == "<<"
        if before is not None:
            self.problems.append(Problem(self.path, line, f"{key!r} stands here twice; first on line {before.line}"))
        elif key == "<<":
            self.problems.append(Problem(self.path, line, "merge keys (<<) are not supported; use `extends: NAME`"))

    def _place(self, node: Node, line: int) -> None:
        self._size += node.size
        if self._size > MAX_NODES:
            text = f"more than {MAX_NODES} values once aliases are expanded"
            raise Unreadable(Problem(self.path, line, text))
        if not self._stack:
            self.root = node
            return
        opened = self._stack[-1]
        parent = opened.node
        parent.size += node.size
        if parent.kind == "list":
            parent.items.append(node)
            return
        if opened.key is None:
            raise Unreadable(Problem(self.path, line, "a key must be plain text, not an alias"))
        if not opened.skip:
            parent.children[opened.key] = Node(
                node.kind, self.path, opened.key_line, node.scalar, node.children, node.items, node.size
            )
        opened.key = None

    def _tag(self, event: Any, line: int) -> None:
        if event.tag and event.tag != "!":
            short = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.append(Problem(self.path, line, f"the tag {short} is not allowed; write the plain value"))

    def _scalar(self, event: Any, line: int) -> Any:
        text: str = event.value
        if not _encodable(text):
            self.problems.append(Problem(self.path, line, "holds half of a surrogate pair; not valid text"))
            return None
        if event.style not in (None, ""):
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and not math.isfinite(float(text))):
            self.problems.append(Problem(self.path, line, f"{text} is not a finite number"))
            return None
        return float(text) if _FLOAT.fullmatch(text) else text


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number] if number < len(lines) else ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
