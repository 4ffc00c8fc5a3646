"""Heredocs in a form for builders that do not know them (podman before 4.6): their bodies become files of a second
build context."""

from __future__ import annotations

import re
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.images.dockerfile import Node, joined, parse
from inferlift.images.scripts import expand

CONTEXT = "inferlift-heredocs"
_TARGET = "/run/inferlift-heredocs"
_MARK = re.compile(r"\d*<<-?([\"']?)[A-Za-z_][\w.]*\1")


def lower(text: str, folder: Path) -> str:
    """The same build without heredocs; bodies are written under `folder`, to be passed as build context CONTEXT.

    Raises DeclarationError for a COPY that mixes heredocs with other sources.
    """
    document = parse(text)
    variables: dict[str, str] = {}
    out: list[str] = []
    number = 0
    for node in document.nodes:
        if node.keyword in ("ARG", "ENV"):
            for word in node.arguments.split():
                name, given, value = word.partition("=")
                if given:
                    variables[name] = value.strip("\"'")
        if not node.heredocs:
            out.append(node.raw)
            continue
        place = folder / str(number)
        place.mkdir(parents=True)
        out.append(_run(node, place) if node.keyword == "RUN" else _copy(node, place, variables))
        number += 1
    return "".join(out)


def _run(node: Node, place: Path) -> str:
    start = node.value[0]
    after = start + Node.flags_end(node.raw[start : node.value[1]])
    flags = joined(node.raw[start:after])
    command = joined(node.raw[after : node.value[1]])
    alone = len(node.heredocs) == 1 and _MARK.fullmatch(command)
    heredoc = node.heredocs[0]
    script = node.raw[heredoc.start : heredoc.end] if alone else command + "\n" + node.raw[heredoc.start :]
    if alone and heredoc.strip_tabs:
        script = re.sub(r"(?m)^\t+", "", script)
    file = place / "script"
    file.write_text(script, encoding="utf-8")
    file.chmod(0o755)
    inside = f"{_TARGET}/{place.name}/script"
    mount = f"--mount=type=bind,from={CONTEXT},target={_TARGET}"
    run = inside if alone and script.startswith("#!") else f". {inside}"
    return " ".join(filter(None, ["RUN", flags, mount, run])) + "\n"


def _copy(node: Node, place: Path, variables: dict[str, str]) -> str:
    words = joined(node.raw[node.value[0] : node.value[1]]).split()
    flags = [w for w in words if w.startswith("--")]
    sources, target = [w for w in words if not w.startswith("--")][:-1], words[-1]
    if len(sources) != len(node.heredocs) or not all(_MARK.fullmatch(s) for s in sources):
        raise DeclarationError(
            f"line {node.line}: {node.keyword} with a heredoc and other sources at once cannot be built here",
            why="podman before 4.6 knows no heredocs and they are passed as files",
            next_command="split that line into two",
        )
    for heredoc in node.heredocs:
        body = node.raw[heredoc.start : heredoc.end]
        body = re.sub(r"(?m)^\t+", "", body) if heredoc.strip_tabs else body
        body = expand(body, variables) if heredoc.expand else body
        (place / heredoc.name).write_text(body, encoding="utf-8")
    files = [f"{place.name}/{h.name}" for h in node.heredocs]
    return " ".join(["COPY", f"--from={CONTEXT}", *flags, *files, target]) + "\n"
