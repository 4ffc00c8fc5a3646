"""`invoke init`: a first profile from a few questions, or from an audit's evidence with the rest left as questions."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError

from inferlift import declaration, modelfile, profile_schema
from inferlift.artifacts import Evidence
from inferlift.errors import DeclarationError

Ask = Callable[[str, str], str]  # the question and what an empty answer means -> the answer as typed
UNKNOWN = ("", "?", "null", "unknown")  # what is typed where the answer is not known
SCHEMA_FILE = Path(".inferlift") / "profile.schema.json"
_TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "profile"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:=@+,-]*")
_RESERVED = ("true", "false", "null", "yes", "no", "on", "off")


@dataclass(frozen=True)
class Question:
    key: str
    ask: str
    default: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)  # by task
    required: bool = False
    unless: str | None = None
    tasks: tuple[str, ...] = ()
    quiet: bool = False
    of_file: bool = False  # the default is what the model's own file says


@dataclass(frozen=True)
class Line:
    """What stands at a key: its YAML text, where it is from, and whether the question is still open."""

    text: str
    ask: str
    note: str = ""
    open: bool = False
    commented: bool = False  # a default that holds without the line


@dataclass(frozen=True)
class Draft:
    path: Path
    open: tuple[str, ...] = field(default=())  # keys whose question is still open
    problems: str = ""  # why it cannot be planned yet; "" where it can


def draft(
    name: str,
    root: Path,
    *,
    answers: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    evidence: Path | None = None,
) -> Draft:
    """Write root/profiles/NAME.yaml. Raises DeclarationError: a bad name or answer, a file that is there already.

    `answers` (dotted key -> as typed) are not asked again; without `ask` whatever is left takes its default or stays
    open. `evidence` is the audit's artifact as JSON.
    """
    path = _new_path(name, root)
    told = dict(answers or {})
    known = {question.key for question in questions()}
    if strange := sorted(set(told) - known):
        near = profile_schema.nearest(strange[0], sorted(known))
        raise DeclarationError(
            f"{strange[0]} is not asked here" + (f"; did you mean {near!r}?" if near else ""),
            why=f"answers are to these: {', '.join(sorted(known))}",
            next_command=f"./invoke init {name}, then write the key into the file (docs/profile.md lists every key)",
        )
    found = {} if evidence is None else from_evidence(read_evidence(evidence))
    lines = _lines(told, found, ask, root)
    schema = _write_schema(root, path)
    whence = f"Drafted from {evidence.name!r}" if evidence is not None else "Drafted from answers"
    target = lines["target"].text
    environment = _environment()
    environment.filters["in_lines"] = lambda key: lines[key]
    text = environment.get_template("profile.yaml.j2").render(
        name=name, lines=lines, schema=schema, origin=f"{whence} by `invoke init {name}`.", target=target,
        example=_example(),
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    problems = ""
    try:
        declaration.load(str(path), root)
    except DeclarationError as error:
        problems = error.what
    return Draft(path, tuple(key for key, line in lines.items() if line.open), problems)


@cache
def questions() -> tuple[Question, ...]:
    """The table questions.yaml."""
    rows = yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text(encoding="utf-8"))
    return tuple(Question(**{**row, "tasks": tuple(row.get("tasks", ()))}) for row in rows)


def on_terminal(question: str, default: str) -> str:
    """The `ask` of a terminal; an empty line or the end of the input is no answer."""
    print(f"{question}{f' [{default}]' if default else ''} ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def describe(made: Draft, root: Path) -> list[str]:
    """What to print of a draft: where it is, and what is still to be answered."""
    path = os.path.relpath(made.path, root)
    lines = [f"wrote {path}"]
    if made.open:
        lines.append(f"{len(made.open)} questions in it are open: {', '.join(made.open)}")
    if spared := [key for key in made.open if key.startswith("model.") and key != "model.name"]:
        lines.append(f"{len(spared)} of them are answered by the model's own file, a config.json or GGUF: model.config")
    if made.problems:
        lines += ["before it can be planned:", *(f"  {line}" for line in made.problems.splitlines())]
    lines.append(f"next: edit {path}, then ./invoke size --profile {made.path.stem}")
    return lines


def read_evidence(path: Path) -> Evidence:
    """The audit's artifact. Raises DeclarationError."""
    try:
        told = json.loads(path.read_bytes())
        if isinstance(told, dict) and isinstance(told.get("artifact"), dict):  # as `invoke audit --json` prints it
            told = told["artifact"]
        return Evidence.model_validate_json(json.dumps(told))
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"{path} is no JSON: {error}"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        what = f"{path} is no audit's evidence: {place}: {first['msg'].lower()}"
    raise DeclarationError(
        what,
        why="--from-evidence takes the artifact of a finished audit, a JSON file",
        next_command="./invoke audit --profile NAME --json",
    )


