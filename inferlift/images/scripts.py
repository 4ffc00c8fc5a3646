"""One shell script of an Alpine stage, its apk and BusyBox commands replaced by Debian's, the rest kept as it is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from inferlift.artifacts import LineChange
from inferlift.images import accounts, shell, tables

# Keeps what built files link to, as docker-library/python's slim images do, then removes the rest.
_KEEP_LINKED = (
    "{ find /usr/local /opt /app /srv /venv -type f \\( -name '*.so*' -o -perm /111 \\) -exec ldd '{}' ';' 2>/dev/null"
    ' \\\n      | awk \'/=>/ { so = $(NF-1); sub("^/(usr/)?", "", so); print "*" so }\' | sort -u'
    " \\\n      | xargs -r dpkg-query --search 2>/dev/null | cut -d: -f1 | sort -u"
    " \\\n      | xargs -r apt-mark manual >/dev/null || true; }"
)
_CLEAN = "rm -rf /var/lib/apt/lists/*"
# Packages whose removal on Debian takes files along that the image has meanwhile made its own (tzdata's postrm).
_TAKES_ALONG = {"tzdata": "/etc/localtime and /etc/timezone"}
_ALPINE_ONLY = re.compile(r"(docker-php-ext-\w+|docker-php-source|rc-update|rc-service|scanelf|setup-\w+|abuild)$")
_VALUED = {"-t", "--virtual", "-X", "--repository", "-p", "--root", "--keys-dir", "--arch", "--cache-dir", "--wait"}


@dataclass
class Stage:
    """What is known of the stage being rewritten."""

    variables: dict[str, str] = field(default_factory=dict)
    virtuals: dict[str, list[str]] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)
    paths: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)  # Debian package -> the BusyBox command that needs it


@dataclass
class Findings:
    changes: list[LineChange] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)  # (line, what cannot be translated)


def rewrite(
    text: str, line: int, stage: Stage, findings: Findings, *, escape: str = "\\", dockerfile: bool = True
) -> str:
    """The script for a Debian base. `line`: where `text` begins in the file. Unknown names go to findings.problems."""
    edits: list[tuple[int, int, str]] = []
    variables = dict(stage.variables)
    for command in shell.commands(text, escape=escape, dockerfile=dockerfile):
        for word in command.assignments:
            name, _, value = word.text.partition("=")
            variables[name] = expand(value, variables)
        if not command.words:
            continue
        handler = _HANDLERS.get(command.words[0].text.rsplit("/", 1)[-1])
        at = line + text.count("\n", 0, command.start)
        if handler is None:
            _remember(command, at, stage, findings)
            continue
        end = command.end
        result = handler(_Call(command, text, line, at, variables, stage, findings))
        if result is not None:
            new, why = result
            if command.redirections:
                new = f"{{ {new}; }} " + " ".join(_redirections(command, text))
            elif command.before in ("||", "!", "|", "time", "exec") and "&& " in new:
                new = f"{{ {new}; }}"
            if escape != "\\":
                new = new.replace(" \\\n", f" {escape}\n")
            edits.append((command.start, end, new))
            findings.changes.append(
                LineChange(line=at, before=flat(text[command.start : end]), after=flat(new), why=why)
            )
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


@dataclass(frozen=True)
class _Call:
    command: shell.Command
    text: str
    line: int
    at: int
    variables: dict[str, str]
    stage: Stage
    findings: Findings

    @property
    def words(self) -> list[str]:
        return [w.text for w in self.command.words]

    def line_of(self, word: shell.Word) -> int:
        return self.line + self.text.count("\n", 0, word.start)

    def problem(self, what: str, word: shell.Word | None = None) -> None:
        self.findings.problems.append((self.line_of(word) if word else self.at, what))


_Result = tuple[str, str] | None


def _apk(call: _Call) -> _Result:
    words = call.command.words[1:]
    plain = (
        w for n, w in enumerate(words) if not w.raw.startswith("-") and (n == 0 or words[n - 1].text not in _VALUED)
    )
    sub = next(plain, None)
    rest = [w for w in words if w is not sub]
    match sub.text if sub else "":
        case "add":
            return _add(call, rest)
        case "del":
            return _delete(call, rest)
        case "update":
            return "apt-get update", "apt's index in place of apk's"
        case "upgrade":
            return (
                "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get upgrade -y && " + _CLEAN,
                "apt in place of apk",
            )
        case "cache" | "fix":
            return "true", "apk's cache does not exist here"
        case other:
            call.problem(f"apk {other}".strip() + " (no Debian counterpart known)", sub)
            return None


def _add(call: _Call, words: list[shell.Word]) -> _Result:
    names, virtual, dropped = _apk_options(call, words)
    apt: list[str] = []
    also: list[str] = []
    notes: list[str] = []
    for word, name in names:
        bare = re.split(r"[<>=~@]", name, maxsplit=1)[0]
        if bare != name:
            notes.append(f"the pin of {bare} is Alpine's and is dropped")
        package = tables.packages().get(bare)
        if package is None or not bare:
            call.problem(_unknown(name), word)
            continue
        apt += [a for a in package.apt if a not in apt]
        also += [package.also] if package.also else []
        notes += [f"{bare}: {package.note}"] if package.note else []
        call.stage.paths.update(package.paths)
    if virtual:
        call.stage.virtuals.setdefault(virtual, []).extend(apt)
    call.stage.installed.update(apt)
    known = [(name, found) for _, name in names if (found := _apt(name)) is not None]
    pairs = ", ".join(f"{name} -> {' '.join(found) or 'in the base'}" for name, found in known)
    why = "; ".join([f"apt in place of apk: {pairs}" if pairs else "apt in place of apk", *notes, *dropped])
    if not apt:
        return "true", why
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends " + " ".join(apt)
    return " \\\n    && ".join(["apt-get update", install, _CLEAN, *also]), why


def _delete(call: _Call, words: list[shell.Word]) -> _Result:
    names, _, _ = _apk_options(call, words)
    apt: list[str] = []
    for word, name in names:
        known = call.stage.virtuals.get(name)
        if known is None:
            package = tables.packages().get(name)
            if package is None:
                call.problem(_unknown(name), word)
                continue
            known = list(package.apt)
        apt += [a for a in known if a not in apt]
    if not apt:
        return "true", "nothing was installed under these names"
    staying = [name for name in apt if name in _TAKES_ALONG]
    apt = [name for name in apt if name not in _TAKES_ALONG]
    if not apt:
        return "true", "; ".join(f"{name} stays: its removal takes {_TAKES_ALONG[name]} along" for name in staying)
    return (
        f"{_KEEP_LINKED} \\\n    && apt-get purge -y --auto-remove {' '.join(apt)}",
        "what `apk add --virtual` named is removed again; libraries that built files link to are kept",
    )


def _apk_options(call: _Call, words: list[shell.Word]) -> tuple[list[tuple[shell.Word, str]], str | None, list[str]]:
    """Package words with variables expanded, the virtual group's name, and what was dropped."""
    names: list[tuple[shell.Word, str]] = []
    virtual, dropped = None, []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, _, value = word.text.partition("=")
        if not word.text.startswith("-"):
            substituted = "$(" in word.text or "`" in word.text
            found = [word.text] if substituted else expand(word.text, call.variables).split()
            names += [(word, name) for name in found]
        elif option in _VALUED or (len(option) > 2 and option[:2] in ("-t", "-X") and option[1] != "-"):
            short = option if option in _VALUED else option[:2]
            value = value or option[len(short) :] or (rest.pop(0).text if rest else "")
            if short in ("-t", "--virtual"):
                virtual = value
            elif short in ("-X", "--repository"):
                dropped.append(f"Alpine's repository {value} is dropped")
    return names, virtual, dropped


