"""Role nvidia's programs with a stand-in nvidia-smi: each trouble is told apart. It proves nothing about a real GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from inferlift.profile import ROOT

ROLES = ROOT / "playbooks" / "roles"
VERSION = "580.126.20"
FACTS: dict[str, Any] = {
    "services": [],
    "gpu": "H100 SXM",
    "gpus": 2,
    "gpu_match": "H100",
    "branch": 580,
    "version": VERSION,
    "packages": {},
    "present": True,
    "installs": False,
    "cuda_least": "13.0",
    "vram_mib_least": 80_000,
    "pcie_generation_least": 5,
    "fabric": "none",
    "mig": [],
    "containers": False,
    "dcgm_port": None,
}
GOOD = f"NVIDIA H100 80GB HBM3, {VERSION}, Enabled, 81559, 5, Disabled, 0"

Smi = Callable[..., dict[str, dict[str, Any]]]


def load(path: str) -> ModuleType:
    loader = SourceFileLoader(Path(path).name.replace("-", "_"), str(ROLES / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """The validator's checks by name, with programs that answer as given."""
    monkeypatch.setitem(sys.modules, "checks", load("base/files/checks.py"))
    module = load("nvidia/files/check-nvidia")
    monkeypatch.setattr(module, "LOADED", tmp_path / "loaded")
    monkeypatch.setattr(module, "CDI", tmp_path / "cdi.yaml")
    (tmp_path / "loaded").write_text("575.51.03")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def run(rows: str, status: int = 0, cuda: str = "13.0", listed: str = "", **facts: Any) -> dict[str, Any]:
        (tmp_path / "rows").write_text(rows + "\n")
        (tmp_path / "listed").write_text(listed)
        script = (
            '#!/bin/sh\ncase "$1" in\n'
            f"--query-gpu*) cat {tmp_path}/rows; exit {status};;\n"
            f"-L) cat {tmp_path}/listed;;\n"
            f"*) echo '| NVIDIA-SMI   CUDA Version: {cuda}   |';;\nesac\n"
        )
        program(tmp_path / "nvidia-smi", script)
        results = list(module.nvidia({**FACTS, **facts}, None))
        return {row["name"]: row for row in results}

    return run


def program(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def bad(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: row["detail"] for name, row in checks.items() if not row["ok"]}


def test_two_healthy_gpus(validate: Smi) -> None:
    checks = validate(f"{GOOD}\n{GOOD}")
    assert bad(checks) == {}
    assert {"driver", "CUDA", "persistence", "GPU", "GPU memory", "PCI Express", "memory errors", "MIG"} <= set(checks)


@pytest.mark.parametrize(
    ("rows", "status", "words"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126", 18, "mismatch"),
        ("No devices were found", 6, "No devices were found"),
        ("No devices were found", 0, "No devices were found"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "couldn't communicate"),
    ],
)
def test_a_driver_that_does_not_answer_is_said_in_its_own_words(
    validate: Smi, rows: str, status: int, words: str
) -> None:
    trouble = bad(validate(rows, status))
    assert list(trouble) == ["GPU"]
    assert words in trouble["GPU"]
    assert "module loaded: 575.51.03" in trouble["GPU"]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (GOOD.replace(VERSION, "575.51.03"), "driver"),
        (GOOD.replace("Enabled", "Disabled"), "persistence"),
        (GOOD.replace("81559", "40960"), "GPU memory"),
        (GOOD.replace(", 5, ", ", 3, "), "PCI Express"),
        (GOOD[:-1] + "3", "memory errors"),
        (GOOD.replace("Disabled", "Enabled"), "MIG"),
        (GOOD.replace("H100", "A100"), "GPU"),
    ],
)
def test_each_trouble_of_one_gpu_is_told_apart(validate: Smi, row: str, name: str) -> None:
    assert list(bad(validate(f"{GOOD}\n{row}"))) == [name]


def test_a_gpu_that_has_fallen_off_the_bus_is_missed(validate: Smi) -> None:
    assert list(bad(validate(GOOD))) == ["GPU"]


def test_a_driver_too_old_for_the_images_cuda(validate: Smi) -> None:
    assert list(bad(validate(f"{GOOD}\n{GOOD}", cuda="12.8"))) == ["CUDA"]


def test_a_gpu_without_ecc_and_mig_has_no_errors_and_no_mig(validate: Smi) -> None:
    row = GOOD[: GOOD.rindex("Disabled")] + "[N/A], [N/A]"
    assert bad(validate(f"{row}\n{row}")) == {}
    assert list(bad(validate(f"{row}\n{row}", mig=["1g.10gb"]))) == ["MIG", "MIG instances"]


