"""What stands in DNS for one name, and the journal beside it by which one writer at a time owns it.

The journal is a TXT RRset at `_inferlift.NAME`. It is written in the same transaction as the record itself, so
the two cannot disagree: a record that differs from its journal was changed by someone else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from inferlift.artifacts import Artifact

Kind = Literal["absent", "simple", "weighted", "foreign"]
Phase = Literal["ttl-lowered", "weighted", "rehearsing", "stepping", "done", "rolled-back"]
Settled = Literal["done", "absent", "foreign"]

JOURNAL_LABEL = "_inferlift"
CHUNK_BYTES = 240  # a TXT string holds 255 bytes; the rest is for "12/34 "
STEERING = ("A", "AAAA", "ALIAS", "CNAME", "DNAME", "HTTPS", "LUA", "NS", "SVCB")  # types that decide where users go

MOVABLE = ("A", "LUA", "WEIGHTED")  # what a switch may change, and give back
WEIGHTED = "WEIGHTED"  # entries of their own, one line each: `WEIGHT ADDRESS IDENTIFIER EXTRA`

_PICK = re.compile(r"""A "pickwrandom\(\{((?:\{\d+,'[0-9.]+'\},?)+)\}\)\"""")
_PAIR = re.compile(r"\{(\d+),'([0-9.]+)'\}")


class RRset(Artifact):
    """One RRset in presentation form, sorted."""

    type: str
    ttl_s: int
    contents: tuple[str, ...]


class Journal(Artifact):
    """Who writes the record, what was meant to stand there after the last write, and what stood there before all.

    `intended` names both addresses, weight 0 included. `not_before`: no weight moves earlier, since answers with
    the old TTL may live in resolvers until then.
    """

    owner: str
    run: str
    sequence: int
    phase: Phase
    intended: dict[str, int]
    ttl_s: int
    ttl_before_s: int
    not_before: AwareDatetime | None = None
    rehearsed_s: float | None = None
    before: tuple[RRset, ...] = ()


class RecordState(Artifact):
    """One name as the authority's own data has it. `weights` holds what is answered: never a zero.

    A simple record's addresses weigh 1 each. `raw` holds the RRsets that decide the answer; `why` says what makes
    a record foreign (not one this product may change).
    """

    name: str
    kind: Kind
    ttl_s: int | None
    weights: dict[str, int]
    journal: Journal | None = None
    raw: tuple[RRset, ...] = ()
    why: str = ""


def fqdn(name: str) -> str:
    return name.rstrip(".").lower() + "."


def journal_name(name: str) -> str:
    return f"{JOURNAL_LABEL}.{fqdn(name)}"


def describe(name: str, rrsets: tuple[RRset, ...], journal_texts: tuple[str, ...]) -> RecordState:
    """The state of a name from its RRsets (`rrsets`: steering types only) and the journal's TXT strings."""
    raw = tuple(sorted(rrsets, key=lambda r: r.type))
    kind, weights, why = _kind(raw)
    ttl = raw[0].ttl_s if raw else None
    journal = None
    if journal_texts:
        try:
            journal = decode(journal_texts)
        except ValueError as error:
            kind, why = "foreign", f"the TXT at {journal_name(name)} is no journal of this product ({error})"
    return RecordState(name=fqdn(name), kind=kind, ttl_s=ttl, weights=weights, journal=journal, raw=raw, why=why)


def agrees(state: RecordState, journal: Journal) -> bool:
    """Does the record answer as this journal intended? Compared by share, so simple `{a: 1}` equals `{a: 100}`."""
    ttl = state.ttl_s == journal.ttl_s
    return ttl and state.kind in ("simple", "weighted") and shares(state.weights) == shares(journal.intended)


def shares(weights: dict[str, int]) -> dict[str, float]:
    """Share of the answers by address, zeros left out; empty when nothing would be answered."""
    total = sum(weights.values())
    return {a: w / total for a, w in sorted(weights.items()) if w > 0} if total > 0 else {}


def difference(state: RecordState) -> str:
    """What someone else changed, in words; empty when the record stands as its journal says (or has none)."""
    if state.kind == "foreign":
        return state.why
    journal = state.journal
    if journal is None or agrees(state, journal):
        return ""
    if state.kind == "absent":
        return f"{state.name} has no address record any more; the journal says {show(journal.intended)}"
    found = []
    if shares(state.weights) != shares(journal.intended):
        found.append(f"weights are {show(state.weights)}, the journal says {show(journal.intended)}")
    if state.ttl_s != journal.ttl_s:
        found.append(f"the TTL is {state.ttl_s} s, the journal says {journal.ttl_s} s")
    return f"{state.name}: " + " and ".join(found)


