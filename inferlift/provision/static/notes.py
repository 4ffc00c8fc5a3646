"""What a work folder remembers of its own hosts: written before the first is claimed, so that all are found again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from inferlift.artifacts import Host


def remember(workdir: Path, label: str, hosts: Iterable[Host]) -> None:
    """Add these hosts, or what is newly known of them."""
    known = {h.name: h for h in remembered(label, workdir)} | {h.name: h for h in hosts}
    _write(workdir, label, known.values())


def forget(workdir: Path, label: str, names: Iterable[str]) -> None:
    gone = set(names)
    left = [h for h in remembered(label, workdir) if h.name not in gone]
    if left:
        _write(workdir, label, left)
    else:
        _path(workdir).unlink(missing_ok=True)


def remembered(label: str, workdir: Path) -> list[Host]:
    """Every host that this fleet may have claimed, in the order of their roles."""
    try:
        body = json.loads(_path(workdir).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [Host.model_validate(row) for row in body["hosts"]] if body["label"] == label else []


def is_here(label: str, workdir: Path) -> bool:
    """Is the fleet of this label, in this work folder, one of own hosts?"""
    return bool(remembered(label, workdir))


def _write(workdir: Path, label: str, hosts: Iterable[Host]) -> None:
    path = _path(workdir)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".new")
    rows = [h.model_dump(mode="json") for h in sorted(hosts, key=lambda h: (h.role, h.name))]
    temporary.write_text(json.dumps({"label": label, "hosts": rows}, indent=1), encoding="utf-8")
    temporary.replace(path)


def _path(workdir: Path) -> Path:
    return workdir.resolve() / "static" / "hosts.json"
