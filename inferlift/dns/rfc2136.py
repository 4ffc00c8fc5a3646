"""RFC 2136 dynamic update with TSIG as back end (Knot, BIND, NSD's primaries, PowerDNS with dnsupdate).

It has no weights: a name answers one side, or both sides' addresses at once (N of M answers), or the other side. In
return it has what APIs lack: prerequisites in the message make every write a true compare-and-set.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from inferlift import secret
from inferlift.dns import guards, proof
from inferlift.dns.backend import Change, Desired, inverse_of, text_of
from inferlift.dns.record import RecordState, RRset, describe, difference, encode, fqdn, journal_name
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable, Uncertain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dns.message
    import dns.rdata
    import dns.tsig
    import dns.update

READS = 3  # tries to read record and journal at one serial
STEERING = ("A", "AAAA", "CNAME", "DNAME", "HTTPS", "SVCB")  # types that decide where users go and can be asked for
ENGINE = "DNS UPDATE, one message, with prerequisites"


class Rfc2136:
    """Names of one zone at its primary server.

    `key`: secret reference to the TSIG key in base64, `key_name` its name. `both`: may a name answer both sides at
    once? Then half the users are a step (which half is up to resolvers); else users move all at once. `names` and
    `addresses` are all that may ever be written or answered. `owner` and `run` stand in every journal.
    """

    def __init__(
        self,
        server: str,
        key_name: str,
        key: str,
        zone: str,
        *,
        names: Iterable[str],
        addresses: Iterable[str],
        owner: str,
        run: str,
        algorithm: str = "hmac-sha256",
        port: int = 53,
        both: bool = True,
        timeout_s: float = 5.0,
    ) -> None:
        self.zone = fqdn(zone)
        self.names, self.addresses = frozenset(names), frozenset(addresses)
        self.owner, self.run = owner, run
        self.possible: tuple[int, ...] | None = (0, 50, 100) if both else (0, 100)
        self._server, self._port, self._timeout_s = server, port, timeout_s
        self._key_name, self._key, self._algorithm = key_name, key, algorithm
        for name in self.names:
            if not fqdn(name).endswith("." + self.zone):
                raise DeclarationError(f"{name} is not in the zone {self.zone}")

    def read(self, name: str) -> RecordState:
        """The record and its journal, both of one serial, asked with the key. Raises Retryable when the server does
        not answer, Refusal when it says no (to the key, to the zone)."""
        return _state(name, self._rrsets(name))

    def propose(self, state: RecordState, desired: Desired) -> Change:
        """What would be written over `state`. Raises Refusal by the guards; changes nothing."""
        guards.check(state, desired, names=self.names, addresses=self.addresses, owner=self.owner)
        if desired.kind == "weighted":
            raise Refusal(f"{state.name}: RFC 2136 has no weights", why="a record answers one side, or both alike")
        present = tuple(sorted(a for a, w in desired.weights.items() if w > 0))
        texts = encode(desired.journal) if desired.journal else ()
        return Change(
            name=state.name,
            before=state,
            after=describe(state.name, (RRset(type="A", ttl_s=desired.ttl_s, contents=present),), texts),
            inverse=inverse_of(state),
            text=text_of(state, desired, ENGINE),
        )

    def apply(self, change: Change) -> None:
        """Write the change. Raises Refusal when the record is not `before` any more (seen by us, or by the server's
        own prerequisites), Uncertain when the outcome of the write is not known, CheckFailed when it was refused."""
        guards.check_name(change.name, self.names)
        found = self._rrsets(change.name)
        if (present := _state(change.name, found)) != change.before:
            raise _changed(change, present)
        message = self.message(change, found)
        try:
            rcode = self._send(message)
        except Refusal as refusal:  # the key was good for reading a moment ago: Knot says so when its policy says no
            rcode = refusal.why.partition(";")[0]
        except (OSError, EOFError) as error:
            raise Uncertain(f"{self._server} broke off during a DNS UPDATE", why=type(error).__name__) from None
        if rcode == "NOERROR":
            return
        if rcode in ("NXRRSET", "YXRRSET", "NXDOMAIN", "YXDOMAIN"):
            raise _changed(change, self.read(change.name))
        if rcode == "SERVFAIL":
            raise Uncertain(f"{self._server} answered SERVFAIL to a DNS UPDATE")
        raise CheckFailed(
            f"{self._server} refused the update of {change.name} ({rcode})",
            why=f"the policy of the key {self._key_name} does not allow it, or this server is not the primary",
            next_command="allow the key to update A at the name and TXT at its _inferlift name (docs/switch.md)",
        )

    def verify(self, change: Change) -> RecordState:
        """Read again. Raises Refusal when the record is not what was written."""
        state = self.read(change.name)
        if state != change.after:
            raise Refusal(
                f"{change.name} is not what was just written: someone else writes it too",
                why=difference(state) or f"expected {change.after.raw}, found {state.raw}"[:300],
                next_command=guards.LOOK,
            )
        return state

    def prove(self, name: str, value: str, *, there: bool) -> None:
        """One value of the TXT record at `name` comes or goes; others of that name stay. Raises as `apply` does."""
        import dns.update

        update = dns.update.UpdateMessage(self.zone)
        (update.add if there else update.delete)(fqdn(name), *([proof.TTL_S] if there else []), _texts((value,))[0])
        try:
            rcode = self._send(update)
        except (OSError, EOFError) as error:
            raise Retryable(f"{self._server} broke off during a DNS UPDATE", why=type(error).__name__) from None
        if rcode != "NOERROR":
            raise CheckFailed(
                f"{self._server} refused the update of {name} ({rcode})",
                why=f"the policy of the key {self._key_name} does not allow it, or this server is not the primary",
                next_command=f"allow the key to update TXT at {name} (docs/switch.md)",
            )

    def message(self, change: Change, found: dict[tuple[str, str], RRset]) -> dns.update.UpdateMessage:
        """The UPDATE, unsigned: done only while the zone holds exactly `found` for this name and its journal."""
        import dns.update

        update = dns.update.UpdateMessage(self.zone)
        at, journal_at = fqdn(change.name), journal_name(change.name)
        asked: list[tuple[str, str]] = [*((at, t) for t in STEERING), (journal_at, "TXT")]
        for name, type_ in asked:
            if (rrset := found.get((name, type_))) is None:
                update.absent(name, type_)
            else:
                update.present(name, *_rdatas(type_, rrset.contents))
        (wanted,) = change.after.raw
        update.replace(at, wanted.ttl_s, *_rdatas("A", wanted.contents))
        if change.after.journal is None:
            update.delete(journal_at, "TXT")
        else:
            update.replace(journal_at, wanted.ttl_s, *_texts(encode(change.after.journal)))
        return update

    def _rrsets(self, name: str) -> dict[tuple[str, str], RRset]:
        """The RRsets that decide the name's answer and its journal, by (name, type), as of one serial."""
        at, journal_at = fqdn(name), journal_name(name)
        try:
            with self._connection() as tcp:
                for _ in range(READS):
                    before = self._ask(tcp, self.zone, "SOA")
                    found = {}
                    for owner_name, type_ in [*((at, t) for t in STEERING), (journal_at, "TXT")]:
                        if (rrset := self._ask(tcp, owner_name, type_)) is not None:
                            found[owner_name, type_] = rrset
                    if before is not None and self._ask(tcp, self.zone, "SOA") == before:
                        return found
        except (OSError, EOFError) as error:
            raise Retryable(f"the name server {self._server} does not answer", why=type(error).__name__) from None
        raise Retryable(f"the zone {self.zone} changes faster than {name} can be read")

    def _ask(self, tcp: socket.socket, name: str, type_: str) -> RRset | None:
        """One RRset at this very name, in presentation form; None when there is none."""
        import dns.flags
        import dns.message
        import dns.rcode
        import dns.rdatatype

        query = dns.message.make_query(name, type_)
        query.flags &= ~dns.flags.RD
        answer = self._exchange(query, tcp)
        rcode = dns.rcode.to_text(answer.rcode())
        if rcode in ("REFUSED", "NOTAUTH"):
            raise Refusal(f"{self._server} refuses to answer for {self.zone}", why=f"{rcode} with key {self._key_name}")
        if rcode not in ("NOERROR", "NXDOMAIN"):
            raise Retryable(f"{self._server} answers {rcode} for {name}")
        if not answer.flags & dns.flags.AA:
            raise Refusal(f"{self._server} is not an authority for {name}", why="updates go to the zone's primary")
        for rrset in answer.answer:
            if rrset.name.to_text().lower() == name and rrset.rdtype == dns.rdatatype.from_text(type_):
                contents = tuple(sorted(r.to_text() for r in rrset))
                return RRset(type=type_, ttl_s=rrset.ttl, contents=contents)
        return None

    def _send(self, message: dns.message.Message) -> str:
        import dns.rcode

        with self._connection() as tcp:
            return dns.rcode.to_text(self._exchange(message, tcp).rcode())

    def _exchange(self, message: dns.message.Message, tcp: socket.socket) -> dns.message.Message:
        """Signed, and the answer's signature checked. Raises Refusal when the key is not taken."""
        import dns.exception
        import dns.query
        import dns.tsig

        message.use_tsig(self._tsig())
        try:
            return dns.query.tcp(message, self._server, timeout=self._timeout_s, sock=tcp)
        except (dns.tsig.PeerError, dns.tsig.BadSignature, dns.tsig.BadTime) as error:
            raise Refusal(
                f"{self._server} does not take the key {self._key_name}",
                why=f"{type(error).__name__}; the key is {self._key}",
                next_command="compare the key, its name, its algorithm and both clocks",
            ) from None
        except dns.exception.DNSException as error:  # no answer in time, an answer that is none
            raise ConnectionError(type(error).__name__) from None

    def _tsig(self) -> dns.tsig.Key:
        """Made at the last moment, never kept."""
        import dns.tsig

        try:
            return dns.tsig.Key(fqdn(self._key_name), secret.resolve(self._key), self._algorithm)
        except ValueError:
            raise DeclarationError(f"the secret {self._key} is no TSIG key", why="expected base64") from None

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        with socket.create_connection((self._server, self._port), timeout=self._timeout_s) as tcp:
            tcp.setblocking(False)
            yield tcp


def _state(name: str, found: dict[tuple[str, str], RRset]) -> RecordState:
    from inferlift.dns.record import text_value

    steering = tuple(rrset for (at, _), rrset in found.items() if at == fqdn(name))
    journal = found.get((journal_name(name), "TXT"))
    return describe(name, steering, tuple(text_value(c) for c in journal.contents) if journal else ())


def _rdatas(type_: str, contents: tuple[str, ...]) -> list[dns.rdata.Rdata]:
    import dns.rdata

    return [dns.rdata.from_text("IN", type_, content) for content in contents]


def _texts(texts: tuple[str, ...]) -> list[Any]:
    from inferlift.dns.record import quoted

    return _rdatas("TXT", tuple(quoted(t) for t in texts))


def _changed(change: Change, present: RecordState) -> Refusal:
    return Refusal(
        f"{change.name} changed since it was reviewed; nothing was written",
        why=difference(present) or f"expected {change.before.raw}, found {present.raw}"[:300],
        next_command=guards.LOOK,
    )
