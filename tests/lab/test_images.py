"""Images built for real by podman on a Debian base: what they answer, kill and resume, and on a lab host.

The base image is the toolchain's. There is no Alpine image here, so the answers expected of the migrated images are
written down, not recorded from the originals.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlift import process, toolchain
from inferlift.artifacts import Image
from inferlift.errors import CheckFailed
from inferlift.images import build, checks, rewrite, tables, verify
from inferlift.toolchain.images import base_image, host_image, podman_env

pytestmark = pytest.mark.lab
CASES = Path(__file__).parent.parent / "unit" / "images" / "cases"
RUN = ["podman", "run", "--rm", "--runtime", "runc", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000"]
QUICK = 'FROM alpine\nRUN adduser -D app\nUSER app\nCMD ["/bin/ash", "-c", "id -un"]\n'


@pytest.fixture(scope="module")
def base() -> str:
    toolchain.ensure(["base-image"], print)
    return base_image()


def _build(text: str, base: str, folder: Path, name: str) -> Image:
    context = folder / "context"
    context.mkdir(exist_ok=True)
    done = rewrite(text, base)
    return build(
        context, done.text, base, name, folder / f"{name}.tar", podman_env(), print, changes=done.changes, owner="test"
    )


def _answer(image: Image) -> str:
    """Load the archive, run its command, remove the image again."""
    loaded = process.run(["podman", "load", "-q", "-i", image.archive], timeout_s=120).stdout
    tag = loaded.split("Loaded image:")[-1].strip()
    try:
        return process.run([*RUN, tag], timeout_s=60).stdout
    finally:
        process.run(["podman", "rmi", "-f", tag], timeout_s=60, check=False)


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        ("multistage-c", "built\n"),
        ("heredoc", "apk add nothing\ngreeting=hello\nraw=$GREETING\nfrom hello\n"),
    ],
)
def test_migrated_images_do_what_the_originals_did(case: str, answer: str, base: str, tmp_path: Path) -> None:
    image = _build((CASES / f"{case}.in").read_text(), base, tmp_path, f"inferlift-test-{case}")
    assert [c for c in image.checks if not c.ok] == []
    assert _answer(image) == answer
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith((".storage", ".part"))] == []


def test_nothing_is_built_twice_and_damage_is_found(base: str, tmp_path: Path) -> None:
    first = _build(QUICK, base, tmp_path, "inferlift-test-quick")
    written = Path(first.archive).stat().st_mtime_ns
    assert _build(QUICK, base, tmp_path, "inferlift-test-quick") == first
    assert Path(first.archive).stat().st_mtime_ns == written
    assert all(c.ok for c in verify(first))

    with Path(first.archive).open("r+b") as file:
        file.seek(Path(first.archive).stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    assert not any(c.ok for c in verify(first))
    again = _build(QUICK, base, tmp_path, "inferlift-test-quick")
    assert all(c.ok for c in verify(again))
    assert _answer(again) == "app\n"

    (tmp_path / "context" / "new").write_text("x")
    assert _build(QUICK, base, tmp_path, "inferlift-test-quick").digest != again.digest


def test_an_image_that_cannot_import_what_its_code_needs_is_refused(base: str, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "app.py").write_text("import no_such_module_here\n")
    with pytest.raises(CheckFailed, match="imports work") as caught:
        _build("FROM alpine\nRUN true\n", base, tmp_path, "inferlift-test-imports")
    assert "no_such_module_here" in caught.value.why
    assert not (tmp_path / "inferlift-test-imports.tar").exists()


def test_a_real_musllinux_wheel_is_found(tmp_path: Path) -> None:
    """A wheel built for Alpine, copied from there into an image: its module links to musl."""
    wheels = tmp_path / "wheels"
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(wheels)]
    process.run([*argv, "--platform", "musllinux_1_2_x86_64", "markupsafe==3.0.2"], timeout_s=120)
    (wheel,) = wheels.glob("*.whl")
    root = tmp_path / "root"
    shutil.unpack_archive(wheel, root / "usr/local/lib/python3.11/dist-packages", "zip")
    found = {c.name: c for c in checks.linkage(root)}["no musl"]
    assert not found.ok
    assert "_speedups" in found.detail


_CHILD = """
import sys
from pathlib import Path
from inferlift.images import build
folder = Path(sys.argv[1])
build(folder / "context", (folder / "text").read_text(), sys.argv[2], "inferlift-test-kill", folder / "image.tar",
      {}, lambda line: print(line, flush=True))
