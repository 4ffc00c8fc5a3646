"""An Alpine Dockerfile moved to a Debian or CUDA base; any other Dockerfile comes back as it is."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from dataclasses import dataclass

from inferlift.artifacts import LineChange
from inferlift.errors import DeclarationError
from inferlift.images import scripts, shell, tables
from inferlift.images.dockerfile import Dockerfile, Node, joined, parse

_BASH_ONLY = re.compile(r"pipefail|\[\[\s|(?:^|[;&|]\s*)source\s|<\(|\$'|\$\{\w+(?://?|:\d|\^|,)")
_SITE_PACKAGES = re.compile(r"/usr/local/lib/(python3\.\d+)/site-packages")


@dataclass(frozen=True)
class Rewritten:
    text: str
    changes: tuple[LineChange, ...]


def rewrite(text: str, base_argument_default: str) -> Rewritten:
    """Move every Alpine stage to the image given by the build argument BASE.

    Raises DeclarationError that lists, with their lines, all packages and tools without a known counterpart.
    """
    document = parse(text)
    stages = _stages(document)
    if not any(s.alpine for s in stages):
        return Rewritten(text, ())
    findings = scripts.Findings()
    out = [n.raw for n in document.nodes[: stages[0].first]]
    _base_argument(document, stages, out, base_argument_default, findings)
    contexts: dict[str, scripts.Stage] = {}
    for number, stage in enumerate(stages):
        nodes = document.nodes[stage.first : stage.end]
        if not stage.alpine:
            out += [n.raw for n in nodes]
            continue
        parent = contexts.get(stage.image.lower())
        context = scripts.Stage(dict(stage.arguments))
        if parent:
            context.installed, context.paths = set(parent.installed), dict(parent.paths)
            context.virtuals = {k: list(v) for k, v in parent.virtuals.items()}
        contexts[str(number)] = contexts[stage.name.lower()] = context
        out += _alpine_stage(nodes, stage, number == len(stages) - 1, context, document.escape, findings)
    if findings.problems:
        raise _refusal(findings.problems)
    return Rewritten("".join(out), tuple(sorted(findings.changes, key=lambda c: c.line)))


@dataclass
class _StageOf:
    first: int
    end: int
    image: str  # variables expanded
    name: str
    alpine: bool
    local: bool  # built on an earlier stage of this file
    arguments: dict[str, str]  # global arguments with their defaults
    python_folders: tuple[str, ...]  # python3.X whose site-packages the file names, in any stage


def _stages(document: Dockerfile) -> list[_StageOf]:
    starts = [i for i, n in enumerate(document.nodes) if n.keyword == "FROM"]
    arguments: dict[str, str] = {}
    for node in document.nodes[: starts[0]]:
        if node.keyword == "ARG":
            for name, value in _pairs(node):
                arguments[name] = scripts.expand(value, arguments)
    folders = tuple(sorted(set(_SITE_PACKAGES.findall(document.text()))))
    stages: list[_StageOf] = []
    by_name: dict[str, _StageOf] = {}
    for number, first in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(document.nodes)
        words = [w for w in document.nodes[first].arguments.split() if not w.startswith("--")]
        image = scripts.expand(words[0], arguments) if words else ""
        name = words[2] if len(words) > 2 and words[1].lower() == "as" else str(number)
        parent = by_name.get(image.lower())
        uses_apk = any(_uses_apk(n, document.escape) for n in document.nodes[first + 1 : end] if n.keyword == "RUN")
        alpine = parent.alpine if parent else "alpine" in image.rsplit("@", 1)[0].lower() or uses_apk
        stage = _StageOf(first, end, image, name, alpine, parent is not None, arguments, folders)
        stages.append(stage)
        by_name[name.lower()] = by_name[str(number)] = stage
    return stages


def _uses_apk(node: Node, escape: str) -> bool:
    texts = [node.raw[h.start : h.end] for h in node.heredocs] if node.script else []
    texts.append(node.raw[node.value[0] + Node.flags_end(node.raw[slice(*node.value)]) : node.value[1]])
    return any(c.words and c.words[0].text == "apk" for t in texts for c in shell.commands(t, escape=escape))


def _base_argument(
    document: Dockerfile, stages: list[_StageOf], out: list[str], default: str, findings: scripts.Findings
) -> None:
    """ARG BASE before the first FROM: added, or its Alpine default replaced."""
    for index, node in enumerate(document.nodes[: stages[0].first]):
        if node.keyword == "ARG" and (old := dict(_pairs(node)).get("BASE")) is not None:
            if "alpine" in old or not old:
                out[index] = re.sub(r"\bBASE(=\S*)?", f"BASE={default}", node.raw, count=1)
                _note(findings, node.line, node.raw, out[index], "the base image is a build argument, now Debian's")
            return
    first = next(i for i, n in enumerate(document.nodes) if n.keyword)
    line = f"ARG BASE={default}\n"
    out.insert(first, line)
    _note(
        findings,
        document.nodes[first].line,
        "",
        line,
        "the base image is a build argument, so that one file serves all",
    )


def _alpine_stage(
    nodes: tuple[Node, ...],
    stage: _StageOf,
    last: bool,
    context: scripts.Stage,
    escape: str,
    findings: scripts.Findings,
) -> list[str]:
    body = [_node(n, context, escape, findings) for n in nodes[1:]]
    head = [nodes[0].raw]
    if not stage.local:
        head = _head(nodes, stage, context, findings)
    elif context.wanted and (missing := _missing(context)):
        findings.problems.append(
            (nodes[0].line, f"{', '.join(missing)} needed in a stage built on stage {stage.image}")
        )
    base = _official(stage.image)
    if last and base and base.cmd and not any(n.keyword in ("CMD", "ENTRYPOINT") for n in nodes):
        if body and not body[-1].endswith("\n"):
            body[-1] += "\n"
        body.append(f"CMD {base.cmd}\n")
        _note(findings, nodes[-1].line, "", body[-1], f"the command that {stage.image} brought along")
    return head + body


def _head(nodes: tuple[Node, ...], stage: _StageOf, context: scripts.Stage, findings: scripts.Findings) -> list[str]:
    """The FROM line and what the new base needs to stand in for the old one."""
    start = nodes[0]
    words = start.arguments.split()
    flags = [w for w in words if w.startswith("--")]
    rest = [w for w in words if not w.startswith("--")][1:]
    lines = [" ".join(["FROM", *flags, "${BASE}", *rest]) + "\n"]
    base = _official(stage.image)
    why = f"{stage.image} is built on musl; CUDA's libraries need glibc"
    if base and base.language:
        why += f"; {base.language} is the new base's own version"
    _note(findings, start.line, start.raw, lines[0], why)
    if base is None:
        findings.problems.append((start.line, f"image {stage.image} (no known Debian counterpart)"))
        return lines
    before_shell = itertools.takewhile(lambda n: n.keyword != "SHELL", nodes[1:])
    if any(_BASH_ONLY.search(joined(n.raw)) for n in before_shell):
        lines.append('SHELL ["/bin/bash", "-c"]\n')
        _note(findings, start.line, "", lines[-1], "ash knows [[, source and pipefail; Debian's sh does not")
    for name, value in base.env.items():
        lines.append(f'ENV {name}="{value}"\n')
        _note(findings, start.line, "", lines[-1], f"as {stage.image} sets it, or needs it on Debian")
    apt = [*base.apt, *(p for p in _missing(context) if p not in base.apt)]
    steps = []
    if apt:
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends " + " ".join(apt)
        steps = ["apt-get update", install, "rm -rf /var/lib/apt/lists/*"]
    steps += [base.run] if base.run else []
    for folder in stage.python_folders if base.language == "Python" else ():
        there = f"/usr/local/lib/{folder}"
        steps.append(
            f"mkdir -p {there} \"$(python3 -c 'import site; print(site.getsitepackages()[0])')\" && ln -sfn "
            f"\"$(python3 -c 'import site; print(site.getsitepackages()[0])')\" {there}/site-packages"
        )
    if steps:
        lines.append("RUN " + " \\\n    && ".join(steps) + "\n")
        commands = ", ".join(f"{c} ({p})" for p, c in context.wanted.items() if p in apt)
        why = f"what {stage.image} has and the new base lacks" + (f"; BusyBox' {commands}" if commands else "")
        _note(findings, start.line, "", lines[-1], why)
    if base.workdir:
        lines.append(f"WORKDIR {base.workdir}\n")
        _note(findings, start.line, "", lines[-1], f"as {stage.image} sets it")
    return lines


def _node(node: Node, context: scripts.Stage, escape: str, findings: scripts.Findings) -> str:
    match node.keyword:
        case "ARG" | "ENV":
            context.variables.update((k, scripts.expand(v, context.variables)) for k, v in _pairs(node) if v)
            return _environment(node, findings) if node.keyword == "ENV" else node.raw
        case "SHELL":
            return _replace(node, r'"(?:/bin/)?(?:ash|busybox)"', '"/bin/bash"', findings, "Debian has no ash")
        case "RUN" | "CMD" | "ENTRYPOINT" | "HEALTHCHECK" | "ONBUILD":
            return _places(node.with_raw(_commands(node, context, escape, findings)), context, findings)
        case "COPY" | "ADD":
            source = re.search(r"--from=(\S+)", node.arguments)
            if source and "alpine" in source.group(1):
                findings.problems.append((node.line, f"{source.group(1)} (files of an Alpine image, linked to musl)"))
    return node.raw


def _commands(node: Node, context: scripts.Stage, escape: str, findings: scripts.Findings) -> str:
    """The instruction's raw text with its commands translated, heredocs included."""
    start, end = node.value
    value = node.raw[start:end]
    inner = re.match(r"\s*[A-Za-z]+", value) if node.keyword == "ONBUILD" else None
    start += inner.end() if inner else 0
    start += Node.flags_end(node.raw[start:end])
    if node.keyword == "HEALTHCHECK" and (cmd := re.match(r"\s*(?:CMD|NONE)\b", node.raw[start:end], re.IGNORECASE)):
        start += cmd.end()
    words = node.with_raw(node.raw[:end]).exec_form if not inner else None
    if words is None and node.raw[start:end].lstrip().startswith("["):
        try:
            words = json.loads(joined(node.raw[start:end]))
        except ValueError:
            words = None
    if words is not None:
        return _exec_form(node, words, start, end, context, findings)
    raw = node.raw
    for heredoc in reversed(node.heredocs if node.script else ()):
        body = scripts.rewrite(
            raw[heredoc.start : heredoc.end], heredoc.line, context, findings, escape=escape, dockerfile=False
        )
        raw = raw[: heredoc.start] + body + raw[heredoc.end :]
    new = scripts.rewrite(raw[start:end], node.line_at(start), context, findings, escape=escape)
    return raw[:start] + new + raw[end:]