def settle(state: RecordState, intended: Journal | dict[str, Any]) -> Settled:
    """How a write whose outcome is unknown ended: `done`, `absent` (not written), or `foreign` (someone else wrote).

    `intended` is what the intent planned: a journal, or `{"restored": ...}` where the record is given back.
    """
    if isinstance(intended, dict) and "restored" in intended:
        given_back = tuple(RRset.model_validate(r) for r in intended["restored"])
        if state.journal is None:
            return "done" if state.raw == given_back else "foreign"
        return "absent" if agrees(state, state.journal) else "foreign"
    meant = Journal.model_validate(intended) if isinstance(intended, dict) else intended
    journal = state.journal
    if state.kind == "foreign":
        return "foreign"
    if journal is None:
        return "absent" if meant.sequence == 1 and state.raw == meant.before else "foreign"
    if journal.owner != meant.owner or not agrees(state, journal):
        return "foreign"
    if journal == meant or journal.sequence > meant.sequence:
        return "done"
    return "absent" if journal.sequence < meant.sequence else "foreign"


def show(weights: dict[str, int]) -> str:
    parts = shares(weights)
    return ", ".join(f"{a} {parts[a]:.0%}" for a in parts) or "nothing"


def script(weights: dict[str, int]) -> str:
    """PowerDNS' Lua for these weights. Weight 0 is left out: it must never be an answer, not even the last one."""
    pairs = ",".join(f"{{{w},'{a}'}}" for a, w in sorted(weights.items()) if w > 0)
    return f"pickwrandom({{{pairs}}})"


def encode(journal: Journal) -> tuple[str, ...]:
    """The journal as TXT strings of at most 255 bytes, each headed by its place, in plain ASCII without `;`."""
    return chunks(json.dumps(journal.model_dump(mode="json"), separators=(",", ":"), sort_keys=True))


def decode(texts: tuple[str, ...]) -> Journal:
    """The inverse of `encode`, in any order. Raises ValueError saying what is wrong."""
    text = joined(texts)
    try:
        return Journal.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{error.error_count()} fields are not as expected") from None


def chunks(text: str) -> tuple[str, ...]:
    """JSON as TXT strings."""
    text = text.replace(";", "\\u003b")
    parts = [text[i : i + CHUNK_BYTES] for i in range(0, len(text), CHUNK_BYTES)]
    return tuple(f"{i:02d}/{len(parts):02d} {part}" for i, part in enumerate(parts, start=1))


def joined(texts: Sequence[str]) -> str:
    """The inverse of `chunks`, in any order. Raises ValueError."""
    parts: dict[int, str] = {}
    for text in texts:
        head = re.match(r"(\d\d)/(\d\d) ", text)
        if head is None or int(head[2]) != len(texts):
            raise ValueError("a part is missing or not ours")
        parts[int(head[1])] = text[head.end() :]
    if sorted(parts) != list(range(1, len(texts) + 1)):
        raise ValueError("a part is missing or repeated")
    return "".join(parts[i] for i in sorted(parts))


def entry(weight: int, address: str, identifier: str, extra: str = "-") -> str:
    """One line of a WEIGHTED RRset; `extra` is what the back end keeps with it (a health check)."""
    return f"{weight} {address} {identifier} {extra}"


def text_value(content: str) -> str:
    """The bytes of one TXT value, from presentation form; as it is when it has none."""
    import dns.exception
    import dns.rdata

    try:
        rdata: Any = dns.rdata.from_text("IN", "TXT", content)
    except dns.exception.DNSException:
        return content
    return b"".join(rdata.strings).decode("utf-8", "replace")


def quoted(text: str) -> str:
    """A TXT string in presentation form."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _kind(raw: tuple[RRset, ...]) -> tuple[Kind, dict[str, int], str]:
    if not raw:
        return "absent", {}, ""
    if len(raw) > 1 or raw[0].type not in MOVABLE:
        return "foreign", {}, "it is made of " + " and ".join(r.type for r in raw) + "; only A can be moved"
    if raw[0].type == "A":
        return "simple", dict.fromkeys(raw[0].contents, 1), ""
    if raw[0].type == WEIGHTED:
        return _entries(raw[0].contents)
    match = _PICK.fullmatch(raw[0].contents[0]) if len(raw[0].contents) == 1 else None
    weights = {a: int(w) for w, a in _PAIR.findall(match[1])} if match else {}
    if not weights or min(weights.values()) < 1:
        return "foreign", {}, f"its Lua is not a plain set of weights: {' | '.join(raw[0].contents)[:120]}"
    return "weighted", weights, ""


def _entries(contents: tuple[str, ...]) -> tuple[Kind, dict[str, int], str]:
    """A set of entries. All zero is foreign: some servers then answer all of them alike, others none."""
    pairs = [(int(line.split(" ")[0]), line.split(" ")[1]) for line in contents]
    addresses = [address for _, address in pairs]
    if len(set(addresses)) != len(addresses):
        return "foreign", {}, f"an address stands in it twice: {', '.join(sorted(addresses))}"
    weights = {address: weight for weight, address in pairs if weight > 0}
    if not weights:
        return "foreign", {}, "all its weights are zero"
    return "weighted", weights, ""
