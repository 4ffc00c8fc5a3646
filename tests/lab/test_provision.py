"""The lab's hosts for real: Pulumi's engine, the lab's provider, podman. Killed, interrupted, tampered with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from inferlift import process, ssh
from inferlift.artifacts import Check, DesiredFleet, Fleet, HostGroup
from inferlift.errors import Refusal
from inferlift.provision import (
    Tools,
    apply_fleet,
    apply_world,
    destroy_fleet,
    destroy_world,
    drift_fleet,
    leftovers,
    power_off,
    power_on,
    preview_fleet,
    read_fleet,
    settle,
    verify_fleet,
    verify_world,
)
from inferlift.provision import targets as targets_module
from inferlift.provision.models import container_name
from inferlift.provision.podman import Podman
from inferlift.provision.settling import StackFiles

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]
FLEET, WORLD = f"{CLONE}/t-provision/fleet", f"{CLONE}/t-provision/world"
MIB = 2**20


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The engine, its language plugin and the host image, made if need be: nothing here is skipped."""
    from inferlift import toolchain

    toolchain.ensure(["pulumi", "pulumi-python", "host-image"], print)
    folder = toolchain.pulumi_bin()
    return Tools(folder / "pulumi", folder, toolchain.host_image(), toolchain.podman_env())


@pytest.fixture
def work(tmp_path: Path, tools: Tools) -> Iterator[Path]:
    """A work folder; both labels are swept before and after."""
    podman = Podman(tools.podman_env)
    for label in (FLEET, WORLD):
        podman.sweep(label)
    yield tmp_path / "work"
    settle(tmp_path / "work", tools, print)
    for label in (FLEET, WORLD):
        assert podman.sweep(label) == []


def desired(models: int = 1) -> DesiredFleet:
    return DesiredFleet(
        label=FLEET,
        groups=(
            HostGroup(role="gateway", count=1, cpus=0.5, memory_bytes=256 * MIB),
            HostGroup(role="model", count=models, cpus=0.5, memory_bytes=256 * MIB),
            HostGroup(role="monitor", count=1, cpus=0.5, memory_bytes=256 * MIB),
        ),
        floors={"poc": 1},
    )


def bad(checks: list[Check]) -> list[str]:
    return [f"{c.name}: {c.detail}" for c in checks if not c.ok]


