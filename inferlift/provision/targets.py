"""The lab as a target: the desired fleet and the old world made, read, verified and removed.

Documents for AWS and own hosts, and work folders with such a fleet, go to `aws/target.py`, `static/target.py`.
Making goes through Pulumi; reading and verifying ask podman by label, so that the changer does not judge itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from inferlift import process
from inferlift.artifacts import Check, DesiredFleet, Endpoint, Fleet, Host
from inferlift.errors import CheckFailed, NoCapacity, Uncertain
from inferlift.provision import settling
from inferlift.provision.aws import notes
from inferlift.provision.models import Drift, HostSpec, Tools, WorldHosts, network_name
from inferlift.provision.plan import fleet_specs
from inferlift.provision.podman import NAME, ROLE, SITE, Container, Network, Podman
from inferlift.provision.settling import StackFiles
from inferlift.provision.static import notes as own_notes
from inferlift.provision.static import target as own
from inferlift.provision.static.power import is_own

if TYPE_CHECKING:
    from inferlift.provision.engine import Engine

Say = Callable[[str], None]
FLEET, WORLD = ("inferlift-lab", "fleet"), ("inferlift-world", "world")  # Pulumi project, stack


def apply_fleet(desired: DesiredFleet, workdir: Path, tools: Tools, say: Say) -> Fleet:
    """Make the hosts as described; what exists and is as described stays as it is.

    A smaller count removes the highest-numbered hosts of the role: drain them first.
    Raises Refusal (a name is taken, no free subnet), DeclarationError (below a floor), CheckFailed, Uncertain.
    """
    if desired.static is not None:
        return own.apply(desired, workdir, say)
    from inferlift.provision.components import fleet_program

    key = ssh_key(workdir)
    if desired.aws is not None:
        from inferlift.provision.aws import target

        return target.apply(desired, workdir, tools, public_key(key), say)
    fleet_specs(desired, tools.host_image, public_key(key))  # refuse a wrong document before the engine starts
    _room(desired)
    engine = _engine(workdir, FLEET, tools)
    engine.up(fleet_program(desired, tools.host_image, public_key(key)), say)
    _note_for_plain_pulumi(engine.files, "fleet.json", desired.model_dump_json(indent=2), tools)
    fleet = read_fleet(desired.label, workdir, tools)
    if fleet is None:
        raise CheckFailed("the engine reports success, but podman knows no host of the fleet")
    return fleet


def apply_world(
    label: str, workdir: Path, tools: Tools, origin_cpus: float, zone: str, host: str, say: Say
) -> WorldHosts:
    """Make the old world's hosts: the origin with its CPU quota, the zone's authority, a resolver."""
    from inferlift.provision.components import world_program

    key = ssh_key(workdir)
    program = world_program(label, origin_cpus, f"{host}.{zone}", tools.host_image, public_key(key))
    engine = _engine(workdir, WORLD, tools)
    engine.up(program, say)
    document = json.dumps({"label": label, "origin_cpus": origin_cpus, "name": f"{host}.{zone}"}, indent=2)
    _note_for_plain_pulumi(engine.files, "world.json", document, tools)
    world = read_world(label, workdir, tools)
    if world is None:
        raise CheckFailed("the engine reports success, but podman does not know the old world's hosts")
    return world


def preview_fleet(desired: DesiredFleet, workdir: Path, tools: Tools) -> list[str]:
    """What `apply_fleet` would make, make anew or remove, in words. Changes nothing and needs no engine."""
    if desired.static is not None:
        return own.preview(desired, workdir)
    if desired.aws is not None:
        from inferlift.provision.aws import target

        return target.preview(desired, workdir)
    key = workdir / "ssh" / "id_ed25519"
    public = public_key(key) if key.exists() else ""
    wanted = {spec.name: spec for spec in fleet_specs(desired, tools.host_image, public)}
    network: Network | None = None
    present: list[Container] = []
    if shutil.which("podman"):  # else nothing can exist yet
        podman = Podman(tools.podman_env)
        network, present = podman.network_of(desired.label), podman.of(desired.label)
    lines = [] if network else [f"make network {network_name(desired.label)}"]
    by_name = {c.labels.get(NAME, c.name): c for c in present}
    for name, spec in wanted.items():
        size = f"{spec.cpus:g} CPU, {spec.memory_bytes / 2**20:.0f} MiB"
        if name not in by_name:
            lines.append(f"make host {name} ({size})")
        elif (why := by_name[name].differs(spec)) is not None:
            lines.append(f"make host {name} anew ({size}): the present one {why}")
    lines += [f"remove host {name}" for name in sorted(by_name) if name not in wanted]
    return lines


def drift_fleet(desired: DesiredFleet, workdir: Path, tools: Tools) -> list[Drift]:
    """What Pulumi's refreshing preview finds different from the state and the document; empty when nothing is."""
    if desired.static is not None:
        return []  # Pulumi makes nothing of it
    from inferlift.provision.components import fleet_program

    key = ssh_key(workdir)
    if desired.aws is not None:
        from inferlift.provision.aws import target

        return target.drift(desired, workdir, tools, public_key(key), lambda line: None)
    return _engine(workdir, FLEET, tools).refresh_preview(fleet_program(desired, tools.host_image, public_key(key)))


