"""The images boot and load as the lab needs them: real podman, real systemd."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

from inferlift import toolchain
from inferlift.process import unmarked

pytestmark = pytest.mark.lab
LABEL = "inferlift.test=toolchain"
RUNC = ["--runtime", "runc", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000"]


def podman(*arguments: str, stdin: bytes | None = None, check: bool = True) -> str:
    done = subprocess.run(
        ["podman", *arguments],
        input=stdin,
        capture_output=True,
        env={**unmarked(), **toolchain.podman_env()},
        timeout=180,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="replace")


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    toolchain.ensure(["host-image", "base-image"], print)
    for left in podman("ps", "-a", "-q", "--filter", f"label={LABEL}").split():
        podman("rm", "-f", "-t", "0", left, check=False)
    name = f"t-toolchain-{uuid.uuid4().hex[:8]}"
    machine = [*RUNC, "--systemd=always", "--privileged"]
    podman("run", "-d", "--name", name, "--label", LABEL, *machine, toolchain.host_image(), "/sbin/init")
    deadline = time.monotonic() + 60
    while podman("exec", name, "systemctl", "is-system-running", check=False).strip() != "running":
        assert time.monotonic() < deadline, podman("exec", name, "systemctl", "--failed", check=False)
        time.sleep(0.3)
    yield name
    podman("rm", "-f", "-t", "0", name, check=False)


def inside(host: str, script: str) -> list[str]:
    return podman("exec", host, "sh", "-c", script).splitlines()


def test_a_host_makes_its_own_ssh_key_and_serves_ssh(host: str) -> None:
    assert inside(host, "ls /etc/ssh/ssh_host_*") == [
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_ed25519_key.pub",
    ]
    image_files = podman("run", "--rm", *RUNC, "--label", LABEL, toolchain.host_image(), "ls", "/etc/ssh")
    assert "ssh_host" not in image_files
    assert inside(host, "systemctl is-active ssh") == ["active"]


def test_only_ssh_listens_until_a_role_starts_something(host: str) -> None:
    ports = {line.split()[3].rpartition(":")[2] for line in inside(host, "ss -Hltn")}
    assert ports == {"22"}
    assert not [line for line in inside(host, "systemctl list-timers --no-legend") if "apt" in line]


def test_apt_lists_look_as_old_as_they_are_empty(host: str) -> None:
    assert inside(host, "stat -c %y /var/lib/apt/lists | cut -c1-4; find /var/lib/apt/lists -type f") == ["2000"]


def test_haproxy_starts_under_podman(host: str) -> None:
    inside(host, "systemctl start haproxy")
    assert inside(host, "systemctl is-active haproxy; systemctl stop haproxy") == ["active"]


def test_the_base_image_loads_and_runs_inside_a_host(host: str) -> None:
    base = toolchain.base_image()
    saved = subprocess.run(["podman", "save", base], capture_output=True, timeout=180, check=True).stdout
    podman("exec", "-i", host, "podman", "load", "-q", stdin=saved)
    run = f"podman run --rm --runtime crun --network host {base} python3 -c 'print(6*7)'"
    assert inside(host, run) == ["42"]