def test_a_fleet_from_nothing_to_nothing(work: Path, tools: Tools) -> None:
    lines: list[str] = []
    assert [line.split(" (")[0] for line in preview_fleet(desired(), work, tools)] == [
        f"make network inferlift-{CLONE}-t-provision-fleet",
        "make host gateway-1",
        "make host model-1",
        "make host monitor-1",
    ]
    fleet = apply_fleet(desired(), work, tools, lines.append)
    assert sorted(h.name for h in fleet.hosts) == ["gateway-1", "model-1", "monitor-1"]
    assert any(line.startswith("made host model-1 (") for line in lines)
    assert fleet.endpoints[0].address == fleet.by_role("gateway")[0].address

    # every host answers at its pinned key, and reaches the others
    model = fleet.by_role("model")[0]
    for host in fleet.hosts:
        assert ssh.run(host, "systemctl is-system-running || true").stdout.strip() in ("running", "degraded")
    greeting = ssh.run(fleet.by_role("gateway")[0], f"bash -c 'head -1 < /dev/tcp/{model.address}/22'")
    assert greeting.stdout.startswith("SSH-2.0")

    # whoever loses power, the others go on sending to the same address
    (bridge,) = leftovers.links(IPv4Network(str(fleet.subnet)))
    address = Path(f"/sys/class/net/{bridge}/address")
    before = address.read_text()
    for host in fleet.hosts:
        power_off(host, tools)
        assert address.read_text() == before, host.name
        power_on(host, tools)

    # nothing changed: nothing is made, and nothing is seen as changed
    again = apply_fleet(desired(), work, tools, lines.append)
    assert again == fleet
    assert drift_fleet(desired(), work, tools) == []
    assert preview_fleet(desired(), work, tools) == []
    assert bad(verify_fleet(fleet, work, tools)) == []

    # a deleted host is named by verify, by the engine's preview and by ours, and comes back at its address
    process.run(["podman", "rm", "-f", container_name(FLEET, "model-1")], timeout_s=30, env=process.unmarked())
    assert bad(verify_fleet(fleet, work, tools)) == ["host model-1: deleted: no container of model-1 exists"]
    assert [f"{d.resource} {d.change}" for d in drift_fleet(desired(), work, tools)] == ["host model-1 gone"]
    back = apply_fleet(desired(), work, tools, lines.append)
    assert back.by_role("model")[0].address == model.address
    assert back.generation != fleet.generation
    assert [h for h in back.hosts if h.role != "model"] == [h for h in fleet.hosts if h.role != "model"]
    assert bad(verify_fleet(fleet, work, tools)) == ["host model-1: replaced: another container has taken its place"]

    # stopped, and a quota changed by hand
    process.run(["podman", "kill", container_name(FLEET, "monitor-1")], timeout_s=30, env=process.unmarked())
    process.run(
        ["podman", "update", "--cpus", "0.9", container_name(FLEET, "gateway-1")], timeout_s=30, env=process.unmarked()
    )
    named = bad(verify_fleet(back, work, tools))
    assert [line.split(": ")[:2] for line in named] == [["host gateway-1", "changed"], ["host monitor-1", "stopped"]]
    healed = apply_fleet(desired(), work, tools, lines.append)
    assert bad(verify_fleet(healed, work, tools)) == []
    assert healed.by_role("model") == back.by_role("model")

    # growing leaves the present hosts, shrinking takes the highest number
    grown = apply_fleet(desired(3), work, tools, lines.append)
    assert [h.name for h in grown.by_role("model")] == ["model-1", "model-2", "model-3"]
    assert preview_fleet(desired(2), work, tools) == ["remove host model-3"]
    shrunk = apply_fleet(desired(2), work, tools, lines.append)
    assert [h.container for h in shrunk.by_role("model")] == [h.container for h in grown.by_role("model")[:2]]
    assert bad(verify_fleet(shrunk, work, tools)) == []

    assert destroy_fleet(FLEET, work, tools, lines.append) == []
    assert read_fleet(FLEET, work, tools) is None
    assert remains(fleet) == []
    assert destroy_fleet(FLEET, work, tools, lines.append) == []  # and again


def test_the_world_is_a_stack_of_its_own_and_reaches_the_fleet(work: Path, tools: Tools) -> None:
    world = apply_world(WORLD, work, tools, 0.5, "demo.test", "ai", print)
    assert world.origin.cpus == 0.5
    fleet = apply_fleet(desired(), work, tools, print)
    assert not IPv4Network(str(world.subnet)).overlaps(IPv4Network(str(fleet.subnet)))
    for here, there in ((world.origin, fleet.hosts[0]), (fleet.hosts[0], world.resolver)):
        greeting = ssh.run(here, f"bash -c 'head -1 < /dev/tcp/{there.address}/22'")
        assert greeting.stdout.startswith("SSH-2.0")
    assert destroy_fleet(FLEET, work, tools, print) == []
    assert bad(verify_world(world, work, tools)) == []  # the fleet's end leaves the world alone
    process.run(["podman", "rm", "-f", container_name(WORLD, "resolver")], timeout_s=30, env=process.unmarked())
    assert bad(verify_world(world, work, tools)) == ["host resolver: deleted: no container of resolver exists"]
    assert destroy_world(WORLD, work, tools, print) == []


# Seconds after the first resource is made, and who is killed: the whole tree at once, or the engine alone. The operator
# alone, and other instants, are test_kills.py's.
KILLS = [(0.0, "all"), (0.5, "engine")]


def test_sigkill_inside_create_leaves_one_copy_of_each(work: Path, tools: Tools) -> None:
    podman = Podman(tools.podman_env)
    hit = 0
    for delay, who in KILLS:
        run = Run(work, tools)
        run.wait_for("made network")
        time.sleep(delay)
        hit += run.kill(who)
        settle(work, tools, print)
        files = StackFiles(work, *targets_module.FLEET)
        assert files.locks() == []
        assert files.pending() == 0
        assert engine_processes(work) == []

        fleet = apply_fleet(desired(), work, tools, print)
        assert sorted(c.name for c in podman.of(FLEET)) == sorted(container_name(FLEET, h.name) for h in fleet.hosts)
        assert len(fleet.hosts) == 3
        assert bad(verify_fleet(fleet, work, tools)) == []
        assert drift_fleet(desired(), work, tools) == []
        assert engine_processes(work) == []
        assert podman.sweep(FLEET) == []
        assert remains(fleet) == []
    print(f"{hit} of {len(KILLS)} kills hit a live update")
    assert hit >= len(KILLS) - 1  # a fast machine may be done before the latest instants


