"""The lab's host image and the base of app images, made from the machine's own Debian sources."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import tempfile
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.process import run, unmarked
from inferlift.toolchain.debian import os_release, require_debian, require_root
from inferlift.toolchain.store import Say, cache, locked, need_space, place, run_logged, workshop
from inferlift.toolchain.table import HERE, Spec, Tool, catalogue

CERTIFICATES = Path("/usr/local/share/ca-certificates")
APT = Path("/etc/apt")
# Where podman wrote down which network stack its store belongs to.
NETWORK_CHOICE = Path("/var/lib/containers/storage/defaultNetworkBackend")


def host_image() -> str:
    """Reference of the lab's host image for this machine's sources. It need not exist yet."""
    return reference(catalogue()["host-image"])


def base_image() -> str:
    """Reference of the base for the user's app images. It need not exist yet."""
    return reference(catalogue()["base-image"])


def podman_env() -> dict[str, str]:
    """What to add to podman's environment so that it uses netavark.

    {} where its store already does. An older store may say CNI, whose plugins are not there; our own configuration
    file then decides, and the user's stays as it is.
    """
    try:
        if NETWORK_CHOICE.read_text(encoding="utf-8").strip() == "netavark":
            return {}
    except OSError:
        pass
    path = cache() / "containers.conf"
    wanted = '[network]\nnetwork_backend = "netavark"\n'
    if not path.is_file() or path.read_text(encoding="utf-8") != wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
            draft.write(wanted)
        Path(draft.name).replace(path)
    return {"CONTAINERS_CONF": str(path)}


def look(spec: Spec) -> Tool:
    try:
        name = reference(spec)
    except DeclarationError as error:
        return spec.tool(present=False, version=None, detail=error.what)
    present = name in _imported()
    where = (
        "in podman's store" if present else f"to be imported from {_tar(name)}" if _tar(name).exists() else "not made"
    )
    return spec.tool(present=present, version=name.rpartition(":")[2], detail=f"{name} ({where})")


def make(spec: Spec, say: Say) -> None:
    """Make the tar unless the cache has it, import it unless podman has it. Raises Refusal, Retryable."""
    require_debian()
    require_root(f"making the {spec.name}", spec.tool(present=False, version=None, detail="").bring)
    name = reference(spec)
    with locked(spec.name, say):
        if name in _imported():
            return
        tar = _tar(name)
        if not tar.exists():
            need_space(spec.free_mb)
            with workshop(spec.name) as work:
                made = work / "image.tar"
                argv = _mmdebstrap(spec, made)
                # Its root file system is built in our folder, where the next run finds what a kill leaves.
                env = {**os.environ, "LC_ALL": "C.UTF-8", "TMPDIR": str(work)}
                run_logged(spec.name, argv, timeout_s=1800, env=env)
                place(made, tar)
        say(f"{spec.name}: importing it into podman's store")
        argv = ["podman", "import", "-q", "--change", f"LABEL inferlift.tool={spec.name}", str(tar), name]
        run_logged(spec.name, argv, timeout_s=600, env={**unmarked(), **podman_env()})


def reference(spec: Spec) -> str:
    """The image's name, tagged by the digest of all that it is made from."""
    made_of = repr((spec.packages, spec.skip, platform.machine(), _codename())).encode()
    files = [_script(spec), _sources(), *_certificates()]
    digest = _digest(made_of, *(f.read_bytes() for f in files))
    return f"localhost/inferlift-{spec.name.removesuffix('-image')}:{digest}"


def recipe(spec: Spec) -> str:
    """Digest of our own part of an image: packages and script, not the machine's sources."""
    return _digest(repr((spec.packages, spec.skip)).encode(), _script(spec).read_bytes())


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:12]


def _mmdebstrap(spec: Spec, tar: Path) -> list[str]:
    hooks = []
    if _certificates():
        hooks.append(f"--customize-hook=copy-in {CERTIFICATES} {CERTIFICATES.parent}")
    hooks.append(f'--customize-hook=sh {shlex.quote(str(_script(spec)))} "$1"')
    return [
        "mmdebstrap",
        "--variant=minbase",
        "--include=" + ",".join(spec.packages),
        *(f"--skip={what}" for what in spec.skip),
        *hooks,
        _codename(),
        str(tar),
        str(_sources()),
    ]


def _script(spec: Spec) -> Path:
    return HERE / "images" / f"{spec.name.removesuffix('-image')}.sh"


def _tar(name: str) -> Path:
    return cache() / "images" / (name.rpartition("/")[2].replace(":", "-") + ".tar")


def _imported() -> set[str]:
    if not shutil.which("podman") or os.geteuid() != 0:
        return set()
    listing = run(
        ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"],
        timeout_s=60,
        env={**unmarked(), **podman_env()},
        check=False,
    )
    return set(listing.stdout.split())


def _sources(apt: Path = APT) -> Path:
    """The apt sources of Debian itself: other vendors' sources would need their keys inside the image."""
    parts = apt / "sources.list.d"
    usual = [
        parts / "debian.sources",
        *sorted(parts.glob("*.sources")),
        apt / "sources.list",
        *sorted(parts.glob("*.list")),
    ]
    for file in usual:
        if file.is_file() and _is_debian(file.read_text(encoding="utf-8", errors="replace")):
            return file
    raise DeclarationError(
        "no apt sources of Debian were found",
        why=f"none of the files under {apt} names the suite {_codename()} of Debian",
        next_command=f"write {parts / 'debian.sources'}, then run the same command again",
    )


def _is_debian(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    words = {word for line in lines for word in line.split()}
    return _codename() in words and ("main" in words) and any("debian" in w for w in words)


def _codename() -> str:
    return os_release().get("VERSION_CODENAME", "unknown")


def _certificates() -> list[Path]:
    return sorted(CERTIFICATES.rglob("*.crt")) if CERTIFICATES.is_dir() else []
