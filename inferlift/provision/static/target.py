"""Own hosts as a target: looked at, compared with the plan, claimed; read back; given back as they were."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from inferlift import ssh
from inferlift.artifacts import Check, DesiredFleet, Endpoint, Fleet, Host
from inferlift.artifacts.fleet import OwnMachine, StaticPlan
from inferlift.errors import CheckFailed, DeclarationError, InferliftError, Refusal, Retryable
from inferlift.provision.static import notes, on_host, plan
from inferlift.provision.static.power import MARK

Say = Callable[[str], None]
T = TypeVar("T")
_SCRIPT = Path(on_host.__file__)


def apply(desired: DesiredFleet, workdir: Path, say: Say) -> Fleet:
    """Check every host that the fleet needs, then claim them all. What is claimed already stays as it is.

    Raises Refusal naming everything that is not as declared, with nothing changed, Retryable when a host is silent.
    """
    own = _own(desired)
    if (why := plan.too_few(desired)) is not None:
        raise why
    hosts = [_host(m, own, workdir) for m in own.machines]
    facts = _together(hosts, lambda h: _ask(h, "look", {}))
    _refuse(own.machines, facts, desired.label)
    hosts = [h.model_copy(update={"container": MARK + f["machine"]}) for h, f in zip(hosts, facts, strict=True)]
    notes.remember(workdir, desired.label, hosts)
    for host, fact in zip(hosts, facts, strict=True):
        if not fact["claim"]:
            say(f"{host.name} is {host.address}: as declared, claimed; nothing is made")

    def claim(host: Host) -> dict[str, Any]:
        return _ask(host, "claim", {"owner": desired.label, "name": host.name, "role": host.role}, timeout_s=600)

    for host, answer in zip(hosts, _together(hosts, claim), strict=True):
        if "refused" in answer:  # claimed by another since it was looked at
            raise Refusal(f"{host.name} ({host.address}) cannot be claimed", why=str(answer["refused"]))
        if answer["installed"]:
            say(f"{host.name}: installed {', '.join(answer['installed'])}")
    return _fleet(desired.label, hosts)


def preview(desired: DesiredFleet, workdir: Path) -> list[str]:
    own = _own(desired)
    known = {h.name for h in notes.remembered(desired.label, workdir)}
    lines = [
        f"use {m.address} as {m.name}: host key, system and hardware checked first, nothing made"
        for m in own.machines
        if m.name not in known
    ]
    why = plan.too_few(desired)
    return lines if why is None else [*lines, f"refused: {why.what}"]


def read(label: str, workdir: Path) -> Fleet | None:
    """The hosts that carry our claim, and those that do not answer, since they may. None when there is none."""
    noted = notes.remembered(label, workdir)
    found = [h for h, f in zip(noted, _facts(noted), strict=True) if f is None or _ours(f, label)]
    return _fleet(label, found) if found else None


def verify(expected: Fleet) -> list[Check]:
    """Is every host still the machine that was claimed, ours, and there?"""
    hosts = expected.hosts
    return [_check(h, f, expected.label) for h, f in zip(hosts, _facts(hosts), strict=True)]


def staying_hosts(label: str, workdir: Path) -> tuple[Host, ...]:
    """Hosts that outlive the fleet, with our roles on them: whoever destroys it takes those away first. None elsewhere.

    What the roles replaced is noted on each, to come back. A host that does not answer is `destroy`'s to name.
    """
    noted = notes.remembered(label, workdir)
    ours = [h for h, f in zip(noted, _facts(noted), strict=True) if f is not None and _ours(f, label)]
    _together(ours, lambda h: _ask(h, "note", {"owner": label}))
    return tuple(ours)


def destroy(label: str, workdir: Path, say: Say) -> list[str]:
    """Give every host back. Returns what is left of us on which host; the hosts themselves stay."""
    noted = notes.remembered(label, workdir)
    asked = {"owner": label, "leftovers": _leftovers()}

    def give_back(host: Host) -> list[str]:
        try:
            left = _ask(host, "release", asked, timeout_s=600)["left"]
        except InferliftError as error:
            why = f" ({error.why})" if error.why else ""
            return [f"{error.what}{why}; what was put there is still there"]
        return [f"{host.name} ({host.address}): {line}" for line in left]

    left: list[str] = []
    for host, lines in zip(noted, _together(noted, give_back), strict=True):
        left += lines
        if not lines:
            say(f"{host.name} ({host.address}) is given back; the machine stays")
            notes.forget(workdir, label, [host.name])
    return left


# --- helpers -------------------------------------------------------------------------------------------------


def _own(desired: DesiredFleet) -> StaticPlan:
    assert desired.static is not None  # noqa: S101 - asked of own hosts only
    return desired.static


def _fleet(label: str, hosts: Sequence[Host]) -> Fleet:
    text = "\n".join(sorted(f"{h.name} {h.container}" for h in hosts))
    return Fleet(
        label=label,
        network=None,
        subnet=None,
        hosts=tuple(hosts),
        endpoints=tuple(Endpoint(site=h.site, address=h.address) for h in hosts if h.role == "gateway"),
        generation=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def _refuse(machines: Sequence[OwnMachine], facts: Sequence[dict[str, Any]], owner: str) -> None:
    bad = [
        f"{m.name} ({m.address}): {'; '.join(found)}"
        for m, f in zip(machines, facts, strict=True)
        if (found := plan.problems(m, f, owner))
    ]
    seen: dict[str, str] = {}
    for machine, fact in zip(machines, facts, strict=True):
        if other := seen.get(fact["machine"]):
            bad.append(f"{machine.name} ({machine.address}): it is the same machine as {other}")
        seen[fact["machine"]] = machine.name
    if bad:
        raise Refusal(
            f"{len(bad)} of {len(machines)} hosts cannot be used as declared; nothing was changed",
            why="; ".join(bad),
            next_command="correct static.hosts, or the hosts, then run the same command again",
        )


def _check(host: Host, facts: dict[str, Any] | None, label: str) -> Check:
    def no(detail: str) -> Check:
        return Check(name=f"host {host.name}", ok=False, detail=detail)

    if facts is None:
        return no(f"{host.address} does not answer over SSH, or not as the host that was claimed")
    if MARK + facts["machine"] != host.container:
        return no(f"replaced: another machine answers at {host.address}")
    if not _ours(facts, label):
        return no("it is not claimed by this fleet any more")
    if host.cpus is not None and facts["cores"] + 1e-6 < host.cpus:
        return no(f"changed: it has {facts['cores']:g} cores, declared are {host.cpus:g}")
    if host.memory_bytes is not None and facts["memory_bytes"] < host.memory_bytes * (1 - plan.MEMORY_SLACK):
        return no(f"changed: it has {facts['memory_bytes'] / 1e9:.2f} GB of memory")
    return Check(name=f"host {host.name}", ok=True, detail=f"{host.address}, up")


def _ours(facts: dict[str, Any], label: str) -> bool:
    return bool(facts["claim"]) and facts["claim"]["owner"] == label


def _facts(hosts: Sequence[Host]) -> list[dict[str, Any] | None]:
    def facts(host: Host) -> dict[str, Any] | None:
        try:
            return _ask(host, "look", {})
        except InferliftError:
            return None

    return _together(hosts, facts)


def _host(machine: OwnMachine, own: StaticPlan, workdir: Path) -> Host:
    return Host(
        name=machine.name,
        role=machine.role,
        address=machine.address,
        ssh_port=machine.ssh_port,
        ssh_key=str(_key(own, workdir)),
        host_key=_host_key(machine, own),
        site=plan.SITE,
        cpus=machine.cores,
        memory_bytes=machine.memory_bytes,
        gpu=machine.gpu,
    )


def _key(own: StaticPlan, workdir: Path) -> Path:
    real = Path(own.ssh_key).expanduser().resolve()
    if not real.is_file():
        raise DeclarationError(
            f"static.ssh_key: there is no file {real}",
            why="root on the hosts must accept it",
            next_command=f"ssh-keygen -t ed25519 -f {own.ssh_key}, then ssh-copy-id root@ADDRESS for each host",
        )
    return ssh.linked_key(real, workdir.resolve() / "ssh" / "own-hosts")


def _host_key(machine: OwnMachine, own: StaticPlan) -> str:
    """The key that the operator's known_hosts has for the address: never learned from the network."""
    path = Path(own.known_hosts).expanduser()
    name = machine.address if machine.ssh_port == 22 else f"[{machine.address}]:{machine.ssh_port}"
    if (key := ssh.known_key(machine.address, machine.ssh_port, path)) is not None:
        return key
    port = "" if machine.ssh_port == 22 else f"-p {machine.ssh_port} "
    raise Refusal(
        f"the host key of {machine.name} ({name}) is not in {path}",
        why="a host whose key nobody compared could be anybody; it is not learned on first use",
        next_command=f"ssh {port}root@{machine.address}, compare the fingerprint it shows, answer yes",
    )


