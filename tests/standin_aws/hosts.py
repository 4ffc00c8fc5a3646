"""Stand-in: a lab host for each instance, at the address that moto gave it, on one podman network a region.

The host takes its key and its name from the instance's user data, as cloud-init would. Fixed addresses of the front
are further addresses of the gateway's own: that a load balancer forwards is not shown.
"""

from __future__ import annotations

import base64
import ipaddress
import time
from collections.abc import Mapping
from typing import Any

import yaml

from inferlift import process
from inferlift.provision import bridge, subnets
from inferlift.provision.aws import naming
from inferlift.provision.podman import _BOOT

LABEL = "inferlift.standin"
# CPUs by role: an instance's own would not fit on a test machine. MiB: at most, as a c7i.large has them
SIZES = {"gateway": ("1", 4096), "model": ("0.7", 4096), "monitor": ("0.5", 4096), "bastion": ("0.2", 128)}


class Hosts:
    """Containers of one test, by label. `networks`: region -> a /16 that everything in it lies in."""

    def __init__(self, name: str, networks: Mapping[str, str], image: str, env: dict[str, str]) -> None:
        self.name, self.image = name, image
        self.networks = {region: ipaddress.IPv4Network(network) for region, network in networks.items()}
        self._env = {**process.unmarked(), **env}
        self._fronts: list[str] = []
        # fixed addresses come from the last /24
        self._fixed = {r: iter(list(n.subnets(new_prefix=24))[-1].hosts()) for r, n in self.networks.items()}
        self.sweep()
        for region, network in self.networks.items():
            self._podman(
                "network", "create", "--disable-dns", "--label", f"{LABEL}={name}", "--subnet", str(network),
                "--gateway", str(network[1]), f"{name}-{region}",
            )  # fmt: skip

    def address(self, region: str) -> str:
        """The next fixed address there."""
        return str(next(self._fixed[region]))

    def boot(self, instance: Any) -> str:
        """The instance's host; returns its public host key."""
        tags = {t["key"]: t["value"] for t in instance.get_tags()}
        role = tags.get(naming.ROLE, "model")
        config = yaml.safe_load(_text(instance.user_data))
        key = config["users"][0]["ssh_authorized_keys"][0]
        cpus, mib = SIZES[role]
        rights = ["--privileged"] if role == "model" else ["--cap-add", "NET_ADMIN"]
        name, region = self._container(instance.id), self._region(instance.private_ip)
        self._podman(
            "run", "--detach", "--name", name, "--hostname", config["hostname"], "--label", f"{LABEL}={self.name}",
            "--label", f"role={role}", "--runtime", "runc", "--ulimit", "nofile=20000:20000",
            "--ulimit", "nproc=20000:20000", *rights, "--systemd=always", "--cpus", cpus, "--memory", f"{mib}m",
            "--network", f"{self.name}-{region}", "--ip", instance.private_ip, "--label", f"region={region}",
            # as the lab's own: a restarted host must not wait for its neighbours to forget its old one
            "--mac-address", subnets.mac(ipaddress.IPv4Address(instance.private_ip)),
            "--pull", "never", self.image, "/sbin/init",
        )  # fmt: skip
        bridge.pin(self.networks[region])
        host_key = self._ready(name, key)
        for address in self._fronts:
            self._lead(address)
        return host_key

    def front(self, address: str) -> None:
        """A fixed address of the front: gateways that run answer at it, and those that come."""
        self._fronts.append(address)
        self._lead(address)

    def stop(self, instance: str) -> None:
        self._try("kill", self._container(instance))

    def start(self, instance: str) -> None:
        self._podman("start", self._container(instance))
        for address in self._fronts:
            self._lead(address)

    def remove(self, instance: str) -> None:
        self._try("rm", "--force", "--time", "0", self._container(instance))

    def sweep(self) -> None:
        """Everything with this label, whoever left it."""
        for name in self._names("--all"):
            self._try("rm", "--force", "--time", "0", name)
        ours = ("network", "ls", "--filter", f"label={LABEL}={self.name}", "--format", "{{.Name}}")
        for network in self._podman(*ours).split():
            self._podman("network", "rm", network)

    # --- helpers -------------------------------------------------------------------------------------------------

    def _ready(self, name: str, key: str) -> str:
        deadline = time.monotonic() + 240
        while True:
            done = process.run(
                ["podman", "exec", "-i", name, "sh", "-c", _BOOT], timeout_s=60, stdin=key + "\n", env=self._env,
                check=False,
            )  # fmt: skip
            if done.returncode == 0 and done.stdout.startswith("ssh-ed25519 "):
                return " ".join(done.stdout.split()[:2])
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not boot: {(done.stderr or done.stdout)[-300:]}")
            time.sleep(0.2)

    def _lead(self, address: str) -> None:
        here = f"label=region={self._region(address)}"
        for name in self._names("--filter", "label=role=gateway", "--filter", here):
            self._try("exec", name, "ip", "addr", "add", f"{address}/32", "dev", "eth0")

    def _region(self, address: str) -> str:
        return next(r for r, n in self.networks.items() if ipaddress.ip_address(address) in n)

    def _container(self, instance: str) -> str:
        return f"{self.name}-{instance}"

    def _names(self, *filters: str) -> list[str]:
        return self._podman("ps", "--filter", f"label={LABEL}={self.name}", "--format", "{{.Names}}", *filters).split()

    def _podman(self, *arguments: str) -> str:
        return process.run(["podman", *arguments], timeout_s=240, env=self._env).stdout.strip()

    def _try(self, *arguments: str) -> None:
        process.run(["podman", *arguments], timeout_s=120, env=self._env, check=False)


def _text(user_data: Any) -> str:
    """User data as moto keeps it: base64, once or twice."""
    text = str(user_data)
    for _ in range(2):
        if text.lstrip().startswith("#cloud-config"):
            break
        text = base64.b64decode(text).decode()
    return text