def read_fleet(label: str, workdir: Path, tools: Tools) -> Fleet | None:
    """The fleet as podman, AWS, or its own hosts know it by its label; None when there is none."""
    if own_notes.is_here(label, workdir):
        return own.read(label, workdir)
    if notes.is_here(label, workdir):
        from inferlift.provision.aws import reading

        return reading.read(label, workdir)
    podman = Podman(tools.podman_env)
    hosts = _hosts(podman, label, workdir)
    network = podman.network_of(label)
    if not hosts or network is None:
        return None
    return Fleet(
        label=label,
        network=network.name,
        subnet=str(network.subnet),
        hosts=hosts,
        endpoints=tuple(Endpoint(site=h.site, address=h.address) for h in hosts if h.role == "gateway"),
        generation=generation(hosts),
    )


def read_world(label: str, workdir: Path, tools: Tools) -> WorldHosts | None:
    """The old world as podman knows it by its label; None unless all three hosts run."""
    podman = Podman(tools.podman_env)
    hosts = {h.role: h for h in _hosts(podman, label, workdir)}
    network = podman.network_of(label)
    if network is None or not {"origin", "authority", "resolver"} <= set(hosts):
        return None
    return WorldHosts(
        label=label,
        network=network.name,
        subnet=str(network.subnet),
        origin=hosts["origin"],
        authority=hosts["authority"],
        resolver=hosts["resolver"],
    )


def verify_fleet(expected: Fleet, workdir: Path, tools: Tools) -> list[Check]:
    """Is every host still the one it was, with its quota, answering on its SSH port, and is there none too many?"""
    if expected.aws is not None:
        from inferlift.provision.aws import reading

        return reading.verify(expected)
    if any(is_own(h) for h in expected.hosts):
        return own.verify(expected)
    return _verify(expected.label, expected.hosts, expected.subnet, tools)


def verify_world(expected: WorldHosts, workdir: Path, tools: Tools) -> list[Check]:
    hosts = (expected.origin, expected.authority, expected.resolver)
    return _verify(expected.label, hosts, expected.subnet, tools)


