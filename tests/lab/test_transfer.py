"""Data moved between real lab hosts over SSH: odd names, changes meanwhile, kill, corruption, foreign folders."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlift import process, ssh, toolchain
from inferlift.artifacts import Host
from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.toolchain.images import host_image, podman_env
from inferlift.transfer import copy, rsync, verify

pytestmark = pytest.mark.lab
LABEL = "inferlift.test=transfer"
LIMITS = ["--runtime", "runc", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000"]

TREE = r"""
import os, sys
root = sys.argv[1].encode()
os.makedirs(root, exist_ok=True)
def put(name, content, mode=0o644):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(content)
    os.chmod(path, mode)
put(b"plain.txt", b"plain")
put(b"with space and 'quote' \"two\" $HOME `id` \\ *", b"odd")
put(b"line\nbreak", b"newline")
put("gr\u00fc\u00dfe/\u65e5\u672c\u8a9e.txt".encode(), b"utf-8")
put(b"not-utf8-\xff\xfe", b"bytes")
put(b"-leading-dash", b"dash")
put(b"deep/er/and/deeper/file", b"x" * 5000)
put(b"closed", b"secret", 0o600)
put(b"script.sh", b"#!/bin/sh\n", 0o755)
put(b"open-to-all", b"w", 0o666)
put(b"empty", b"")
put(b"large.bin", os.urandom(1 << 20) * 20)
os.makedirs(os.path.join(root, b"empty-folder"), exist_ok=True)
os.chmod(os.path.join(root, b"empty-folder"), 0o750)
os.symlink(b"plain.txt", os.path.join(root, b"link"))
os.symlink(b"/nowhere/at all", os.path.join(root, b"dangling"))
os.link(os.path.join(root, b"plain.txt"), os.path.join(root, b"hard"))
"""


def _podman(*arguments: str, check: bool = True) -> str:
    env = {**os.environ, **podman_env()}
    return process.run(["podman", *arguments], timeout_s=90, env=env, check=check).stdout.strip()


def _clean() -> None:
    for container in _podman("ps", "-aq", "--filter", f"label={LABEL}").split():
        _podman("rm", "-f", "-t", "0", container)
    for network in _podman("network", "ls", "-q", "--filter", f"label={LABEL}").split():
        _podman("network", "rm", "-f", network)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """origin, model-1, model-2"""
    toolchain.ensure(["host-image"], print)
    _clean()
    folder = tmp_path_factory.mktemp("keys")
    process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], timeout_s=10)
    name = f"inferlift-test-transfer-{uuid.uuid4().hex[:8]}"
    _podman("network", "create", "--label", LABEL, "--subnet", "10.235.9.0/24", name)
    made = []
    for number, role in enumerate(["origin", "model", "model"], start=10):
        address, host = f"10.235.9.{number}", f"{name}-{number}"
        start = "ssh-keygen -A >/dev/null; mkdir -p /run/sshd; exec /usr/sbin/sshd -D"
        _podman(
            "run", "-d", "--label", LABEL, "--name", host, *LIMITS, "--network", name, "--ip", address,
            "-v", f"{folder}/key.pub:/root/.ssh/authorized_keys:ro", host_image(), "sh", "-c", start,
        )  # fmt: skip
        made.append(
            Host(
                name=f"{role}-{number}", role=role, address=address, ssh_key=str(folder / "key"),  # type: ignore[arg-type]
                host_key=_host_key(host), container=host,
            )
        )  # fmt: skip
    for host_ in made:
        _reachable(host_)
    yield made
    _clean()


def _host_key(container: str) -> str:
    for _ in range(300):
        answer = _podman("exec", container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub", check=False)
        if answer:
            return " ".join(answer.split()[:2])
        time.sleep(0.1)
    raise AssertionError(f"{container} made no host key")


def _reachable(host: Host) -> None:
    for _ in range(100):
        try:
            ssh.run(host, "true", timeout_s=10)
        except Retryable:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{host.name} does not answer")


@pytest.fixture
def place(hosts: list[Host]) -> str:
    """A fresh folder name with a tree at the source."""
    path = f"/srv/{uuid.uuid4().hex[:8]}/data"
    ssh.run(hosts[0], f"python3 - {path}", stdin=TREE)
    return path


def _content(host: Host, path: str) -> str:
    """Names, kinds, modes, link targets and checksums, our marker left out: by other tools than the engine's."""
    command = (
        f"cd {path} && find . -mindepth 1 ! -path ./.inferlift-owner -printf '%P|%y|%m|%l\\0' | sort -z | tr '\\0' @;"
        " find . -type f ! -path ./.inferlift-owner -print0 | sort -z | xargs -0 sha256sum"
    )
    return ssh.run(host, command).stdout


