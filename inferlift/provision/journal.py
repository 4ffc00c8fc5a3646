"""What this user's labs are about to make, written before it is made.

A killed `podman run` can leave a container that has no labels yet, and addresses, bridges and firewall rules
without a network. This journal tells that they are ours. It lives in the user's state folder (XDG), not in a
clone: leftovers outlive clones.
"""

from __future__ import annotations

import os
import shutil
from ipaddress import IPv4Network
from pathlib import Path

from inferlift.provision.models import slug

LEAKS = Path("/run/inferlift/leaks")  # lives as long as podman's own record of addresses


def folder(owner: str) -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(base) / "inferlift" / "lab" / slug(owner)


def note_host(owner: str, container: str) -> None:
    _touch(folder(owner) / "hosts" / container)


def knows_host(owner: str, container: str) -> bool:
    return (folder(owner) / "hosts" / container).exists()


def note_subnet(owner: str, subnet: IPv4Network) -> None:
    _touch(folder(owner) / "subnets" / str(subnet).replace("/", "_"))


def subnets(owner: str) -> list[IPv4Network]:
    place = folder(owner) / "subnets"
    return [IPv4Network(p.name.replace("_", "/")) for p in sorted(place.iterdir())] if place.is_dir() else []


def note_leak(subnet: IPv4Network) -> None:
    """An address of the subnet stays allocated to a container that no longer exists; podman forgets it at a reboot."""
    _touch(LEAKS / str(subnet).replace("/", "_"))


def leaks() -> list[IPv4Network]:
    """Subnets that a network made anew should not get: podman has no command to free their addresses."""
    return [IPv4Network(p.name.replace("_", "/")) for p in sorted(LEAKS.iterdir())] if LEAKS.is_dir() else []


def forget(owner: str) -> None:
    shutil.rmtree(folder(owner), ignore_errors=True)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch()
