"""The switch alone: a name, two addresses, a back end and a gate. No profile, no fleet, no ledger.

Where it stands is read from the record and its journal, so a run that was killed goes on when it is started again, and
`back` works from any state. An action log beside it keeps each intent, with the batch that takes it back.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift import process, profile, secret
from inferlift.artifacts import Figure, Gate, Verdict
from inferlift.dns import authorities, pinned, settings
from inferlift.dns.gating import no_data
from inferlift.dns.record import fqdn
from inferlift.dns.switch import Result, RollbackTimes, Switch
from inferlift.errors import DeclarationError, InferliftError, Retryable

NAME = re.compile(r"(?=.{3,254}$)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)+[A-Za-z0-9-]{2,63}\.?")
VERDICTS: dict[int, Verdict] = {0: "pass", 1: "fail", 3: "inconclusive"}


@dataclass(frozen=True)
class GateSource:
    """What decides: a command, a URL, or both.

    `command` is run for each look in `folder`, with NAME, OLD, NEW and WEIGHT in its environment: exit 0 passes, 1
    fails, 3 and anything else (also not ending in `timeout_s`) decides nothing. `url` is asked `plan.min_samples` times
    at each side's own address, TLS for the name in it, and by name through the resolver. `error_share`: the most that
    may fail. `p95_ms`: the most the new side's P95 may be; None: judged against the old side's only.
    """

    command: str | None = None
    url: str | None = None
    ca: str | None = None
    error_share: float = 0.0
    p95_ms: float | None = None
    timeout_s: float = 60.0
    folder: str = "."

    def __post_init__(self) -> None:
        if not self.command and not self.url:
            raise DeclarationError(
                "a switch without a gate is not made",
                why="nothing would say whether the new side works",
                next_command="give a command (exit 0, 1 or 3) or a URL to ask",
            )


@dataclass(frozen=True)
class Asked:
    """Who is asked, who writes, what is written down. Authorities not given are found by NS through the resolver; no
    resolver: the machine's own. `log`: a file that gets a JSON line before and after each write. `dns_port`: of every
    name server asked."""

    authority: Sequence[str] = ()
    resolver: str | None = None
    owner: str | None = None
    run: str | None = None
    log: Path | None = None
    dns_port: int = 53
    say: Callable[[str], None] = lambda _: None
    approved: Callable[[int], bool] = lambda _: True
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


def standalone(
    name: str, old: str, new: str, backend: settings.Settings | dict[str, Any], gate: GateSource, *,
    plan: profile.Switch | None = None, **asked: Any,
) -> Result:  # fmt: skip
    """Move `name` from `old` to `new`, IPv4 addresses; further names are those of `Asked`.

    Raises what Switch.run raises, and DeclarationError for what cannot be, before any server is asked.
    """
    return _switch(name, old, new, backend, gate, plan or profile.Switch(), Asked(**asked)).run()


def back(
    name: str, old: str, new: str, backend: settings.Settings | dict[str, Any], *, restore: bool = False, **asked: Any
) -> RollbackTimes:
    """All users of `name` back to `old`, from any state; `restore` also gives the record back as it was found."""
    switch = _switch(name, old, new, backend, None, profile.Switch(), Asked(**asked))
    times = switch.rollback()
    if restore:
        switch.restore()
    return times


def this_owner() -> str:
    """Who writes, when nobody says otherwise: the user at this machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _switch(
    name: str, old: str, new: str, backend: settings.Settings | dict[str, Any], gate: GateSource | None,
    plan: profile.Switch, asked: Asked,
) -> Switch:  # fmt: skip
    given = settings.parse(backend) if isinstance(backend, dict) else backend
    _possible(name, old, new, given, gate, asked)
    writer = settings.backend(
        given, names=(name,), addresses=(old, new), owner=asked.owner or this_owner(),
        run=asked.run or time.strftime("%Y%m%d-%H%M%S", time.gmtime(asked.clock())),
    )  # fmt: skip
    at_gateway = given.kind == "haproxy"
    resolver = given.front or ""
    servers: tuple[str, ...] = (resolver,)
    if not at_gateway:
        resolver = asked.resolver or given.resolver or authorities.system_resolver()
        servers = tuple(asked.authority) or given.authority
        servers = servers or authorities.discover(name, resolver=resolver, port=asked.dns_port)[1]
    probe = pinned.Probe(gate.url, ca=gate.ca, timeout_s=min(gate.timeout_s, 10.0)) if gate and gate.url else None
    return Switch(
        backend=writer,
        name=name,
        old=old,
        new=new,
        plan=plan,
        gates=_gates(gate, probe, name, old, new, plan, None if at_gateway else resolver, asked.dns_port),
        on_intent=_intents(asked.log, asked.clock),
        authority=servers,
        resolver=resolver,
        say=asked.say,
        approved=asked.approved,
        clock=asked.clock,
        sleep=asked.sleep,
        net=settings.net(given, writer, asked.dns_port, (lambda front: pinned.sent(probe, front)) if probe else None),
    )