def test_destroy_straight_after_a_kill_leaves_nothing(work: Path, tools: Tools) -> None:
    run = Run(work, tools)
    run.wait_for("made network")
    subnet = Podman(tools.podman_env).network_of(FLEET)
    assert subnet is not None
    time.sleep(0.5)  # hosts are being made
    run.kill("all")
    assert destroy_fleet(FLEET, work, tools, print) == []
    assert engine_processes(work) == []
    time.sleep(1.5)  # nothing comes back either
    assert Podman(tools.podman_env).left(FLEET) == []
    assert kernel_remains(subnet.subnet) == []


INTERRUPTS = [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.4)]


def test_an_interrupt_ends_clean_and_both_deploy_and_destroy_go_on(work: Path, tools: Tools) -> None:
    files = StackFiles(work, *targets_module.FLEET)
    for number, (which, delay) in enumerate(INTERRUPTS):
        run = Run(work, tools)
        run.wait_for("made network")
        time.sleep(delay)
        run.child.send_signal(which)
        assert run.child.wait(timeout=60) in (130, 0)  # 0: done before the signal came
        assert files.locks() == []
        assert files.pending() == 0
        assert engine_processes(work) == []
        lines: list[str] = []
        settle(work, tools, lines.append)
        assert lines == []  # there is nothing to settle
        if number % 2:
            fleet = apply_fleet(desired(), work, tools, print)
            assert bad(verify_fleet(fleet, work, tools)) == []
        assert destroy_fleet(FLEET, work, tools, print) == []


def test_what_is_not_ours_is_never_touched(work: Path, tools: Tools) -> None:
    """A container under the very name that the fleet wants, one with a name alike, a network with a name alike."""
    names = [container_name(FLEET, "model-1"), container_name(FLEET, "gateway-9")]
    network = f"inferlift-{CLONE}-t-provision-fleet-2"
    with foreign(tools, names, network):
        with pytest.raises(Refusal, match="taken") as caught:
            apply_fleet(desired(), work, tools, print)
        assert names[0] in caught.value.why
        assert destroy_fleet(FLEET, work, tools, print) == []
        listed = process.run(["podman", "ps", "-a", "--format", "{{.Names}}"], timeout_s=20).stdout.split()
        assert set(names) <= set(listed)
        assert network in process.run(["podman", "network", "ls", "--format", "{{.Name}}"], timeout_s=20).stdout.split()


def test_somebody_elses_container_on_our_network_keeps_it(work: Path, tools: Tools) -> None:
    """Removing the network by force would remove the stranger with it: destroy names the network instead."""
    fleet = apply_fleet(desired(), work, tools, print)
    name = f"t-provision-{CLONE}-stranger"
    command = ["podman", "run", "-d", "--name", name, "--runtime", "runc", "--ulimit", "nofile=20000:20000"]
    command += ["--ulimit", "nproc=20000:20000", "--network", str(fleet.network), tools.host_image, "sleep", "600"]
    process.run(["podman", "rm", "-f", name], timeout_s=30, check=False)
    process.run(command, timeout_s=30, env=process.unmarked())
    try:
        lines: list[str] = []
        assert destroy_fleet(FLEET, work, tools, lines.append) == [f"network {fleet.network}"]
        assert any("podman does not remove" in line for line in lines)
        running = process.run(["podman", "ps", "--format", "{{.Names}}"], timeout_s=20).stdout.split()
        assert name in running
    finally:
        process.run(["podman", "rm", "-f", "-t", "0", name], timeout_s=30, check=False)
    assert destroy_fleet(FLEET, work, tools, print) == []
    assert remains(fleet) == []