def settle(workdir: Path, tools: Tools, say: Say) -> None:
    """After a kill, before anything else: end what the killed run left running, and clear its lock and state.

    Nothing to do costs a look at /proc and two files. Raises Uncertain when a live run holds the stacks.
    """
    files = [StackFiles(workdir, *names) for names in (FLEET, WORLD)]
    if not files[0].root.exists():
        return
    ended = settling.end_orphans(files[0].home)
    if ended:
        say(f"ended {ended} processes of a killed run")
    for names, stack in zip((FLEET, WORLD), files, strict=True):
        for lock in stack.locks():
            if (pid := settling.lock_holder(lock)) is not None:
                raise Uncertain(
                    "another update of these hosts is running",
                    why=f"process {pid} holds {lock}",
                    next_command="wait for it to end, then run the same command again",
                )
        torn = (stack.checkpoint.exists() and not stack.readable()) or bool(stack.torn_beside())
        if stack.locks() or stack.pending() or torn:
            pending = stack.pending()
            _engine(workdir, names, tools).clear_pending()
            say(f"settled a killed update of the {names[1]} ({pending} operations were pending)")
    if notes.regions(workdir):
        from inferlift.provision.aws import target

        target.settle(workdir, tools, say)


def destroy_fleet(label: str, workdir: Path, tools: Tools, say: Say, *, delete_data: bool = False) -> list[str]:
    """Remove the fleet and all with its label. Returns what is left: empty when a new listing finds nothing.
    On AWS what holds data stays and is named, unless `delete_data`; the lab keeps nothing. Own hosts are given back."""
    if own_notes.is_here(label, workdir):
        return own.destroy(label, workdir, say)
    if notes.is_here(label, workdir):
        from inferlift.provision.aws import target

        return target.destroy(label, workdir, tools, say, delete_data=delete_data)
    return _destroy(label, workdir, FLEET, tools, say)


def destroy_world(label: str, workdir: Path, tools: Tools, say: Say) -> list[str]:
    return _destroy(label, workdir, WORLD, tools, say)


def ssh_key(workdir: Path) -> Path:
    """The private key of this work folder's hosts, made once (ed25519, owner only)."""
    folder = workdir.resolve() / "ssh"
    path = folder / "id_ed25519"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = folder / f".making-{os.getpid()}"
        for stale in (temporary, temporary.with_name(temporary.name + ".pub")):
            stale.unlink(missing_ok=True)
        process.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "inferlift", "-f", str(temporary)], timeout_s=20
        )
        temporary.with_name(temporary.name + ".pub").replace(folder / "id_ed25519.pub")
        temporary.replace(path)
    return path


def public_key(key: Path) -> str:
    return key.with_suffix(".pub").read_text().strip()


