"""Weights at a gateway as back end: HAProxy's runtime API, for those whose DNS cannot weight.

The name stays at the gateway and the gateway shares requests out, so weights are shares of requests and are in force
at once. The journal is a file beside the admin socket; it and the weights are compared and changed under one lock on
the gateway itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inferlift.dns import guards
from inferlift.dns.answers import Answers
from inferlift.dns.backend import Change, Desired, inverse_of, text_of
from inferlift.dns.eyes import Net
from inferlift.dns.record import WEIGHTED, Journal, RecordState, RRset, describe, difference, encode, entry, fqdn
from inferlift.dns.record import shares as weighed
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable, Uncertain

Execute = Callable[[Any, str], str]  # (host, shell command) -> its stdout; raises when it fails

TTL_S = 1  # nothing is cached: the next request is shared out by the new weights
WORD = re.compile(r"[A-Za-z0-9._-]{1,63}")
LOCKED, CHANGED, REFUSED = "inferlift-locked", "inferlift-changed", "inferlift-refused"
ENGINE = "HAProxy runtime API, one lock"

# A write that was broken off is finished where its weights are set already, else forgotten.
_HEAD = r"""set -eu
trap '' HUP
command -v socat > /dev/null || { echo "__REFUSED__ socat is not installed there"; exit 0; }
[ -S "$SOCKET" ] || { echo "__REFUSED__ there is no admin socket $SOCKET"; exit 0; }
exec 9>"$JOURNAL.lock"
flock -w 10 9 || { echo __LOCKED__; exit 0; }
tell() { printf '%s\n' "$1" | socat -t 5 - "UNIX-CONNECT:$SOCKET"; }
weights() { tell "show servers state $BACKEND" | pick | tr ';' '\n' | LC_ALL=C sort; }
pick() { awk '$2 == B { printf "%s %s %s;", $4, $5, $8 }' B="$BACKEND"; }
weights > "$JOURNAL.now"
[ -s "$JOURNAL.now" ] || { echo "__REFUSED__ $SOCKET tells of no backend $BACKEND"; exit 0; }
if [ -e "$JOURNAL.next" ]; then
  if cmp -s "$JOURNAL.now" "$JOURNAL.meant"; then mv "$JOURNAL.next" "$JOURNAL"; else rm "$JOURNAL.next"; fi
