"""Pulumi's AWS provider: on PATH, in the cache folder, or fetched once by the engine itself (not in the lab)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from inferlift import process
from inferlift.errors import Refusal

EXECUTABLE = "pulumi-resource-aws"


def provider_folder(pulumi: Path, say: Callable[[str], None]) -> Path | None:
    """The folder to add to PATH; None where the provider is on it already.

    Raises Refusal when it is nowhere and cannot be fetched.
    """
    if shutil.which(EXECUTABLE):
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "inferlift" / "pulumi-home"
    wanted = version("pulumi-aws")
    folder = home / "plugins" / f"resource-aws-v{wanted}"
    if not (folder / EXECUTABLE).exists():
        say(f"fetching Pulumi's AWS provider {wanted} (about 800 MB unpacked, once)")
        home.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "1"}
        argv = [str(pulumi), "plugin", "install", "resource", "aws", wanted]
        done = process.run(argv, timeout_s=1800, env=env, check=False)
        if not (folder / EXECUTABLE).exists():
            raise Refusal(
                "Pulumi's AWS provider is not here and cannot be fetched",
                why=(done.stderr or done.stdout).strip()[-300:],
                next_command=f"put {EXECUTABLE} {wanted} on PATH, or let this machine reach Pulumi's downloads",
            )
    return folder