def generation(hosts: Iterable[Host]) -> str:
    """Changes when a host is replaced, added or removed."""
    text = "\n".join(sorted(f"{h.name} {h.container}" for h in hosts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- helpers -------------------------------------------------------------------------------------------------


def _room(desired: DesiredFleet) -> None:
    """Raises NoCapacity for a host that is larger than the machine under the lab."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in desired.groups:
        if group.cpus > cores or group.memory_bytes > memory:
            raise NoCapacity(
                f"this machine has no room for a {group.role} host of {group.cpus:g} CPUs and "
                f"{group.memory_bytes / 2**20:.0f} MB",
                why=f"it has {cores} cores and {memory / 2**20:.0f} MB; nothing was made",
                next_command="make the hosts smaller (lab.model_cpus, lab.model_memory_mb), or use a larger machine",
            )


def _engine(workdir: Path, names: tuple[str, str], tools: Tools) -> Engine:
    from inferlift.provision.engine import Engine

    return Engine(workdir, *names, tools)


def _note_for_plain_pulumi(files: StackFiles, name: str, document: str, tools: Tools) -> None:
    """The document and the environment with which plain `pulumi up` finds this very stack (docs/lab.md)."""
    from inferlift.provision.engine import write_shell_environment

    (files.root / name).write_text(document)
    write_shell_environment(files, tools)


def _hosts(podman: Podman, label: str, workdir: Path) -> tuple[Host, ...]:
    running = [c for c in podman.of(label) if c.running]
    if not running:
        return ()
    with ThreadPoolExecutor(len(running)) as pool:
        keys = list(pool.map(podman.host_key, running))
    key = str(workdir.resolve() / "ssh" / "id_ed25519")
    return tuple(_host(c, host_key, key) for c, host_key in zip(running, keys, strict=True))


def _host(container: Container, host_key: str, ssh_key_path: str) -> Host:
    return Host.model_validate(
        {
            "name": container.labels[NAME],
            "role": container.labels[ROLE],
            "address": container.address,
            "ssh_key": ssh_key_path,
            "host_key": host_key,
            "site": container.labels.get(SITE, "lab"),
            "cpus": container.cpus,
            "memory_bytes": container.memory_bytes,
            "container": container.id,
        }
    )


def _verify(label: str, expected: Iterable[Host], subnet: str | None, tools: Tools) -> list[Check]:
    hosts = list(expected)
    podman = Podman(tools.podman_env)
    with ThreadPoolExecutor(len(hosts) + 2) as pool:
        listing, network = pool.submit(podman.of, label), pool.submit(podman.network_of, label)
        banners = [pool.submit(_answers, h.address, h.ssh_port) for h in hosts]
        present = {c.labels.get(NAME, c.name): c for c in listing.result()}
        found = network.result()
        checks = [_check_host(h, present.get(h.name), b.result()) for h, b in zip(hosts, banners, strict=True)]
    names = {h.name for h in hosts}
    checks += [
        Check(name=f"host {name}", ok=False, detail="exists, but is not part of what was made")
        for name in sorted(present)
        if name not in names
    ]
    right = found is not None and (subnet is None or str(found.subnet) == subnet)
    state = "gone" if found is None else f"{found.name} {found.subnet}"
    return [*checks, Check(name="network", ok=right, detail=state)]


def _check_host(host: Host, container: Container | None, banner: str) -> Check:
    def no(detail: str) -> Check:
        return Check(name=f"host {host.name}", ok=False, detail=detail)

    if container is None:
        return no(f"deleted: no container of {host.name} exists")
    if not container.running:
        return no(f"stopped: its container is {container.state}")
    if container.id != host.container:
        return no("replaced: another container has taken its place")
    if container.address != host.address:
        return no(f"moved from {host.address} to {container.address}")
    if (drift := container.quota_drift(host.cpus, host.memory_bytes)) is not None:
        return no(f"changed: it {drift}")
    if banner:
        return no(banner)
    return Check(name=f"host {host.name}", ok=True, detail=f"{host.address}, up")


def _answers(address: str, port: int) -> str:
    """Empty when an SSH server greets at the address, else what went wrong."""
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.settimeout(2)
            greeting = connection.recv(16)
    except OSError as error:
        return f"does not answer over SSH at {address}:{port} ({error})"
    return "" if greeting.startswith(b"SSH-") else f"no SSH server at {address}:{port}"


def _destroy(label: str, workdir: Path, names: tuple[str, str], tools: Tools, say: Say) -> list[str]:
    settle(workdir, tools, say)
    podman = Podman(tools.podman_env)
    known = StackFiles(workdir, *names).checkpoint.exists()
    problem = _attempt(lambda: _engine(workdir, names, tools).destroy(say)) if known else None
    # What the state does not know, e.g. a host whose create was killed, may be in the engine's way: sweep, try again.
    swept = _attempt(lambda: podman.sweep(label))
    left = podman.left(label)
    if problem is not None and not left:
        _engine(workdir, names, tools).destroy(say)
        problem = None
    say("nothing is left" if not left else f"left: {', '.join(left)}")
    for error in (problem, swept):
        if error is not None:
            say(str(error))
    return left


def _attempt(action: Callable[[], object]) -> CheckFailed | None:
    """Run it; a failed check is returned, since a new listing will say what it left."""
    try:
        action()
    except CheckFailed as error:
        return error
    return None


__all__ = [
    "FLEET", "WORLD", "HostSpec", "apply_fleet", "apply_world", "destroy_fleet", "destroy_world", "drift_fleet",
    "generation", "preview_fleet", "public_key", "read_fleet", "read_world", "settle", "ssh_key", "verify_fleet",
    "verify_world",
]  # fmt: skip
