"""Builds an image with podman into an OCI archive, once for the same inputs, and checks what came out.

All that a build leaves in containers and layers lies in a storage of its own beside the archive, removed at the end
and, after a kill, by the next call: podman's usual storage is only read, for the base image.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from inferlift import __version__, process
from inferlift.artifacts import Check, Image, LineChange
from inferlift.errors import CheckFailed, Refusal
from inferlift.images import checks, heredocs, sbom
from inferlift.images.archive import damage, index_digest
from inferlift.images.dockerfile import parse

_TIMEOUT_S = 1800.0
_RECIPE = 2  # raised when the way of building changes what comes out


def build(
    context: Path,
    dockerfile: str,
    base_image: str,
    name: str,
    out: Path,
    podman_env: Mapping[str, str],
    say: Callable[[str], None],
    *,
    changes: Sequence[LineChange] = (),
    owner: str = "",
) -> Image:
    """The image `localhost/NAME` in the OCI archive `out`. `dockerfile` is text; its argument BASE is `base_image`.

    Get-or-create by the digest of all inputs, kept beside the archive. `owner` becomes label inferlift.owner.
    Raises CheckFailed when the build or a check on the image fails, Refusal while another build writes `out`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".Dockerfile")
    with _only_one(out):
        scratch = out.with_suffix(".storage")
        _discard(scratch)
        base_id = _base_id(base_image, podman_env)
        key = _digest(context, dockerfile, base_id, name, owner)
        made = _made(out, key)
        if made is None:
            file.write_text(dockerfile, encoding="utf-8")
            made = _make(context, dockerfile, base_image, name, out, podman_env, say, key, owner, scratch, changes)
        else:
            say(f"image {name} is there already ({made['digest'][:19]})")
    return Image(
        name=name,
        digest=made["digest"],
        archive=str(out),
        bytes=out.stat().st_size,
        base=f"{base_image}@{base_id}",
        dockerfile=str(file),
        changes=tuple(changes),
        checks=tuple(Check.model_validate(c) for c in made["checks"]),
        sbom=str(out.with_suffix(".sbom.json")),
    )


def verify(image: Image) -> list[Check]:
    """Is the archive still what was built? It is read whole once, and again after every write to it."""
    archive = Path(image.archive)
    if not archive.is_file():
        return [Check(name=f"archive of {image.name}", ok=False, detail=f"{archive} is not there")]
    problem = damage(archive, image.digest)
    return [Check(name=f"archive of {image.name}", ok=not problem, detail=problem or image.digest)]


def _make(
    context: Path,
    dockerfile: str,
    base_image: str,
    name: str,
    out: Path,
    podman_env: Mapping[str, str],
    say: Callable[[str], None],
    key: str,
    owner: str,
    scratch: Path,
    changes: Sequence[LineChange],
) -> dict[str, str]:
    started = time.monotonic()
    tag = f"localhost/{name}:{key[:16]}"
    podman = _podman(scratch, podman_env)
    bodies = scratch / "heredocs"
    bodies.mkdir()
    lowered = scratch / "Dockerfile"
    lowered.write_text(heredocs.lower(dockerfile, bodies), encoding="utf-8")
    common = ["--isolation", "chroot", "--network", "host", "--pull=never", "--layers=false", "--format", "docker"]
    labels = ["--label", f"inferlift.key={key}"] + (["--label", f"inferlift.owner={owner}"] if owner else [])
    if health := [n.arguments for n in parse(dockerfile).nodes if n.keyword == "HEALTHCHECK"]:
        labels += ["--label", f"inferlift.healthcheck={health[-1]}"]  # the OCI form of an image has no place for it
    argv = [*podman, "build", *common, "--build-arg", f"BASE={base_image}", *labels]
    argv += ["--build-context", f"{heredocs.CONTEXT}={bodies}", "-t", tag, "-f", str(lowered), str(context)]
    say(f"building image {name} on {base_image}")
    try:
        _stream(argv, podman_env, out.with_suffix(".log"), say)
        built_s = time.monotonic() - started
        found = _check(podman, tag, context, podman_env, scratch, common)
        _list(podman, tag, base_image, changes, podman_env, out)
        say(f"writing {out.name}")
        part = out.with_suffix(".part")
        part.unlink(missing_ok=True)
        process.run(
            [*podman, "save", "--format", "oci-archive", "-o", str(part), tag], timeout_s=600, env=_env(podman_env)
        )
        digest = index_digest(part)
        detail = (
            f"{part.stat().st_size / 1e6:.0f} MB archive, {_unpacked(podman, tag, podman_env) / 1e6:.0f} MB unpacked"
        )
        found.append(Check(name="size", ok=part.stat().st_size > 0, detail=f"{detail}, built in {built_s:.0f} s"))
        if bad := [c for c in found if not c.ok]:
            part.unlink()
            raise CheckFailed(
                f"image {name} was built but is not fit to run: {', '.join(c.name for c in bad)}",
                why="; ".join(f"{c.name}: {c.detail}" for c in bad),
                next_command=f"look at {out.with_suffix('.log')} and correct the Dockerfile",
            )
        made = {"key": key, "digest": digest, "checks": [c.model_dump() for c in found]}
        record = out.with_suffix(".json.part")
        record.write_text(json.dumps(made), encoding="utf-8")
        part.rename(out)
        record.rename(out.with_suffix(".json"))
    finally:
        _discard(scratch)
    say(f"image {name}: {digest[:19]}, {out.stat().st_size / 1e6:.0f} MB, {time.monotonic() - started:.0f} s")
    return made  # type: ignore[return-value]


