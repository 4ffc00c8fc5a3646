"""The switch alone: a name, two addresses, a back end and a gate. No profile, no fleet, no ledger.

Where it stands is read from the record and its journal, so a run that was killed goes on when it is started again, and
`back` works from any state. An action log beside it keeps each intent, with the batch that takes it back.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift import process, profile
from inferlift.artifacts import Figure, Gate, Verdict
from inferlift.dns import authorities, pinned, settings
from inferlift.dns.eyes import Net
from inferlift.dns.gating import no_data
from inferlift.dns.switch import Result, RollbackTimes, Switch
from inferlift.errors import DeclarationError, InferliftError, Retryable

VERDICTS: dict[int, Verdict] = {0: "pass", 1: "fail", 3: "inconclusive"}


@dataclass(frozen=True)
class GateSource:
    """What decides: a command, a URL, or both.

    `command` is run for each look, with NAME, OLD, NEW and WEIGHT in its environment: exit 0 passes, 1 fails, 3 and
    anything else (also not ending in `timeout_s`) decides nothing. `url` is asked `plan.min_samples` times at each
    side's own address, TLS for the name in it, and once by name through the resolver. `error_share`: the most that may
    fail. `p95_ms`: the most the new side's P95 may be; None: judged against the old side's only.
    """

    command: str | None = None
    url: str | None = None
    ca: str | None = None
    error_share: float = 0.0
    p95_ms: float | None = None
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.command and not self.url:
            raise DeclarationError(
                "a switch without a gate is not made",
                why="nothing would say whether the new side works",
                next_command="give a command (exit 0, 1 or 3) or a URL to ask",
            )


def standalone(
    name: str,
    old: str,
    new: str,
    backend: settings.Settings | dict[str, Any],
    gate: GateSource,
    *,
    plan: profile.Switch | None = None,
    authority: Sequence[str] = (),
    resolver: str | None = None,
    owner: str | None = None,
    run: str | None = None,
    log: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    approved: Callable[[int], bool] = lambda _: True,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    dns_port: int = 53,
) -> Result:
    """Move `name` from `old` to `new`, IPv4 addresses. Authorities not given are found by NS through the resolver
    (not given: the machine's own). `log`: a file that gets a JSON line before and after each write.

    Raises what Switch.run raises, and DeclarationError for what cannot be.
    """
    return _switch(
        name,
        old,
        new,
        backend,
        gate,
        plan,
        authority,
        resolver,
        owner,
        run,
        log,
        say,
        approved,
        clock,
        sleep,
        dns_port,
    ).run()


def back(
    name: str,
    old: str,
    new: str,
    backend: settings.Settings | dict[str, Any],
    *,
    authority: Sequence[str] = (),
    resolver: str | None = None,
    owner: str | None = None,
    restore: bool = False,
    log: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    dns_port: int = 53,
) -> RollbackTimes:
    """All users of `name` back to `old`, from any state; `restore` also gives the record back as it was found."""
    switch = _switch(
        name, old, new, backend, None, None, authority, resolver, owner, None, log, say, lambda _: True, clock, sleep,
        dns_port,
    )  # fmt: skip
    times = switch.rollback()
    if restore:
        switch.restore()
    return times


def this_owner() -> str:
    """Who writes, when nobody says otherwise: the user at this machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _switch(
    name: str, old: str, new: str, backend: settings.Settings | dict[str, Any], gate: GateSource | None,
    plan: profile.Switch | None, authority: Sequence[str], resolver: str | None, owner: str | None, run: str | None,
    log: Path | None, say: Callable[[str], None], approved: Callable[[int], bool], clock: Callable[[], float],
    sleep: Callable[[float], None], dns_port: int,
) -> Switch:  # fmt: skip
    for side in (old, new):
        try:
            ipaddress.IPv4Address(side)
        except ValueError:
            raise DeclarationError(f"{side!r} is no IPv4 address", why="a switch moves A records") from None
    asked = resolver or authorities.system_resolver()
    servers = tuple(authority) or authorities.discover(name, resolver=asked, port=dns_port)[1]
    chosen = plan or profile.Switch()
    writer = settings.backend(
        backend, names=(name,), addresses=(old, new), owner=owner or this_owner(),
        run=run or time.strftime("%Y%m%d-%H%M%S", time.gmtime(clock())),
    )  # fmt: skip
    return Switch(
        backend=writer,
        name=name,
        old=old,
        new=new,
        plan=chosen,
        gates=_gates(gate, name, old, new, chosen, asked, dns_port),
        on_intent=_intents(log, clock),
        authority=servers,
        resolver=asked,
        say=say,
        approved=approved,
        clock=clock,
        sleep=sleep,
        net=Net.real(dns_port),
    )


def _gates(
    gate: GateSource | None, name: str, old: str, new: str, plan: profile.Switch, resolver: str, dns_port: int
) -> Callable[[int], tuple[Gate, ...]]:
    def look(weight: int) -> tuple[Gate, ...]:
        if gate is None:
            return ()
        found: list[Gate] = []
        if gate.url:
            probe = pinned.Probe(gate.url, ca=gate.ca, timeout_s=min(gate.timeout_s, 10.0))
            named: dict[str, Any] = {"n": plan.min_samples, "error_share": gate.error_share, "p95_ms": gate.p95_ms}
            if weight < 100:
                found += pinned.both_gates(probe, old, new, **named)
            else:
                found += pinned.side_gates(probe, new, "new side", **named)
            found.append(pinned.client_gate(probe, resolver, port=dns_port))
        if gate.command:
            found.append(_command(gate.command, gate.timeout_s, name, old, new, weight))
        return tuple(found)

    return look


def _command(command: str, timeout_s: float, name: str, old: str, new: str, weight: int) -> Gate:
    """One run of the user's own gate; its last line is the reason."""
    env = {**os.environ, "NAME": name, "OLD": old, "NEW": new, "WEIGHT": str(weight)}
    source = f"the command {shlex.split(command)[0] if command.split() else ''}"
    try:
        done = process.run(["sh", "-c", command], timeout_s=timeout_s, env=env, check=False)
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