def test_mig_instances_are_counted_by_kind(validate: Smi) -> None:
    row = GOOD.replace("Disabled", "Enabled")
    one = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n"
    two = one + "GPU 1: NVIDIA H100 (UUID: GPU-2)\n  MIG 1g.10gb     Device  0: (UUID: MIG-2)\n"
    assert bad(validate(f"{row}\n{row}", mig=["1g.10gb"], listed=two)) == {}
    assert list(bad(validate(f"{row}\n{row}", mig=["1g.10gb"], listed=one))) == ["MIG instances"]


@pytest.mark.parametrize(("told", "ok"), [(VERSION, True), ("580.95.05", False)])
def test_the_fabric_manager_must_be_of_the_drivers_version(validate: Smi, tmp_path: Path, told: str, ok: bool) -> None:
    program(tmp_path / "nv-fabricmanager", f"#!/bin/sh\necho 'Fabric Manager version is : {told}'\n")
    checks = validate(f"{GOOD}\n{GOOD}", fabric="nvswitch")
    assert checks["fabric manager"]["ok"] == ok


def test_without_a_gpu_it_is_said_and_not_failed(validate: Smi) -> None:
    checks = validate("", present=False)
    assert [(row["ok"], row["skipped"]) for row in checks.values()] == [(True, True)]


def test_containers_need_the_list_of_gpus(validate: Smi, tmp_path: Path) -> None:
    assert list(bad(validate(f"{GOOD}\n{GOOD}", containers=True))) == ["GPUs for containers"]
    (tmp_path / "cdi.yaml").write_text("kind: nvidia.com/gpu\n")
    assert bad(validate(f"{GOOD}\n{GOOD}", containers=True)) == {}


# --- which versions ---------------------------------------------------------------------------------------------


class Apt:
    """Stand-in for apt, as Debian 12 answers: the newest proprietary driver has no open modules of its version."""

    def __init__(self, **offered: list[str]) -> None:
        self.offered = {name.replace("_", "-"): versions for name, versions in offered.items()}
        self.installed: dict[str, tuple[str, str]] = {}

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == "dpkg-query":
            rows = [(n, *self.installed[n]) for n in command if n in self.installed]
            return self.done("".join(f"{n}\t{v}\t{w}\tinstalled\n" for n, v, w in rows))
        if command[:2] == ["apt-cache", "madison"]:
            return self.done("".join(f" {command[2]} | {v} | archive\n" for v in self.offered.get(command[2], [])))
        if "-s" in command:
            pins = next(p.partition("=")[2] for p in command if p.startswith("Dir::Etc::Preferences="))
            wanted = Path(pins).read_text().split("?")[1].split("-/")[0].replace("\\", "")
            return self.simulate(command, wanted)
        return self.done("")

    def simulate(self, command: list[str], wanted: str) -> subprocess.CompletedProcess[str]:
        roots = [part for part in command if part in self.offered]
        chosen = {r: next((v for v in self.offered[r] if wanted in v), self.offered[r][0]) for r in roots}
        return self.done("".join(f"Inst {n} ({v} archive [amd64])\n" for n, v in chosen.items()))

    @staticmethod
    def done(out: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout=out, stderr="")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("nvidia/files/nvidia-host")
    monkeypatch.setattr(module, "MANIFEST", tmp_path / "nvidia.json")
    return module


def planned(host: ModuleType, monkeypatch: pytest.MonkeyPatch, apt: Apt, *request: str) -> dict[str, Any]:
    monkeypatch.setattr(host.subprocess, "run", lambda command, **more: apt.run([str(c) for c in command], **more))
    answer: dict[str, Any] = host.plan(*request)
    return answer


BOOKWORM = {
    "nvidia_kernel_dkms": ["535.309.01-0+deb12u1", "535.261.03-1"],
    "nvidia_open_kernel_dkms": ["535.261.03-1"],
    "nvidia_smi": ["535.309.01-0+deb12u1", "535.261.03-1"],
    "nvidia_persistenced": ["535.171.04-1~deb12u1"],
}


