"""Where a migration lives: its profile, its state folder, and the owner label of what it makes."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from inferlift.errors import DeclarationError, Refusal
from inferlift.ledger import write_atomically
from inferlift.movable import deployable
from inferlift.profile import ROOT, Profile


@dataclass(frozen=True)
class Place:
    profile: Profile
    profile_path: Path
    folder: Path
    owner: str  # label of everything this migration makes

    @property
    def state(self) -> Path:
        return self.folder.parent


def place(profile_name: str, target: str | None = None, *, planning: bool = False) -> Place:
    """Find and load the profile. Raises DeclarationError before anything is made.

    `planning`: nothing will be made, so that any target and any task will do.
    """
    from inferlift.declaration import load

    declared = load(from_caller(profile_name), ROOT)
    profile = declared.profile
    if target is not None and target != profile.target:
        raise DeclarationError(
            f"the profile {profile.name} is written for the target {profile.target}, not {target}",
            why="a target needs its own section (lab:, aws:, static:)",
            next_command=f"set `target: {target}` in a copy of {declared.path}"
            + (", or ./invoke deploy --profile demo-aws" if target == "aws" else ""),
        )
    if not planning:
        deployable(profile, profile_name, declared)
    state = state_folder()
    name = f"{profile.name}-{profile.target}"
    return Place(profile, declared.path.resolve(), state / name, f"{clone_id(state)}/{name}")


def from_caller(name: str) -> str:
    """A relative path is the caller's, wherever the launcher had to go; a bare name stays as it is."""
    if "/" not in name and not name.endswith((".yaml", ".yml", ".json")):
        return name
    return str(callers(name))


def callers(path: str) -> Path:
    """What is always a path: relative to the caller's folder."""
    return Path(os.environ.get("INFERLIFT_CWD") or ".") / path


def state_folder() -> Path:
    """`.inferlift` in the project, or INFERLIFT_STATE."""
    given = os.environ.get("INFERLIFT_STATE")
    return (callers(given) if given else ROOT / ".inferlift").resolve()


def clone_id(state: Path) -> str:
    """What tells this state folder's hosts from another's: made from its first path, kept when it is moved."""
    known, _ = _claimed(state)
    if known is not None:
        return known
    fresh = _short(str(state))
    elsewhere = _registered(fresh)
    return _short(f"{state} {fresh}") if elsewhere is not None and elsewhere != state else fresh


def claim(state: Path) -> None:
    """Write down whose the hosts of this state folder are, before the first is made.

    Raises Refusal in a copy of a state folder that is still there: both would own the same hosts.
    """
    known, folder = _claimed(state)
    if known is not None and folder == str(state):
        return
    if known is not None and folder is not None and _claimed(Path(folder)) == (known, folder):
        raise Refusal(
            f"{state} is a copy of {folder}",
            why="both would look after, and remove, the same hosts",
            next_command=f"work in {folder}, or start anew here: remove {state}",
        )
    name = clone_id(state)
    write_atomically(state / "clone.json", json.dumps({"id": name, "folder": str(state)}))
    write_atomically(_register() / name, str(state))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _claimed(state: Path) -> tuple[str | None, str | None]:
    try:
        body = json.loads((state / "clone.json").read_text(encoding="utf-8"))
        return str(body["id"]), str(body["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _registered(name: str) -> Path | None:
    """The state folder that uses this id now: a clone that was moved away keeps the id of its old path."""
    try:
        folder = (_register() / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return Path(folder) if _claimed(Path(folder)) == (name, folder) else None


def _register() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inferlift" / "clones"
