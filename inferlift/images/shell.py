"""The simple commands of a shell script with their places in its text, so that one can be replaced, the rest kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")")
_REDIRECT = re.compile(r"\d*(?:<<<|>>|>&|<&|&>|>\||<|>)")
_RESERVED = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "in",
        "{",
        "}",
        "!",
        "time",
        "exec",
        "command",
    ]
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class Word:
    start: int
    end: int
    raw: str

    @property
    def text(self) -> str:
        """Quotes and continuations removed; variables and substitutions kept as written."""
        return re.sub(r"\\\r?\n", "", re.sub(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'", r"\1\2", self.raw))


@dataclass
class Command:
    """words[0] is the command's name; `start:end` spans words and redirections."""

    before: str  # the operator or reserved word that precedes it, "" at the beginning
    assignments: list[Word] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[Word] = field(default_factory=list)

    @property
    def start(self) -> int:
        return self.words[0].start

    @property
    def end(self) -> int:
        return max(w.end for w in (*self.words, *self.redirections))


def commands(text: str, *, escape: str = "\\", dockerfile: bool = True) -> list[Command]:
    """Simple commands in order. In a Dockerfile's RUN (`dockerfile`) a comment line inside a continued command is
    dropped before a shell sees it; in a script it ends at its line and a newline ends a command."""
    found: list[Command] = []
    current = Command("")
    redirect_target = False
    for kind, word in _tokens(text, escape, dockerfile):
        if kind == "operator":
            if current.words or current.assignments:
                found.append(current)
            current, redirect_target = Command(word.raw), False
        elif kind == "redirect":
            current.redirections.append(word)
            redirect_target = True
        elif redirect_target:
            current.redirections.append(word)
            redirect_target = False
        elif not current.words and word.raw in _RESERVED:
            current.before = word.raw
        elif not current.words and _ASSIGNMENT.match(word.raw):
            current.assignments.append(word)
        else:
            current.words.append(word)
    if current.words or current.assignments:
        found.append(current)
    return found


def _tokens(text: str, escape: str, dockerfile: bool) -> list[tuple[str, Word]]:
    tokens: list[tuple[str, Word]] = []
    position, line_start = 0, True
    while position < len(text):
        continued = re.compile(re.escape(escape) + r"[ \t]*\r?\n").match(text, position)
        if continued:
            position, line_start = continued.end(), True
        elif text[position] in " \t\r":
            position += 1
        elif text[position] == "\n":
            if not dockerfile:
                tokens.append(("operator", Word(position, position + 1, "\n")))
            position, line_start = position + 1, True
        elif text[position] == "#" and (line_start or not dockerfile):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif redirect := _REDIRECT.match(text, position):
            tokens.append(("redirect", Word(position, redirect.end(), redirect.group())))
            whole = redirect.group()[-1] == "&" and re.compile(r"\d+|-").match(text, redirect.end())
            position, line_start = redirect.end(), False
            if whole:
                tokens.append(("word", Word(position, whole.end(), whole.group())))
                position = whole.end()
        elif operator := next((o for o in _OPERATORS if text.startswith(o, position)), None):
            tokens.append(("operator", Word(position, position + len(operator), operator)))
            position, line_start = position + len(operator), False
        else:
            end = _word_end(text, position, escape)
            tokens.append(("word", Word(position, end, text[position:end])))
            position, line_start = end, False
    return tokens


def _word_end(text: str, position: int, escape: str) -> int:
    """The end of a word: quotes, ${...}, $(...) and backquotes are parts of it."""
    closing = {"(": ")", "{": "}"}
    while position < len(text):
        char = text[position]
        if char == "\\" and escape == "\\" and re.compile(r"\\[ \t]*\r?\n").match(text, position):
            return position
        if char == escape == "`" and re.compile(r"`[ \t]*\r?\n").match(text, position):
            return position
        if char == "\\":
            position += 2
        elif char == "'":
            position = _after(text, text.find("'", position + 1))
        elif char == '"':
            position = _double(text, position + 1)
        elif char == "`" and escape != "`":
            position = _after(text, text.find("`", position + 1))
        elif char == "$" and text[position + 1 : position + 2] in closing:
            position = _balanced(text, position + 1, text[position + 1], closing[text[position + 1]])
        elif char in " \t\r\n;|&()<>":
            return position
        else:
            position += 1
    return len(text)


def _double(text: str, position: int) -> int:
    while position < len(text) and text[position] != '"':
        if text[position] == "\\":
            position += 2
        elif text.startswith("$(", position):
            position = _balanced(text, position + 1, "(", ")")
        else:
            position += 1
    return min(position + 1, len(text))


def _balanced(text: str, position: int, opening: str, closing: str) -> int:
    depth = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char == "'":
            position = _after(text, text.find("'", position + 1)) - 1
        elif char == '"':
            position = _double(text, position + 1) - 1
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if not depth:
                return position + 1
        position += 1
    return len(text)


def _after(text: str, found: int) -> int:
    return len(text) if found < 0 else found + 1
