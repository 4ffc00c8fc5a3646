"""Roles of a GPU host on a lab host without a GPU: the real driver packages, a disk that stands for NVMe, weights."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from role_hosts import RoleHosts, podman, wait_for_ssh
from waiting import until

from inferlift import configure, process
from inferlift.artifacts import Configured
from inferlift.errors import CheckFailed

pytestmark = [pytest.mark.lab, pytest.mark.long]

ROLES = ["nvidia", "scratch", "weights"]
TAGS = ["base", *ROLES]
DATA = bytes(range(256)) * 8000
DISK_MB = 600


class GpuHost:
    """One host; a loop device on a sparse file of this machine stands for its NVMe disk."""

    def __init__(self, hosts: RoleHosts, disk: str, image: Path) -> None:
        self.hosts, self.disk, self.image = hosts, disk, image
        self.first: Configured | None = None

    def variables(self, **changes: object) -> dict[str, object]:
        driver = configure.driver_for("H100 SXM", 1, cuda="12.2")
        source = {"name": "m", "source": "http://127.0.0.1:8099/m.bin", "sha256": hashlib.sha256(DATA).hexdigest()}
        return {
            "inferlift_model_roles": ROLES,
            **driver.variables(),
            "nvidia_driver": "install",
            "scratch_devices": [self.disk],
            "scratch_measure_megabytes": 128,
            "scratch_mb_per_s_planned": 20,
            "weights_models": [source],
            **changes,
        }

    def play(self, *tags: str, check: bool = False, **changes: object) -> Configured:
        return self.hosts.play(self.variables(**changes), tags or TAGS, check=check)

    def on(self, command: str) -> str:
        return self.hosts.on("model-1", command)

    def fetched(self) -> int:
        """Bytes of bodies that the counting server of the host has sent."""
        return sum(int(n) for n in re.findall(r"^sent (\d+)$", self.on("cat /root/sent 2>/dev/null || true"), re.M))


SERVER = """
import http.server, os
DATA = bytes(range(256)) * 8000
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_HEAD(self): self.answer(False)
    def do_GET(self): self.answer(True)
    def answer(self, body):
        start = int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(DATA) - start))
        self.end_headers()
        if body:
            self.wfile.write(DATA[start:])
            with open("/root/sent", "a") as log:
                log.write(f"sent {len(DATA) - start}\\n")
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""
UNIT = "[Service]\nExecStart=/usr/bin/python3 /root/server.py\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHost]:
    folder = tmp_path_factory.mktemp("t-roles-gpu")
    hosts = RoleHosts("gpu", 40, folder)
    detach(hosts.network)
    image = folder / f"{hosts.network}.img"
    with image.open("wb") as file:
        file.truncate(DISK_MB * 2**20)
    disk = process.run(["losetup", "--find", "--show", str(image)], timeout_s=20).stdout.strip()
    try:
        hosts.raise_hosts(["model-1"])
        made = GpuHost(hosts, disk, image)
        (folder / "server.py").write_text(SERVER)
        (folder / "counting.service").write_text(UNIT)
        hosts.put("model-1", folder / "server.py", "/root/server.py")
        hosts.put("model-1", folder / "counting.service", "/etc/systemd/system/counting.service")
        made.on("systemctl daemon-reload; systemctl enable --now -q counting")
        made.first = made.play()
        print(f"first run: {made.first.seconds:.1f} s, {made.first.changed} changes")
        yield made
    finally:
        hosts.sweep()
        detach(hosts.network)
        shutil.rmtree(folder, ignore_errors=True)


def detach(mark: str) -> None:
    """Loop devices of this module, also those of a killed run."""
    listed = process.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], timeout_s=20).stdout
    for name, file in (line.split(maxsplit=1) for line in listed.splitlines() if mark in line):
        print(f"detaching {name} from {file}")
        process.run(["losetup", "--detach", name], timeout_s=20, check=False)


def test_the_driver_is_installed_pinned_and_not_loaded_where_there_is_no_gpu(gpu: GpuHost) -> None:
    assert gpu.first is not None
    assert any("no GPU is on this host" in line for line in gpu.first.skipped)
    version = gpu.on("dpkg-query -W -f '${Version}' nvidia-kernel-dkms").split("-")[0]
    assert version.startswith("535.")
    assert gpu.on("dpkg-query -W -f '${Version}' nvidia-smi").split("-")[0] == version
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= set(gpu.on("apt-mark showhold").split())
    assert f"nvidia-current/{version}" in gpu.on("dkms status")
    assert "Pin: version" in gpu.on("cat /etc/apt/preferences.d/inferlift-nvidia")
    policy = gpu.on("apt-get -s -y dist-upgrade")
    assert not re.search(r"^Inst \S*nvidia", policy, re.M)


def test_a_second_run_and_a_dry_one_change_nothing_and_fetch_nothing(gpu: GpuHost) -> None:
    before = gpu.fetched()
    assert before == len(DATA)
    dry, again = gpu.play(check=True), gpu.play()
    print(f"second run: {again.seconds:.1f} s")
    assert (dry.changed, again.changed) == (0, 0)
    assert gpu.fetched() == before
    assert gpu.hosts.bad() == {}


def test_weights_lie_on_the_local_disk_and_its_speed_is_told_from_the_plans(gpu: GpuHost) -> None:
    assert gpu.on("findmnt -n -o SOURCE --target /srv/scratch/weights/m/m.bin").strip() == gpu.disk
    said = {c.name: c.detail for c in gpu.hosts.checks()}["model-1: scratch speed"]
    assert re.search(r"measured \d+ MB/s reading, \d+ writing; planned 20", said)


