"""What a work folder remembers of its fleet on AWS: written before anything is made, so that it is found again."""

from __future__ import annotations

import json
from pathlib import Path

from inferlift.artifacts.fleet import DesiredFleet
from inferlift.provision.aws import plan as planning


def remember(workdir: Path, desired: DesiredFleet) -> None:
    """Written before anything is made: where to look for it, and what it was resolved to."""
    folder = root(workdir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    used = sorted({*regions(workdir), *(s.region for s in planning.of(desired).sites)})
    (folder / "aws-regions.json").write_text(json.dumps(used))
    (folder / "aws-fleet.json").write_text(desired.model_dump_json(indent=2))


def remembered(workdir: Path) -> DesiredFleet | None:
    """The document this work folder's fleet was last made from; None when it never was one on AWS."""
    path = root(workdir) / "aws-fleet.json"
    return DesiredFleet.model_validate_json(path.read_text()) if path.exists() else None


def regions(workdir: Path) -> list[str]:
    """Every region that this fleet ever used."""
    path = root(workdir) / "aws-regions.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def lock(workdir: Path, images: dict[str, dict[str, str]]) -> None:
    """Images that new hosts of this work folder must boot, as site -> role -> id; what stands keeps its own."""
    folder = root(workdir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "aws-locked.json").write_text(json.dumps(images, indent=1, sort_keys=True))


def locked(workdir: Path) -> dict[str, dict[str, str]]:
    path = root(workdir) / "aws-locked.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def is_here(label: str, workdir: Path) -> bool:
    """Is the fleet of this label, in this work folder, one on AWS?"""
    known = remembered(workdir)
    return known is not None and known.label == label


def root(workdir: Path) -> Path:
    return workdir.resolve() / "pulumi"
