"""Absolute guards before any DNS write. octoDNS' own guard is a percentage, and off below 10 records."""

from __future__ import annotations

from collections.abc import Iterable

from inferlift.dns.backend import Desired
from inferlift.dns.record import RecordState, agrees, difference, fqdn, journal_name
from inferlift.errors import Refusal

LOOK = "see who else writes this record; then the same command again, or ./invoke rollback with the same arguments"


def check(
    state: RecordState, desired: Desired, *, names: frozenset[str], addresses: frozenset[str], owner: str
) -> None:
    """Raises Refusal when the desired record must not be written over the present one.

    `names`: the only names that may be written. `addresses`: the only ones a name may answer, before and after.
    """
    check_name(state.name, names)
    check_desired(state.name, desired, addresses)
    check_present(state, addresses=addresses, owner=owner)


def check_name(name: str, names: frozenset[str]) -> None:
    if fqdn(name) not in {fqdn(n) for n in names}:
        raise Refusal(f"{name} is not a name of this profile", why=f"it may write {', '.join(sorted(names))}")


def check_desired(name: str, desired: Desired, addresses: frozenset[str]) -> None:
    """Never an empty set, never all weights zero, only addresses that are expected, one TTL that makes sense."""
    if not desired.weights or sum(desired.weights.values()) <= 0:
        raise Refusal(f"{name} would have no answer left", why="all weights are zero or no address is given")
    if min(desired.weights.values()) < 0:
        raise Refusal(f"{name}: a weight is negative", why=str(desired.weights))
    if unknown := sorted(set(desired.weights) - addresses):
        raise Refusal(f"{name}: {', '.join(unknown)} is not an address of this profile", why=_known(addresses))
    if not 1 <= desired.ttl_s <= 604800:
        raise Refusal(f"{name}: a TTL of {desired.ttl_s} s is out of range", why="1 s to 7 days")
    if desired.kind == "simple" and len(set(filter(None, desired.weights.values()))) != 1:
        raise Refusal(f"{name}: a simple record cannot hold unequal weights", why=str(desired.weights))
    journal = desired.journal
    if journal is not None and journal.ttl_s != desired.ttl_s:
        raise Refusal(f"{name}: record and journal would disagree", why="TTL")


def check_present(state: RecordState, *, addresses: frozenset[str], owner: str) -> None:
    """What stands there now is one of ours to change: known kind, known addresses, our journal or none."""
    if state.kind == "absent":
        why = difference(state) or "a switch moves an existing record"
        raise Refusal(f"{state.name} has no address record", why=why, next_command=LOOK)
    if state.kind == "foreign":
        raise Refusal(f"{state.name} is not a record that can be moved", why=state.why, next_command=LOOK)
    if state.journal is not None and state.journal.owner != owner:
        raise Refusal(
            f"{state.name} belongs to another writer",
            why=f"its journal at {journal_name(state.name)} names {state.journal.owner}, this is {owner}",
            next_command="finish or release it there first",
        )
    if unknown := sorted(set(state.weights) - addresses):
        raise Refusal(
            f"{state.name} answers {', '.join(unknown)}, which is not an address of this profile",
            why=difference(state) or _known(addresses),
            next_command=LOOK,
        )


def check_unchanged(state: RecordState) -> None:
    """Raises Refusal naming what differs when someone else changed the record since its journal was written."""
    if state.journal is not None and not agrees(state, state.journal):
        raise Refusal("someone else changed the record; nothing was written", why=difference(state), next_command=LOOK)


def check_changes(changes: Iterable[tuple[str, str, str]], name: str) -> None:
    """The plan engine's changes, as (what, fqdn, type): only this name's address and its journal, answer kept.

    Raises Refusal for anything else, whatever share of the zone it is.
    """
    address, journal = fqdn(name), journal_name(name)
    removed: list[str] = []
    made: list[str] = []
    for what, owner_name, type_ in changes:
        ours = (fqdn(owner_name) == address and type_ in ("A", "PowerDnsProvider/LUA")) or (
            fqdn(owner_name) == journal and type_ == "TXT"
        )
        if not ours:
            raise Refusal(f"the plan would {what.lower()} {type_} {owner_name}", why=f"only {address} may change")
        if fqdn(owner_name) == address:
            (removed if what == "Delete" else made).append(type_)
    if removed and not made:
        raise Refusal(f"the plan would take the last answer of {address}", why=f"deletes {', '.join(removed)}")


def _known(addresses: frozenset[str]) -> str:
    return f"expected only {', '.join(sorted(addresses))}"
