"""Is a switched name still as it was left? Read by another way than the one that changed it, in well under a second."""

from __future__ import annotations

from collections.abc import Sequence

from inferlift.artifacts import Check
from inferlift.dns import answers
from inferlift.dns.backend import Backend
from inferlift.dns.eyes import Net, several
from inferlift.dns.record import difference, fqdn, shares, show
from inferlift.errors import InferliftError, Retryable

ASKED = 50


def verify(
    backend: Backend,
    name: str,
    expected: dict[str, int],
    *,
    authority: str | Sequence[str],
    resolver: str | Sequence[str],
    net: Net | None = None,
) -> list[Check]:
    """The record against its journal and `expected` (weights by address), what every authority answers, what every
    resolver holds. What differs is named; a check that could not be made is not ok."""
    net = net or Net.real()
    checks = [_record(backend, name, expected)]
    checks += [_authority(net, a, name, expected) for a in several(authority)]
    checks += [_resolver(net, r, name, expected) for r in several(resolver)]
    return checks


def _record(backend: Backend, name: str, expected: dict[str, int]) -> Check:
    title = f"dns record {fqdn(name)}"
    try:
        state = backend.read(name)
    except InferliftError as error:
        return Check(name=title, ok=False, detail=error.what)
    if changed := difference(state):
        return Check(name=title, ok=False, detail=f"changed by someone else: {changed}")
    if state.journal is not None and state.journal.owner != backend.owner:
        return Check(name=title, ok=False, detail=f"belongs to {state.journal.owner}")
    if shares(state.weights) != shares(expected):
        return Check(name=title, ok=False, detail=f"answers {show(state.weights)}, expected {show(expected)}")
    return Check(name=title, ok=True, detail=f"{state.kind}, {show(state.weights)}, ttl {state.ttl_s} s")


def _authority(net: Net, address: str, name: str, expected: dict[str, int]) -> Check:
    title = f"dns authority {address}"
    try:
        got = net.shares(address, name, ASKED)
    except Retryable as error:
        return Check(name=title, ok=False, detail=error.what)
    wanted = shares(expected)
    if got.sets and all(set(found) == set(wanted) for found in got.sets) and not got.empty:
        return Check(name=title, ok=True, detail=f"{got.asked} answers name {', '.join(wanted)}")
    wrong = [
        f"{a} in {got.hits.get(a, 0)} of {got.asked} answers, expected {wanted.get(a, 0.0):.0%}"
        for a in sorted({*got.hits, *wanted})
        if not answers.share_ok(100 * wanted.get(a, 0.0), got.asked, got.hits.get(a, 0))
    ]
    if got.empty:
        wrong.append(f"{got.empty} of {got.asked} queries without an answer")
    return Check(name=title, ok=not wrong, detail="; ".join(wrong) or f"{got.asked} answers fit {show(expected)}")


def _resolver(net: Net, address: str, name: str, expected: dict[str, int]) -> Check:
    title = f"dns resolver {address}"
    try:
        found, ttl = net.resolver(address, name)
    except Retryable as error:
        return Check(name=title, ok=False, detail=error.what)
    ok = bool(found) and set(found) <= set(shares(expected))
    return Check(name=title, ok=ok, detail=f"answers {', '.join(found) or 'nothing'} for {ttl} more seconds")
