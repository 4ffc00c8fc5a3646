"""A profile's own hosts as a fleet document, and what a host that was looked at lacks. Pure: nothing is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlift.artifacts.fleet import DesiredFleet, HostGroup, OwnMachine, StaticPlan
from inferlift.errors import DeclarationError, Refusal
from inferlift.profile import Profile
from inferlift.profile.hosting import OwnHost, own_address

SITE = "own"
MEMORY_SLACK = 0.07  # of what is declared: the firmware and the kernel keep some of it
FREE_BYTES = 6 * 10**9  # packages, the model server's environment, weights and image of a small model
# Ports that the roles serve on (docs/hosts.md); what already listens there is somebody's service.
PORTS = {
    "gateway": (443, 8405, 9100),
    "model": (8443, 8081, 8000, 8001, 8002, 8082, 9400, 9100),
    "monitor": (9090, 9093, 9100),
}


def document(profile: Profile, *, choice: str | None, label: str, floors: Mapping[str, int]) -> DesiredFleet:
    """One gateway, one monitor and as many model hosts as the highest floor asks, of the kind that the sizing chose.

    Where fewer exist, `machines` is shorter than the groups' counts: `too_few` says so before anything is changed.
    Raises DeclarationError when a role has no host with an address.
    """
    assert profile.static is not None  # noqa: S101 - the profile's own rule
    kinds = profile.static.hosts
    replicas = max(floors.values(), default=1)
    machines = [
        *_machines([k for k in kinds if k.role == "gateway"], 1),
        *_machines([k for k in kinds if k.role == "model" and choice in (None, k.name)], replicas),
        *_machines([k for k in kinds if k.role == "monitor"], 1),
    ]
    if lacking := [role for role in PORTS if not any(m.role == role for m in machines)]:
        raise DeclarationError(
            f"static.hosts names no address of a {' and no address of a '.join(lacking)}"
            + (f" of the kind {choice}, which the plan chose" if "model" in lacking and choice else ""),
            why="a fleet is a gateway, model hosts and a monitor, each on a host of its own",
            next_command="give each kind of static.hosts its `role:` and `addresses:` (docs/hosts.md)",
        )
    groups = []
    for role, count in (("gateway", 1), ("model", replicas), ("monitor", 1)):
        first = next(m for m in machines if m.role == role)
        groups.append(
            HostGroup.model_validate(
                {"role": role, "count": count, "cpus": first.cores, "memory_bytes": first.memory_bytes, "site": SITE}
            )
        )
    plan = StaticPlan(machines=tuple(machines), ssh_key=profile.static.ssh_key, known_hosts=profile.static.known_hosts)
    return DesiredFleet(label=label, groups=tuple(groups), floors=dict(floors), static=plan)


def too_few(desired: DesiredFleet) -> Refusal | None:
    """Why the declared hosts do not make up the fleet; None when they do."""
    assert desired.static is not None  # noqa: S101 - asked of own hosts only
    for group in desired.groups:
        there = sum(m.role == group.role for m in desired.static.machines)
        if there < group.count:
            return Refusal(
                f"{group.count} {group.role} hosts are needed and static.hosts has {there} of the kind that was chosen",
                why=f"needed by {max(desired.floors, key=lambda s: desired.floors[s])}; nothing was changed",
                next_command="add addresses to static.hosts, or lower operations.spare or the peak",
            )
    return None


def problems(machine: OwnMachine, facts: Mapping[str, Any], owner: str) -> list[str]:
    """Everything that speaks against using this host as declared; empty when nothing does."""
    found: list[str] = []
    claim = facts.get("claim") or {}
    if claim and claim.get("owner") != owner:
        found.append(f"it belongs to {claim.get('owner')} (as {claim.get('name')})")
    elif claim and (claim.get("name"), claim.get("role")) != (machine.name, machine.role):
        found.append(f"it is this fleet's {claim.get('name')} and cannot become {machine.name}")
    if not facts["root"]:
        found.append("the login is not root's")
    if facts["distribution"] != "debian" or _number(facts["version"]) < 12:
        found.append(f"it runs {facts['distribution'] or 'an unknown system'} {facts['version']}; needed: Debian 12")
    if facts["systemd"] not in ("running", "degraded"):
        found.append(f"systemd is {facts['systemd'] or 'not there'}")
    if facts["cores"] + 1e-6 < machine.cores:
        found.append(f"cores: {facts['cores']:g} found, {machine.cores:g} declared")
    if facts["memory_bytes"] < machine.memory_bytes * (1 - MEMORY_SLACK):
        found.append(f"ram_gb: {facts['memory_bytes'] / 1e9:.2f} found, {machine.memory_bytes / 1e9:.2f} declared")
    found += _gpus(machine, facts)
    link = facts.get("link_mbps")
    if machine.network_gbps and link and link < machine.network_gbps * 1000 * 0.99:
        found.append(f"network_gbps: {link / 1000:g} found, {machine.network_gbps:g} declared")
    if not claim:
        if taken := sorted(set(PORTS[machine.role]) & set(facts["listening"])):
            found.append(f"something listens on port {', '.join(map(str, taken))} already (see: ss -ltnp)")
        if facts["manifests"]:
            found.append(f"roles of an unknown owner are on it: {', '.join(facts['manifests'])}")
        if facts["free_bytes"] < FREE_BYTES:
            found.append(f"{facts['free_bytes'] / 1e9:.1f} GB are free on /; needed: {FREE_BYTES / 1e9:.0f} GB")
    return found


def _gpus(machine: OwnMachine, facts: Mapping[str, Any]) -> list[str]:
    gpus = facts["gpus"]
    if len(gpus) < machine.gpus:
        return [f"gpus: {len(gpus)} found on the PCI bus, {machine.gpus} declared"]
    named = [g for g in facts["gpu_names"] if g]  # only a loaded driver knows the names
    if machine.gpu and named and not all(_same_model(machine.gpu, name) for name in named):
        return [f"gpu: {', '.join(sorted(set(named)))} found, {machine.gpu} declared"]
    return []


def _same_model(declared: str, told: str) -> bool:
    """nvidia-smi writes `NVIDIA H100 PCIe` or `NVIDIA A100-SXM4-80GB` where the data sheets say H100 PCIe, A100 SXM."""
    words = declared.lower().replace("-", " ").split()
    return bool(words) and words[0] in told.lower().replace("-", " ").split()


def _machines(kinds: list[OwnHost], count: int) -> list[OwnMachine]:
    listed = [(kind, address) for kind in kinds for address in kind.addresses][:count]
    made = []
    for number, (kind, text) in enumerate(listed, start=1):
        address, port = own_address(text)
        made.append(
            OwnMachine(
                name=f"{kind.role}-{number}", role=kind.role, address=address, ssh_port=port, cores=kind.cores,
                memory_bytes=round(kind.ram_gb * 1e9), gpu=kind.gpu, gpus=kind.gpus, network_gbps=kind.network_gbps,
            )
        )  # fmt: skip
    return made


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0
