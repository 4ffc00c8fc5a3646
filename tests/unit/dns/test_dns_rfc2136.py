"""The UPDATE message itself, and the settings that make back ends. Knot takes it for real in tests/lab."""

from __future__ import annotations

from typing import Any

import dns.name
import dns.rdataclass
import dns.rdatatype
import pytest
from dns_standins import NAME, NEW, OLD, OWNER, journal

from inferlift.dns import settings
from inferlift.dns.backend import Desired
from inferlift.dns.record import RRset, describe, encode, quoted
from inferlift.dns.rfc2136 import Rfc2136
from inferlift.errors import DeclarationError, Refusal

AT, BOOK = "ai.demo.test.", "_inferlift.ai.demo.test."


def backend(**more: Any) -> Rfc2136:
    named: dict[str, Any] = {"names": [NAME], "addresses": [OLD, NEW], "owner": OWNER, "run": "run-1", **more}
    return Rfc2136("192.0.2.53", "inferlift", "env:TSIG", "demo.test.", **named)


Line = tuple[str, str, str, int, frozenset[str]]


def sections(weights: dict[str, int], with_journal: bool) -> tuple[list[Line], list[Line]]:
    """Prerequisites and updates as (name, type, class, TTL, values). Class NONE: must not exist; ANY: is deleted."""
    found = {(AT, "A"): RRset(type="A", ttl_s=10, contents=(OLD,))}
    before = journal(intended={OLD: 100, NEW: 0}, sequence=1, ttl_s=10)
    if with_journal:
        texts = tuple(sorted(quoted(t) for t in encode(before)))
        found[BOOK, "TXT"] = RRset(type="TXT", ttl_s=10, contents=texts)
    state = describe(NAME, (found[AT, "A"],), encode(before) if with_journal else ())
    desired = Desired(kind="simple", weights=weights, ttl_s=2, journal=journal(intended=weights))
    made = backend()
    message = made.message(made.propose(state, desired), found)
    origin = dns.name.from_text("demo.test.")
    lines = [
        [
            (
                s.name.derelativize(origin).to_text(),
                dns.rdatatype.to_text(s.rdtype),
                dns.rdataclass.to_text(s.deleting or s.rdclass),
                s.ttl,
                frozenset(r.to_text() for r in s),
            )
            for s in section
        ]
        for section in (message.prerequisite, message.update)
    ]
    return lines[0], lines[1]


@pytest.mark.parametrize("with_journal", [False, True])
def test_done_only_while_the_zone_holds_exactly_what_was_read(with_journal: bool) -> None:
    needed, _ = sections({OLD: 50, NEW: 50}, with_journal)
    assert (AT, "A", "IN", 0, frozenset([OLD])) in needed
    absent = {(name, type_) for name, type_, class_, _, _ in needed if class_ == "NONE"}
    others = {(AT, t) for t in ("AAAA", "CNAME", "DNAME", "HTTPS", "SVCB")}
    assert absent == (others if with_journal else others | {(BOOK, "TXT")})  # nobody's journal came meanwhile
    held = [line for line in needed if line[:3] == (BOOK, "TXT", "IN")]
    assert len(held) == with_journal


@pytest.mark.parametrize(
    ("weights", "answers"),
    [({OLD: 100, NEW: 0}, {OLD}), ({OLD: 50, NEW: 50}, {OLD, NEW}), ({OLD: 0, NEW: 100}, {NEW})],
)
def test_one_message_replaces_the_address_and_the_journal(weights: dict[str, int], answers: set[str]) -> None:
    _, made = sections(weights, with_journal=True)
    assert [line[:3] for line in made if line[2] == "ANY"] == [(AT, "A", "ANY"), (BOOK, "TXT", "ANY")]
    added = [line for line in made if line[2] == "IN"]
    assert {value for line in added if line[1] == "A" for value in line[4]} == answers
    assert {line[3] for line in added} == {2}  # one TTL for both
    texts = {value for line in added if line[1] == "TXT" for value in line[4]}
    assert texts == {quoted(t) for t in encode(journal(intended=weights))}


def test_unequal_weights_are_refused_plainly() -> None:
    state = describe(NAME, (RRset(type="A", ttl_s=10, contents=(OLD,)),), ())
    wished = journal(intended={OLD: 90, NEW: 10})
    for kind, said in (("simple", "unequal"), ("weighted", "has no weights")):
        with pytest.raises(Refusal, match=said):
            backend().propose(state, Desired(kind=kind, weights=wished.intended, ttl_s=2, journal=wished))  # type: ignore[arg-type]


def test_what_it_can_give_is_said() -> None:
    assert backend().possible == (0, 50, 100)
    assert backend(both=False).possible == (0, 100)
    with pytest.raises(DeclarationError, match="not in the zone"):
        backend(names=["ai.other.test"])


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"kind": "powerdns", "url": "https://x:1", "key": "env:K"}, "PowerDns"),
        ({"kind": "rfc2136", "server": "10.0.0.3", "key_name": "k", "key": "env:K", "both": False}, "Rfc2136"),
        ({"kind": "route53", "zone_id": "Z1", "health_checks": {OLD: "h"}}, "Route53"),
        ({"kind": "haproxy", "backend": "b", "servers": {OLD: "o", NEW: "n"}, "front": "192.0.2.9"}, "Gateway"),
    ],
)
def test_back_ends_by_settings(given: dict[str, Any], kind: str) -> None:
    zone = {} if kind == "Gateway" else {"zone": "demo.test"}
    made = settings.backend({**given, **zone}, names=[NAME], addresses=[OLD, NEW], owner=OWNER, run="r")
    assert type(made).__name__ == kind
    assert (made.owner, made.run) == (OWNER, "r")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "kind"), ({"kind": "bind"}, "kind"), ({"kind": "route53", "zone": "demo.test"}, "zone_id"),
        ({"kind": "powerdns", "zone": "demo.test", "url": "x", "key": "env:K", "kye": 1}, "kye"),
        ({"kind": "powerdns", "zone": "demo.test", "url": "x", "key": "env:K", "zone_id": "Z"}, "not for powerdns"),
        ({"kind": "powerdns", "zone": "demo.test", "url": "x", "key": "the-key-itself"}, "secret reference"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(DeclarationError, match="settings are wrong") as wrong:
        settings.parse(given)
    assert named in str(wrong.value)
    assert "the-key-itself" not in str(wrong.value)


def test_a_gateways_servers_are_the_two_sides() -> None:
    given = {"kind": "haproxy", "backend": "b", "servers": {OLD: "o", "192.0.2.66": "n"}, "front": "192.0.2.9"}
    with pytest.raises(DeclarationError, match="servers are") as wrong:
        settings.backend(given, names=[NAME], addresses=[OLD, NEW], owner=OWNER, run="r")
    assert NEW in wrong.value.why
    assert "192.0.2.66" in wrong.value.why