def _check(
    podman: list[str], tag: str, context: Path, env: Mapping[str, str], scratch: Path, common: list[str]
) -> list[Check]:
    mounted = process.run([*podman, "image", "mount", tag], timeout_s=60, env=_env(env)).stdout.strip()
    try:
        found = checks.linkage(Path(mounted))
        programs = checks.own_programs(Path(mounted)) if (Path(mounted) / "usr/bin/ldd").exists() else []
        python = any((Path(mounted) / p).exists() for p in ("usr/bin/python3", "usr/local/bin/python3"))
    finally:
        process.run([*podman, "image", "unmount", "--force", tag], timeout_s=60, env=_env(env), check=False)
    if programs:
        found.append(_ldd(podman, tag, programs, env, scratch, common))
    modules = checks.imports(context)
    if not modules or not python:
        why = "no Python in the image" if not python else "the context's Python files import nothing from outside"
        return [*found, Check(name="imports work", ok=True, skipped=True, detail=why)]
    run = f'RUN ["python3", "-c", "import {", ".join(modules)}"]'
    done = _probe(podman, tag, run, env, scratch, common)
    lines = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
    detail = ", ".join(modules) if done.returncode == 0 else (lines or done.stderr.splitlines() or ["?"])[0]
    return [*found, Check(name="imports work", ok=done.returncode == 0, detail=detail)]


def _list(
    podman: list[str], tag: str, base_image: str, changes: Sequence[LineChange], env: Mapping[str, str], out: Path
) -> None:
    """What the image holds, and how that differs from Alpine's packages and from the base."""
    held = []
    for command, image in ((["podman"], base_image), (podman, tag)):  # the base lies in podman's usual storage
        mounted = process.run([*command, "image", "mount", image], timeout_s=60, env=_env(env)).stdout.strip()
        try:
            held.append(sbom.components(Path(mounted)))
        finally:
            process.run([*command, "image", "unmount", image], timeout_s=60, env=_env(env), check=False)
    out.with_suffix(".sbom.json").write_text(sbom.document(tag, held[1]), encoding="utf-8")
    lines = sbom.difference(changes, *held)
    out.with_suffix(".difference.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _ldd(
    podman: list[str], tag: str, programs: list[str], env: Mapping[str, str], scratch: Path, common: list[str]
) -> Check:
    """The image's own loader says of each program whether all that it links to is found."""
    run = f"USER 0\nRUN {json.dumps(['/usr/bin/ldd', *programs])}"
    done = _probe(podman, tag, run, env, scratch, common)
    lost = [line.strip() for line in done.stdout.splitlines() if "not found" in line]
    return Check(name="ldd clean", ok=not lost, detail=", ".join(lost[:5]) or f"{len(programs)} programs asked")


def _probe(
    podman: list[str], tag: str, run: str, env: Mapping[str, str], scratch: Path, common: list[str]
) -> subprocess.CompletedProcess[str]:
    """One RUN instruction on top of the image, kept nowhere."""
    probe = scratch / "probe"
    probe.mkdir(exist_ok=True)
    (probe / "Dockerfile").write_text(f"FROM {tag}\n{run}\n", encoding="utf-8")
    argv = [*podman, "build", *common, "-f", str(probe / "Dockerfile"), str(probe)]
    return process.run(argv, timeout_s=120, env=_env(env), check=False)


