#!/usr/bin/python3
"""What a role must know about the host before it changes anything, in one quick call."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_probe
short_description: Tells what a host is and which packages it lacks
description:
  - Waits until systemd has finished booting, then reads the release, installed and held packages, whether the clock
    can be set, and which GPUs the kernel shows. Changes nothing.
options:
  packages:
    description: Debian packages that should be there.
    type: list
    elements: str
    default: []
  boot_timeout:
    description: How long to wait for systemd, in seconds.
    type: int
    default: 60
  skips:
    description: Lines to pass on as what is left out on this host, and why.
    type: list
    elements: str
    default: []
author:
  - inferlift
"""

EXAMPLES = r"""
- name: Look at the host
  host_probe:
    packages: [nftables]
  register: base_host
"""

RETURN = r"""
missing:
  description: Packages that are not installed.
  returned: always
  type: list
unheld:
  description: Packages that are not on hold.
  returned: always
  type: list
container:
  description: Whether the host is a container, which has no PCI bus and no kernel of its own.
  returned: always
  type: bool
nvidia:
  description:
    - PCI addresses of NVIDIA's GPUs (C(gpus)) and NVSwitches (C(switches)), the version of the loaded kernel module
      (C(loaded)), whether nouveau is loaded (C(nouveau)), nvidia-smi is there (C(tool)), the driver is ours (C(ours)).
  returned: always
  type: dict
secure_boot:
  description: Whether the firmware only starts signed kernels, which only load signed modules; null when not known.
  returned: always
  type: bool
archive_sources:
  description: The host's own apt sources of its distribution, deb822, with C(@COMPONENTS@) for the components.
  returned: always
  type: str
"""

CAP_SYS_TIME = 25


def main():
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "default": []},
            "boot_timeout": {"type": "int", "default": 60},
            "skips": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params["packages"]
    release = release_of("/etc/os-release")
    states = package_states("/var/lib/dpkg/status")
    clock = can_set_clock()
    gpus = sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*"))
    skipped = list(module.params["skips"])
    if not clock and not skipped:
        skipped.append("time sync: the clock cannot be set here (a container shares its host's clock)")
    module.exit_json(
        changed=False,
        booted=wait_for_boot(module.params["boot_timeout"]),
        distribution=release.get("ID", "unknown"),
        version=release.get("VERSION_ID", "0"),
        missing=[p for p in wanted if "installed" not in states.get(p, "")],
        unheld=[p for p in wanted if not states.get(p, "").startswith("hold")],
        clock=clock,
        container=in_container(),
        gpus=gpus,
        nvidia=nvidia(Path("/sys")),
        kernel=os.uname().release,
        memory_mib=memory_mib("/proc/meminfo", Path("/sys/fs/cgroup")),
        secure_boot=secure_boot(Path("/sys/firmware/efi")),
        archive_sources=archive_sources(Path("/etc/apt"), release.get("ID", "")),
        inferlift_skipped=skipped,
    )


def wait_for_boot(timeout):
    """`running`, `degraded` or, after the timeout, whatever systemd says then."""
    deadline = time.monotonic() + timeout
    while True:
        done = subprocess.run(
            ["systemctl", "is-system-running"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        state = done.stdout.decode().strip()
        if state in ("running", "degraded") or time.monotonic() > deadline:
            return state or "no systemd"
        time.sleep(0.2)


def release_of(path):
    pairs = (line.strip().partition("=") for line in Path(path).read_text(encoding="utf-8").splitlines() if "=" in line)
    return {key: value.strip('"') for key, _, value in pairs}


def package_states(path):
    """Package name -> "install ok installed", from dpkg's own file: a tenth of the time that dpkg-query takes."""
    states, name = {}, ""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Package: "):
                name = line[9:].strip()
            elif line.startswith("Status: "):
                states[name] = line[8:].strip()
    return states


def nvidia(sys):
    """By PCI vendor and class: a display or 3D controller is a GPU, a bridge of class 0680 is an NVSwitch."""
    gpus, switches = [], []
    for device in sorted((sys / "bus/pci/devices").glob("*")):
        vendor, kind = text(device / "vendor"), text(device / "class")
        if vendor == "0x10de" and kind.startswith("0x03"):
            gpus.append(device.name)
        elif vendor == "0x10de" and kind.startswith("0x0680"):
            switches.append(device.name)
    loaded = text(sys / "module/nvidia/version") or None
    return {
        "gpus": gpus,
        "switches": switches,
        "loaded": loaded,
        "nouveau": (sys / "module/nouveau").is_dir(),
        "tool": Path("/usr/bin/nvidia-smi").exists(),
        "ours": Path("/etc/apt/preferences.d/inferlift-nvidia").exists(),
    }


def secure_boot(efi):
    """Four bytes of attributes, then 1 or 0. Without EFI there is none; an unreadable variable is unknown."""
    if not efi.is_dir():
        return False
    try:
        variable = next(iter((efi / "efivars").glob("SecureBoot-*")))
        return variable.read_bytes()[4:5] == b"\x01"
    except (StopIteration, OSError):
        return None


def archive_sources(apt, distribution):
    """deb822 stanzas of the distribution's own archive; other vendors' are left out."""
    stanzas = []
    parts = apt / "sources.list.d"
    for file in sorted(parts.glob("*.sources")):
        if file.name.startswith("inferlift-"):
            continue
        lines = [line for line in text(file).splitlines() if not line.startswith("#")]
        for block in re.split(r"\n\s*\n", "\n".join(lines)):
            if re.search(rf"^(URIs|Signed-By):.*{distribution}", block, re.MULTILINE | re.IGNORECASE):
                stanzas.append(re.sub(r"(?m)^Components:.*$", "Components: @COMPONENTS@", block.strip()))
    for file in [apt / "sources.list", *sorted(parts.glob("*.list"))]:
        for line in text(file).splitlines():
            match = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+\S", line)
            if match and distribution in (match[1] or "") + match[2]:
                key = re.search(r"signed-by=(\S+)", match[1] or "")
                rows = ["Types: deb", f"URIs: {match[2]}", f"Suites: {match[3]}", "Components: @COMPONENTS@"]
                stanzas.append("\n".join(rows + ([f"Signed-By: {key[1]}"] if key else [])))
    return "\n\n".join(stanzas) + "\n" if stanzas else ""


def memory_mib(meminfo, cgroup):
    """What this host may use: the machine's memory, or less where a limit is set on it."""
    total = next(int(line.split()[1]) // 1024 for line in text(meminfo).splitlines() if line.startswith("MemTotal:"))
    limits = [text(cgroup / name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
    return min([total, *(int(limit) // 2**20 for limit in limits if limit.isdigit())])


def text(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def can_set_clock():
    with Path("/proc/1/status").open(encoding="utf-8") as file:
        bounding = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))
    return bool(bounding & (1 << CAP_SYS_TIME)) and not in_container()


def in_container():
    return subprocess.run(["systemd-detect-virt", "--container", "--quiet"], check=False).returncode == 0


if __name__ == "__main__":
    main()