def from_evidence(evidence: Evidence) -> dict[str, tuple[Any, str]]:
    """What the logs tell: key -> value, and how it is known. Lengths, model and targets are not in there."""
    window = f"{evidence.start:%Y-%m-%d} to {evidence.end:%Y-%m-%d}"
    known: dict[str, tuple[Any, str]] = {}
    if evidence.inference_n and evidence.per_minute_peak > 0:
        note = f"measured: busiest minute of {evidence.inference_n} requests, {window}"
        known["requests.per_minute_peak"] = (evidence.per_minute_peak, note)
    if evidence.in_flight_peak > 0:
        known["requests.in_flight_peak"] = (evidence.in_flight_peak, f"measured: {window}")
    if evidence.growth_per_month is not None:
        known["requests.growth_per_month"] = (round(evidence.growth_per_month, 4), f"measured: {window}")
    curve = evidence.day_curve
    if curve is not None and len(curve) == 24 and max(curve) > 0:
        shares = [round(hour / max(curve), 3) for hour in curve]
        known["requests.day_curve"] = (shares, f"measured: {window}")
    if evidence.bill_monthly is not None and evidence.bill_monthly.value is not None:
        known["hosting.bill_monthly"] = (evidence.bill_monthly.value, f"{evidence.bill_monthly.basis}, by the bill")
    if evidence.gpu_model is not None:
        known["hosting.gpu"] = (evidence.gpu_model, "as the old host says")
    if task := _task_of(evidence):
        known["task"] = (task, "by the routes in the logs")
    return known


def _task_of(evidence: Evidence) -> str | None:
    """The task by the route that most requests take, where its name says it."""
    for row in sorted(evidence.routes, key=lambda row: -row.n):
        for word, task in (("completions", "chat"), ("/chat", "chat"), ("embeddings", "embeddings")):
            if word in row.route:
                return task
    return None


# --- answers ---------------------------------------------------------------------------------------------------------


def _lines(
    told: Mapping[str, str], found: Mapping[str, tuple[Any, str]], ask: Ask | None, root: Path
) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    known: dict[str, Any] = {}  # what the model's own file says
    for question in questions():
        why = _not_asked(question, lines, known)
        if why and question.key in told:
            raise DeclarationError(f"{question.key} is not asked where {why}", next_command="leave that answer out")
        if why:
            continue
        question = _with_default(question, lines, known)
        lines[question.key] = _line(question, told.get(question.key), found.get(question.key), ask, root)
        if question.key == "model.config" and lines["model.config"].text != "null":
            known = _of_file(yaml.safe_load(lines["model.config"].text), root)
    return lines


def _of_file(config: str, root: Path) -> dict[str, Any]:
    """What a model's own file says: figures, and by `task` and `name` what the model is."""
    path = root / config
    name = path.parent.name if path.name == "config.json" else path.name if path.is_dir() else path.stem
    return {**modelfile.read(path), "task": modelfile.task_of(path), "name": name}


def _with_default(question: Question, lines: Mapping[str, Line], known: Mapping[str, Any]) -> Question:
    """The question with what holds where nobody answers: by the model's own file, the task, the target."""
    default = question.default
    if question.key in ("task", "model.name"):
        name = question.key.rpartition(".")[2]
        return replace(question, default=known.get(name, default), of_file=name in known)
    if question.key == "server.kind" and lines["target"].text == "lab":
        default = "llamacpp"
    elif question.defaults:
        default = question.defaults.get(lines["task"].text, default)
    return replace(question, default=default)


def _not_asked(question: Question, lines: Mapping[str, Line], known: Mapping[str, Any]) -> str:
    """Why this question has no place here; "" where it has."""
    if question.tasks and lines["task"].text not in question.tasks:
        return f"the task is {lines['task'].text}"
    section, _, name = question.key.rpartition(".")
    # an encoder of texts is sized by its architecture, an image model by its operations
    sized = name in known or (name == "flops_per_item" and "layers" in known)
    if section == "model" and name != "name" and sized:
        return f"{lines['model.config'].text} says it"
    key, _, value = (question.unless or "").partition("=")
    if key in lines and (lines[key].text == value if value else lines[key].text != "null"):
        return f"{key} is {lines[key].text}"
    return ""


def _line(question: Question, told: str | None, found: tuple[Any, str] | None, ask: Ask | None, root: Path) -> Line:
    if told is not None:
        return _answered(question, told, root)
    if found is not None:
        return Line(_text(found[0]), question.ask, found[1])
    if question.quiet:
        return _assumed(question)
    wrong = ""
    while ask is not None:
        typed = ask(f"{wrong}{question.ask}", question.default or "")
        try:
            return _answered(question, typed.strip() or question.default or "", root, asked=True)
        except DeclarationError as error:
            wrong = f"{error.what}. "
    return _answered(question, "", root) if question.default is None else _assumed(question)


