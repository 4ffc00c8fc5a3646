"""Knot for real, on loopback: RFC 2136 with TSIG, no weights, prerequisites as compare-and-set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dns_sides import AUTHORITY, FAST, NAME, NAMES, NEW, OLD, OWNER, ZONE, Asker, answered, gates, rfc2136, switch

from inferlift.dns import loopback
from inferlift.dns.backend import Desired
from inferlift.dns.eyes import Net
from inferlift.dns.record import Journal, RecordState
from inferlift.dns.rfc2136 import Rfc2136
from inferlift.errors import CheckFailed, Refusal, Retryable

pytestmark = pytest.mark.lab


@pytest.fixture
def knot(found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[loopback.Server]:
    with loopback.knot(found, tmp_path / "knot", ZONE, [f"ai 2 A {OLD}", "www 60 A 192.0.2.9"], names=NAMES) as server:
        monkeypatch.setenv("TSIG", server.secret)
        yield server


@pytest.mark.parametrize("both", [True, False])
def test_knot_forward_back_and_given_back_without_an_empty_answer(knot: loopback.Server, both: bool) -> None:
    net = Net.real(knot.port)
    before = rfc2136(knot).read(NAME)
    said: list[str] = []
    with Asker(lambda: answered(knot)) as asker:
        result = switch(rfc2136(knot, both=both), net, say=said.append, **FAST).run()
        times = switch(rfc2136(knot, both=both), net).rollback()
        switch(rfc2136(knot, both=both), net).restore()
    print(f"{dict(asker.seen)}; back at the authority after {times.authority_s:.3f} s; {result}")
    assert asker.failed == []
    wanted = {OLD, NEW, f"{OLD}+{NEW}"} if both else {OLD, NEW}
    assert set(asker.seen) == wanted  # never nothing
    assert [s.weight for s in result.steps] == ([0, 50, 100] if both else [0, 100])
    assert any("has no weights" in line for line in said)
    assert result.rehearsed_rollback_s is not None  # the journal went out and back
    assert rfc2136(knot).read(NAME) == before


def test_knot_a_side_that_fails_is_left(knot: loopback.Server) -> None:
    net = Net.real(knot.port)
    result = switch(rfc2136(knot), net, gates=lambda w: gates(w, "fail" if w == 50 else "pass"), **FAST).run()
    assert result.rolled_back
    assert answered(knot) == OLD


def test_knot_compares_and_sets_by_prerequisites(knot: loopback.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer between our last look and the write: the server itself refuses."""
    backend, other = rfc2136(knot), rfc2136(knot, run="another")
    state = backend.read(NAME)
    change = backend.propose(state, desired(state, {OLD: 50, NEW: 50}, "run-1"))
    meddled = []

    def message(self: Rfc2136, change: Any, found: Any) -> Any:
        made = real(self, change, found)
        if self is backend:
            other.apply(other.propose(state, desired(state, {OLD: 0, NEW: 100}, "another")))
            meddled.append(1)
        return made

    real = Rfc2136.message
    monkeypatch.setattr(Rfc2136, "message", message)
    with pytest.raises(Refusal, match="changed since it was reviewed"):
        backend.apply(change)
    assert meddled
    assert answered(knot) == NEW  # the other's write stands


def desired(state: RecordState, weights: dict[str, int], run: str) -> Desired:
    book = Journal(
        owner=OWNER, run=run, sequence=1, phase="stepping", intended=weights, ttl_s=2, ttl_before_s=2, before=state.raw
    )
    return Desired(kind="simple", weights=weights, ttl_s=2, journal=book)


def test_knot_a_narrow_key_moves_this_name_only(knot: loopback.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    www = Rfc2136(
        AUTHORITY, "inferlift", "env:TSIG", ZONE, names=["www.demo.test"], addresses=["192.0.2.9", NEW], owner=OWNER,
        run="run-1", port=knot.port,
    )  # fmt: skip
    state = www.read("www.demo.test")
    with pytest.raises(CheckFailed, match="refused the update"):
        www.apply(www.propose(state, desired(state, {"192.0.2.9": 0, NEW: 100}, "run-1")))
    monkeypatch.setenv("TSIG", "d3Jvbmc=")
    with pytest.raises(Refusal, match="does not take the key") as refused:
        rfc2136(knot).read(NAME)
    assert "env:TSIG" in str(refused.value)
    assert "d3Jvbmc=" not in str(refused.value)


def test_knot_stopped_is_unknown_not_empty(found: loopback.Programs, tmp_path: Path) -> None:
    os.environ["TSIG"] = "c2VjcmV0"
    with loopback.knot(found, tmp_path / "knot", ZONE, [f"ai 2 A {OLD}"]) as server:
        pass
    with pytest.raises(Retryable, match="does not answer"):
        rfc2136(server).read(NAME)
