"""TXT records that prove that a name is ours: answered by all of the zone's name servers, then gone again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from inferlift.dns import answers
from inferlift.dns.backend import Backend
from inferlift.errors import CheckFailed, DeclarationError, Retryable

TTL_S = 60  # of such a record
VISIBLE_S = 120.0  # a secondary may be that late


@runtime_checkable
class Prover(Protocol):
    """A back end that can write TXT records beside the one it steers."""

    def prove(self, name: str, value: str, *, there: bool) -> None: ...


@dataclass(frozen=True)
class Proof:
    """`publish` returns once every one of `authorities` answers with the value."""

    backend: Prover
    authorities: tuple[str, ...]
    say: Callable[[str], None]
    ask: Callable[[str, str], Iterable[str]] = answers.texts_at  # name server, name
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def publish(self, name: str, value: str) -> None:
        """Raises CheckFailed naming the servers that do not show it in time, and what the back end raises."""
        self.backend.prove(name, value, there=True)
        self.say(f"waiting for {', '.join(self.authorities)} to answer {name}")
        for server in self.authorities:
            shows = partial(self._shows, server, name, value)
            if answers.wait_visible(shows, timeout_s=VISIBLE_S, clock=self.clock, sleep=self.sleep) is None:
                raise CheckFailed(f"{server} does not answer the TXT record {name}", why=f"asked for {VISIBLE_S:.0f} s")

    def withdraw(self, name: str, value: str) -> None:
        self.backend.prove(name, value, there=False)

    def _shows(self, server: str, name: str, value: str) -> bool:
        try:
            return value in self.ask(server, name)
        except Retryable:
            return False


def prover(backend: Backend) -> Prover:
    """Raises DeclarationError where the back end is no name server."""
    if not isinstance(backend, Prover):
        raise DeclarationError(
            "a certificate by ACME needs a name server that takes TXT records",
            why="switch.dns.kind is one that answers no DNS",
            next_command="give the certificate's files: origin.certificate, origin.certificate_key",
        )
    return backend