def test_everything_arrives_and_is_sealed(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    before = _content(origin, place)
    moved = copy(origin, place, models, place, tmp_path / "work", print)
    assert moved.files == 13
    assert [p.files for p in moved.passes][1:] == [0]
    for model in models:
        assert _content(model, place) == before.replace("open-to-all|f|666", "open-to-all|f|664")
        owners = ssh.run(model, f"find {place} -printf '%U:%G\\n' | sort -u").stdout
        assert owners == "0:0\n"
    assert _content(origin, place) == before
    started = time.monotonic()
    assert all(c.ok for c in verify(moved, models, place))
    print(f"verify: {time.monotonic() - started:.2f} s")
    again = copy(origin, place, models, place, tmp_path / "work", print)
    assert (again.manifest, again.passes[0].files) == (moved.manifest, 0)


def test_what_changes_between_the_passes_is_copied_again(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts

    def say(line: str) -> None:
        if line.startswith("pass 1: ") and "files" in line:
            ssh.run(origin, f"cd {place} && echo new > plain.txt && rm empty && mkdir later && echo l > later/file")

    moved = copy(origin, place, models, place, tmp_path / "work", say)
    assert moved.passes[1].files >= 2
    for model in models:
        command = f"cd {place} && cat plain.txt later/file; test -e empty; echo $?"
        assert ssh.run(model, command).stdout == "new\nl\n1\n"


def test_files_that_never_stand_still_are_named(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts

    def say(line: str) -> None:
        if line.startswith("pass") and " in " in line:
            ssh.run(origin, f"date +%N >> {place}/growing.log")

    with pytest.raises(CheckFailed, match="still differ after 3 passes") as caught:
        copy(origin, place, models, place, tmp_path / "work", say, max_passes=3)
    assert "'growing.log' (size, content)" in caught.value.why
    assert "plain" not in caught.value.why


def test_one_flipped_byte_is_found_and_mended(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    moved = copy(origin, place, models, place, tmp_path / "work", print)
    flip = "printf Z | dd of=large.bin bs=1 seek=7777 conv=notrunc status=none"
    ssh.run(models[1], f"cd {place} && touch -r large.bin /tmp/time && {flip}")
    assert [c.ok for c in verify(moved, models, place)] == [True, False]
    ssh.run(models[1], f"touch -r /tmp/time {place}/large.bin")  # the same size and time: only a checksum can tell
    again = copy(origin, place, models, place, tmp_path / "work", print)
    assert len(again.passes) == 3
    assert _content(models[1], place) == _content(models[0], place)
    ssh.run(models[0], f"rm {place}/empty && echo x > {place}/more")
    assert [c.ok for c in verify(again, models, place)] == [False, True]
    ssh.run(models[0], f"rm -r {place}")
    assert verify(again, models, place)[0].detail.endswith("is not there")


def test_a_foreign_folder_is_never_touched(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    ssh.run(models[1], f"mkdir -p {place} && echo mine > {place}/precious")
    with pytest.raises(Refusal, match=models[1].name):
        copy(origin, place, models, place, tmp_path / "work", print)
    assert ssh.run(models[1], f"cat {place}/precious; ls -A {place}").stdout == "mine\nprecious\n"
    assert ssh.run(models[0], f"ls -A {place}").stdout.split() == [".inferlift-owner"]
    other = f"{place}-other"
    ssh.run(origin, f"mkdir -p {other} && echo 1 > {other}/one")
    copy(origin, other, models[:1], other, tmp_path / "work", print)
    with pytest.raises(Refusal, match="copied from"):
        copy(origin, place, models[:1], other, tmp_path / "work", print)
    ssh.run(models[0], f"ln -s /etc {place}-link")
    with pytest.raises(Refusal, match="no folder"):
        copy(origin, place, models[:1], f"{place}-link", tmp_path / "work", print)


def test_special_files_and_absent_sources_are_said(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    ssh.run(origin, f"mkfifo {place}/pipe")
    with pytest.raises(Refusal, match="sockets, pipes or devices"):
        copy(origin, place, models, place, tmp_path / "work", print)
    with pytest.raises(CheckFailed, match=r"scan of /nowhere/at/all .* failed"):
        copy(origin, "/nowhere/at/all", models, place, tmp_path / "work", print)


_CHILD = """
import sys
from pathlib import Path
from inferlift.artifacts import Host
from inferlift.transfer import copy
hosts = [Host.model_validate_json(t) for t in sys.argv[3:]]
copy(hosts[0], sys.argv[1], hosts[1:], sys.argv[1], Path(sys.argv[2]), lambda line: print(line, flush=True), 2000)
"""


def test_killed_in_the_middle_it_goes_on_where_it_was(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    arguments = [place, str(tmp_path / "work"), *(h.model_dump_json() for h in hosts)]
    mark = uuid.uuid4().hex
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments], start_new_session=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, process.OWNER: mark},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while _partial_bytes(tmp_path) < 4 << 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    process.end(process.remnants(mark))
    assert 4 << 20 <= _partial_bytes(tmp_path) < 20 << 20

    moved = copy(origin, place, models, place, tmp_path / "work", print)
    print(moved.passes)
    assert _content(models[0], place) == _content(models[1], place)
    large = hashlib.sha256(next((tmp_path / "work").rglob("large.bin")).read_bytes()).hexdigest()
    assert large in _content(models[0], place)
    # pull less than all, push all to two hosts
    assert moved.passes[0].bytes_sent < 3 * moved.bytes - (3 << 20)
    assert list((tmp_path / "work").rglob(".inferlift-partial")) == []


def _partial_bytes(folder: Path) -> int:
    """What has arrived of the large file: in rsync's temporary or partial file."""
    sizes = [p.stat().st_size for p in (folder / "work").rglob("*large.bin*") if p.is_file()]
    return max(sizes, default=0)


def test_an_unreachable_host_is_retryable(hosts: list[Host], place: str, tmp_path: Path) -> None:
    origin, *models = hosts
    copy(origin, place, models[:1], place, tmp_path / "work", print)
    wrong = models[1].model_copy(update={"host_key": models[0].host_key})
    with pytest.raises(Retryable):
        copy(origin, place, [models[0], wrong], place, tmp_path / "work", print)
    with pytest.raises(Retryable, match="cut off"):
        rsync.together([rsync.push(wrong, tmp_path / "work", place, checksum=False, bandwidth_kbps=None)])
