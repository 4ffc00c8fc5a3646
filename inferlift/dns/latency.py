"""Latency records of Route 53 for the edge: users of each region get that region's own name, which is then switched.

    ai.example.com  A  latency eu-central-1  -> alias of eu-central-1.ai.example.com
                    A  latency us-east-1     -> alias of us-east-1.ai.example.com

Each regional name is an ordinary record (weighted while it is switched), so that one region moves without the others.
They are made while all of them answer the old side, so that nobody's answer changes; only then users are moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from pydantic import ValidationError

from inferlift.artifacts import Artifact
from inferlift.dns import guards
from inferlift.dns.record import STEERING, chunks, fqdn, joined, journal_name, quoted, text_value
from inferlift.dns.route53 import Record, Route53
from inferlift.dns.writer import Intent
from inferlift.errors import Refusal

LOOK = "look at the zone; inferlift changes no record that somebody else wrote"


class Note(Artifact):
    """The journal beside the name: who made regions of it, and the record that stood there before."""

    what: Literal["regions"] = "regions"
    owner: str
    run: str
    regions: tuple[str, ...]
    ttl_s: int
    before: tuple[str, ...]  # addresses of the simple record


class Spread(Artifact):
    """What stands at a name, and beside it. `records`: as Route 53 has them, as JSON, in its order."""

    name: str
    kind: Literal["absent", "simple", "spread", "foreign"]
    records: tuple[str, ...]
    note: Note | None = None
    why: str = ""

    def sets(self) -> list[Record]:
        return [json.loads(text) for text in self.records]


class Change(Artifact):
    """One reviewed batch: sent only while the name still is `before`. `inverse` is the batch that takes it back."""

    before: Spread
    batch: str  # JSON
    inverse: str
    text: str


def regional(name: str, region: str) -> str:
    """The name that a region's users are sent to."""
    return f"{region}.{fqdn(name)}"


def entries(zone_id: str, name: str, regions: Iterable[str]) -> list[Record]:
    """The latency record sets of a name, one a region, in the order of their names."""
    return [
        {
            "Name": fqdn(name),
            "Type": "A",
            "SetIdentifier": f"inferlift-{region}",
            "Region": region,
            "AliasTarget": {
                "HostedZoneId": zone_id.removeprefix("/hostedzone/"),
                "DNSName": regional(name, region),
                "EvaluateTargetHealth": True,  # a region without a healthy answer: its users go to the next nearest
            },
        }
        for region in sorted(regions)
    ]


