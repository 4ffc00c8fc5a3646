"""Plain lab hosts for trials of single roles: site.yml with tags, each test module on a network of its own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferlift import configure, process, ssh, toolchain
from inferlift.artifacts import Check, Configured, Endpoint, Fleet, Host
from inferlift.profile import ROOT

CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()


@dataclass
class RoleHosts:
    """Model hosts of one test module. `name` makes its label, its network and, with `third`, its subnet."""

    name: str
    third: int  # of the subnet 10.244.THIRD.0/24
    folder: Path
    hosts: tuple[Host, ...] = ()
    said: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"inferlift.test={self.network}"

    @property
    def network(self) -> str:
        return f"t-roles-{self.name}-{CLONE[:8]}"

    def raise_hosts(self, names: Sequence[str], *, cpus: float = 1.5, memory: str = "2500m") -> None:
        toolchain.ensure(["debian-packages", "host-image"], print)
        self.sweep()
        podman("network", "create", "--label", self.label, "--subnet", f"10.244.{self.third}.0/24", self.network)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "id"], check=True)
        (self.folder / "ssh").mkdir(mode=0o700)
        shutil.copy(self.folder / "id.pub", self.folder / "ssh" / "authorized_keys")
        (self.folder / "ssh" / "authorized_keys").chmod(0o600)
        self.hosts = tuple(self._boot(name, 10 + i, cpus, memory) for i, name in enumerate(names))
        for host in self.hosts:
            wait_for_ssh(host)
        configure.fleet_certificates(self.folder / "tls", self.fleet)

    @property
    def fleet(self) -> Fleet:
        return Fleet(
            label=f"t/{self.name}/fleet",
            network=self.network,
            subnet=f"10.244.{self.third}.0/24",
            hosts=self.hosts,
            endpoints=(Endpoint(site="lab", address=self.hosts[0].address),),
            generation="g",
        )

    def play(
        self,
        variables: dict[str, object],
        tags: Sequence[str],
        *,
        secrets: dict[str, str] | None = None,
        say: Callable[[str], None] | None = None,
        check: bool = False,
        limit: Sequence[str] = (),
    ) -> Configured:
        return configure.apply(
            self.hosts,
            "site.yml",
            {"base_tls_directory": str(self.folder / "tls"), **variables},
            secrets or {},
            self.folder / "work",
            say or self.said.append,
            tags=tags,
            limit=limit,
            check=check,
        )

    def checks(self) -> list[Check]:
        return configure.validate(self.fleet, self.folder / "work")

    def bad(self) -> dict[str, str]:
        return {c.name: c.detail for c in self.checks() if not c.ok}

    def on(self, name: str, command: str, *, timeout_s: float = 120) -> str:
        return ssh.run(self.host(name), command, timeout_s=timeout_s).stdout

    def host(self, name: str) -> Host:
        return next(h for h in self.hosts if h.name == name)

    def reboot(self, name: str) -> None:
        podman("restart", "--time", "5", f"{self.network}-{name}")
        wait_for_ssh(self.host(name))

    def put(self, name: str, source: Path, target: str) -> None:
        podman("cp", str(source), f"{self.network}-{name}:{target}")

    def sweep(self) -> None:
        """What an earlier, killed run of this module left; by label only."""
        for found in podman("ps", "--all", "--quiet", "--filter", f"label={self.label}").split():
            podman("rm", "--force", "--time", "0", found)
        for found in podman("network", "ls", "--quiet", "--filter", f"label={self.label}").split():
            podman("network", "rm", found)

    def _boot(self, name: str, last: int, cpus: float, memory: str) -> Host:
        host_key = self.folder / f"{name}_host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
        container, address = f"{self.network}-{name}", f"10.244.{self.third}.{last}"
        podman(
            "create", "--name", container, "--label", self.label, "--runtime", "runc", "--systemd=always",
            "--privileged", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000",
            "--memory", memory, "--cpus", str(cpus), "--network", self.network, "--ip", address,
            # The same after a restart: this machine's neighbours would look for the old one for half a minute.
            "--mac-address", f"02:00:0a:f4:{self.third:02x}:{last:02x}",
            toolchain.host_image(), "/sbin/init",
        )  # fmt: skip
        podman("cp", str(host_key), f"{container}:/etc/ssh/ssh_host_ed25519_key")
        podman("cp", f"{self.folder}/ssh/.", f"{container}:/root/.ssh")
        podman("start", container)
        return Host(
            name=name,
            role="model",
            address=address,
            ssh_key=str(self.folder / "id"),
            host_key=" ".join(host_key.with_suffix(".pub").read_text().split()[:2]),
        )


def podman(*arguments: str) -> str:
    env = {**process.unmarked(), **toolchain.podman_env()}
    return process.run(["podman", *arguments], timeout_s=180, env=env).stdout.strip()


def wait_for_ssh(host: Host) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(ssh.argv(host, "true"), capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"{host.name} does not answer"
        time.sleep(0.3)
