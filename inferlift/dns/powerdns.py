"""PowerDNS as back end: simple A records and Lua weights, planned and written by octoDNS, guarded here.

One change is one PATCH: the address record and its journal are replaced in one transaction of the server. The API
knows no preconditions, so compare-and-set is a read right before the write; the gap is a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import requests

from inferlift import secret
from inferlift.dns import guards, octo, proof
from inferlift.dns.backend import Change, Desired, inverse_of, text_of
from inferlift.dns.record import (
    STEERING,
    RecordState,
    RRset,
    describe,
    difference,
    encode,
    fqdn,
    journal_name,
    quoted,
    text_value,
)
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable, Uncertain

READS = 3  # tries to read record and journal at one serial
ENGINE = "octoDNS PowerDnsProvider, one PATCH"


class PowerDns:
    """Names of one zone behind the PowerDNS API.

    `url`: base, e.g. https://10.0.0.3:8443. `key`: secret reference. `ca`: path of the CA that signed the API's
    certificate (None: the system's). `names` and `addresses` are all that may ever be written or answered. `owner`
    and `run` stand in every journal.
    """

    possible: tuple[int, ...] | None = None  # any percent

    def __init__(
        self,
        url: str,
        key: str,
        zone: str,
        *,
        names: Iterable[str],
        addresses: Iterable[str],
        owner: str,
        run: str,
        ca: str | None = None,
        server: str = "localhost",
        timeout_s: float = 5.0,
    ) -> None:
        self.zone = fqdn(zone)
        self.names, self.addresses = frozenset(names), frozenset(addresses)
        self.owner, self.run = owner, run
        self._key = key
        self._api = octo.Api(url.rstrip("/"), server, ca, timeout_s, self.zone)
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between us and the authority, no CA but the one given
        for name in self.names:
            if not fqdn(name).endswith("." + self.zone):
                raise DeclarationError(f"{name} is not in the zone {self.zone}")

    def read(self, name: str) -> RecordState:
        """The record and its journal. Raises Retryable when the API does not answer, Refusal when it says no."""
        return _state(name, self._rrsets(name))

    def propose(self, state: RecordState, desired: Desired) -> Change:
        """What would be written over `state`. Raises Refusal by the guards; changes nothing."""
        guards.check(state, desired, names=self.names, addresses=self.addresses, owner=self.owner)
        if desired.kind == "weighted" and state.kind != "weighted":
            self._require_lua()
        rrset = octo.target(desired.kind, desired.weights, desired.ttl_s)
        texts = encode(desired.journal) if desired.journal else ()
        return Change(
            name=state.name,
            before=state,
            after=describe(state.name, (rrset,), texts),
            inverse=inverse_of(state),
            text=text_of(state, desired, ENGINE),
        )

    def apply(self, change: Change) -> None:
        """Write the change. Raises Refusal when the record is not `before` any more, Uncertain when the outcome of
        the write is not known, CheckFailed when the server refused it."""
        guards.check_name(change.name, self.names)
        rrsets = self._rrsets(change.name)
        if (present := _state(change.name, rrsets)) != change.before:
            raise Refusal(
                f"{change.name} changed since it was reviewed; nothing was written",
                why=difference(present) or f"expected {change.before.raw}, found {present.raw}"[:300],
                next_command=guards.LOOK,
            )
        provider = self._api.provider(secret.resolve(self._key), rrsets)
        (rrset,) = change.after.raw
        plan = provider.plan(self._api.desired(provider, change.name, rrset, change.after.journal))
        if plan is None:
            return
        listed = [(type(c).__name__, c.record.fqdn, c.record._type) for c in plan.changes]
        guards.check_changes(listed, change.name)
        try:
            provider.apply(plan)
        except requests.HTTPError as error:
            status = error.response.status_code
            if status >= 500:
                raise Uncertain(f"the DNS API answered {status} to a write") from None
            raise CheckFailed(f"the DNS API refused the write ({status})", why=_error_text(error.response)) from None
        except requests.RequestException as error:
            raise Uncertain("the DNS API broke off during a write", why=type(error).__name__) from None

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
        """One value of the TXT record at `name` comes or goes; others of that name stay. Raises as `read` does."""
        at = fqdn(name)
        found = [r for r in self._zone(at)["rrsets"] if (r["name"], r["type"]) == (at, "TXT")]
        texts = {text_value(row["content"]) for rrset in found for row in rrset["records"]}
        texts = texts | {value} if there else texts - {value}
        rrset: dict[str, Any] = {"name": at, "type": "TXT", "changetype": "REPLACE" if texts else "DELETE"}
        rows = [{"content": quoted(text), "disabled": False} for text in sorted(texts)]
        rrset |= {"ttl": proof.TTL_S, "records": rows} if texts else {}
        self._call("PATCH", f"zones/{self._zone_path}", {}, {"rrsets": [rrset]})

    def _rrsets(self, name: str) -> list[dict[str, Any]]:
        """The API's RRsets that decide the name's answer, and its journal, both as of one serial of the zone."""
        at, journal_at = fqdn(name), journal_name(name)
        for _ in range(READS):
            zones = [self._zone(n) for n in (at, journal_at)]
            if zones[0].get("edited_serial") == zones[1].get("edited_serial"):
                return [
                    r
                    for z in zones
                    for r in z["rrsets"]
                    if (r["name"] == at and r["type"] in STEERING) or (r["name"] == journal_at and r["type"] == "TXT")
                ]
        raise Retryable(f"the zone {self.zone} changes faster than {name} can be read")

    def _zone(self, name: str) -> dict[str, Any]:
        found = self._get(f"zones/{self._zone_path}", {"rrset_name": name})
        if not isinstance(found, dict) or not isinstance(found.get("rrsets"), list):
            raise Retryable(f"the DNS API at {self._api.url} gave no usable answer")
        return found

    def _require_lua(self) -> None:
        """A server without Lua records would answer a weighted record with nothing. Raises Refusal.

        Lua that is on for one zone only is not seen: PowerDNS 4.7 does not show ENABLE-LUA-RECORDS by its API.
        """
        config = self._get("config", {})
        settings = {c["name"]: c["value"] for c in config} if isinstance(config, list) else {}
        mode = settings.get("enable-lua-records", "no")
        if mode not in ("yes", "shared"):
            raise Refusal(
                f"the authority at {self._api.url} cannot weight answers",
                why="enable-lua-records is off: a weighted record would have no answer at all",
                next_command="set enable-lua-records=yes in pdns.conf, restart it, then run this again",
            )

    @property
    def _zone_path(self) -> str:
        return quote(self.zone, safe="").replace("%", "=")  # PowerDNS' own escaping

    def _get(self, path: str, params: dict[str, str]) -> Any:
        return self._call("GET", path, params)

    def _call(self, method: str, path: str, params: dict[str, str], body: Any = None) -> Any:
        api = self._api
        try:
            answer = self._session.request(
                method,
                f"{api.url}/api/v1/servers/{api.server}/{path}",
                params=params,
                json=body,
                headers={"X-API-Key": secret.resolve(self._key)},
                timeout=api.timeout_s,
                verify=True if api.ca is None else api.ca,
            )
        except requests.exceptions.SSLError:
            raise Retryable(f"the certificate of {api.url} is not signed by {api.ca or 'a known CA'}") from None
        except (requests.RequestException, OSError) as error:
            raise Retryable(f"the DNS API at {api.url} does not answer", why=type(error).__name__) from None
        if answer.status_code in (401, 403):
            raise Refusal(f"the DNS API at {api.url} refuses the key", why=f"the key is {self._key}")
        if answer.status_code in (404, 422):
            raise Refusal(f"the DNS API at {api.url} has no zone {self.zone}", why=_error_text(answer))
        try:
            if answer.status_code in (200, 204):
                return answer.json() if answer.content else None
        except ValueError:
            pass
        raise Retryable(f"the DNS API at {api.url} gave no usable answer", why=f"status {answer.status_code}")


def _state(name: str, rrsets: list[dict[str, Any]]) -> RecordState:
    steering: list[RRset] = []
    texts: tuple[str, ...] = ()
    for rrset in rrsets:
        contents = tuple(sorted(r["content"] for r in rrset["records"]))
        if rrset["name"] == journal_name(name):
            texts = tuple(text_value(content) for content in contents)
        elif contents:
            # a disabled entry is not answered, and would be lost by a write: not ours to change
            disabled = any(r.get("disabled") for r in rrset["records"])
            type_ = f"{rrset['type']} with disabled entries" if disabled else rrset["type"]
            steering.append(RRset(type=type_, ttl_s=rrset["ttl"], contents=contents))
    return describe(name, tuple(steering), texts)


def _error_text(answer: requests.Response) -> str:
    try:
        return str(answer.json().get("error", ""))[:200]
    except (ValueError, AttributeError):
        return ""