def _stream(argv: list[str], env: Mapping[str, str], log: Path, say: Callable[[str], None]) -> None:
    """Run the build, its output into `log`, its steps to `say`. On any interruption the child is ended first."""
    deadline = time.monotonic() + _TIMEOUT_S
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=_env(env), start_new_session=True,
        )  # fmt: skip
        last: list[str] = []
        try:
            assert child.stdout is not None  # noqa: S101 - PIPE above
            for line in child.stdout:
                file.write(line)
                last = [*last[-5:], line.rstrip()]
                if "STEP " in line:
                    say(line.strip()[:120])
                if time.monotonic() > deadline:
                    raise CheckFailed(f"the image build took longer than {_TIMEOUT_S:.0f} s", why=last[-1])
            child.wait()
        finally:
            if child.poll() is None:
                process.end([child.pid])
                child.wait()
    if child.returncode:
        raise CheckFailed(
            f"podman build exited with {child.returncode}", why="\n".join(last), next_command=f"read {log}"
        )


def _podman(scratch: Path, env: Mapping[str, str]) -> list[str]:
    answer = process.run(
        ["podman", "info", "--format", "{{.Store.GraphRoot}}\t{{.Store.GraphDriverName}}"], timeout_s=30, env=_env(env)
    )
    root, driver = answer.stdout.strip().split("\t")
    scratch.mkdir()
    return [
        "podman", "--root", str(scratch / "root"), "--runroot", str(_runroot(scratch)), "--storage-driver", driver,
        "--storage-opt", f"additionalimagestore={root}",
    ]  # fmt: skip


def _runroot(scratch: Path) -> Path:
    """podman takes no runroot longer than 50 characters."""
    return Path("/run/inferlift") / hashlib.sha256(str(scratch.resolve()).encode()).hexdigest()[:16]


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **env}


def _base_id(base_image: str, env: Mapping[str, str]) -> str:
    done = process.run(
        ["podman", "image", "inspect", "--format", "{{.Id}}", base_image], timeout_s=30, env=_env(env), check=False
    )
    if done.returncode:
        raise Refusal(
            f"the base image {base_image} is not there",
            why=done.stderr.strip()[-200:],
            next_command=f"podman pull {base_image}, or ./invoke doctor for the lab's own",
        )
    return "sha256:" + done.stdout.strip().removeprefix("sha256:")


def _digest(context: Path, dockerfile: str, base_id: str, name: str, owner: str) -> str:
    """Over all that can change the image: file names, modes and contents of the context, and the rest of the inputs."""
    whole = hashlib.sha256(json.dumps([dockerfile, base_id, name, owner, __version__, _RECIPE]).encode())
    for path in sorted(context.rglob("*")):
        inside = str(path.relative_to(context))
        if inside == ".git" or inside.startswith(".git/") or "__pycache__" in path.parts:
            continue
        whole.update(f"\0{inside}\0{path.lstat().st_mode:o}\0".encode(errors="surrogateescape"))
        if path.is_symlink():
            whole.update(str(path.readlink()).encode(errors="surrogateescape"))
        elif path.is_file():
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _made(out: Path, key: str) -> dict[str, str] | None:
    """The record of a finished build with this key whose archive is whole; None otherwise."""
    try:
        record: dict[str, str] = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if record.get("key") == key and not damage(out, record["digest"]) else None


def _unpacked(podman: list[str], tag: str, env: Mapping[str, str]) -> int:
    done = process.run([*podman, "image", "inspect", "--format", "{{.Size}}", tag], timeout_s=30, env=_env(env))
    return int(done.stdout.strip())


@contextlib.contextmanager
def _only_one(out: Path) -> Iterator[None]:
    with out.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(f"another build is writing {out}", next_command="wait for it, then run again") from None
        yield


def _discard(scratch: Path) -> None:
    """End what still works in the storage of a killed build, unmount it, remove it."""
    folders = [f.resolve() for f in (scratch, _runroot(scratch)) if f.exists()]
    process.end([pid for folder in folders for pid in _users(str(folder))])
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for folder in folders:
        for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
            process.run(["umount", "-l", mount], timeout_s=30, check=False)
        shutil.rmtree(folder)


def _users(inside: str) -> list[int]:
    """Processes started on this storage: named in their arguments, or with their root folder in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            root = str((entry / "root").readlink())
            if root.startswith(inside + "/") or any(a == inside or a.startswith(inside + "/") for a in arguments):
                found.append(int(entry.name))
    return found