def test_modules_of_the_other_kind_replace_these_with_a_user_space_of_their_version(gpu: GpuHost) -> None:
    gpu.play("nvidia", nvidia_flavour="open")
    try:
        opened = gpu.on("dpkg-query -W -f '${Version}' nvidia-open-kernel-dkms").split("-")[0]
        assert gpu.on("dpkg-query -W -f '${Version}' nvidia-smi").split("-")[0] == opened
        assert "nvidia-kernel-dkms" not in gpu.on("apt-mark showhold").split()
        assert gpu.hosts.bad() == {}
    finally:
        gpu.play("nvidia")
    assert gpu.hosts.bad() == {}


def test_a_version_that_somebody_moved_is_noticed_and_put_back(gpu: GpuHost) -> None:
    gpu.on("apt-mark unhold nvidia-smi")
    assert list(gpu.hosts.bad()) == ["model-1: driver packages"]
    assert gpu.play("nvidia").changed == 1
    assert gpu.hosts.bad() == {}


def test_a_broken_copy_of_the_weights_is_noticed_and_fetched_again(gpu: GpuHost) -> None:
    before = gpu.fetched()
    gpu.on("truncate -s 1000 /srv/scratch/weights/m/m.bin")
    assert list(gpu.hosts.bad()) == ["model-1: weights m"]
    gpu.play("weights")
    assert gpu.fetched() - before == len(DATA)
    assert gpu.hosts.bad() == {}


def test_a_wrong_checksum_and_a_full_disk_end_clearly_and_the_old_copy_stays(gpu: GpuHost) -> None:
    wrong = {"name": "m", "source": "http://127.0.0.1:8099/m.bin?2", "sha256": "0" * 64}
    with pytest.raises(CheckFailed, match="expected was 0000"):
        gpu.play("weights", weights_models=[wrong])
    with pytest.raises(CheckFailed, match="GB are to come"):
        gpu.play("weights", weights_models=[wrong], weights_free_share=0.99)
    assert gpu.on("stat -c %s /srv/scratch/weights/m/m.bin").strip() == str(len(DATA))
    gpu.play("weights")
    assert gpu.hosts.bad() == {}


def test_a_disk_that_holds_something_else_is_left_alone(gpu: GpuHost) -> None:
    """Before the reboot: in a container, services started after the mount keep a copy of it when it is unmounted."""
    gpu.on(f"systemctl stop inferlift-scratch && mkfs.ext4 -q -F -L precious {gpu.disk}")
    try:
        with pytest.raises(CheckFailed, match="holds ext4 precious"):
            gpu.play("scratch")
        assert "precious" in gpu.on(f"blkid -p {gpu.disk}")
    finally:
        gpu.on(
            f"wipefs --all --quiet {gpu.disk}; systemctl start inferlift-scratch; systemctl restart inferlift-weights"
        )
        gpu.play("scratch")
    assert gpu.hosts.bad() == {}


def test_a_reboot_keeps_the_disk_and_a_stop_that_empties_it_is_made_good(gpu: GpuHost) -> None:
    before = gpu.fetched()
    gpu.hosts.reboot("model-1")
    wait_until_good(gpu)
    assert gpu.fetched() == before
    name = f"{gpu.hosts.network}-model-1"
    podman("stop", "--time", "5", name)
    subprocess.run(["wipefs", "--all", "--quiet", gpu.disk], check=True)
    podman("start", name)
    wait_for_ssh(gpu.hosts.host("model-1"))
    wait_until_good(gpu)
    assert gpu.fetched() - before == len(DATA)
    assert gpu.play("scratch", "weights").changed == 1  # the speed of what is a new file system


def test_all_of_it_can_be_taken_away_again(gpu: GpuHost) -> None:
    gpu.on("touch /srv/scratch/uploads/from-a-user")
    before = set(gpu.on("dpkg-query -W -f '${Package}\\n'").split())
    configure.apply(gpu.hosts.hosts, "remove.yml", {}, {}, gpu.hosts.folder / "work", print)
    gone = before - set(gpu.on("dpkg-query -W -f '${Package}\\n'").split())
    assert {"nvidia-kernel-dkms", "nvidia-smi", "mdadm", "fio"} <= gone
    assert "python3" not in gone
    assert gpu.on("ls -d /etc/inferlift* /usr/local/lib/inferlift 2>/dev/null || true").split() == []
    places = "/etc/apt/sources.list.d /etc/apt/preferences.d /etc/systemd/system"
    left = gpu.on(f"ls -R {places}; ls -R /etc/modprobe.d 2>/dev/null || true")  # this one came with us, and may go
    assert not re.findall(r"inferlift-(?:nvidia|scratch|weights)|inferlift\.conf", left)
    assert "policy drop" not in gpu.on("nft list ruleset 2>/dev/null || true")
    again = configure.apply(gpu.hosts.hosts, "remove.yml", {}, {}, gpu.hosts.folder / "work", print)
    assert again.changed == 0
    assert [c.name for c in gpu.hosts.checks() if not c.ok] == ["model-1: configured"]


def wait_until_good(gpu: GpuHost) -> None:
    assert until(lambda: gpu.hosts.bad() == {}, 60), gpu.hosts.bad()
