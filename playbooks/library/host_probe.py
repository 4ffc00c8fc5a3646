#!/usr/bin/python3
"""What a role must know about the host before it changes anything, in one quick call."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_probe
short_description: Tells what a host is and which packages it lacks
description:
  - Waits until systemd has finished booting, then reads the Debian release, installed and held packages, whether the
    clock can be set, and which GPUs the kernel shows. Changes nothing.
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
"""

CAP_SYS_TIME = 25


def main():
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "default": []},
            "boot_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    wanted = module.params["packages"]
    release = release_of("/etc/os-release")
    states = package_states("/var/lib/dpkg/status")
    clock = can_set_clock()
    gpus = sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*"))
    skipped = []
    if not clock:
        skipped.append("time sync: the clock cannot be set here (a container shares its host's clock)")
    module.exit_json(
        changed=False,
        booted=wait_for_boot(module.params["boot_timeout"]),
        distribution=release.get("ID", "unknown"),
        version=release.get("VERSION_ID", "0"),
        missing=[p for p in wanted if "installed" not in states.get(p, "")],
        unheld=[p for p in wanted if not states.get(p, "").startswith("hold")],
        clock=clock,
        gpus=gpus,
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


def can_set_clock():
    with Path("/proc/1/status").open(encoding="utf-8") as file:
        bounding = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))
    inside = subprocess.run(["systemd-detect-virt", "--container", "--quiet"], check=False).returncode == 0
    return bool(bounding & (1 << CAP_SYS_TIME)) and not inside


if __name__ == "__main__":
    main()
