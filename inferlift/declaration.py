"""Loads a profile file and says what is wrong with it: file, line, what was expected, the nearest valid name.

Everything that is wrong is listed at once. Nothing is made, and no secret is read or shown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from inferlift import profile_schema
from inferlift.errors import DeclarationError
from inferlift.modelfile.filling import fill
from inferlift.profile import Profile
from inferlift.profile.model import SUPPLIED
from inferlift.profile.rules import ARCHITECTURE, needed, wants_operations
from inferlift.profile_schema import Location, nearest, schema
from inferlift.yamlsource import MAX_BYTES, Node, Problem, Unreadable, compose

__all__ = ["Declared", "load", "names", "schema"]
MAX_EXTENDS = 5


@dataclass(frozen=True)
class Declared:
    """A valid profile. `places` maps a dotted key (switch.steps.0) to the file and line that declared it."""

    profile: Profile
    path: Path
    digest: str  # over what is declared, not over comments or order
    places: Mapping[str, tuple[Path, int]]

    @property
    def lines(self) -> Mapping[str, int]:
        return {key: line for key, (_, line) in self.places.items()}

    def where(self, key: str, root: Path) -> str:
        """`FILE:LINE: ` of the key, or of the nearest section above it that stands there; else the file alone."""
        while key:
            if key in self.places:
                path, line = self.places[key]
                return f"{_short(path, root)}:{line}: "
            key = key.rpartition(".")[0]
        return f"{_short(self.path, root)}: "


def load(name_or_path: str, root: Path) -> Declared:
    """The profile called NAME (root/profiles/NAME.yaml) or in the file at that path.

    Paths inside a profile are relative to `root`. Raises DeclarationError.
    """
    path = _find(name_or_path, root)
    node, problems = _read(path, root, ())
    if node is None:
        raise _error(problems, root)
    plain = node.plain()
    unfilled = [_at(node, tuple(key.split(".")), f"{key}: {why}") for key, why in fill(plain, root)]
    problems += unfilled
    unread = any(problem.text.startswith("model.config:") for problem in unfilled)
    profile: Profile | None = None
    try:
        profile = Profile.model_validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        spent = {(problem.path, problem.line) for problem in problems}
        operations = isinstance(plain, dict) and wants_operations(plain)
        for found in error.errors(include_url=False):
            if operations and found["loc"][:1] == ("model",) and found["loc"][1:] in _ARCHITECTURE:
                continue
            if (
                unread
                and found["type"] == "missing"
                and found["loc"][:1] == ("model",)
                and found["loc"][1:] in _SUPPLIED
            ):
                continue  # the file that could not be read has it: that is what to mend
            problems += [one for one in _problems(found, node) if (one.path, one.line) not in spent]
        if all(found["loc"] for found in error.errors(include_url=False)):  # else the whole was looked at already
            problems += _task_problems(plain, node, operations)
    else:
        problems += _name_problems(profile, node, path, root)
    problems += _file_problems(node, root)
    if problems or profile is None:
        raise _error(problems, root, first=unfilled)
    meaning = json.dumps(profile.model_dump(mode="json"), sort_keys=True).encode()
    return Declared(profile, path, "sha256:" + hashlib.sha256(meaning).hexdigest(), dict(_places(node, "")))


def names(root: Path) -> list[str]:
    """The names of the profiles in root/profiles, sorted; whether they are valid is not looked at."""
    folder = root / "profiles"
    return sorted(path.stem for path in folder.glob("*.yaml") if path.is_file()) if folder.is_dir() else []


# --- finding and reading -------------------------------------------------------------------------------------


def _find(name_or_path: str, root: Path) -> Path:
    asked = name_or_path.strip()
    is_path = "/" in asked or asked.endswith((".yaml", ".yml")) or asked in (".", "..")
    path = Path(asked) if is_path else root / "profiles" / f"{asked}.yaml"
    try:
        if asked and (path.exists() or path.is_symlink()):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    known = names(root)
    if not is_path:
        beside = _beside(asked)
        near = beside or nearest(asked.lower(), known)
        hint = f"; did you mean the file {beside}?" if beside else f"; did you mean {near!r}?" if near else ""
        raise DeclarationError(
            f"there is no profile {asked!r}{hint}",
            why=f"profiles are the files profiles/NAME.yaml; there are: {', '.join(known) or 'none'}",
            next_command=f"--profile {near or (known[0] if known else 'PATH')}, or ./invoke profiles",
        )
    other = _nearest_file(path)
    raise DeclarationError(
        f"{_short(path, root)}: no such file{f'; did you mean {other}?' if other else ''}",
        why="--profile takes the name of a profile or the path of a profile file",
        next_command=f"--profile {other or (known[0] if known else 'NAME')}, or ./invoke profiles",
    )


def _beside(asked: str) -> str | None:
    """A file of that name in the folder where the command was typed: as a path it would have been found."""
    for name in (f"{asked}.yaml", f"{asked}.yml"):
        try:
            if asked and (Path(os.environ.get("INFERLIFT_CWD") or ".") / name).is_file():  # see the launcher
                return f"./{name}"
        except (OSError, ValueError, RuntimeError):
            return None
    return None


def _nearest_file(path: Path) -> Path | None:
    try:
        there = [other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml")]
    except (OSError, ValueError, RuntimeError):
        return None
    near = nearest(path.name, there)
    return path.with_name(near) if near else None


def _read(path: Path, root: Path, through: tuple[Path, ...]) -> tuple[Node | None, list[Problem]]:
    """The tree of the file with what it extends merged in; None where nothing can be checked further."""
    try:
        if path.is_dir():
            return None, [Problem(path, 1, "is a folder; expected a profile file (.yaml)")]
        if not path.is_file():
            return None, [Problem(path, 1, "is not a regular file" if path.exists() else "links to nothing")]
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return None, [Problem(path, 1, f"cannot be read: {error.strerror or error}")]
    if len(data) > MAX_BYTES:
        return None, [Problem(path, 1, f"is larger than {MAX_BYTES // 1_000_000} MB; that is no profile")]
    try:
        node, problems = compose(data, path)
    except Unreadable as error:
        return None, [error.problem]
    if node is None or (node.kind == "scalar" and node.scalar is None):
        return None, [*problems, Problem(path, 1, f"is empty ({len(data)} bytes); expected `name: ...` and so on")]
    if node.kind != "map":
        kind = "a list" if node.kind == "list" else "a single value"
        return None, [*problems, Problem(path, node.line, f"expected `key: value` lines, found {kind}")]
    extends = node.children.pop("extends", None)
    if extends is None:
        return node, problems
    base, more = _base(extends, node, path, root, (*through, path))
    return (_merged(base, node) if base is not None else None), problems + more


def _base(
    extends: Node, node: Node, path: Path, root: Path, through: tuple[Path, ...]
) -> tuple[Node | None, list[Problem]]:
    if not isinstance(extends.scalar, str):
        return None, [Problem(path, extends.line, "extends: expected the name or path of a profile")]
    asked = extends.scalar
    relative = path.parent / asked
    try:
        target = _find(str(relative) if "/" in asked or asked.endswith((".yaml", ".yml")) else asked, root)
    except DeclarationError as error:
        return None, [Problem(path, extends.line, f"extends: {error.what}")]
    if any(target.resolve() == seen.resolve() for seen in through):
        return None, [Problem(path, extends.line, f"extends: {asked} extends itself in a circle")]
    if len(through) > MAX_EXTENDS:
        return None, [Problem(path, extends.line, f"extends: more than {MAX_EXTENDS} profiles in a row")]
    base, problems = _read(target, root, through)
    if base is not None and "name" not in node.children:
        problems.append(Problem(path, extends.line, "name: expected a name of its own beside `extends`"))
    return base, problems


def _merged(base: Node, change: Node) -> Node:
    """Mappings merge key by key; everything else is replaced."""
    if base.kind != "map" or change.kind != "map":
        return change
    children = dict(base.children)
    for key, node in change.children.items():
        children[key] = _merged(children[key], node) if key in children else node
    return Node("map", change.path, change.line, children=children)


# --- saying what is wrong ------------------------------------------------------------------------------------


def _problems(found: Any, root_node: Node) -> list[Problem]:
    if found["type"] != "impossible":
        return [_problem(found, root_node)]
    problems = []
    for key, why in found["ctx"]["found"]:  # a validator over several keys names those to look at
        location: Location = (*found["loc"], *key.split("."))
        problems.append(_at(root_node, location, f"{_dotted(location)}: {why}"))
    return problems


def _problem(found: Any, root_node: Node) -> Problem:
    location: Location = tuple(found["loc"])
    kind, value = found["type"], found["input"]
    dotted = _dotted(location)
    if kind == "extra_forbidden":
        return _at(root_node, location, _unknown(location))
    if kind == "missing":
        expected = profile_schema.expected(location)
        return _at(root_node, location[:-1], f"{dotted}: missing; expected {expected}")
    if kind == "value_error":
        return _at(root_node, location, f"{dotted}: {found['ctx']['error']}")
    shown = profile_schema.shown(value, secret=profile_schema.is_secret(location))
    text = f"{dotted}: expected {profile_schema.expected(location)}, got {shown}"
    choices = profile_schema.choices(profile_schema.at(location))
    if isinstance(value, str) and choices and (near := nearest(value, choices)):
        text += f"; did you mean {near!r}?"
    return _at(root_node, location, text)


def _at(node: Node, location: Location, text: str) -> Problem:
    """The problem at the deepest part of `location` that stands in a file."""
    for part in location:
        if node.kind == "map" and str(part) in node.children:
            node = node.children[str(part)]
        elif node.kind == "list" and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            break
    return Problem(node.path, node.line, text)


def _unknown(location: Location) -> str:
    key = str(location[-1])
    section = profile_schema.section(location[:-1])
    valid = [*section.get("properties", {}), *(["extends"] if len(location) == 1 else [])]
    text = f"{_dotted(location)}: unknown key"
    if near := nearest(key, valid):
        return f"{text}; did you mean {near!r}?"
    elsewhere = [name for name in profile_schema.all_keys() if name.rsplit(".", 1)[-1] == key]
    if elsewhere:
        return f"{text} here; it belongs under {elsewhere[0]!r}"
    return f"{text}; expected one of {', '.join(valid)}"


def _error(problems: list[Problem], root: Path, first: Collection[Problem] = ()) -> DeclarationError:
    """All of them by file and line; `first` are those that others may follow from."""
    ordered = sorted(
        set(problems), key=lambda problem: (problem not in first, str(problem.path), problem.line, problem.text)
    )
    lines = [f"{_short(problem.path, root)}:{problem.line}: {problem.text}" for problem in ordered[:50]]
    if len(ordered) > 50:
        lines.append(f"... and {len(ordered) - 50} more")
    head = "" if len(ordered) == 1 else f"{len(ordered)} problems in the profile:\n"
    return DeclarationError(
        head + "\n".join(lines),
        why="the declaration is checked before anything is made; nothing was changed",
        next_command="correct the file, then run the same command again (docs/profile.md lists every key)",
    )


# --- checks beyond types -------------------------------------------------------------------------------------


_ARCHITECTURE = tuple((key,) for key in ARCHITECTURE)
_SUPPLIED = tuple((key,) for key in SUPPLIED)


def _task_problems(plain: Any, node: Node, operations: bool) -> list[Problem]:
    """What the task needs and is not there, where other mistakes keep the whole from being looked at."""
    flops = ("model", "flops_per_item")
    expected = f"expected {profile_schema.expected(flops)}, or the architecture: {', '.join(ARCHITECTURE)}"
    asked = [_at(node, flops, f"model.flops_per_item: missing; {expected}")] if operations else []
    return asked + [
        _at(node, ("requests", key), f"requests.{key}: missing; expected {profile_schema.expected(('requests', key))}")
        for key in needed(plain)
    ]


# Keys that name something which must be there, and where its path starts ("~": it may start with the operator's home).
# Secrets are looked at when they are used.
_FILES: tuple[tuple[str, str, str], ...] = (
    ("load", "quality_prompts", ""),
    ("origin", "certificate", ""),
    ("origin", "ca", ""),
    ("origin", "recorded", ""),
    ("origin", "dockerfile", ""),
    ("origin", "ssh_key", "~"),
    ("origin", "known_hosts", "~"),
    ("static", "ssh_key", "~"),
    ("static", "known_hosts", "~"),
)


def _file_problems(node: Node, root: Path) -> list[Problem]:
    """Files and folders that the profile names must be there; read from the text, so that no other mistake hides it."""
    problems = []
    for section, key, start in (*_FILES, ("lab", "workload", "templates/workloads")):
        found = node.children.get(section, node).children.get(key)
        if found is None or not isinstance(found.scalar, str):
            continue
        wants_folder, path = section == "lab", root / ("" if start == "~" else start) / found.scalar
        try:
            path = root / Path(found.scalar).expanduser() if start == "~" else path
            there = path.is_dir() if wants_folder else path.is_file()
        except (OSError, ValueError, RuntimeError):
            there = False
        if not there:
            text = f"{section}.{key}: there is no {'folder' if wants_folder else 'file'} {_short(path, root)}"
            problems.append(Problem(found.path, found.line, text))
    return problems


def _name_problems(profile: Profile, node: Node, path: Path, root: Path) -> list[Problem]:
    """In the profiles folder a profile has its file's name, so that --profile NAME means one thing."""
    shipped = path.parent.resolve() == (root / "profiles").resolve()
    if not shipped or profile.name == path.stem:
        return []
    return [_at(node, ("name",), f"name: expected {path.stem!r}, as the file is called, got {profile.name!r}")]


def _dotted(location: Location) -> str:
    return ".".join(map(str, location)) or "profile"


def _places(node: Node, prefix: str) -> list[tuple[str, tuple[Path, int]]]:
    found = [(prefix, (node.path, node.line))] if prefix else []
    inner = list(node.children.items()) + [(str(i), item) for i, item in enumerate(node.items)]
    for key, child in inner:
        found += _places(child, f"{prefix}.{key}" if prefix else key)
    return found


def _short(path: Path, root: Path) -> str:
    for base in (root, Path.cwd()):
        try:
            return str(path.resolve().relative_to(base.resolve()))
        except (OSError, ValueError, RuntimeError):
            continue
    return str(path)