def _exec_form(
    node: Node, words: list[str], start: int, end: int, context: scripts.Stage, findings: scripts.Findings
) -> str:
    local = scripts.Findings()
    script = words[2] if len(words) == 3 and words[1] == "-c" else shlex.join(words)
    new = scripts.rewrite(script, node.line, context, local)
    findings.problems += local.problems
    raw = node.raw
    if local.changes and node.keyword == "RUN" and script != words[-1]:
        raw = raw[:start] + " " + new + raw[end:]
        _note(findings, node.line, node.raw, raw, local.changes[0].why)
    elif local.changes and len(words) == 3 and words[1] == "-c":
        raw = raw[:start] + " " + json.dumps([*words[:2], new]) + raw[end:]
        _note(findings, node.line, node.raw, raw, local.changes[0].why)
    replaced = re.sub(r'"(?:/bin/)?ash"', '"/bin/bash"', raw)
    if replaced != raw:
        _note(findings, node.line, raw, replaced, "Debian has no ash; bash knows its extensions")
    return replaced


def _places(node: Node, context: scripts.Stage, findings: scripts.Findings) -> str:
    raw = node.raw
    for old, new in {**context.paths, "/bin/ash": "/bin/bash"}.items():
        raw = re.sub(rf"(?<![\w/.-]){re.escape(old)}(?![\w/.-])", new, raw)
    raw = raw.replace("target=/var/cache/apk", "target=/var/cache/apt")
    if raw != node.raw:
        _note(findings, node.line, node.raw, raw, "the same file has another place on Debian")
    return raw


