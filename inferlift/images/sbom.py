"""What an image holds, by name and version, and how that differs from what was asked of Alpine and from the base.

Format: CycloneDX 1.5 JSON; package URLs by the purl specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from inferlift.artifacts import LineChange
from inferlift.images import tables


class Component(NamedTuple):
    kind: str  # deb, pypi, npm
    name: str
    version: str

    @property
    def purl(self) -> str:
        space = "debian/" if self.kind == "deb" else ""
        return f"pkg:{self.kind}/{space}{self.name}@{self.version}"


def components(root: Path) -> list[Component]:
    """Debian packages, Python distributions and npm packages of an image mounted at `root`."""
    found = {*_debian(root), *_python(root), *_npm(root)}
    return sorted(found)


def document(name: str, found: Iterable[Component]) -> str:
    rows = [{"type": "library", "name": c.name, "version": c.version, "purl": c.purl} for c in found]
    body = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "container", "name": name}}, "components": rows,
    }  # fmt: skip
    return json.dumps(body, indent=1)


def difference(changes: Sequence[LineChange], base: Iterable[Component], now: Iterable[Component]) -> list[str]:
    """Lines: what each Alpine package became, and what else came on top of the base or left it.

    Alpine's own versions are not known: there is no image of it to read.
    """
    there, before = {c.name: c for c in now if c.kind == "deb"}, set(base)
    lines, named = [], set()
    for alpine in _asked(changes):
        row = tables.packages()[alpine]
        named |= set(row.apt)
        became = [
            f"{apt} {there[apt].version}" if apt in there else f"{apt} (not in the image any more)" for apt in row.apt
        ]
        lines.append(f"{alpine} -> {', '.join(became) or 'nothing: the base has it, or glibc needs it not'}")
    now = set(now)
    lines += [f"+ {c.kind} {c.name} {c.version}" for c in sorted(now - before) if c.name not in named]
    return lines + [f"- {c.kind} {c.name} {c.version}" for c in sorted(before - now)]


def _asked(changes: Sequence[LineChange]) -> list[str]:
    """Names of Alpine packages on the lines that were changed."""
    words = [w for c in changes if re.search(r"\bapk\b", c.before) for w in re.split(r"[\s;&|\"',\[\]]+", c.before)]
    names = [re.split(r"[=<>~@]", w)[0] for w in words]
    return list(dict.fromkeys(n for n in names if n in tables.packages()))


def _debian(root: Path) -> list[Component]:
    found = []
    try:
        text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    for block in text.split("\n\n"):
        rows = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if rows.get("Status", "").endswith(" installed"):
            found.append(Component("deb", rows["Package"], rows.get("Version", "")))
    return found


def _python(root: Path) -> list[Component]:
    found = []
    for place in ("usr", "opt", "app", "srv", "venv", "install", "home", "root"):
        for pattern in ("*.dist-info/METADATA", "*.egg-info/PKG-INFO"):
            for path in (root / place).rglob(pattern):
                if "usr/lib/python3/dist-packages" in str(path):
                    continue  # Debian's own, named as such
                told = HeaderParser().parsestr(path.read_text(encoding="utf-8", errors="replace"))
                if told["Name"]:
                    found.append(Component("pypi", told["Name"].lower(), told["Version"] or ""))
    return found


def _npm(root: Path) -> list[Component]:
    found = []
    for place in ("app", "srv", "opt", "home", "usr/src", "usr/local/lib", "root"):
        for path in (root / place).rglob("node_modules/*/package.json"):
            try:
                told = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(told, dict) and told.get("name"):
                found.append(Component("npm", str(told["name"]), str(told.get("version", ""))))
    return found
