"""Writes a record and its journal as one numbered step, announced to the caller's ledger first and read back after.

A write whose outcome is unknown is settled by reading the journal, never by guessing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from inferlift.dns import guards
from inferlift.dns.backend import Backend, Change, Desired
from inferlift.dns.record import MOVABLE, Journal, Phase, RecordState, difference, settle, shares, show, utc
from inferlift.errors import Refusal, Retryable, Uncertain

Intent = Callable[[str, str, dict[str, Any], dict[str, Any]], AbstractContextManager[Any]]
TRIES = 5


@dataclass(frozen=True)
class Writer:
    """`ttl_s`: the TTL while weights move; a lower one that stands already is kept."""

    backend: Backend
    name: str
    old: str
    new: str
    ttl_s: int
    intent: Intent
    say: Callable[[str], None]
    sleep: Callable[[float], None]

    def read(self) -> RecordState:
        """Raises Retryable when the back end stays unreachable over some tries."""
        return self._patiently(partial(self.backend.read, self.name))

    def write(
        self,
        action: str,
        state: RecordState,
        weight: int,
        phase: Phase,
        *,
        kind: Literal["simple", "weighted"] | None = None,
        not_before: float | None = None,
        rehearsed_s: float | None = None,
    ) -> Journal:
        """Write `weight` percent on the new side over `state`; the journal as it stands afterwards."""
        previous = state.journal
        kept = previous if previous is not None and set(previous.intended) == {self.old, self.new} else None
        ttl = min(state.ttl_s or self.ttl_s, self.ttl_s)
        journal = Journal(
            owner=self.backend.owner,
            run=self.backend.run,
            sequence=previous.sequence + 1 if previous else 1,
            phase=phase,
            intended={self.old: 100 - weight, self.new: weight},
            ttl_s=ttl,
            ttl_before_s=kept.ttl_before_s if kept else (state.ttl_s or ttl),
            not_before=utc(not_before) if not_before is not None else (kept.not_before if kept else None),
            rehearsed_s=rehearsed_s if rehearsed_s is not None else (kept.rehearsed_s if kept else None),
            before=kept.before if kept else state.raw,
        )
        shape = kind or ("weighted" if state.kind == "weighted" else "simple")
        desired = Desired(kind=shape, weights=journal.intended, ttl_s=ttl, journal=journal)
        change = self.backend.propose(state, desired)
        self.say(change.text)
        with self.intent(action, f"{self.name} {weight} %", _before(change), journal.model_dump(mode="json")):
            self._apply(change)
        return journal

    def restore(self) -> None:
        """Give the record back as it was found before the switch, type and TTL included, and take the journal away.

        Raises Refusal unless the old side alone is answered.
        """
        state = self.read()
        if state.journal is None:
            return
        guards.check_unchanged(state)
        if set(shares(state.weights)) != {self.old}:
            raise Refusal(f"{self.name} still answers {show(state.weights)}", next_command="invoke rollback")
        before = next(r for r in state.journal.before if r.type in MOVABLE)
        found = Desired(
            kind="simple" if before.type == "A" else "weighted",
            weights={self.old: 1 if before.type == "A" else 100},
            ttl_s=before.ttl_s,
            journal=None,
        )
        change = self.backend.propose(state, found)
        self.say(change.text)
        planned = {"restored": [r.model_dump(mode="json") for r in change.after.raw]}
        with self.intent("restore", self.name, _before(change), planned):
            self._apply(change)

    def _apply(self, change: Change) -> None:
        """Apply and read back; what is known to be absent after an unknown outcome is written again."""
        for _ in range(TRIES):
            try:
                self.backend.apply(change)
            except Uncertain:
                self.sleep(0.2)
                present = self.read()
                if present == change.before:
                    continue
                meant = change.after.journal
                if meant is not None and settle(present, meant) == "foreign":
                    why = difference(present)
                    raise Refusal(f"{self.name}: someone else wrote during our write", why=why) from None
            self._patiently(partial(self.backend.verify, change))
            return
        raise Uncertain(f"the DNS API broke off {TRIES} times; the record stands as before the write")

    def _patiently(self, call: Callable[[], RecordState]) -> RecordState:
        for attempt in range(TRIES - 1):
            try:
                return call()
            except Retryable:
                self.sleep(0.3 * 2**attempt)
        return call()


def _before(change: Change) -> dict[str, Any]:
    """What the ledger keeps before the write: the record as it stands, and the batch that brings it back."""
    return {**change.before.model_dump(mode="json"), "inverse": change.inverse.model_dump(mode="json")}