class Regions:
    """Makes regions of one name that answers `old` alone, and one name of the regions again.

    `on_intent(action, name, before, planned)` is entered before each write and left after it was read back; what it
    plans holds the batch that takes the write back.
    """

    def __init__(
        self, back: Route53, name: str, old: str, regions: Iterable[str], on_intent: Intent, say: Callable[[str], None]
    ) -> None:
        self.back, self.name, self.old = back, name, old
        self.regions = tuple(sorted(set(regions)))
        self._intent, self._say = on_intent, say

    def read(self) -> Spread:
        """Raises Retryable when Route 53 does not answer, Refusal when it says no."""
        found = [r for r in self.back.at(fqdn(self.name)) if r["Type"] in STEERING]
        beside = [r for r in self.back.at(journal_name(self.name)) if r["Type"] == "TXT"]
        return spread_of(self.name, [*found, *beside])

    def make(self) -> None:
        """Every region gets its name, with the old side behind it. Nothing to do where they stand already.

        Raises Refusal where the name is not a simple record of the old side's, or a regional name is taken.
        """
        state = self.read()
        if state.kind == "spread" and state.note is not None and state.note.regions == self.regions:
            self._check_owner(state.note)
            return
        self._do("spread", self.propose(state))

    def unmake(self) -> None:
        """One name again, as it was found. Raises Refusal while a region's users are anywhere but on the old side."""
        state = self.read()
        if state.kind == "simple" and state.note is None:
            return
        self._do("gather", self.propose_back(state))

    def propose(self, state: Spread) -> Change:
        """What `make` would write over `state`. Raises Refusal by the guards; changes nothing."""
        for name in (self.name, *(regional(self.name, region) for region in self.regions)):
            guards.check_name(name, self.back.names)
        if not self.regions:
            raise Refusal(f"{self.name} would have no answer left", why="no region is given")
        if state.kind in ("absent", "foreign"):
            raise Refusal(f"{self.name} is not a record that can get regions", why=state.why, next_command=LOOK)
        note, present = state.note, state.sets()
        if note is not None:
            self._check_owner(note)
            if gone := sorted(set(note.regions) - set(self.regions)):
                raise Refusal(
                    f"{self.name} has a region that is not wanted any more: {', '.join(gone)}",
                    why="its users would be sent elsewhere without a look at who answers them there",
                    next_command="take all users back and make one name of the regions again first",
                )
        else:
            values = [r["Value"] for r in present[0]["ResourceRecords"]]
            if values != [self.old]:
                raise Refusal(f"{self.name} answers {', '.join(values)}, not {self.old} alone", next_command=LOOK)
            note = Note(
                owner=self.back.owner, run=self.back.run, regions=(), ttl_s=int(present[0]["TTL"]), before=(self.old,)
            )
        new = [region for region in self.regions if region not in note.regions]
        for region in new:
            if taken := [r["Type"] for r in self.back.at(regional(self.name, region)) if r["Type"] in STEERING]:
                raise Refusal(
                    f"{regional(self.name, region)} stands already ({', '.join(taken)})",
                    why="it is somebody's, or is left of an earlier migration",
                    next_command=LOOK,
                )
        made = [_simple(regional(self.name, region), self.old, note.ttl_s) for region in new]
        after = [*entries(self.back.zone_id, self.name, self.regions), self._noted(note)]
        return self._change(state, present, [*made, *after], f"regions {', '.join(self.regions)}")

    def propose_back(self, state: Spread) -> Change:
        """What `unmake` would write. Raises Refusal by the guards; changes nothing."""
        if state.kind != "spread" or state.note is None:
            raise Refusal(f"{self.name} has no regions of ours", why=state.why, next_command=LOOK)
        self._check_owner(state.note)
        gone: list[Record] = []
        for region in state.note.regions:
            at = regional(self.name, region)
            known = self.back.read(at)
            if known.kind not in ("simple", "weighted") or set(known.weights) != {self.old}:
                raise Refusal(
                    f"{at} answers {', '.join(known.weights) or 'nothing'}, not {self.old} alone",
                    why=known.why or "its users are not on the old side",
                    next_command="take users back first: invoke rollback",
                )
            if known.journal is not None and known.journal.owner != self.back.owner:
                raise Refusal(f"{at} belongs to another writer", why=known.journal.owner, next_command=LOOK)
            gone += [r for r in self.back.at(at) if r["Type"] in STEERING]
            gone += [r for r in self.back.at(journal_name(at)) if r["Type"] == "TXT"]
        found = [_simple(fqdn(self.name), self.old, state.note.ttl_s)]
        return self._change(state, [*gone, *state.sets()], found, "one name again, as it was found")

    def apply(self, change: Change) -> None:
        """Raises Refusal when the name is not `before` any more, else as `Route53.send`."""
        if (found := self.read()) != change.before:
            raise self._overtaken(found)
        self.back.send(self.name, json.loads(change.batch), lambda: self._overtaken(self.read()))

    def verify(self, change: Change) -> Spread:
        """Read again. Raises Refusal when the records are not what was written."""
        made = [c["ResourceRecordSet"] for c in json.loads(change.batch)["Changes"] if c["Action"] == "CREATE"]
        names = (fqdn(self.name), journal_name(self.name))
        state = self.read()
        if _sorted(state.sets()) != _sorted([r for r in made if r["Name"] in names]):
            raise self._overtaken(state)
        return state

    def _do(self, action: str, change: Change) -> None:
        planned = {"batch": json.loads(change.batch), "inverse": json.loads(change.inverse)}
        with self._intent(action, self.name, change.before.model_dump(mode="json"), planned):
            self._say(change.text)
            self.apply(change)
            self.verify(change)

    def _change(self, state: Spread, gone: list[Record], made: list[Record], words: str) -> Change:
        return Change(
            before=state,
            batch=json.dumps(self._batch(words, gone, made)),
            inverse=json.dumps(self._batch(f"back from {words}", made, gone)),
            text=f"{fqdn(self.name)} {state.kind} -> {words} (Route 53, one change batch)",
        )

    def _batch(self, words: str, gone: list[Record], made: list[Record]) -> dict[str, Any]:
        """Whole or not at all, and refused where a record is not what was read: a true compare-and-set. What something
        is an alias of is made before it, and taken away after it."""
        return {
            "Comment": f"inferlift {self.back.run} {words}"[:256],
            "Changes": [
                *({"Action": "DELETE", "ResourceRecordSet": r} for r in reversed(gone)),
                *({"Action": "CREATE", "ResourceRecordSet": r} for r in made),
            ],
        }

    def _noted(self, note: Note) -> Record:
        text = note.model_copy(update={"regions": self.regions}).model_dump_json()
        values = [{"Value": quoted(part)} for part in chunks(text)]
        return {"Name": journal_name(self.name), "Type": "TXT", "TTL": note.ttl_s, "ResourceRecords": values}

    def _check_owner(self, note: Note) -> None:
        if note.owner != self.back.owner:
            raise Refusal(
                f"the regions of {self.name} belong to another writer",
                why=f"{journal_name(self.name)} names {note.owner}, this is {self.back.owner}",
                next_command="finish or release it there first",
            )

    def _overtaken(self, found: Spread) -> Refusal:
        return Refusal(
            f"{self.name} is not what was read or written: someone else writes it too",
            why=f"found {found.kind} {found.why}".strip(),
            next_command=LOOK,
        )


