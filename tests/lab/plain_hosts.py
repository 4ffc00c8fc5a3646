"""Lab hosts that stand in for somebody's plain Debian hosts: a minimal system with SSH and Python, nothing of ours.

They are containers: they show no firmware, no hardware of their own, no reboot, and the machine's kernel and clock.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from role_hosts import podman, wait_for_ssh

from inferlift import process, ssh, toolchain
from inferlift.artifacts import Host
from inferlift.profile import ROOT

State = dict[str, set[str]]
CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()
# What the lab's host image has baked in and a plain host has not.
BAKED = """python3-venv python3-packaging python3-aiohttp nftables rsync curl socat haproxy nginx-light prometheus
prometheus-alertmanager prometheus-node-exporter pdns-server pdns-backend-sqlite3 unbound podman crun fuse-overlayfs
sqlite3 libgomp1"""
SIZES = {"gateway": (1.0, 600), "model": (0.7, 1600), "monitor": (0.5, 600)}
# Not compared: what changes by itself, package managers' own files, the backups that shadow's tools keep, and podman's
# own bookkeeping, which the system's start begins (its images are compared).
_SKIP = (
    "/proc /sys /dev /run /tmp /var/log /var/cache /var/tmp /var/lib/apt /var/lib/dpkg /var/lib/systemd "
    "/etc/ld.so.cache /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- "
    "/usr/share/mime /var/lib/ucf /etc/.pwd.lock /var/lib/sudo /var/lib/containers/storage"
)


def plain_image() -> str:
    """The lab's host image without all that is baked in; made once for each of its versions."""
    toolchain.ensure(["debian-packages", "host-image"], print)
    name = f"localhost/inferlift-test-plain:{toolchain.host_image().rpartition(':')[2]}"
    if subprocess.run(["podman", "image", "exists", name], check=False).returncode:
        script = (
            f"FROM {toolchain.host_image()}\n"
            f"RUN apt-get purge -y -q --autoremove {' '.join(BAKED.split())} && "
            "apt-get install -y -q --no-install-recommends python3 && rm -rf /var/lib/apt/lists/* "
            "/var/lib/prometheus /var/lib/haproxy /var/lib/containers /etc/containers /var/lib/nginx "
            "/etc/nginx /var/www /etc/haproxy /etc/prometheus /etc/ssh/sshd_config.d/20-inferlift-lab.conf && "
            "for user in haproxy prometheus pdns unbound; do userdel $user 2>/dev/null || true; done\n"
        )
        process.run(
            ["podman", "build", "--isolation", "chroot", "--network", "host", "--layers=false", "-t", name, "-"],
            timeout_s=300, stdin=script, env={**process.unmarked(), **toolchain.podman_env()},
        )  # fmt: skip
    return name


