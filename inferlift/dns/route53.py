"""Route 53 as back end: weighted record sets, health checks, one change batch a step.

Every batch deletes exactly what was read and creates what is wanted. Route 53 applies a batch whole or not at all, and
refuses a DELETE whose values differ: so each write is a true compare-and-set, and the only form in which a simple
record may become a weighted one (an UPSERT of a weighted record over a simple one is refused).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inferlift.dns import guards, proof
from inferlift.dns.backend import Change, Desired, inverse_of, text_of
from inferlift.dns.record import (
    STEERING,
    WEIGHTED,
    RecordState,
    RRset,
    describe,
    difference,
    encode,
    entry,
    fqdn,
    journal_name,
    quoted,
    text_value,
)
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable, Uncertain

READS = 3  # tries to read record and journal unchanged in between
BUSY = ("PriorRequestNotComplete", "Throttling", "ThrottlingException")  # nothing was applied: the same again, later
BUSY_TRIES = 6
PAGES = 50  # of one name: a set has at most some hundred entries
POLICIES = ("Region", "Failover", "GeoLocation", "GeoProximityLocation", "MultiValueAnswer", "CidrRoutingConfig")
ENGINE = "Route 53, one change batch"

Record = dict[str, Any]  # a ResourceRecordSet as the API has it


class Route53:
    """Names of one hosted zone.

    `health_checks`: ids by address; where any side has one, weight 0 is left out of the set, since Route 53 answers
    zeros when all others are unhealthy. Without any it stands there with weight 0, which is never answered. `client`: a
    boto3 client (None: made from the machine's own AWS credentials, `profile` naming one of them; neither is kept).
    `insync_s`: the longest wait for Route 53's own word that all its servers have a change.
    """

    possible: tuple[int, ...] | None = None  # any percent

    def __init__(
        self,
        zone_id: str,
        zone: str,
        *,
        names: Iterable[str],
        addresses: Iterable[str],
        owner: str,
        run: str,
        health_checks: Mapping[str, str] | None = None,
        client: Any = None,
        profile: str | None = None,
        insync_s: float = 120.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.zone_id, self.zone = zone_id.removeprefix("/hostedzone/"), fqdn(zone)
        self.names, self.addresses = frozenset(names), frozenset(addresses)
        self.owner, self.run = owner, run
        self.health_checks = dict(health_checks or {})
        self._client, self._profile = client, profile
        self._insync_s, self._sleep = insync_s, sleep
        for name in self.names:
            if not fqdn(name).endswith("." + self.zone):
                raise DeclarationError(f"{name} is not in the zone {self.zone}")

    def read(self, name: str) -> RecordState:
        """The record and its journal. Raises Retryable when the API does not answer, Refusal when it says no."""
        return state_of(name, self._records(name))

    def propose(self, state: RecordState, desired: Desired) -> Change:
        """What would be written over `state`. Raises Refusal by the guards; changes nothing."""
        guards.check(state, desired, names=self.names, addresses=self.addresses, owner=self.owner)
        wanted = self._wanted(state.name, desired)
        return Change(
            name=state.name,
            before=state,
            after=state_of(state.name, wanted),
            inverse=inverse_of(state),
            text=text_of(state, desired, ENGINE),
        )

    def batch(self, change: Change, found: list[Record]) -> dict[str, Any]:
        """The change batch that turns `found` into `change.after`. Raises Refusal by the guards."""
        after = change.after
        weights = after.weights if after.kind == "weighted" else dict.fromkeys(after.weights, 1)
        desired = Desired(
            kind="weighted" if after.kind == "weighted" else "simple",
            weights={**dict.fromkeys(_zeros(after), 0), **weights},
            ttl_s=after.ttl_s or 0,
            journal=after.journal,
        )
        wanted = self._wanted(change.name, desired)
        listed = [("Delete", r["Name"], r["Type"]) for r in found] + [("Create", r["Name"], r["Type"]) for r in wanted]
        guards.check_changes(listed, change.name)
        step = f"{after.journal.phase} #{after.journal.sequence}" if after.journal else "given back"
        return {
            "Comment": f"inferlift {self.run} {step}"[:256],
            "Changes": [
                *({"Action": "DELETE", "ResourceRecordSet": r} for r in found),
                *({"Action": "CREATE", "ResourceRecordSet": r} for r in wanted),
            ],
        }

    def apply(self, change: Change) -> None:
        """Write the change and wait until Route 53 says that all its servers have it. Raises Refusal when the record
        is not `before` any more, Uncertain when the outcome is not known, CheckFailed when it was refused."""
        guards.check_name(change.name, self.names)
        found = self._records(change.name)
        if (present := state_of(change.name, found)) != change.before:
            raise _changed(change, present)
        self.send(change.name, self.batch(change, found), lambda: self._changed_meanwhile(change))

    def send(self, name: str, batch: dict[str, Any], changed: Callable[[], Refusal | None]) -> None:
        """One batch, once, until Route 53 says that all its servers have it. `changed`: what it was refused for, where
        the records are not those any more that it was made for. Raises that, Retryable, Uncertain, CheckFailed."""
        for attempt in range(BUSY_TRIES):
            code, message, answer = self._call(
                "change_resource_record_sets", HostedZoneId=self.zone_id, ChangeBatch=batch
            )
            if code not in BUSY:
                break
            self._sleep(min(2.0**attempt, 10.0))
        if code == "":
            return self._await_insync(answer["ChangeInfo"]["Id"])
        if code in BUSY:
            raise Retryable(f"Route 53 is busy with {self.zone}", why=code, next_command="run the same command again")
        if code == "InvalidChangeBatch" and (refusal := changed()) is not None:
            raise refusal
        if code == "unknown":
            raise Uncertain("Route 53 broke off during a write", why=message)
        raise CheckFailed(f"Route 53 refused the change of {name} ({code})", why=message[:300])

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
        at, wanted = fqdn(name), {"Value": quoted(value)}
        present = next((r for r in self.at(at) if r["Type"] == "TXT"), None)
        before = present["ResourceRecords"] if present else []
        if (wanted in before) == there:
            return
        rows = [*before, wanted] if there else [row for row in before if row != wanted]
        after = {"Name": at, "Type": "TXT", "TTL": proof.TTL_S, "ResourceRecords": rows}
        changes = [{"Action": "DELETE", "ResourceRecordSet": present}] if present else []
        changes += [{"Action": "CREATE", "ResourceRecordSet": after}] if rows else []
        batch = {"Comment": "inferlift: proof that the name is ours", "Changes": changes}
        code, message, answer = self._call("change_resource_record_sets", HostedZoneId=self.zone_id, ChangeBatch=batch)
        if code == "unknown" or code in BUSY:
            raise Retryable(f"Route 53 does not take the TXT record {name}", why=message or code)
        if code:
            raise CheckFailed(f"Route 53 refused the TXT record {name} ({code})", why=message[:300])
        self._await_insync(answer["ChangeInfo"]["Id"])

    def _changed_meanwhile(self, change: Change) -> Refusal | None:
        present = self.read(change.name)
        return _changed(change, present) if present != change.before else None

    def _wanted(self, name: str, desired: Desired) -> list[Record]:
        """Record sets in a fixed order: the addresses, then the journal."""
        at = fqdn(name)
        if desired.kind == "simple":
            values = [{"Value": a} for a in sorted(a for a, w in desired.weights.items() if w > 0)]
            records: list[Record] = [{"Name": at, "Type": "A", "TTL": desired.ttl_s, "ResourceRecords": values}]
        else:
            records = []
            for address, weight in sorted(desired.weights.items()):
                check = self.health_checks.get(address)
                if weight == 0 and self.health_checks:
                    continue
                records.append(
                    {
                        "Name": at,
                        "Type": "A",
                        "SetIdentifier": f"inferlift-{address}",
                        "Weight": weight,
                        "TTL": desired.ttl_s,
                        "ResourceRecords": [{"Value": address}],
                        **({"HealthCheckId": check} if check else {}),
                    }
                )
        if desired.journal is not None:
            texts = [{"Value": quoted(t)} for t in encode(desired.journal)]
            records.append({"Name": journal_name(name), "Type": "TXT", "TTL": desired.ttl_s, "ResourceRecords": texts})
        return records

    def _records(self, name: str) -> list[Record]:
        """The record sets that decide the name's answer, then its journal; unchanged while both were read."""
        for _ in range(READS):
            first, journal = self.at(fqdn(name)), self.at(journal_name(name))
            if self.at(fqdn(name)) == first:
                return [r for r in first if r["Type"] in STEERING] + [r for r in journal if r["Type"] == "TXT"]
        raise Retryable(f"the zone {self.zone} changes faster than {name} can be read")

    def at(self, name: str) -> list[Record]:
        """All record sets of exactly this name."""
        found: list[Record] = []
        start: dict[str, Any] = {"StartRecordName": name}
        for _ in range(PAGES):
            code, message, page = self._call("list_resource_record_sets", HostedZoneId=self.zone_id, **start)
            if code == "unknown" or code in BUSY:
                raise Retryable("Route 53 does not answer", why=message or code)
            if code:
                raise Refusal(
                    f"Route 53 refuses to list the zone {self.zone_id} ({code})",
                    why=message[:300],
                    next_command="compare zone id and credentials with the profile",
                )
            for record in page["ResourceRecordSets"]:
                if fqdn(record["Name"]) != name:
                    return found
                found.append(record)
            if not page.get("IsTruncated"):
                return found
            start = {
                "StartRecordName": page["NextRecordName"],
                "StartRecordType": page["NextRecordType"],
                **({"StartRecordIdentifier": i} if (i := page.get("NextRecordIdentifier")) else {}),
            }
        raise Retryable(f"the list of {name} has no end", why=f"more than {PAGES} pages")

    def _await_insync(self, change_id: str) -> None:
        """Best effort: without leave to ask, or late, the servers themselves are asked next anyway."""
        waited = 0.0
        while waited < self._insync_s:
            code, _, answer = self._call("get_change", Id=change_id)
            if (code and code not in ("unknown", *BUSY)) or (not code and answer["ChangeInfo"]["Status"] == "INSYNC"):
                return
            self._sleep(1.0)
            waited += 1.0

    def _call(self, method: str, **named: Any) -> tuple[str, str, Any]:
        """(code, message, answer): code "" is success, "unknown" says that nobody knows how it ended."""
        errors = module("botocore.exceptions")
        try:
            return "", "", getattr(self.api(), method)(**named)
        except errors.ClientError as error:
            said, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            return ("unknown" if status >= 500 else str(said["Code"])), str(said.get("Message", "")), None
        except (
            errors.NoCredentialsError, errors.PartialCredentialsError, errors.ProfileNotFound, errors.SSOError,
            errors.LoginError, errors.TokenRetrievalError, errors.CredentialRetrievalError,
        ) as error:  # fmt: skip
            raise Refusal("there are no AWS credentials here that are valid", why=str(error)) from None
        except errors.ParamValidationError as error:
            raise DeclarationError("Route 53 cannot be asked so", why=str(error)[:300]) from None
        except errors.BotoCoreError as error:
            return "unknown", type(error).__name__, None

    def api(self) -> Any:
        """The client: made when it is first needed, and kept."""
        if self._client is None:
            self._client = client(self._profile)
        return self._client


def client(profile: str | None = None) -> Any:
    """A Route 53 client that never repeats a call by itself: a batch that was applied and is sent again is refused,
    which would look like somebody else's change."""
    config = module("botocore.config").Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
    return module("boto3").Session(profile_name=profile).client("route53", region_name="us-east-1", config=config)


def module(name: str) -> Any:
    """boto3 and its parts are slow to import and have no types: both stay in here."""
    return importlib.import_module(name)


def state_of(name: str, records: list[Record]) -> RecordState:
    """The state of a name from Route 53's own record sets."""
    steering: list[RRset] = []
    texts: tuple[str, ...] = ()
    weighted: list[Record] = []
    for record in records:
        type_, ttl = record["Type"], int(record.get("TTL", 0))
        values = tuple(sorted(r["Value"] for r in record.get("ResourceRecords", [])))
        policy = next((p for p in POLICIES if p in record), None)
        if fqdn(record["Name"]) == journal_name(name):
            texts = tuple(text_value(v) for v in values)
        elif type_ == "A" and "AliasTarget" in record:
            steering.append(RRset(type="alias A", ttl_s=0, contents=(str(record["AliasTarget"]["DNSName"]),)))
        elif type_ == "A" and policy:
            steering.append(RRset(type=f"A by {policy}", ttl_s=ttl, contents=values))
        elif type_ == "A" and "Weight" in record:
            weighted.append(record)
        elif type_ == "A" and "HealthCheckId" in record:
            steering.append(RRset(type="A with a health check", ttl_s=ttl, contents=values))
        else:
            steering.append(RRset(type=type_, ttl_s=ttl, contents=values))
    if weighted:
        steering.append(_weighted_set(weighted))
    return describe(name, tuple(steering), texts)


def _weighted_set(records: list[Record]) -> RRset:
    """One RRset of all entries. Unequal TTLs or several addresses in an entry make it one that cannot be moved."""
    ttls = {int(r["TTL"]) for r in records}
    plain = len(ttls) == 1 and all(len(r["ResourceRecords"]) == 1 for r in records)
    return RRset(
        type=WEIGHTED if plain else "weighted A with unequal TTLs or several addresses an entry",
        ttl_s=min(ttls),
        contents=tuple(
            sorted(
                entry(
                    int(r["Weight"]),
                    r["ResourceRecords"][0]["Value"],
                    r["SetIdentifier"].replace(" ", "_"),
                    r.get("HealthCheckId", "-"),
                )
                for r in records
            )
        ),
    )


def _zeros(state: RecordState) -> list[str]:
    """Addresses that stand in the set with weight 0."""
    if state.kind != "weighted":
        return []
    pairs = [line.split(" ")[:2] for line in state.raw[0].contents]
    return [address for weight, address in pairs if weight == "0"]


def _changed(change: Change, present: RecordState) -> Refusal:
    return Refusal(
        f"{change.name} changed since it was reviewed; nothing was written",
        why=difference(present) or f"expected {change.before.raw}, found {present.raw}"[:300],
        next_command=guards.LOOK,
    )
