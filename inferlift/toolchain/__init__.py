"""What the machine needs beside the Python environment: looked up, and made once into the user's cache folder.

Everything is keyed by version or recipe and shared by all clones. See docs/toolchain.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from inferlift.errors import DeclarationError
from inferlift.toolchain import debian, engine, images, python_packages
from inferlift.toolchain.engine import pulumi_bin
from inferlift.toolchain.images import base_image, host_image, podman_env
from inferlift.toolchain.python_packages import wheel_folder, wheels
from inferlift.toolchain.store import Say, cache
from inferlift.toolchain.table import Spec, Tool, catalogue

__all__ = [
    "Tool",
    "base_image",
    "cache",
    "ensure",
    "host_image",
    "inventory",
    "pinned",
    "podman_env",
    "pulumi_bin",
    "tools_for",
    "wheel_folder",
    "wheels",
]


class _Kind(NamedTuple):
    look: Callable[[Spec], Tool]
    make: Callable[[Spec, Say], None]


_KINDS = {
    "debian-packages": _Kind(debian.look, debian.make),
    "pulumi": _Kind(engine.look, engine.make),
    "pulumi-python": _Kind(engine.look_plugin, engine.make_plugin),
    "host-image": _Kind(images.look, images.make),
    "base-image": _Kind(images.look, images.make),
    "wheels": _Kind(python_packages.look, python_packages.make),
    "triton-wheels": _Kind(python_packages.look, python_packages.make),
    "chromium": _Kind(debian.look, debian.make),
}


def pinned() -> dict[str, str]:
    """Version or digest of what is asked for, by tool; the same on every machine with this revision.

    What Debian installs is the archive's choice and not pinned.
    """
    rows = catalogue()
    return {
        "pulumi": rows["pulumi"].version,
        "pulumi-python": f"{rows['pulumi-python'].version}+{rows['pulumi-python'].exec_version}",
        "host-image": images.recipe(rows["host-image"]),
        "base-image": images.recipe(rows["base-image"]),
        "wheels": python_packages.wheel_folder().name,
        "triton-wheels": python_packages.wheel_folder("triton-wheels").name,
    }


def tools_for(target: str) -> list[str]:
    """Names of the tools that a target (lab, aws, static) needs."""
    return [name for name, spec in catalogue().items() if target in spec.targets]


def inventory(names: Iterable[str] | None = None) -> list[Tool]:
    """What is there and what is not, without changing anything; all tools by default.

    Raises DeclarationError for a name that is no tool.
    """
    return [_KINDS[spec.name].look(spec) for spec in _specs(names)]


def ensure(names: Iterable[str], say: Say) -> None:
    """Make what is missing of these tools and of what they need, with progress lines for each that is made.

    Raises Refusal or DeclarationError before anything is made when one of them cannot be made here (not root, not
    Debian, no space), Retryable when something could not be fetched.
    """
    wanted = list(dict.fromkeys(need for name in names for need in (*_needs(name), name)))
    missing = [spec for spec in _specs(wanted) if not _KINDS[spec.name].look(spec).present]
    for spec in missing:
        if spec.root:
            debian.require_debian()
            debian.require_root(f"making {spec.name}", _bring(spec))
    for spec in missing:
        say(f"{spec.name}: making it ({spec.duration})")
        started = time.monotonic()
        _KINDS[spec.name].make(spec, say)
        say(f"{spec.name}: there after {time.monotonic() - started:.0f} s")


def _specs(names: Iterable[str] | None) -> list[Spec]:
    rows = catalogue()
    wanted = set(rows if names is None else names)
    if unknown := sorted(wanted - set(rows)):
        raise DeclarationError(
            f"no tool is called {', '.join(unknown)}",
            why=f"there are: {', '.join(rows)}",
            next_command="./invoke doctor",
        )
    return [spec for name, spec in rows.items() if name in wanted]


def _needs(name: str) -> tuple[str, ...]:
    return catalogue()[name].needs if name in catalogue() else ()


def _bring(spec: Spec) -> str:
    return spec.tool(present=False, version=None, detail="").bring
