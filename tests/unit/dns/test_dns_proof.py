"""A proof is published once every name server answers with it. The servers for real: tests/lab/test_dns_backends.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from dns_standins import Clock

from inferlift.dns.gateway import Gateway
from inferlift.dns.proof import Proof, prover
from inferlift.errors import CheckFailed, DeclarationError, Retryable


@dataclass
class StandInServers:
    """`late`: how often each name server is asked before it answers with what was written."""

    late: dict[str, int]
    written: list[tuple[str, str, bool]] = field(default_factory=list)

    def prove(self, name: str, value: str, *, there: bool) -> None:
        self.written.append((name, value, there))

    def ask(self, server: str, name: str) -> tuple[str, ...]:
        self.late[server] -= 1
        if self.late[server] == 0:
            raise Retryable("no answer")
        return ("another", "v") if self.late[server] < 0 else ()


def proof(servers: StandInServers) -> Proof:
    clock = Clock()
    return Proof(servers, tuple(servers.late), print, servers.ask, clock, clock.sleep)


def test_it_waits_for_the_last_name_server() -> None:
    servers = StandInServers({"192.0.2.1": 0, "192.0.2.2": 5})
    proof(servers).publish("_acme-challenge.ai.demo.test", "v")
    assert servers.late["192.0.2.2"] < 0
    proof(servers).withdraw("_acme-challenge.ai.demo.test", "v")
    assert [there for *_, there in servers.written] == [True, False]


def test_a_name_server_that_does_not_show_it_is_named() -> None:
    with pytest.raises(CheckFailed, match=r"192\.0\.2\.2 does not answer"):
        proof(StandInServers({"192.0.2.1": 0, "192.0.2.2": 1_000_000})).publish("_acme-challenge.ai.demo.test", "v")


def test_a_gateway_answers_no_dns() -> None:
    gateway = Gateway(
        None, lambda host, command: "", backend="b", servers={"192.0.2.1": "old", "192.0.2.2": "new"},
        names=("ai.demo.test",), owner="o", run="r",
    )  # fmt: skip
    with pytest.raises(DeclarationError, match="TXT"):
        prover(gateway)