"""


def test_killed_in_the_middle_the_next_call_finishes_and_leaves_nothing(base: str, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    mark = uuid.uuid4().hex
    text = f"ARG BASE\nFROM ${{BASE}}\nRUN echo {mark} > /m && if [ ! -e /go ]; then sleep 3; fi\nCMD cat /m\n"
    (tmp_path / "text").write_text(text)
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path), base], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if "RUN echo" in line:
            break
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert (tmp_path / "image.storage").exists()

    image = build(tmp_path / "context", text, base, "inferlift-test-kill", tmp_path / "image.tar", podman_env(), print)
    assert _answer(image).strip() == mark
    assert not (tmp_path / "image.storage").exists()
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert _processes_with(str(tmp_path)) == []
    assert process.run(["podman", "images", "-q", "localhost/inferlift-test-kill"], timeout_s=30).stdout == ""


@pytest.fixture
def host() -> Iterator[str]:
    """A lab host with an inner podman, as a model host has it."""
    toolchain.ensure(["host-image"], print)
    label = "inferlift.test=images"
    for leftover in process.run(["podman", "ps", "-aq", "--filter", f"label={label}"], timeout_s=30).stdout.split():
        process.run(["podman", "rm", "-f", leftover], timeout_s=60)
    name = f"inferlift-test-images-{uuid.uuid4().hex[:8]}"
    start = ["podman", "run", "-d", "--label", label, "--name", name, *RUN[3:], "--privileged", "--systemd=always"]
    process.run([*start, "--network", "none", host_image(), "/sbin/init"], timeout_s=60)
    yield name
    process.run(["podman", "rm", "-f", "-t", "0", name], timeout_s=60)


def test_the_archive_runs_on_a_lab_host_under_its_digest(base: str, host: str, tmp_path: Path) -> None:
    image = _build(QUICK, base, tmp_path, "inferlift-test-inner")
    process.run(["podman", "cp", image.archive, f"{host}:/root/image.tar"], timeout_s=60)
    inner = ["podman", "exec", host, "podman", "--runtime", "crun"]
    started = time.monotonic()
    tag = process.run([*inner, "load", "-q", "-i", "/root/image.tar"], timeout_s=120).stdout.split("image:")[-1].strip()
    print(f"{image.bytes / 1e6:.0f} MB loaded in {time.monotonic() - started:.1f} s")
    assert process.run([*inner, "run", "--rm", "--network", "host", tag], timeout_s=60).stdout == "app\n"
    seen = json.loads(process.run([*inner, "image", "inspect", tag], timeout_s=60).stdout)[0]
    assert seen["Digest"] == image.digest
    assert seen["Labels"]["inferlift.owner"] == "test"


def test_every_debian_package_of_the_tables_exists_on_the_base(base: str) -> None:
    names = {a for p in tables.packages().values() for a in p.apt} | {a for b in tables.bases().values() for a in b.apt}
    names |= {row.apt for row in tables.applets().values()}
    script = "apt-get update -q >/dev/null && apt-get install -s -y $(cat) 2>&1 | grep -E '^E:|^Inst|newly installed'"
    done = process.run(
        [*RUN, "-i", "--network", "host", base, "sh", "-c", script], timeout_s=300, stdin=" ".join(names)
    )
    lines = done.stdout.splitlines()
    lost = [line for line in lines if "Unable to locate" in line or "no installation candidate" in line]
    assert lost == []
    assert sum(line.startswith("Inst ") for line in lines) > 100


def _processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in arguments:
                found.append(arguments)
    return found