def _answered(question: Question, typed: str, root: Path, *, asked: bool = False) -> Line:
    if typed.strip().lower() not in UNKNOWN or typed == question.default:
        if question.key == "model.config":
            typed = _file(typed.strip(), root)
        return Line(_text(_value(question.key, typed.strip())), question.ask)
    if question.default is not None or question.quiet:
        return _assumed(question)
    part = profile_schema.at(tuple(question.key.split(".")))
    nothing = None if question.required or profile_schema.takes(part, "null") else part["default"]
    # an empty answer to what need not be is one: there is no target, no file
    given = (asked and not question.required and not typed.strip()) or question.key == "model.config"
    return Line(_text(nothing), question.ask, open=not given)


def _assumed(question: Question) -> Line:
    if question.default is None:
        part = profile_schema.at(tuple(question.key.split(".")))
        return Line(_text(part.get("default")), question.ask, question.ask, commented=True)
    assumed = "by the model's own file" if question.of_file else "assumed: no answer was given"
    note = "" if not question.default else question.ask if question.quiet else assumed
    return Line(_text(_value(question.key, question.default) if question.default else ""), question.ask, note)


def _file(typed: str, root: Path) -> str:
    """The model's file as a profile names it (from the root on), once it could be read. Raises DeclarationError."""
    here = Path(os.environ.get("INFERLIFT_CWD") or ".") / typed  # see the launcher
    path = root / typed if (root / typed).exists() or not here.exists() else here.resolve()
    modelfile.read(path)
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _value(key: str, typed: str) -> Any:
    """What was typed, as the profile's own types take it. Raises DeclarationError."""
    if any("\ud800" <= letter <= "\udfff" for letter in typed):  # bytes that are no UTF-8, as Python passes them on
        raise DeclarationError(f"{key}: expected UTF-8 text", next_command="type it in a UTF-8 terminal")
    location = tuple(key.split("."))
    parts = [part.strip() for part in typed.strip("[]").split(",") if part.strip()]
    value: Any = typed
    part = profile_schema.at(location)
    if profile_schema.takes(part, "array"):
        value = [_number(one) for one in parts]
    elif not profile_schema.takes(part, "string") and not profile_schema.choices(part):
        value = _number(typed)
    wrong = profile_schema.problem(location, value)
    if wrong:
        raise DeclarationError(
            f"{key}: expected {profile_schema.expected(location)}, got {typed!r}"[:300],
            why=wrong,
            next_command="give another answer, or ? where it is not known",
        )
    return value


def _number(typed: str) -> Any:
    """A number as people type it (70_553_706_496, 8.2e9), else the text as it is."""
    plain = typed.replace("_", "").replace(" ", "")
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        value = float(plain)
    except ValueError:
        return typed
    return int(value) if value.is_integer() and abs(value) < 1e18 else value


def _text(value: Any) -> str:
    """YAML on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED and not value.endswith(":")
        return value if plain else _quoted(value)
    return json.dumps(value)


def _quoted(value: str) -> str:
    """A YAML text in quotes. JSON writes what lies beyond 16 bits as two escapes, which YAML does not join."""
    return '"' + "".join(one if ord(one) > 0xFFFF else json.dumps(one)[1:-1] for one in value) + '"'


# --- the file --------------------------------------------------------------------------------------------------------


def _new_path(name: str, root: Path) -> Path:
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{name!r} cannot be the name of a profile",
            why="a name begins with a small letter and has small letters, digits and '-', at most 31 in all",
            next_command="./invoke init my-service",
        )
    path = root / "profiles" / f"{name}.yaml"
    if os.path.lexists(path):
        raise DeclarationError(
            f"profiles/{name}.yaml is there already and stays as it is",
            why="init writes new files only",
            next_command=f"./invoke init {name}-2, or edit that file",
        )
    return path


def _write_schema(root: Path, path: Path) -> str:
    """The schema for editors, beside the profiles; its address as the profile's first line has it."""
    schema = root / SCHEMA_FILE
    schema.parent.mkdir(parents=True, exist_ok=True)
    temporary = schema.with_name(f".{schema.name}.{os.getpid()}")  # by rename: never through somebody's link
    temporary.write_text(json.dumps(declaration.schema(), indent=1) + "\n", encoding="utf-8")
    temporary.replace(schema)
    return os.path.relpath(schema, path.parent)


def _example() -> list[str]:
    """Lines of a service that exists, to be filled in."""
    return (_TEMPLATES / "origin.yaml").read_text(encoding="utf-8").splitlines()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=False,  # noqa: S701 - YAML, and every value is quoted by _text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.tests["in_section"] = lambda key, name: key.startswith(f"{name}.")
    return environment