fi
present() { cat "$JOURNAL.now"; echo --; if [ -e "$JOURNAL" ]; then cat "$JOURNAL"; fi; }
""".replace("__LOCKED__", LOCKED).replace("__REFUSED__", REFUSED)

_WRITE = r"""present > "$JOURNAL.present"
printf '%s' "$EXPECTED" | cmp -s - "$JOURNAL.present" || { echo __CHANGED__; exit 0; }
printf '%s' "$MEANT" > "$JOURNAL.meant"
printf '%s' "$BOOK" > "$JOURNAL.next.part"
mv "$JOURNAL.next.part" "$JOURNAL.next"
said="$(tell "$COMMANDS" | tr -d '\n')"
[ -z "$said" ] || { rm "$JOURNAL.next"; echo "__REFUSED__ $said"; exit 0; }
if [ -n "$BOOK" ]; then mv "$JOURNAL.next" "$JOURNAL"; else rm -f "$JOURNAL.next" "$JOURNAL"; fi
if [ -n "$STATE" ]; then tell "show servers state" > "$STATE.part"; mv "$STATE.part" "$STATE"; fi
echo written
""".replace("__CHANGED__", CHANGED).replace("__REFUSED__", REFUSED)


class Gateway:
    """One backend of an HAProxy on `host`, reached by `execute(host, command)` (SSH, or `sh` in tests).

    `servers`: HAProxy's server name by address, both sides. `socket`: the admin socket. `journal`: path of the file
    that keeps the journal. `state_file`: HAProxy's server-state-file, written after each change so that a restart
    keeps the weights (None: a restart falls back to the configured ones, which verify then finds).
    """

    possible: tuple[int, ...] | None = None  # any percent

    def __init__(
        self,
        host: Any,
        execute: Execute,
        *,
        backend: str,
        servers: Mapping[str, str],
        names: Iterable[str],
        owner: str,
        run: str,
        socket: str = "/run/haproxy-admin.sock",
        journal: str = "/var/lib/inferlift/switch.json",
        state_file: str | None = None,
    ) -> None:
        for word in (backend, *servers.values()):
            if not WORD.fullmatch(word):
                raise DeclarationError(f"{word!r} is no name of a backend or server of HAProxy")
        self.owner, self.run, self.names = owner, run, frozenset(names)
        self.addresses = frozenset(servers)
        self._host, self._execute, self._backend, self._servers = host, execute, backend, dict(servers)
        self._paths = {"SOCKET": socket, "JOURNAL": journal, "BACKEND": backend, "STATE": state_file or ""}

    def read(self, name: str) -> RecordState:
        """Weights and journal. Raises Retryable when the gateway cannot be asked, CheckFailed when it says no."""
        return self._state(name, self._shell(_HEAD + "present\n"))

    def propose(self, state: RecordState, desired: Desired) -> Change:
        """What would be set over `state`. Raises Refusal by the guards; changes nothing."""
        guards.check(state, desired, names=self.names, addresses=self.addresses, owner=self.owner)
        present = _lines(state)
        wanted = [(server, address, desired.weights.get(address, 0)) for server, address, _ in present]
        after = self._describe(state.name, wanted, encode(desired.journal) if desired.journal else ())
        return Change(
            name=state.name,
            before=state,
            after=after,
            inverse=inverse_of(state),
            text=text_of(state, desired, ENGINE),
        )

    def apply(self, change: Change) -> None:
        """Set the weights. Raises Refusal when they are not `before` any more, Uncertain when the gateway broke off,
        CheckFailed when HAProxy refused."""
        guards.check_name(change.name, self.names)
        wanted = _lines(change.after)
        risen = sorted(wanted, key=lambda line: -line[2])  # who gets users first, so that never all are zero
        commands = ";".join(f"set server {self._backend}/{server} weight {weight}" for server, _, weight in risen)
        given = {
            "EXPECTED": _text(_lines(change.before)) + "--\n" + _book(change.before.journal),
            "MEANT": _text(wanted),
            "BOOK": _book(change.after.journal),
            "COMMANDS": commands,
        }
        try:
            said = self._shell(_HEAD + _WRITE, given).strip()
        except Retryable as error:
            raise Uncertain("the gateway broke off during a write", why=error.what) from None
        if said == CHANGED:
            present = self.read(change.name)
            raise Refusal(
                f"{change.name} changed since it was reviewed; nothing was written",
                why=difference(present) or f"found {present.raw}"[:300],
                next_command=guards.LOOK,
            )
        if said != "written":
            raise Uncertain("the gateway gave no usable answer to a write", why=said[:200])

    def verify(self, change: Change) -> RecordState:
        """Read again. Raises Refusal when the weights are not what was set."""
        state = self.read(change.name)
        if state != change.after:
            raise Refusal(
                f"{change.name} is not what was just written: someone else writes it too",
                why=difference(state) or f"expected {change.after.raw}, found {state.raw}"[:300],
                next_command=guards.LOOK,
            )
        return state

    def net(self, probe: Callable[[int], None] | None) -> Net:
        """How this gateway is looked at: `probe(n)` sends n requests through it, and HAProxy's own counters say where
        they (and users' requests meanwhile) went. Without it the weights in force are all that is seen."""

        def shares(_: str, name: str, n: int) -> Answers:
            if probe is None:
                in_force = weighed(self.read(name).weights)
                hits = {address: round(n * part) for address, part in in_force.items()}
                return Answers(asked=n, hits=hits, empty=0 if in_force else n, ttl_s=TTL_S)
            before = self._counted()
            probe(n)
            after = self._counted()
            hits = {a: after[a] - before.get(a, 0) for a in after if after[a] > before.get(a, 0)}
            total = sum(hits.values())
            return Answers(asked=max(n, total), hits=hits, empty=max(0, n - total), ttl_s=TTL_S)

        def resolver(_: str, name: str) -> tuple[tuple[str, ...], int | None]:
            return tuple(sorted(self.read(name).weights)), 0

        return Net(shares, resolver, lambda _, name: self.read(name).journal)

    def _counted(self) -> dict[str, int]:
        """Requests each side has had since HAProxy started."""
        command = "printf 'show stat\\n' | socat -t 5 - \"UNIX-CONNECT:$SOCKET\""
        found: dict[str, int] = {}
        rows = self._shell(command).splitlines()
        head = rows[0].removeprefix("# ").split(",") if rows else []
        if "stot" not in head:
            raise Retryable("HAProxy does not tell its counters")
        for row in rows[1:]:
            cells = dict(zip(head, row.split(","), strict=False))
            for address, server in self._servers.items():
                if (cells.get("pxname"), cells.get("svname")) == (self._backend, server):
                    found[address] = int(cells["stot"] or 0)
        return found

    def _shell(self, script: str, given: Mapping[str, str] | None = None) -> str:
        values = {**self._paths, **(given or {})}
        setting = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        said = self._execute(self._host, f"sh -c {shlex.quote(setting + chr(10) + script)}")
        if said.startswith(LOCKED):
            raise Retryable("another writer holds the gateway's lock")
        if said.startswith(REFUSED):
            raise CheckFailed("the gateway refused", why=said.removeprefix(REFUSED).strip()[:200])
        return said

    def _state(self, name: str, said: str) -> RecordState:
        head, _, book = said.partition("--\n")
        rows = [line.split(" ") for line in head.splitlines()]
        if not rows or any(len(row) != 3 for row in rows):
            raise Retryable("the gateway gave no usable answer", why=said[:200])
        return self._describe(name, [(s, a, int(w)) for s, a, w in rows], tuple(book.splitlines()))

    def _describe(self, name: str, lines: list[tuple[str, str, int]], texts: tuple[str, ...]) -> RecordState:
        rrset = RRset(type=WEIGHTED, ttl_s=TTL_S, contents=tuple(entry(w, a, s) for s, a, w in sorted(lines)))
        return describe(fqdn(name), (rrset,), texts)


def _lines(state: RecordState) -> list[tuple[str, str, int]]:
    """(server, address, weight) by server name."""
    cells = [content.split(" ") for content in state.raw[0].contents]
    return sorted((server, address, int(weight)) for weight, address, server, _ in cells)


def _text(lines: list[tuple[str, str, int]]) -> str:
    return "".join(f"{server} {address} {weight}\n" for server, address, weight in lines)


def _book(journal: Journal | None) -> str:
    return "".join(f"{text}\n" for text in encode(journal)) if journal else ""
