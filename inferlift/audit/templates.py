"""Templates of log lines (nginx log_format text, Apache LogFormat text) turned into patterns.

Alternatives begin with different characters where that is possible: such patterns are matched several times faster.
A pattern is written in what Python's `re` and Rust's `regex` both understand (no look-around, no back-references), so
that the line-by-line reading and the columnar one are held to the same text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from inferlift.errors import DeclarationError

QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'
REST = r"([ \t].*)?"  # of an open template: what follows its fields
_LIST = r"(?:-|[0-9.]+)(?:(?:, | : )(?:-|[0-9.]+))*"
SHAPES = {
    "quoted": QUOTED,
    "bracket": r"[^\]]*",
    "status": r"-1?|[0-9]{1,3}",
    "seconds": r"-|[0-9]+\.[0-9]+",
    "number": r"(?:-[0-9]*|\+?[0-9]+)(?:\.[0-9]+)?",
    "integer": r"[0-9]+",
    "list": _LIST,
    "any": r".*?",
    "user": r".*?",
    "optional_word": r"(?:[^ ]+ )?",
    "syslog": r"(?:.*?haproxy[^ ]*: )?",
    "level": r"(?:\([^)]*\) )?(?:[-| ]*\[?[A-Z]+\]?:?[-| ]*)?",  # vLLM writes its process in brackets first
    "log_time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]+)?",
    "words": r"[^ ]+(?:(?:, | : )[^ ]+)*",
    "date_tab_time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}\t[0-9:]{8}",
    "csv": r'"[^"]*(?:""[^"]*)*"|[^SEPARATOR"]*',
}
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_LOG_FORMAT = re.compile(
    r"log_format\s+(?P<name>[\w-]+)\s+(?:escape=\w+\s+)?(?P<parts>(?:'[^']*'|\"[^\"]*\"|\s)+);?", re.S
)
_APACHE = re.compile(r"%(?:[<>!,0-9]*)(?:\{([^}]*)\})?(\^?[a-zA-Z]{1,2}|%)")
_APACHE_NAMES = {
    "h": "remote_addr", "a": "remote_addr", "l": "remote_logname", "u": "remote_user", "r": "request", "s": "status",
    "b": "bytes_sent", "B": "bytes_sent", "O": "bytes_sent", "I": "request_length", "D": "duration_us",
    "T": "duration_s", "m": "request_method", "U": "uri", "q": "query", "v": "virtual_host", "V": "virtual_host",
    "X": "connection", "k": "keepalive", "p": "port", "P": "pid", "H": "protocol", "f": "file", "L": "log_id",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """What one captured text means. `key`: where it stands in a JSON object."""

    means: str
    type: str = ""
    unit: str = ""
    shape: str = ""
    add: bool = False
    key: tuple[str, ...] = ()


def compiled(template: str, variables: Mapping[str, Field], *, closed: bool = False) -> tuple[str, tuple[Field, ...]]:
    """The pattern of a whole line and the fields of its groups; an open template leaves the rest in a last group."""
    pattern, fields, at = "", [], 0
    for found in _VARIABLE.finditer(template):
        literal, name = template[at : found.start()], found[1] or found[2]
        at = found.end()
        pattern += _literal(literal)
        field = variables.get(name, Field(""))
        inner = _shape(field, template[found.start() - 1 : found.start()], template[at : at + 1])
        if name == "remote_user" and template[at:].startswith(" ["):
            pattern, at = pattern + r"[^\[]*\[", at + 2  # a user may hold blanks
            continue
        if field.means:
            fields.append(field)
            pattern += f"({inner})"
        else:
            pattern += f"(?:{inner})"
    pattern += _literal(template[at:])
    if not any(field.means == "time" for field in fields) and "$level" not in template:
        raise DeclarationError(
            "the log format holds no time", why=f"in: {template[:120]}", next_command="name a format that has a time"
        )
    return (pattern if closed else pattern + REST), tuple(fields)


def pasted(text: str) -> tuple[str, str, str] | None:
    """(name, template, start|end) of a `log_format` from nginx.conf or a `LogFormat` from an Apache config, else None.

    Raises DeclarationError where the text is one of these, but cannot be read.
    """
    if found := _LOG_FORMAT.search(text):
        template = "".join(a or b for a, b in re.findall(r"'([^']*)'|\"([^\"]*)\"", found["parts"]))
        if template.lstrip().startswith("{"):
            raise DeclarationError(
                f"log_format {found['name']} writes JSON",
                why="JSON lines are read by their keys",
                next_command="use --format nginx-json, or a mapping file",
            )
        return found["name"], template, "end"
    if "$time" in text or "$msec" in text:
        return "log_format", text.strip(), "end"
    if "%r" in text or "%{" in text or "%t" in text:
        return "LogFormat", _apache(text), "start"
    return None


def _apache(text: str) -> str:
    found = re.search(r'LogFormat\s+"((?:[^"\\]|\\.)*)"', text)
    inner = (found[1] if found else text.strip()).replace('\\"', '"')
    return _APACHE.sub(_apache_variable, inner.replace("$", "$dollar"))


def _apache_variable(found: re.Match[str]) -> str:
    argument, letter = found[1], found[2]
    if letter == "%":
        return "%"
    if letter == "t":
        if argument in (None, "", "begin"):
            return "[$time_local]"
        kinds = {"sec": "epoch_s", "msec": "epoch_ms", "begin:sec": "epoch_s", "begin:msec": "epoch_ms"}
        if argument in kinds:
            return f"${{{kinds[argument]}}}"
        raise DeclarationError(
            f"%{{{argument}}}t in the LogFormat is not read",
            why="a strftime text need not hold date, time and zone",
            next_command="log %t or %{msec}t",
        )
    if letter == "T" and argument in ("s", "ms", "us"):
        return f"${{duration_{argument}}}"
    if argument:
        return "${header_" + re.sub(r"\W", "_", argument).lower() + "}"
    return f"${{{_APACHE_NAMES.get(letter, 'other')}}}"


def _literal(text: str) -> str:
    """Escaped for both engines: Python's re.escape also escapes what Rust refuses (blank, quote)."""
    return "".join(f"\\{c}" if c in ".^$*+?()[]{}|\\" else c for c in text)


def _shape(field: Field, before: str, after: str) -> str:
    if field.shape:
        return SHAPES[field.shape]
    if before == '"':
        return QUOTED
    if field.means == "request":
        return r"[A-Z]{1,20} [^ ]+(?: HTTP/[0-9.]+)?|-"
    if before == "[":
        return SHAPES["bracket"]
    if after == ":" and not field.means:
        return r"[^ \t]+?"  # an address, which may hold one itself
    if after and after not in " \t$":
        return rf"[^ \t{_literal(after)}]+"
    return r"[^ \t]+"
