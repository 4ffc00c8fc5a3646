"""Lab hosts and networks in podman, known by their labels alone.

Everything is get-or-create by a deterministic name, so that a create can be repeated after a kill anywhere.
What carries the name but not our label is somebody else's: named and left alone.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from inferlift import process
from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.provision import bridge, journal, leftovers, subnets
from inferlift.provision.models import HostSpec, container_name, network_name

OWNER, ROLE, NAME, SPEC, SITE = (f"inferlift.{key}" for key in ("owner", "role", "name", "spec", "site"))
SUBNET = "inferlift.subnet"

Json = dict[str, Any]
_BOOT_LIMIT_S = 180.0  # 1 s on an idle machine; long, for one that is busy


@dataclass(frozen=True)
class Network:
    name: str
    subnet: IPv4Network
    labels: dict[str, str]


@dataclass(frozen=True)
class Container:
    """A container as podman knows it. `labels` is empty for one that exists in storage only."""

    id: str
    name: str
    state: str  # running, created, initialized, exited, ...; "storage" where only its storage exists
    labels: dict[str, str]
    cpus: float | None = None
    memory_bytes: int | None = None
    address: str | None = None
    network: str | None = None
    sandbox: str | None = None  # path of its network namespace

    @property
    def running(self) -> bool:
        return self.state == "running"

    def differs(self, spec: HostSpec) -> str | None:
        """Why this container is not the host that `spec` describes; None when it is."""
        if not self.running:
            return f"is {self.state}, not running"
        if self.labels.get(SPEC) != spec.digest:
            return "was made from another description"
        return self.quota_drift(spec.cpus, spec.memory_bytes)

    def quota_drift(self, cpus: float | None, memory_bytes: int | None) -> str | None:
        """How the quotas differ from what they should be; None is no expectation."""
        if cpus is not None and self.cpus is None:
            return "has no CPU quota any more"
        if cpus is not None and self.cpus is not None and abs(self.cpus - cpus) > 0.005:
            return f"has {self.cpus:g} CPUs instead of {cpus:g}"
        if memory_bytes is not None and self.memory_bytes != memory_bytes:
            return "has another memory limit"
        return None


@dataclass(frozen=True)
class MadeHost:
    container: Container
    host_key: str
    made: bool  # False: it was there already


class Podman:
    """Podman's command line, without our process mark: containers must outlive the run that makes them."""

    def __init__(self, env: Mapping[str, str] | None = None, cancelled: Callable[[], bool] = lambda: False):
        self._env = {**process.unmarked(), **(env or {})}
        self._cancelled = cancelled

    # --- reading ---------------------------------------------------------------------------------------------

    def networks(self) -> list[Network]:
        found = []
        for item in json.loads(self._run("network", "ls", "--format", "json") or "[]"):
            for net in item.get("subnets") or []:
                if ":" not in net["subnet"]:
                    found.append(Network(item["name"], IPv4Network(net["subnet"]), item.get("labels") or {}))
        return found

    def network_of(self, owner: str) -> Network | None:
        return next((n for n in self.networks() if n.labels.get(OWNER) == owner), None)

    def of(self, owner: str) -> list[Container]:
        """All containers with this owner's label, and those a kill left in storage under a name of ours."""
        mine, storage = [], []
        for item in self._ps():
            if item.labels.get(OWNER) == owner:
                mine.append(item.id)
            elif item.state == "storage" and journal.knows_host(owner, item.name):
                storage.append(item)
        return sorted([*self._containers(mine), *storage], key=lambda c: c.name)

    def find(self, name: str) -> Container | None:
        """The container of this name, whoever made it."""
        for item in self._ps():
            if item.name == name:
                if item.state == "storage":
                    return item
                return next(iter(self._containers([item.id])), None)
        return None

    def host_key(self, container: Container) -> str:
        """The host's public SSH key, read through podman and thus not from the network."""
        text = self._run("exec", container.id, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        return " ".join(text.split()[:2])

    # --- making ----------------------------------------------------------------------------------------------

    def ensure_network(self, owner: str) -> Network:
        """The owner's network; made on a free /24 when absent.

        Raises Refusal when the name is taken by a network that is not ours, or no subnet is free.
        """
        name = network_name(owner)
        problem = ""
        for _ in range(8):
            everything = self.networks()
            for network in everything:
                if network.name == name and network.labels.get(OWNER) != owner:
                    raise _foreign("network", name)
                if network.labels.get(OWNER) == owner:
                    return network
            taken = [*(n.subnet for n in everything), *leftovers.routes(), *journal.leaks()]
            subnet = next(subnets.choices(owner, taken, subnets.pool()), None)
            if subnet is None:
                raise Refusal(
                    f"no free /24 in {subnets.pool()} for a lab network",
                    why="every one is used by a network or a route of this machine",
                    next_command=f"set {subnets.POOL_VARIABLE} to a range that is free",
                )
            journal.note_subnet(owner, subnet)
            done = self._try(
                "network", "create", "--disable-dns", "--subnet", str(subnet), "--gateway", str(subnet[1]),
                "--label", f"{OWNER}={owner}", "--label", f"{SUBNET}={subnet}", name,
            )  # fmt: skip
            if done.returncode == 0:
                return Network(name, subnet, {OWNER: owner, SUBNET: str(subnet)})
            problem = done.stderr.strip()[-300:]  # taken meanwhile, by name or by subnet: look again
        raise CheckFailed(f"podman does not make the network {name}", why=problem)

    def ensure_host(self, spec: HostSpec) -> MadeHost:
        """The host, booted and answering SSH; made, or made anew when it is not as described.

        Raises Refusal when the name is taken by a container that is not ours.
        """
        made = False
        for _ in range(4):
            present = self.find(spec.container)
            if present is not None:
                self._assert_ours(present, spec)
                if present.differs(spec) is None:
                    return MadeHost(present, self._boot(present, spec), made)
                self.remove(present)
            if journal.knows_host(spec.owner, spec.container):
                self._clear_address(spec)
            self._create(spec)
            made = True
        raise CheckFailed(f"podman does not keep {spec.container} running")

    def remove(self, container: Container) -> None:
        """Remove one container; its processes are ended even where podman has lost sight of them."""
        done = self._try("rm", "--force", "--time", "2", container.id, timeout_s=60)
        gone = "no such container" in done.stderr or "no container with" in done.stderr
        if done.returncode and not gone and self.find(container.name) is not None:
            raise CheckFailed(f"podman does not remove {container.name}", why=done.stderr.strip()[-300:])
        leftovers.end_strays(container.id)

    def remove_network(self, owner: str) -> None:
        """Remove the owner's network. Raises CheckFailed when podman refuses, e.g. while a container uses it."""
        for network in self.networks():
            if network.labels.get(OWNER) == owner:
                journal.note_subnet(owner, network.subnet)
                done = self._try("network", "rm", network.name)
                if done.returncode and self.network_of(owner) is not None:
                    raise CheckFailed(f"podman does not remove {network.name}", why=done.stderr.strip()[-300:])

    def sweep(self, owner: str) -> list[str]:
        """Remove all that carries this owner's label, and what killed runs left of it. Returns what remains."""
        for container in self.of(owner):
            self.remove(container)
        self.remove_network(owner)
        used = [n.subnet for n in self.networks()]
        problems = []
        for subnet in journal.subnets(owner):
            if not any(subnet.overlaps(other) for other in used):
                problems += leftovers.clear(subnet)
        left = self.left(owner) + problems
        if not left:
            journal.forget(owner)
        return left

    def left(self, owner: str) -> list[str]:
        """What of this owner's still exists, in words."""
        return [
            *(f"container {c.name} ({c.state})" for c in self.of(owner)),
            *(f"network {n.name}" for n in self.networks() if n.labels.get(OWNER) == owner),
        ]

    # --- helpers ---------------------------------------------------------------------------------------------

    def _create(self, spec: HostSpec) -> None:
        network = self.ensure_network(spec.owner)
        _room_for_systemd()
        journal.note_host(spec.owner, spec.container)
        rights = ["--privileged"] if spec.role == "model" else ["--cap-add", "NET_ADMIN"]
        labels = {OWNER: spec.owner, ROLE: spec.role, NAME: spec.name, SPEC: spec.digest, SITE: spec.site}
        problem = "no address is free"
        for address in subnets.addresses(network.subnet, spec.role, spec.name):
            done = self._try(
                "run", "--detach", "--name", spec.container, "--hostname", spec.name,
                "--runtime", "runc", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000",
                *rights, "--systemd=always", "--cpus", f"{spec.cpus:g}",
                "--memory", f"{spec.memory_bytes}b", "--memory-swap", f"{spec.memory_bytes}b",
                *(part for key, value in labels.items() for part in ("--label", f"{key}={value}")),
                "--network", network.name, "--ip", str(address),
                "--mac-address", subnets.mac(address), "--pull", "never", spec.image, "/sbin/init",
                timeout_s=120,
            )  # fmt: skip
            if done.returncode == 0 or "already in use" in done.stderr:  # the name: look again who has it
                bridge.pin(network.subnet)
                return
            problem = done.stderr.strip()[-400:]
            if (half := self.find(spec.container)) is not None and half.labels.get(OWNER) == spec.owner:
                self.remove(half)
            if "already allocated" not in done.stderr:
                break
            journal.note_leak(network.subnet)
        raise CheckFailed(f"podman does not start {spec.container}", why=problem)

    def _boot(self, container: Container, spec: HostSpec) -> str:
        """Wait for systemd and sshd, with our key allowed and a host key of its own; returns the host key."""
        deadline = time.monotonic() + _BOOT_LIMIT_S
        while True:
            done = self._try("exec", "-i", container.id, "sh", "-c", _BOOT, stdin=spec.public_key + "\n")
            if done.returncode == 0 and done.stdout.startswith("ssh-ed25519 "):
                return " ".join(done.stdout.split()[:2])
            if self._cancelled():
                raise Retryable(f"stopped while {spec.name} was booting")
            if time.monotonic() > deadline:
                raise CheckFailed(
                    f"{spec.name} does not boot within {_BOOT_LIMIT_S:.0f} s",
                    why=(done.stderr or done.stdout).strip()[-300:],
                )
            time.sleep(0.1)

    def _clear_address(self, spec: HostSpec) -> None:
        """A killed run may have left a namespace that still answers at the host's address."""
        network = self.network_of(spec.owner)
        if network is None:
            return
        own = next(subnets.addresses(network.subnet, spec.role, spec.name))
        in_use = {c.sandbox for c in self.of(spec.owner) if c.running and c.sandbox}
        leftovers.clear_address(network.subnet, own, in_use)

    def _assert_ours(self, container: Container, spec: HostSpec) -> None:
        storage_only = container.state == "storage" and journal.knows_host(spec.owner, spec.container)
        if container.labels.get(OWNER) != spec.owner and not storage_only:
            raise _foreign("container", container.name)

    def _ps(self) -> list[Container]:
        found = []
        for item in json.loads(self._listing() or "[]"):
            labels = item.get("Labels") or {}
            state = str(item.get("State") or "storage").lower()
            found.append(Container(item["Id"], (item.get("Names") or [""])[0], state, labels))
        return found

    def _listing(self) -> str:
        """`podman ps` fails as a whole when anybody's container vanishes while it lists: ask again."""
        for _ in range(20):
            done = self._try("ps", "--all", "--external", "--format", "json")
            if done.returncode == 0:
                return str(done.stdout)
            if "not known" not in done.stderr and "no such" not in done.stderr.lower():
                break
            time.sleep(0.1)
        raise CheckFailed("podman does not list its containers", why=done.stderr.strip()[-300:])

    def _containers(self, ids: Iterable[str]) -> list[Container]:
        return [_container(item) for item in self._inspect(list(ids))]

    def _inspect(self, ids: list[str]) -> list[Json]:
        """The containers that exist of `ids`: one may vanish between listing and asking."""
        if not ids:
            return []
        done = self._try("container", "inspect", *ids)
        if done.returncode == 0:
            return list(json.loads(done.stdout))
        if len(ids) == 1:
            if "no such" in done.stderr.lower() or "not found" in done.stderr.lower():
                return []
            raise CheckFailed("podman container inspect failed", why=done.stderr.strip()[-300:])
        return [item for one in ids for item in self._inspect([one])]

    def _run(self, *args: str) -> str:
        return process.run(["podman", *args], timeout_s=60, env=self._env).stdout

    def _try(self, *args: str, timeout_s: float = 60, stdin: str | None = None) -> Any:
        return process.run(["podman", *args], timeout_s=timeout_s, stdin=stdin, env=self._env, check=False)


# Waits inside, on systemd's own word; 2 s at most, so that a cancel is soon seen. Polling would eat the host's quota.
_BOOT = """
set -e
mkdir -p /root/.ssh && chmod 700 /root/.ssh
cat > /root/.ssh/authorized_keys && chmod 600 /root/.ssh/authorized_keys
key=/etc/ssh/ssh_host_ed25519_key
if ! [ -s $key.pub ]; then rm -f $key; ssh-keygen -q -t ed25519 -N '' -C '' -f $key; fi
case "$(timeout 2 systemctl is-system-running --wait 2>&1 || true)" in
  running|degraded) ;;
  *) echo "systemd: $(systemctl is-system-running 2>&1)" >&2; systemctl list-jobs --no-legend >&2; exit 1;;
esac
if ! systemctl --quiet is-active ssh; then systemctl reset-failed ssh; systemctl start ssh; fi
systemctl --quiet is-active ssh
cat $key.pub
"""


def _container(item: Json) -> Container:
    settings = item.get("NetworkSettings") or {}
    nets = settings.get("Networks") or {}
    network: str | None = next(iter(nets), None)
    details = nets.get(network) or {}
    host = item.get("HostConfig") or {}
    return Container(
        id=item["Id"],
        name=item["Name"],
        state=str(item["State"]["Status"]).lower(),
        labels=item["Config"].get("Labels") or {},
        cpus=_quota(item["State"].get("CgroupPath") or "", host["NanoCpus"] / 1e9 if host.get("NanoCpus") else None),
        memory_bytes=host.get("Memory") or None,
        address=details.get("IPAddress") or None,
        network=network,
        sandbox=settings.get("SandboxKey") or None,
    )


def _room_for_systemd(limit: Path = Path("/proc/sys/fs/inotify/max_user_instances"), wanted: int = 1024) -> None:
    """Raise the kernel's default of 128 inotify instances (until the next boot): a booted host holds about 6.

    Past it systemd stops at boot, some 20 hosts on. A machine that forbids this keeps its limit.
    """
    with contextlib.suppress(OSError, ValueError):
        if int(limit.read_text()) < wanted:
            limit.write_text(f"{wanted}\n")


def _quota(cgroup: str, declared: float | None) -> float | None:
    """CPUs that the kernel grants, since `podman inspect` keeps the old figure after a `podman update`.

    None without a quota; the declared figure where the kernel's file cannot be read (not running).
    """
    if not cgroup:
        return declared
    for folder in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct")):
        with contextlib.suppress(OSError, ValueError):
            place = folder / cgroup.lstrip("/")
            quota, period = (int((place / f"cpu.cfs_{k}_us").read_text()) for k in ("quota", "period"))
            return round(quota / period, 3) if quota > 0 else None
    with contextlib.suppress(OSError, ValueError):
        limit, span = (Path("/sys/fs/cgroup") / cgroup.lstrip("/") / "cpu.max").read_text().split()
        return round(int(limit) / int(span), 3) if limit != "max" else None
    return declared


def _foreign(kind: str, name: str) -> Refusal:
    return Refusal(
        f"a {kind} named {name} exists and is not ours",
        why=f"it does not carry the label {OWNER} of this lab; it was not touched",
        next_command=f"rename or remove it, e.g. podman {'network ' if kind == 'network' else ''}rm {name}",
    )


__all__ = ["NAME", "OWNER", "ROLE", "SPEC", "Container", "MadeHost", "Network", "Podman", "container_name"]
