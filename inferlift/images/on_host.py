"""Runs on a host by `python3 - ASKED` over SSH, with the login in the program itself: pulls an image by its digest."""

# Plain os calls: it runs with nothing but the host's own Python.

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

STAMPS = "/var/lib/inferlift/images"  # as the role container keeps them: a stamp means that the image is loaded
STORES = ("/var/lib/containers/storage", "/var/lib/containers/cache")  # podman's
MANIFEST = "/etc/inferlift/images.json"  # as a role's, by which its removal takes them away again


def pull(asked: dict[str, Any], login: str, ca: str) -> dict[str, Any]:
    """Have the image under its digest within the deadline; the login lies in memory, and only meanwhile."""
    stamp = os.path.join(STAMPS, asked["digest"].partition(":")[2])
    if _there(asked, stamp):
        return {"digest": asked["digest"], "seconds": 0.0, "there": True}
    note([name for name in (asked["reference"], asked["tag"]) if name])
    started = time.monotonic()
    folder = tempfile.mkdtemp(dir="/run", prefix="inferlift-pull-")
    try:
        argv = ["podman", "pull", "--quiet"]
        if login:
            _write(os.path.join(folder, "auth.json"), login)
            argv += ["--authfile", os.path.join(folder, "auth.json")]
        if ca:
            _write(os.path.join(folder, "ca.crt"), ca)
            argv += ["--cert-dir", folder]
        done = subprocess.run(
            [*argv, asked["reference"]], capture_output=True, text=True, timeout=asked["deadline_s"], check=False
        )
        if done.returncode:
            return {"refused": done.stderr.strip()[-400:]}
        image = done.stdout.strip().splitlines()[-1]
        found = _digest(image)
        if found != asked["digest"]:
            return {"refused": f"the registry gave {found}"}
        if asked["tag"]:
            subprocess.run(["podman", "tag", image, asked["tag"]], check=True, timeout=60)
            os.makedirs(STAMPS, exist_ok=True)
            _write(stamp, f"{image}\n")
        return {"digest": found, "seconds": round(time.monotonic() - started, 2), "there": False}
    except subprocess.TimeoutExpired:
        return {"refused": f"it was not there after {asked['deadline_s']:g} s"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def note(images: list[str]) -> None:
    """What comes with the images, before it does: a kill leaves nothing that is not known."""
    try:
        with open(MANIFEST, encoding="utf-8") as file:
            kept = json.load(file)["kept"]
    except FileNotFoundError:
        made = [path for path in (os.path.dirname(STAMPS), *STORES) if not os.path.exists(path)]
        empty = [path for path in STORES if not os.path.exists(path) or not os.listdir(path)]
        kept = {"folders": [STAMPS], "images": [], "made": made, "stores": empty}
    kept["images"] = sorted({*kept["images"], *images})
    os.makedirs(os.path.dirname(MANIFEST), exist_ok=True)
    _write(MANIFEST + ".new", json.dumps({"digest": "", "facts": {}, "files": {}, "kept": kept}))
    os.replace(MANIFEST + ".new", MANIFEST)


def _there(asked: dict[str, Any], stamp: str) -> bool:
    if asked["tag"] is None:
        return _digest(asked["reference"]) == str(asked["digest"])
    return os.path.exists(stamp) and _digest(asked["tag"]) == str(asked["digest"])


def _digest(image: str) -> str:
    argv = ["podman", "image", "inspect", "--format", "{{.Digest}}", image]
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except OSError:
        return ""


def _write(path: str, content: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)


SECRET: dict[str, str] = {"login": "", "ca": ""}  # who sends this file fills it in: arguments can be seen by others

if __name__ == "__main__":
    print(json.dumps(pull(json.loads(sys.argv[1]), SECRET["login"], SECRET["ca"])))