@dataclass
class PlainHosts:
    """`name` makes label and network, `third` the subnet 10.244.THIRD.0/24. The operator's files lie in `folder`."""

    name: str
    third: int
    folder: Path
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"inferlift.test={self.network}"

    @property
    def network(self) -> str:
        return f"t-{self.name}-{CLONE[:8]}"

    @property
    def key(self) -> Path:
        return self.folder / "id"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def raise_hosts(self, names: Sequence[str], image: str) -> None:
        self.sweep()
        podman("network", "create", "--label", self.label, "--subnet", f"10.244.{self.third}.0/24", self.network)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        (self.folder / "ssh").mkdir(mode=0o700)
        shutil.copy(self.key.with_suffix(".pub"), self.folder / "ssh" / "authorized_keys")
        (self.folder / "ssh" / "authorized_keys").chmod(0o600)
        for number, name in enumerate(names):
            self._boot(name, 10 + number, image)
        for name in names:
            wait_for_ssh(self.host(name))

    def host(self, name: str) -> Host:
        """As the test looks at it; its key as the operator's known_hosts has it."""
        address, own = self.addresses[name], self.folder / "look" / "id"  # what is pinned for it lies beside it
        if not own.exists():
            own.parent.mkdir()
            shutil.copy(self.key, own)
        line = next(row for row in self.known_hosts.read_text().splitlines() if row.startswith(f"{address} "))
        return Host.model_validate(
            {
                "name": name,
                "role": name.split("-")[0],
                "address": address,
                "ssh_key": str(own),
                "host_key": " ".join(line.split()[1:3]),
            }
        )

    def on(self, name: str, command: str, *, check: bool = True) -> str:
        return ssh.run(self.host(name), command, timeout_s=120, check=check).stdout

    def section(self, models: int, **more: str) -> str:
        """The profile's `static:` section for the first `models` model hosts."""
        rows = []
        for role, count in (("gateway", 1), ("model", models), ("monitor", 1)):
            cores, mib = SIZES[role]
            listed = ", ".join(self.addresses[f"{role}-{n}"] for n in range(1, count + 1))
            ram = more.get(f"{role}_ram_gb", f"{mib * 2**20 / 1e9:.2f}")
            rows.append(
                f"    - {{name: own-{role}, role: {role}, addresses: [{listed}], cores: {cores}, ram_gb: {ram}, "
                f"cost_per_hour: 0.01}}"
            )
        lines = [f"  ssh_key: {self.key}", f"  known_hosts: {self.known_hosts}", "  hosts:", *rows]
        return "static:\n" + "\n".join(lines) + "\n"

    def states(self) -> dict[str, State]:
        """Of every host, by name."""
        with ThreadPoolExecutor(len(self.addresses)) as pool:
            return dict(zip(self.addresses, pool.map(lambda n: state(self.host(n)), self.addresses), strict=True))

    def sweep(self) -> None:
        """What an earlier, killed run left; by label only."""
        for found in podman("ps", "--all", "--quiet", "--filter", f"label={self.label}").split():
            podman("rm", "--force", "--time", "0", found)
        for found in podman("network", "ls", "--quiet", "--filter", f"label={self.label}").split():
            podman("network", "rm", found)

    def _boot(self, name: str, last: int, image: str) -> None:
        host_key = self.folder / f"{name}_host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
        container, address = f"{self.network}-{name}", f"10.244.{self.third}.{last}"
        cores, mib = SIZES[name.split("-")[0]]
        podman(
            "create", "--name", container, "--label", self.label, "--runtime", "runc", "--systemd=always",
            "--privileged", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000",
            "--memory", f"{mib}m", "--cpus", str(cores), "--network", self.network, "--ip", address,
            "--mac-address", f"02:00:0a:f4:{self.third:02x}:{last:02x}", image, "/sbin/init",
        )  # fmt: skip
        podman("cp", str(host_key), f"{container}:/etc/ssh/ssh_host_ed25519_key")
        podman("cp", f"{self.folder}/ssh/.", f"{container}:/root/.ssh")
        podman("start", container)
        self.addresses[name] = address
        key = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
        with self.known_hosts.open("a") as file:
            file.write(f"{address} {key}\n")


def state(host: Host) -> State:
    """Packages, holds, units, users, groups, files and firewall of a host, as sets that can be compared."""
    skip = " -o ".join(f"-path {path}" for path in _SKIP.split())
    files = (
        f"find /etc /opt /root /srv /usr/local -xdev \\( {skip} -o -name __pycache__ \\) -prune -o -type f -print0 "
        "| xargs -0 sha256sum; "
        f"find / -xdev \\( {skip} -o -name __pycache__ \\) -prune -o -printf '%y %m %u %g %l %p\\n'"
    )
    looks = {
        "packages": "dpkg-query -W -f '${Package} ${Version} ${Status}\\n'",
        "held": "apt-mark showhold",
        "unit files": "systemctl list-unit-files --plain --no-legend",
        "units": "systemctl list-units --state=active --type=service,timer,socket --plain --no-legend | "
        "awk '{print $1}' | grep -v -e '^user' -e '^session' || true",
        "failed": "systemctl list-units --failed --plain --no-legend | awk '{print $1}'",
        "users": "cut -d: -f1,3,4,6,7 /etc/passwd",
        "groups": "cut -d: -f1,3,4 /etc/group",
        "firewall": "command -v nft >/dev/null && nft list ruleset || true",
        "images": "command -v podman >/dev/null && podman images --all --no-trunc --format '{{.Id}}' || true",
        "files": files,
    }
    return {kind: set(ssh.run(host, command, timeout_s=120).stdout.splitlines()) for kind, command in looks.items()}


def assert_same(before: dict[str, State], after: dict[str, State]) -> None:
    """Names what is not as it was on which host: `- line` is gone, `+ line` is new."""
    found = [
        f"{name}: {kind}: {sign} {row}"
        for name, kinds in before.items()
        for kind in kinds
        for sign, one, other in (("-", before, after), ("+", after, before))
        for row in one[name][kind] - other[name][kind]
    ]
    if found:  # pytest would compare for minutes
        pytest.fail("\n".join(sorted(found)[:200]), pytrace=False)