def spread_of(name: str, records: list[Record]) -> Spread:
    """The state of a name from its own record sets and the TXT beside it."""
    steering = [r for r in records if fqdn(r["Name"]) == fqdn(name)]
    texts = [text_value(v["Value"]) for r in records if r not in steering for v in r["ResourceRecords"]]
    made: dict[str, Any] = {"name": fqdn(name), "records": tuple(json.dumps(r, sort_keys=True) for r in records)}
    note = None
    if texts:
        try:
            note = Note.model_validate_json(joined(texts))
        except (ValueError, ValidationError):
            return Spread(**made, kind="foreign", why=f"{journal_name(name)} is no journal of regions: it is switched")
    if not steering:
        return Spread(**made, kind="absent", note=note, why="it has no address record")
    if note is None:
        plain = len(steering) == 1 and steering[0]["Type"] == "A"
        simple = plain and not {"SetIdentifier", "AliasTarget", "HealthCheckId"} & set(steering[0])
        why = " and ".join(sorted({_words(r) for r in steering}))
        return Spread(**made, kind="simple" if simple else "foreign", why="" if simple else f"it is made of {why}")
    zone = next((r["AliasTarget"]["HostedZoneId"] for r in steering if "AliasTarget" in r), "")
    if _sorted(steering) != _sorted(entries(zone, name, note.regions)):
        return Spread(**made, kind="foreign", note=note, why="its latency records are not those of its journal")
    return Spread(**made, kind="spread", note=note)


def _simple(name: str, address: str, ttl_s: int) -> Record:
    return {"Name": name, "Type": "A", "TTL": ttl_s, "ResourceRecords": [{"Value": address}]}


def _words(record: Record) -> str:
    how = next((k for k in ("AliasTarget", "Region", "Weight", "HealthCheckId") if k in record), "")
    return f"{record['Type']} with {how}" if how else str(record["Type"])


def _sorted(records: list[Record]) -> list[str]:
    return sorted(json.dumps(r, sort_keys=True) for r in records)