def _environment(node: Node, findings: scripts.Findings) -> str:
    raw = re.sub(r"\s*\bLD_PRELOAD=\S*(?:compat|musl)\S*|\s*\bMUSL_LOCPATH=\S+", "", node.raw[: node.value[1]])
    raw = "" if re.fullmatch(r"\s*ENV\s*", raw, re.IGNORECASE) else raw + node.raw[node.value[1] :]
    if raw != node.raw:
        _note(findings, node.line, node.raw, raw, "needed by musl only")
    there = re.sub(r"\b(LANG|LC_ALL)([= ]\"?)(?!C[.\"\s]|POSIX)[a-z]{2}_[A-Z]{2}(?:\.\w[\w-]*)?", r"\1\2C.UTF-8", raw)
    if there != raw:
        _note(findings, node.line, raw, there, "a minimal Debian has the locale C.UTF-8 only; musl takes any name")
    return there


def _replace(node: Node, pattern: str, new: str, findings: scripts.Findings, why: str) -> str:
    raw = re.sub(pattern, new, node.raw)
    if raw != node.raw:
        _note(findings, node.line, node.raw, raw, why)
    return raw


def _missing(context: scripts.Stage) -> list[str]:
    return [package for package in context.wanted if package not in context.installed]


def _official(image: str) -> tables.Base | None:
    """The row for an image name: its last path part, tag and digest aside; a bare base for stages that just use apk."""
    name = image.rsplit("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0].lower()
    if name.startswith("alpine") or (name.endswith("-alpine") and name.removesuffix("-alpine") not in tables.bases()):
        name = "alpine"
    return tables.bases().get(name.removesuffix("-alpine"))


def _pairs(node: Node) -> list[tuple[str, str]]:
    """NAME=value pairs of ARG and ENV; the old form `ENV NAME value` too."""
    text = node.arguments
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if node.keyword == "ENV" and words and "=" not in words[0]:
        return [(words[0], " ".join(words[1:]))]
    return [(w.partition("=")[0], w.partition("=")[2]) for w in words]


def _note(findings: scripts.Findings, line: int, before: str, after: str, why: str) -> None:
    before, after = scripts.flat(before), scripts.flat(after)
    if before == after:
        return
    findings.changes.append(LineChange(line=line, before=before, after=after, why=why))


def _refusal(problems: list[tuple[int, str]]) -> DeclarationError:
    unique = sorted(set(problems))
    return DeclarationError(
        f"the Dockerfile uses {len(unique)} thing{'s' if len(unique) > 1 else ''} without a known Debian counterpart",
        why="; ".join(f"line {line}: {what}" for line, what in unique),
        next_command="add the package to inferlift/images/packages.yaml, or change these lines by hand",
    )