def test_module_and_user_space_are_of_one_version(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = ("nvidia-smi", "nvidia-persistenced")
    newest = planned(host, monkeypatch, Apt(**BOOKWORM), "535", "-", "linux-headers-x", "nvidia-kernel-dkms", *tools)
    assert newest["version"] == "535.309.01"
    opened = planned(
        host, monkeypatch, Apt(**BOOKWORM), "535", "-", "linux-headers-x", "nvidia-open-kernel-dkms", *tools
    )
    assert opened["version"] == "535.261.03"
    assert opened["packages"]["nvidia-smi"] == "535.261.03-1"
    assert opened["headers"] is False


def test_a_pair_that_does_not_exist_is_refused(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = Apt(nvidia_kernel_dkms=["535.309.01-1"], nvidia_smi=["535.261.03-1"])
    with pytest.raises(SystemExit, match=r"535\.309\.01: nvidia-smi is 535\.261\.03-1"):
        planned(host, monkeypatch, apt, "535", "-", "h", "nvidia-kernel-dkms", "nvidia-smi")
    with pytest.raises(SystemExit, match="no 580 of nvidia-kernel-dkms"):
        planned(host, monkeypatch, apt, "580", "-", "h", "nvidia-kernel-dkms", "nvidia-smi")


def test_a_newer_version_in_the_archive_moves_nothing(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ("535", "-", "h", "nvidia-kernel-dkms", "nvidia-smi")
    first = planned(host, monkeypatch, Apt(**BOOKWORM), *request)
    host.MANIFEST.write_text(json.dumps({"facts": {"request": first["request"], "packages": first["packages"]}}))
    later = Apt(nvidia_kernel_dkms=["535.400.01-1"], nvidia_smi=["535.400.01-1"])
    later.installed = {name: (version, "hold") for name, version in first["packages"].items()}
    second = planned(host, monkeypatch, later, *request)
    assert second["packages"] == first["packages"]
    assert (second["missing"], second["unheld"], second["gone"]) == ([], [], [])


def test_modules_of_the_other_kind_go_in_the_same_step(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"nvidia-kernel-dkms": "535.309.01-0+deb12u1", "nvidia-smi": "535.309.01-0+deb12u1"}
    host.MANIFEST.write_text(json.dumps({"facts": {"request": "something else", "packages": old}}))
    apt = Apt(**BOOKWORM)
    apt.installed = {name: (version, "hold") for name, version in old.items()}
    got = planned(host, monkeypatch, apt, "535", "-", "h", "nvidia-open-kernel-dkms", "nvidia-smi")
    assert got["gone"] == ["nvidia-kernel-dkms"]
    assert got["missing"] == ["nvidia-open-kernel-dkms=535.261.03-1", "nvidia-smi=535.261.03-1"]


# --- the kernel's side ------------------------------------------------------------------------------------------


def test_gpus_and_switches_are_told_apart_by_their_class(tmp_path: Path) -> None:
    probe = load("../library/host_probe.py")
    for address, vendor, kind in [
        ("0000:01:00.0", "0x10de", "0x030200"),
        ("0000:02:00.0", "0x10de", "0x068000"),
        ("0000:03:00.0", "0x8086", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),
    ]:
        device = tmp_path / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    found = probe.nvidia(tmp_path)
    assert (found["gpus"], found["switches"], found["loaded"]) == (["0000:01:00.0"], ["0000:02:00.0"], None)


@pytest.mark.parametrize(("value", "expected"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (None, None)])
def test_secure_boot(tmp_path: Path, value: bytes | None, expected: bool | None) -> None:
    probe = load("../library/host_probe.py")
    assert probe.secure_boot(tmp_path / "no-efi") is False
    (tmp_path / "efivars").mkdir()
    if value is not None:
        (tmp_path / "efivars" / "SecureBoot-8be4df61").write_bytes(value)
    assert probe.secure_boot(tmp_path) is expected


def test_the_archives_own_sources_are_taken_and_nobody_elses(tmp_path: Path) -> None:
    probe = load("../library/host_probe.py")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "a.sources").write_text(
        "Types: deb\n# comment\nURIs: https://archive.test/debian\nSuites: bookworm\nComponents: main\n\n"
        "Types: deb\nURIs: https://vendor.test/tools\nSuites: stable\nComponents: main\n"
    )
    (parts / "inferlift-nvidia.sources").write_text("Types: deb\nURIs: https://archive.test/debian\nComponents: x\n")
    (parts / "b.list").write_text("deb [signed-by=/k.gpg] https://archive.test/debian bookworm-updates main\n")
    text = probe.archive_sources(tmp_path, "debian")
    assert text.count("Components: @COMPONENTS@") == 2
    assert "Signed-By: /k.gpg" in text
    assert "vendor.test" not in text