def _ask(host: Host, command: str, asked: dict[str, Any], *, timeout_s: float = 120) -> dict[str, Any]:
    line = shlex.join(["python3", "-", command, json.dumps(asked)])
    try:
        done = ssh.run(host, line, timeout_s=timeout_s, stdin=_SCRIPT.read_text(encoding="utf-8"), check=False)
    except Retryable as error:
        raise _said(host, error) from None
    if done.returncode == 127:
        raise Refusal(
            f"{host.name} ({host.address}) has no python3",
            why="it is configured by Ansible, which needs it",
            next_command=f"ssh root@{host.address} apt-get install python3",
        )
    if done.returncode:
        raise CheckFailed(f"{command} on {host.name} ({host.address}) failed", why=done.stderr.strip()[-400:])
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)  # noqa: S101 - on_host
    return answer


def _said(host: Host, error: Retryable) -> InferliftError:
    """ssh's own words for what will not get better by itself."""
    where = f"{host.name} ({host.address}:{host.ssh_port})"
    if "ost key verification failed" in error.why or "IDENTIFICATION HAS CHANGED" in error.why:
        return Refusal(
            f"{where} is not the host that static.known_hosts names",
            why="it shows another host key: another machine, or one that was set up anew",
            next_command="compare its fingerprint at its console before correcting known_hosts",
        )
    if "Permission denied" in error.why:
        return Refusal(
            f"{where} does not let us in",
            why=error.why.splitlines()[-1],
            next_command=f"ssh-copy-id root@{host.address}, or correct static.ssh_key",
        )
    return Retryable(
        f"{where} does not answer over SSH",
        why=error.why,
        next_command="see that it runs and that its address in static.hosts is right, then run the same command again",
    )


def _leftovers() -> list[dict[str, Any]]:
    import yaml

    rows = yaml.safe_load((Path(__file__).parent / "leftovers.yaml").read_text(encoding="utf-8"))
    return [{key: row[key] for key in ("package", "folders", "users")} for row in rows]


def _together(hosts: Sequence[Host], what: Callable[[Host], T]) -> list[T]:
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(hosts)))) as pool:
        return list(pool.map(what, hosts))