def test_plain_pulumi_up_runs_the_same_programs(work: Path, tools: Tools) -> None:
    """docs/lab.md's commands, with the language plugin, on the stacks that `deploy` uses: nothing to change."""
    fleet = apply_fleet(desired(), work, tools, print)
    world = apply_world(WORLD, work, tools, 0.5, "demo.test", "ai", print)
    pulumi = work / "pulumi"
    for project, stack in (("lab", "fleet"), ("world", "world")):
        script = (
            f". {pulumi}/env; cd {ROOT}/stacks/{project}; pulumi up --stack {stack} --refresh --yes --skip-preview"
            f" --config-file {work}/plain-{stack}.yaml -c document={pulumi}/{stack}.json -c image={tools.host_image}"
            f" -c public_key_file={work}/ssh/id_ed25519.pub --non-interactive"
        )
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "6 unchanged" in done.stdout, done.stdout
        assert "created" not in done.stdout
    assert read_fleet(FLEET, work, tools) == fleet
    assert bad(verify_world(world, work, tools)) == []
    assert destroy_world(WORLD, work, tools, print) == []


# --- helpers -------------------------------------------------------------------------------------------------

OPERATOR = """
import signal, sys
from pathlib import Path
from inferlift.artifacts import DesiredFleet
from inferlift.provision import Tools, apply_fleet
def stop(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
document, work, engine, image = sys.argv[1:]
try:
    apply_fleet(DesiredFleet.model_validate_json(document), Path(work), Tools(Path(engine), None, image, {}),
                lambda line: print(line, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


class Run:
    """`apply_fleet` in a process of its own, to be killed."""

    def __init__(self, work: Path, tools: Tools) -> None:
        self.work = work
        arguments = (desired().model_dump_json(), str(work), str(tools.pulumi_bin), tools.host_image)
        self.child = subprocess.Popen(
            [sys.executable, "-c", OPERATOR, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **tools.podman_env, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def wait_for(self, text: str) -> None:
        assert self.child.stdout is not None
        seen = []
        for line in self.child.stdout:
            seen.append(line)
            if line.startswith(text):
                return
        raise AssertionError(f"no line {text!r}: {''.join(seen)}")

    def kill(self, who: str) -> bool:
        """SIGKILL; True when the update was still running."""
        tree = engine_processes(self.work)
        alive = self.child.poll() is None and bool(tree)
        victims = {
            "operator": [self.child.pid],
            "engine": [self.child.pid, *(p for p in tree if exe(p) == "pulumi")],
            "all": [self.child.pid, *tree],
        }[who]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.wait(timeout=10)
        return alive


def engine_processes(work: Path) -> list[int]:
    """Live processes with this work folder's PULUMI_HOME: engine, providers, their podman calls."""
    needle = f"PULUMI_HOME={work.resolve()}/pulumi/home".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def exe(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def remains(fleet: Fleet) -> list[str]:
    return kernel_remains(IPv4Network(str(fleet.subnet)))


def kernel_remains(subnet: IPv4Network) -> list[str]:
    """Addresses, namespaces and firewall rules of a subnet that should be gone."""
    dotted = str(subnet.network_address).rsplit(".", 1)[0] + "."
    found = [
        line for line in process.run(["ip", "-o", "-4", "addr"], timeout_s=10).stdout.splitlines() if dotted in line
    ]
    for table in ("nat", "filter"):
        rules = process.run(["iptables-save", "-t", table], timeout_s=10).stdout
        found += [line for line in rules.splitlines() if dotted in line]
    for name in Path("/run/netns").iterdir() if Path("/run/netns").is_dir() else []:
        text = process.run(["ip", "-n", name.name, "-o", "-4", "addr"], timeout_s=10, check=False).stdout
        found += [f"{name.name}: {line}" for line in text.splitlines() if dotted in line]
    return found


@contextlib.contextmanager
def foreign(tools: Tools, names: list[str], network: str) -> Iterator[None]:
    """Containers (never started) and a network that somebody else made."""

    def clean() -> None:
        for name in names:
            process.run(["podman", "rm", "-f", name], timeout_s=30, check=False, env=process.unmarked())
        process.run(["podman", "network", "rm", network], timeout_s=30, check=False, env=process.unmarked())

    clean()
    try:
        for name in names:
            process.run(
                ["podman", "create", "--name", name, tools.host_image, "true"], timeout_s=30, env=process.unmarked()
            )
        process.run(["podman", "network", "create", network], timeout_s=30, env=process.unmarked())
        yield
    finally:
        clean()
