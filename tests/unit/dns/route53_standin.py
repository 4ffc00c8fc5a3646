"""Stand-in: `Strict`, a Route 53 client before moto that refuses what Route 53 refuses, and moto forgives: a DELETE
whose values differ, a CREATE over what exists, a weighted record beside a simple one, an alias of nothing."""

from __future__ import annotations

import copy
from typing import Any

from dns_standins import NAME, NEW, OLD, OWNER

from inferlift.dns.route53 import Route53

AT, BOOK = "ai.demo.test.", "_inferlift.ai.demo.test."
SIMPLE = {"Name": AT, "Type": "A", "TTL": 3600, "ResourceRecords": [{"Value": OLD}]}


class Strict:
    """A client that keeps each batch, and refuses what Route 53 refuses. `fail`: errors to answer with, in turn."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.batches, self.fail = inner, [], []
        self.after: list[BaseException | None] = []  # raised when a batch has been applied, in turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def change_resource_record_sets(self, HostedZoneId: str, ChangeBatch: dict[str, Any]) -> Any:
        if self.fail:
            raise self.fail.pop(0)
        self.batches.append(copy.deepcopy(ChangeBatch))
        present = {
            _key(r): r for r in self.inner.list_resource_record_sets(HostedZoneId=HostedZoneId)["ResourceRecordSets"]
        }
        before = dict(present)
        for change in ChangeBatch["Changes"]:
            record, key = change["ResourceRecordSet"], _key(change["ResourceRecordSet"])
            if change["Action"] == "DELETE":
                if _values(present.get(key)) != _values(record):
                    raise refused("InvalidChangeBatch", f"values of {key} do not match")
                del present[key]
            else:
                assert change["Action"] == "CREATE"
                if (alias := record.get("AliasTarget")) and (
                    "TTL" in record or not any(k[0] == alias["DNSName"] for k in present)
                ):
                    raise refused("InvalidChangeBatch", f"the alias {key} has a TTL, or its target was not found")
                kinds = {bool(k[2]) for k in present if k[:2] == key[:2]}
                if key in present or (kinds and kinds != {bool(key[2])}):
                    raise refused("InvalidChangeBatch", f"{key} exists already, or a simple record does")
                present[key] = record
        for change in ChangeBatch["Changes"]:
            if change["Action"] == "CREATE":  # moto refuses a CREATE that it has seen before, also after a DELETE
                change = {**change, "Action": "UPSERT"}
            again = []
            if (own := change["ResourceRecordSet"].get("SetIdentifier")) and change["Action"] == "DELETE":
                # moto takes every record with that identifier, whatever its name
                again = [r for k, r in before.items() if k[2] == own and k[0] != change["ResourceRecordSet"]["Name"]]
            back = [{"Action": "UPSERT", "ResourceRecordSet": r} for r in again if r in present.values()]
            self.inner.change_resource_record_sets(HostedZoneId=HostedZoneId, ChangeBatch={"Changes": [change, *back]})
        if self.after and (error := self.after.pop(0)) is not None:
            raise error
        return {"ChangeInfo": {"Id": "/change/C1"}}

    def get_change(self, Id: str) -> Any:
        return {"ChangeInfo": {"Status": "INSYNC"}}


def _key(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["Name"], record["Type"], record.get("SetIdentifier", "")


def _values(record: dict[str, Any] | None) -> Any:
    if record is None:
        return None
    values = sorted(r["Value"] for r in record.get("ResourceRecords", []))
    return [record.get(k) for k in ("TTL", "Weight", "HealthCheckId", "Region", "AliasTarget")], values


def refused(code: str, message: str = "", status: int = 400) -> Exception:
    from botocore.exceptions import ClientError

    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "ChangeResourceRecordSets")  # type: ignore[arg-type]


def put(client: Strict, *wanted: dict[str, Any]) -> None:
    changes = [{"Action": "UPSERT", "ResourceRecordSet": r} for r in wanted]
    client.inner.change_resource_record_sets(HostedZoneId=client.zone, ChangeBatch={"Changes": changes})


def records(client: Strict) -> list[dict[str, Any]]:
    return list(client.inner.list_resource_record_sets(HostedZoneId=client.zone)["ResourceRecordSets"])


def backend(client: Strict, **more: Any) -> Route53:
    named: dict[str, Any] = {"names": [NAME], "addresses": [OLD, NEW], "owner": OWNER, "run": "run-1", **more}
    return Route53(client.zone, "demo.test.", client=client, sleep=lambda s: None, **named)


class Memory:
    """Records of one zone in a dictionary, for whole switches: moto takes a hundredth of a second a call. `rest`: a
    client that is asked for everything else."""

    def __init__(self, rest: Any = None) -> None:
        self.sets: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rest = rest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rest, name)

    def list_resource_record_sets(self, HostedZoneId: str, StartRecordName: str = "", **_: Any) -> dict[str, Any]:
        order = sorted(self.sets.values(), key=lambda r: (_order(r["Name"]), r["Type"], r.get("SetIdentifier", "")))
        found = [r for r in order if _order(r["Name"]) >= _order(StartRecordName)]
        return {"ResourceRecordSets": copy.deepcopy(found), "IsTruncated": False}

    def change_resource_record_sets(self, HostedZoneId: str, ChangeBatch: dict[str, Any]) -> None:
        for change in ChangeBatch["Changes"]:
            record = change["ResourceRecordSet"]
            if change["Action"] == "DELETE":
                del self.sets[_key(record)]
            else:
                self.sets[_key(record)] = copy.deepcopy(record)


def _order(name: str) -> list[str]:
    """Route 53 lists by the name's labels from the right."""
    return name.rstrip(".").split(".")[::-1]
