"""A host that is reached through another only: commands, Ansible's options and rsync, each with both keys pinned.

As model hosts on AWS are reached through the bastion. That a firewall leaves no other way is not shown here.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlift import process, ssh, toolchain
from inferlift.artifacts import DesiredFleet, Host, HostGroup, Jump
from inferlift.errors import Retryable
from inferlift.profile import ROOT
from inferlift.provision import Tools, apply_fleet, destroy_fleet

pytestmark = pytest.mark.lab
LABEL = f"{hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]}/t-jump/fleet"
GROUPS = tuple(
    HostGroup.model_validate({"role": role, "count": 1, "cpus": 0.3, "memory_bytes": 256 * 2**20})
    for role in ("gateway", "model")
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """The one behind, with its way through the other; and that other."""
    toolchain.ensure(["pulumi", "host-image"], print)
    work = tmp_path_factory.mktemp("jump")
    tools = Tools(toolchain.pulumi_bin() / "pulumi", None, toolchain.host_image(), toolchain.podman_env())
    try:
        fleet = apply_fleet(DesiredFleet(label=LABEL, groups=GROUPS, floors={}), work, tools, print)
        first, behind = fleet.by_role("gateway")[0], fleet.by_role("model")[0]
        way = Jump(address=first.address, host_key=first.host_key)
        yield behind.model_copy(update={"jump": way}), first
    finally:
        assert destroy_fleet(LABEL, work, tools, print) == []


def test_commands_come_from_the_host_between(hosts: tuple[Host, Host]) -> None:
    behind, first = hosts
    assert ssh.run(behind, "echo $SSH_CONNECTION; hostname").stdout.split()[0] == first.address
    direct = behind.model_copy(update={"jump": None})
    assert ssh.run(direct, "echo $SSH_CONNECTION").stdout.split()[0] != first.address


def test_files_go_the_same_way(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    behind, _ = hosts
    (tmp_path / "weights").write_text("1 2 3")
    shell = shlex.join(["ssh", *ssh.options(behind)])
    process.run(["rsync", "-e", shell, str(tmp_path / "weights"), f"root@{behind.address}:/srv/weights"], timeout_s=30)
    assert ssh.run(behind, "cat /srv/weights").stdout == "1 2 3"


def test_ansible_takes_it_too(hosts: tuple[Host, Host]) -> None:
    behind, first = hosts
    done = subprocess.run(
        [str(ROOT / ".venv/bin/ansible"), "all", "-i", f"{behind.address},", "-u", "root", "-m", "raw", "-a",
         "echo $SSH_CONNECTION", "--ssh-common-args", shlex.join(ssh.options(behind))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"\n{first.address} " in done.stdout


@pytest.mark.parametrize("whose", ["jump", "host"])
def test_a_key_that_is_not_the_pinned_one_is_refused(hosts: tuple[Host, Host], whose: str) -> None:
    behind, first = hosts
    assert behind.jump is not None
    other = {"host_key": behind.host_key if whose == "jump" else first.host_key}
    wrong = behind.model_copy(update={"jump": behind.jump.model_copy(update=other)} if whose == "jump" else other)
    with pytest.raises(Retryable, match="does not answer over SSH"):
        ssh.run(wrong, "true")