def _possible(
    name: str, old: str, new: str, given: settings.Settings, gate: GateSource | None, asked: Asked
) -> None:  # fmt: skip
    """What can be known to be wrong without asking anybody. Raises DeclarationError."""
    if not NAME.fullmatch(name):
        raise DeclarationError(f"{name!r} is no DNS name", why="expected a name as users have it: ai.example.com")
    for what, addresses in (
        ("side", (old, new)),
        ("name server", (*asked.authority, *filter(None, (asked.resolver,)))),
    ):
        for address in addresses:
            try:
                ipaddress.IPv4Address(address)
            except ValueError:
                why = "a switch moves A records" if what == "side" else "a server is given by its address"
                raise DeclarationError(f"{address!r} is no IPv4 address", why=why) from None
    if old == new:
        raise DeclarationError(f"{name}: old and new side are the same address {old}")
    if given.key is not None:
        secret.resolve(given.key)
    for path in filter(None, (given.ca, gate.ca if gate else None)):
        if not os.access(path, os.R_OK):
            raise DeclarationError(f"the CA {path} cannot be read")
    if gate is None or not gate.url:
        if given.kind == "haproxy" and gate is not None:
            raise DeclarationError(
                "a gateway's weights are seen by requests through it",
                why="without a URL nothing would be sent, and its counters would say nothing",
                next_command="give --url with the users' name",
            )
        return
    host = pinned.Probe(gate.url).name
    if fqdn(host) != fqdn(name):
        raise DeclarationError(
            f"the URL names {host}, users are moved at {name}",
            why="the gate asks both sides under the users' own name, and by that name as a client does",
            next_command=f"give the URL as users of {name} have it",
        )


def _gates(
    gate: GateSource | None, probe: pinned.Probe | None, name: str, old: str, new: str, plan: profile.Switch,
    resolver: str | None, dns_port: int,
) -> Callable[[int], tuple[Gate, ...]]:  # fmt: skip
    def look(weight: int) -> tuple[Gate, ...]:
        if gate is None:
            return ()
        found: list[Gate] = []
        if probe is not None:
            named: dict[str, Any] = {"n": plan.min_samples, "error_share": gate.error_share, "p95_ms": gate.p95_ms}
            if weight < 100:
                found += pinned.both_gates(probe, old, new, **named)
            else:
                found += pinned.side_gates(probe, new, "new side", **named)
            if resolver is not None:
                found.append(pinned.client_gate(probe, resolver, port=dns_port))
        if gate.command:
            found.append(_command(gate, name, old, new, weight))
        return tuple(found)

    return look


def _command(gate: GateSource, name: str, old: str, new: str, weight: int) -> Gate:
    """One run of the user's own gate; its last line is the reason."""
    command = gate.command or ""
    env = {**os.environ, "NAME": name, "OLD": old, "NEW": new, "WEIGHT": str(weight)}
    source = f"the command {shlex.split(command)[0] if command.split() else ''}"
    try:
        argv = ["sh", "-c", 'cd "$0" || exit 3; eval "$1"', gate.folder, command]
        done = process.run(argv, timeout_s=gate.timeout_s, env=env, check=False)
    except InferliftError as error:
        return no_data("gate command", source, error.what)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    verdict = VERDICTS.get(done.returncode, "inconclusive")
    figure = Figure(value=float(done.returncode), unit="exit code", basis="measured", source=source)
    said = lines[-1][:200] if lines else f"exit code {done.returncode}"
    return Gate(name="gate command", verdict=verdict, target=0.0, figure=figure, why=said)


def _intents(log: Path | None, clock: Callable[[], float]) -> Any:
    """Each write is announced before it is made and closed after it was read back."""

    def line(entry: dict[str, Any]) -> None:
        if log is None:
            return
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"at": round(clock(), 3), **entry}, sort_keys=True) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Retryable(f"the log {log} cannot be written, so nothing is", why=str(error)) from None

    @contextmanager
    def intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
        line({"intent": action, "subject": subject, "before": before, "planned": planned})
        yield
        line({"done": action, "subject": subject})

    return intent