def _account(call: _Call) -> _Result:
    try:
        new = accounts.translate([_requote(w) for w in call.command.words])
    except accounts.Unsupported as error:
        call.problem(f"{call.words[0]}: {error}")
        return None
    return new, "BusyBox' account command as Debian's; a system group or user gets its id from Debian's own range"


def _rm(call: _Call) -> _Result:
    if not any(w.startswith("/var/cache/apk") or w.startswith("/etc/apk") for w in call.words):
        return None
    kept = [w for w in call.words if not w.startswith(("/var/cache/apk", "/etc/apk"))]
    return " ".join([*kept, "/var/lib/apt/lists/*"]), "apt's lists in place of apk's cache"


def _repositories(call: _Call) -> _Result:
    whole = call.text[call.command.start : call.command.end]
    if "/etc/apk/" not in whole:
        if call.words[0] == "echo":
            _remember(call.command, call.at, call.stage, call.findings)
        return None
    call.command.redirections.clear()
    return "true", "Alpine's repositories do not apply here"


def _localtime(call: _Call) -> _Result:
    """Debian's /etc/localtime is a link into the zone files already: cp refuses or overwrites a zone, ln -s fails."""
    if call.words[-1] != "/etc/localtime":
        return None
    flags = "--remove-destination" if call.words[0] == "cp" else "--force --no-dereference"
    first = call.command.words[0]
    rest = call.text[first.end : call.command.words[-1].end]
    return f"{call.words[0]} {flags}{rest}", "Debian has /etc/localtime as a link already"


