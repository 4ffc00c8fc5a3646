"""What must hold for a built image: no musl left, interpreters there, the app's imports work, its size."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

from inferlift.artifacts import Check
from inferlift.images import elf


def linkage(root: Path) -> list[Check]:
    """Checks over the image's files, mounted at `root`."""
    files = elf.scan(root)
    musl = sorted(p for p, link in files.items() if link.musl)
    lost = sorted(
        f"{path} wants {link.interpreter}"
        for path, link in files.items()
        if link.interpreter and not link.musl and not _exists(root, link.interpreter)
    )
    return [
        Check(name="no musl", ok=bool(files) and not musl, detail=_list(musl) or f"{len(files)} ELF files looked at"),
        Check(name="ELF interpreters present", ok=not lost, detail=_list(lost)),
        _libraries(root, files),
        _shebangs(root),
    ]


def own_programs(root: Path) -> list[str]:
    """Programs and libraries that came with the user's own files: what `ldd` is asked about in the image itself."""
    places = ("/usr/local/", "/opt/", "/app/", "/srv/", "/home/", "/root/", "/venv/")
    found = [path for path, link in elf.scan(root).items() if link.interpreter and path.startswith(places)]
    return sorted(found)[:200]


def imports(context: Path) -> list[str]:
    """Modules that the Python files of the build context import and neither bring along nor get from Python itself."""
    own = {p.stem for p in context.rglob("*.py")} | {p.parent.name for p in context.rglob("__init__.py")}
    found: set[str] = set()
    for path in context.rglob("*.py"):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in tree.body:  # top level only: what is imported inside a function or a try may be optional
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return sorted(found - own - set(sys.stdlib_module_names))


def _packaged(root: Path) -> set[str]:
    """Paths that dpkg put there, less a leading /usr: packages still name /lib, which is a link to /usr/lib."""
    lists = (root / "var/lib/dpkg/info").glob("*.list")
    return {line.removeprefix("/usr") for one in lists for line in one.read_text("utf-8", "replace").splitlines()}


def _libraries(root: Path, files: dict[str, elf.Linkage]) -> Check:
    """Every library that a file of the image links to is somewhere in it. Wheels bring theirs in folders of their own,
    and load them in an order that only they know, so the name decides; `ldd` in the image decides for programs. What
    Debian's packages brought is left to their dependencies: some plugins want libraries that are only recommended."""
    packaged = _packaged(root)
    names = {name for folder, _, inside in os.walk(root) for name in inside}
    lost = sorted(
        f"{path} wants {library}"
        for path, link in files.items()
        for library in link.needed
        if library.rsplit("/", 1)[-1] not in names and not link.musl and path.removeprefix("/usr") not in packaged
    )
    return Check(name="libraries present", ok=not lost, detail=_list(lost))


def _shebangs(root: Path) -> Check:
    """Scripts in the places where images put their own: the interpreter they name must exist."""
    lost = []
    for folder in ("", "app", "srv", "opt", "usr/local/bin", "entrypoint.d", "docker-entrypoint.d"):
        place = root / folder
        for path in place.iterdir() if place.is_dir() and not place.is_symlink() else ():
            try:
                with path.open("rb") as file:
                    first = file.readline(200) if path.is_file() and not path.is_symlink() else b""
            except OSError:
                continue
            words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
            if words and not _exists(root, words[0]):
                lost.append(f"/{path.relative_to(root)} wants {words[0]}")
    return Check(name="script interpreters present", ok=not lost, detail=_list(sorted(lost)))


def _exists(root: Path, inside: str) -> bool:
    """Whether a path exists in the image, symlinks followed inside it."""
    current = root
    parts = [p for p in inside.split("/") if p]
    for _ in range(64):
        if not parts:
            return current.exists()
        part = parts.pop(0)
        if part == "..":
            current = current.parent if current != root else root
            continue
        current = current / part
        if current.is_symlink():
            target = str(current.readlink())
            current = root if target.startswith("/") else current.parent
            parts = [p for p in target.split("/") if p and p != "."] + parts
    return False


def _list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