def _ash(call: _Call) -> _Result:
    first = call.command.words[0]
    rest = call.text[first.end : call.command.words[-1].end]
    return "/bin/bash" + rest, "Debian has no ash; bash knows its extensions ([[, source, pipefail), dash does not"


def _pip(call: _Call) -> _Result:
    """Debian's pip puts what goes under a prefix into PREFIX/local, where no Python that it is copied to looks."""
    words = call.words
    if "install" not in words or (words[0].startswith("python") and words[1:3] != ["-m", "pip"]):
        return None
    given = [w.partition("=")[2] for w in words if w.startswith("--prefix=")]
    given += [value for option, value in itertools.pairwise(words) if option == "--prefix"]
    if not given or given[-1] == "/usr":
        return None
    prefix = given[-1].rstrip("/")
    raw = call.text[call.command.start : call.command.end].rstrip()
    move = f"if [ -d {prefix}/local ]; then cp -a {prefix}/local/. {prefix}/ && rm -r {prefix}/local; fi"
    return f"{raw} \\\n    && {move}", "Debian's pip installs into a folder `local` of its own below the prefix"


_HANDLERS: dict[str, Callable[[_Call], _Result]] = {
    "apk": _apk, "adduser": _account, "addgroup": _account, "deluser": _account, "delgroup": _account,
    "rm": _rm, "echo": _repositories, "sed": _repositories, "printf": _repositories,
    "ash": _ash, "cp": _localtime, "ln": _localtime,
    "pip": _pip, "pip3": _pip, "python": _pip, "python3": _pip,
}  # fmt: skip


def _remember(command: shell.Command, at: int, stage: Stage, findings: Findings) -> None:
    """A BusyBox command that a minimal Debian lacks, or a helper that only Alpine images have."""
    for word in command.words[: 3 if command.words[0].text in ("env", "nohup", "xargs", "timeout") else 1]:
        name = word.text.rsplit("/", 1)[-1]
        if _ALPINE_ONLY.match(name):
            findings.problems.append((at, f"{name} (a tool of Alpine or of the official image)"))
        if name in tables.applets():
            stage.wanted.setdefault(tables.applets()[name].apt, name)


def _redirections(command: shell.Command, text: str) -> list[str]:
    pieces: list[str] = []
    words = list(command.redirections)
    while words:
        first = words.pop(0)
        target = words.pop(0) if words else None
        glued = target is not None and target.start == first.end
        pieces.append(first.raw + (("" if glued else " ") + target.raw if target else ""))
    return pieces


def expand(text: str, variables: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found["a"] or found["b"]
        return variables.get(name) or found["d"] or found.group()

    return re.sub(r"\$(?:(?P<a>[A-Za-z_]\w*)|\{(?P<b>[A-Za-z_]\w*)(?::?-(?P<d>[^}]*))?\})", value, text)


def _requote(word: shell.Word) -> str:
    """A word for a translated command: quotes kept where they hold spaces."""
    return word.raw if re.search(r"\s", word.text) and not word.raw.startswith("-") else word.text


def _unknown(name: str) -> str:
    if "$" in name or "`" in name:
        return f"{name} (a package list known only while building)"
    if name.startswith("/") or name.endswith(".apk"):
        return f"{name} (a package file of Alpine's)"
    return name


def _apt(name: str) -> tuple[str, ...] | None:
    package = tables.packages().get(re.split(r"[<>=~@]", name, maxsplit=1)[0])
    return None if package is None else package.apt


def flat(text: str) -> str:
    """In one line, comment lines inside dropped."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text) if "\n" in text.strip() else text
    return re.sub(r"\s*[\\`]?\r?\n\s*", " ", text).strip()
