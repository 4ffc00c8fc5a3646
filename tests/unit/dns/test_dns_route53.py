"""The Route 53 back end: the exact change batches, since moto forgives what Route 53 refuses.

moto keeps the records here; it does not prove that Route 53 takes a batch. What Route 53 refuses (a DELETE whose values
differ, a CREATE over what exists, a weighted record beside a simple one) is refused by `Strict`, a
stand-in before moto.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, OWNER, Clock, StandInDns, StandInZone, gate, journal, switch

from inferlift.dns import health, latency
from inferlift.dns.backend import Change, Desired
from inferlift.dns.record import encode, quoted, shares
from inferlift.dns.route53 import Route53
from inferlift.errors import CheckFailed, Refusal, Retryable, Uncertain

AT, BOOK = "ai.demo.test.", "_inferlift.ai.demo.test."
SIMPLE = {"Name": AT, "Type": "A", "TTL": 3600, "ResourceRecords": [{"Value": OLD}]}


class Strict:
    """A client that keeps each batch, and refuses what Route 53 refuses. `fail`: errors to answer with, in turn."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.batches, self.fail = inner, [], []
        self.after: list[Exception] = []  # raised when the batch has been applied

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def change_resource_record_sets(self, HostedZoneId: str, ChangeBatch: dict[str, Any]) -> Any:
        if self.fail:
            raise self.fail.pop(0)
        self.batches.append(copy.deepcopy(ChangeBatch))
        present = {
            _key(r): r for r in self.inner.list_resource_record_sets(HostedZoneId=HostedZoneId)["ResourceRecordSets"]
        }
        for change in ChangeBatch["Changes"]:
            record, key = change["ResourceRecordSet"], _key(change["ResourceRecordSet"])
            if change["Action"] == "DELETE":
                if _values(present.get(key)) != _values(record):
                    raise refused("InvalidChangeBatch", f"values of {key} do not match")
                del present[key]
            else:
                assert change["Action"] == "CREATE"
                kinds = {bool(k[2]) for k in present if k[:2] == key[:2]}
                if key in present or (kinds and kinds != {bool(key[2])}):
                    raise refused("InvalidChangeBatch", f"{key} exists already, or a simple record does")
                present[key] = record
        for change in ChangeBatch["Changes"]:
            if change["Action"] == "CREATE":  # moto refuses a CREATE that it has seen before, also after a DELETE
                change = {**change, "Action": "UPSERT"}
            self.inner.change_resource_record_sets(HostedZoneId=HostedZoneId, ChangeBatch={"Changes": [change]})
        if self.after:
            raise self.after.pop(0)
        return {"ChangeInfo": {"Id": "/change/C1"}}

    def get_change(self, Id: str) -> Any:
        return {"ChangeInfo": {"Status": "INSYNC"}}


def _key(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["Name"], record["Type"], record.get("SetIdentifier", "")


def _values(record: dict[str, Any] | None) -> Any:
    if record is None:
        return None
    values = sorted(r["Value"] for r in record.get("ResourceRecords", []))
    return record.get("TTL"), record.get("Weight"), record.get("HealthCheckId"), values


def refused(code: str, message: str = "", status: int = 400) -> Exception:
    from botocore.exceptions import ClientError

    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "ChangeResourceRecordSets")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def aws() -> Iterator[Any]:
    import boto3
    import moto

    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        with moto.mock_aws():
            yield boto3.client("route53", region_name="us-east-1")


@pytest.fixture
def client(aws: Any) -> Iterator[Strict]:
    made = aws.create_hosted_zone(Name="demo.test.", CallerReference=str(id(object())))["HostedZone"]["Id"]
    strict = Strict(aws)
    strict.zone = made.removeprefix("/hostedzone/")
    put(strict, SIMPLE, {"Name": "www.demo.test.", "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": "192.0.2.9"}]})
    yield strict
    left = [r for r in records(strict) if r["Type"] not in ("NS", "SOA")]
    changes = [{"Action": "DELETE", "ResourceRecordSet": r} for r in left]
    aws.change_resource_record_sets(HostedZoneId=strict.zone, ChangeBatch={"Changes": changes})
    aws.delete_hosted_zone(Id=strict.zone)


def put(client: Strict, *wanted: dict[str, Any]) -> None:
    changes = [{"Action": "UPSERT", "ResourceRecordSet": r} for r in wanted]
    client.inner.change_resource_record_sets(HostedZoneId=client.zone, ChangeBatch={"Changes": changes})


def records(client: Strict) -> list[dict[str, Any]]:
    return list(client.inner.list_resource_record_sets(HostedZoneId=client.zone)["ResourceRecordSets"])


def backend(client: Strict, **more: Any) -> Route53:
    named: dict[str, Any] = {"names": [NAME], "addresses": [OLD, NEW], "owner": OWNER, "run": "run-1", **more}
    return Route53(client.zone, "demo.test.", client=client, sleep=lambda s: None, **named)


def weighted(weights: dict[str, int], ttl_s: int = 2, **more: Any) -> Desired:
    book = journal(intended=weights, ttl_s=ttl_s, **more)
    return Desired(kind="weighted", weights=weights, ttl_s=ttl_s, journal=book)


def step(made: Route53, desired: Desired) -> Change:
    change = made.propose(made.read(NAME), desired)
    made.apply(change)
    made.verify(change)
    return change


def text(desired: Desired) -> dict[str, Any]:
    assert desired.journal is not None
    values = [{"Value": quoted(t)} for t in encode(desired.journal)]
    return {"Name": BOOK, "Type": "TXT", "TTL": desired.ttl_s, "ResourceRecords": values}


def entry(address: str, weight: int, ttl_s: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "Name": AT, "Type": "A", "SetIdentifier": f"inferlift-{address}", "Weight": weight, "TTL": ttl_s,
        "ResourceRecords": [{"Value": address}], **more,
    }  # fmt: skip


def test_simple_to_weighted_is_one_batch_at_100_0_with_the_journal_in_it(client: Strict) -> None:
    wanted = weighted({OLD: 100, NEW: 0}, phase="weighted", sequence=2)
    step(backend(client), wanted)
    assert client.batches == [
        {
            "Comment": "inferlift run-1 weighted #2",
            "Changes": [
                {"Action": "DELETE", "ResourceRecordSet": SIMPLE},
                {"Action": "CREATE", "ResourceRecordSet": entry(OLD, 100)},
                {"Action": "CREATE", "ResourceRecordSet": entry(NEW, 0)},
                {"Action": "CREATE", "ResourceRecordSet": text(wanted)},
            ],
        }
    ]


def test_a_step_deletes_exactly_what_was_read_and_creates_what_is_wanted(client: Strict) -> None:
    made = backend(client)
    first = weighted({OLD: 100, NEW: 0}, phase="weighted", sequence=2)
    step(made, first)
    second = weighted({OLD: 90, NEW: 10}, sequence=3)
    step(made, second)
    assert [(c["Action"], c["ResourceRecordSet"]) for c in client.batches[1]["Changes"]] == [
        ("DELETE", entry(OLD, 100)),
        ("DELETE", entry(NEW, 0)),
        ("DELETE", text(first)),
        ("CREATE", entry(OLD, 90)),
        ("CREATE", entry(NEW, 10)),
        ("CREATE", text(second)),
    ]
    assert made.read(NAME).weights == {OLD: 90, NEW: 10}
    ttls = {r["TTL"] for r in records(client) if r["Name"] == AT}
    assert ttls == {2}  # one TTL for the whole set, the journal's too


def test_with_health_checks_a_side_of_weight_zero_is_not_listed(client: Strict) -> None:
    """Route 53 answers zeros when all others are unhealthy."""
    made = backend(client, health_checks={OLD: "hc-old", NEW: "hc-new"})
    step(made, weighted({OLD: 100, NEW: 0}))
    created = [c["ResourceRecordSet"] for c in client.batches[0]["Changes"] if c["Action"] == "CREATE"]
    assert created[0] == entry(OLD, 100, HealthCheckId="hc-old")
    assert [r["Type"] for r in created] == ["A", "TXT"]
    step(made, weighted({OLD: 50, NEW: 50}, sequence=4))
    created = [c["ResourceRecordSet"] for c in client.batches[1]["Changes"] if c["Action"] == "CREATE"]
    assert [r.get("HealthCheckId") for r in created] == ["hc-old", "hc-new", None]


def test_given_back_as_it_was(client: Strict) -> None:
    made = backend(client)
    before = made.read(NAME)
    step(made, weighted({OLD: 100, NEW: 0}, before=before.raw))
    step(made, Desired(kind="simple", weights={OLD: 1}, ttl_s=3600, journal=None))
    assert made.read(NAME) == before
    assert [r for r in records(client) if r["Name"] in (AT, BOOK)] == [SIMPLE]
    assert client.batches[1]["Comment"] == "inferlift run-1 given back"


def test_a_whole_switch_forward_and_back_over_the_strict_stand_in(client: Strict) -> None:
    """Every batch of a switch is one that Route 53 takes."""
    clock = Clock()
    made = backend(client)
    seen = StandInDns(StandInZone(), clock)

    class Mirror:
        """DNS shows what the API has."""

        @property
        def state(self) -> Any:
            return made.read(NAME)

    seen.zone = Mirror()  # type: ignore[assignment]
    run = switch(made, clock, seen.net(), lambda w: (gate("pass"),))  # type: ignore[arg-type]
    assert not run.run().rolled_back
    assert shares(made.read(NAME).weights) == {NEW: 1.0}
    again = switch(made, clock, seen.net(), lambda w: (gate("pass"),))  # type: ignore[arg-type]
    again.rollback()
    again.restore()
    assert [r for r in records(client) if r["Name"] in (AT, BOOK)] == [SIMPLE]
    assert seen.empty == 0


def test_someone_elses_change_in_between_is_refused_and_nothing_is_written(client: Strict) -> None:
    made = backend(client)
    change = made.propose(made.read(NAME), weighted({OLD: 100, NEW: 0}))
    put(client, {**SIMPLE, "TTL": 300})
    with pytest.raises(Refusal, match="changed since it was reviewed"):
        made.apply(change)
    assert client.batches == []


def test_a_change_in_the_last_moment_is_refused_by_the_batch_itself(client: Strict) -> None:
    made = backend(client)
    change = made.propose(made.read(NAME), weighted({OLD: 100, NEW: 0}))
    real, count = client.inner.list_resource_record_sets, 0

    def then_meddle(**named: Any) -> Any:
        nonlocal count
        count += 1
        page = real(**named)
        if count == 3:  # after our last look
            put(client, {**SIMPLE, "ResourceRecords": [{"Value": "192.0.2.66"}]})
        return page

    client.list_resource_record_sets = then_meddle  # type: ignore[method-assign]
    with pytest.raises(Refusal, match="changed since it was reviewed"):
        made.apply(change)
    assert [r["ResourceRecords"] for r in records(client) if r["Name"] == AT] == [[{"Value": "192.0.2.66"}]]


def test_unequal_ttls_and_other_policies_are_not_ours_to_move(client: Strict) -> None:
    made = backend(client)
    client.inner.change_resource_record_sets(
        HostedZoneId=client.zone, ChangeBatch={"Changes": [{"Action": "DELETE", "ResourceRecordSet": SIMPLE}]}
    )
    put(client, entry(OLD, 90, 60), entry(NEW, 10, 3600))
    state = made.read(NAME)
    assert state.kind == "foreign"
    assert "unequal TTLs" in state.why
    with pytest.raises(Refusal, match="can be moved"):
        made.propose(state, weighted({OLD: 90, NEW: 10}))


@pytest.mark.parametrize(
    "record",
    [
        {"Name": AT, "Type": "A", "SetIdentifier": "x", "Region": "us-east-1", "TTL": 5,
         "ResourceRecords": [{"Value": OLD}]},
        {"Name": AT, "Type": "A", "SetIdentifier": "x", "Failover": "PRIMARY", "TTL": 5,
         "ResourceRecords": [{"Value": OLD}]},
        {"Name": AT, "Type": "A",
         "AliasTarget": {"HostedZoneId": "Z1", "DNSName": "lb.test.", "EvaluateTargetHealth": False}},
        {"Name": AT, "Type": "CNAME", "TTL": 5, "ResourceRecords": [{"Value": "x.test."}]},
        {"Name": AT, "Type": "A", "HealthCheckId": "h", "TTL": 5, "ResourceRecords": [{"Value": OLD}]},
    ],
)  # fmt: skip
def test_what_is_no_plain_record_is_foreign(record: dict[str, Any]) -> None:
    from inferlift.dns.route53 import state_of

    assert state_of(NAME, [record]).kind == "foreign"


def test_weights_all_zero_are_foreign_since_route_53_answers_them_all_alike() -> None:
    from inferlift.dns.route53 import state_of

    assert state_of(NAME, [entry(OLD, 0), entry(NEW, 0)]).why == "all its weights are zero"


def test_a_long_name_list_is_read_to_its_end(client: Strict) -> None:
    def small(**named: Any) -> Any:
        """One record set a page, as Route 53 pages: from the given name, type and identifier on."""
        every = sorted(
            records(client), key=lambda r: (r["Name"].split(".")[::-1], r["Type"], r.get("SetIdentifier", ""))
        )
        start = named["StartRecordName"], named.get("StartRecordType", ""), named.get("StartRecordIdentifier", "")
        place = [(r["Name"].split(".")[::-1], r["Type"], r.get("SetIdentifier", "")) for r in every]
        first = next(
            i for i, at in enumerate([*place, (["~"], "", "")]) if at >= (start[0].split(".")[::-1], *start[1:])
        )
        more: dict[str, Any] = {}
        if first + 1 < len(every):
            following = every[first + 1]
            more = {"NextRecordName": following["Name"], "NextRecordType": following["Type"]}
            if "SetIdentifier" in following:
                more["NextRecordIdentifier"] = following["SetIdentifier"]
        return {"ResourceRecordSets": every[first : first + 1], "IsTruncated": bool(more), **more}

    client.list_resource_record_sets = small  # type: ignore[method-assign]
    made = backend(client)
    step(made, weighted({OLD: 60, NEW: 40}))
    assert made.read(NAME).weights == {OLD: 60, NEW: 40}


def test_busy_is_waited_for_and_then_said(client: Strict) -> None:
    made = backend(client)
    client.fail = [refused("PriorRequestNotComplete"), refused("Throttling")]
    step(made, weighted({OLD: 100, NEW: 0}))
    assert len(client.batches) == 1
    client.fail = [refused("Throttling")] * 10
    with pytest.raises(Retryable, match="busy"):
        made.apply(made.propose(made.read(NAME), weighted({OLD: 90, NEW: 10}, sequence=4)))


def test_a_write_that_broke_off_is_unknown_and_settled_by_reading(client: Strict) -> None:
    from botocore.exceptions import ReadTimeoutError

    made = backend(client)
    change = made.propose(made.read(NAME), weighted({OLD: 100, NEW: 0}))
    client.after = [ReadTimeoutError(endpoint_url="https://route53.amazonaws.com")]
    with pytest.raises(Uncertain):
        made.apply(change)
    assert made.verify(change).kind == "weighted"  # it had been applied
    for error in (refused("InternalError", status=500), ReadTimeoutError(endpoint_url="x")):
        client.fail = [error]
        with pytest.raises(Uncertain):
            made.apply(made.propose(made.read(NAME), weighted({OLD: 90, NEW: 10}, sequence=4)))


def test_a_refusal_says_what_route_53_said(client: Strict) -> None:
    made = backend(client)
    client.fail = [refused("AccessDenied", "not authorized to perform ChangeResourceRecordSets", 403)]
    with pytest.raises(CheckFailed, match="AccessDenied") as found:
        made.apply(made.propose(made.read(NAME), weighted({OLD: 100, NEW: 0})))
    assert "not authorized" in found.value.why


def test_a_failed_read_is_never_an_empty_set(client: Strict) -> None:
    from botocore.exceptions import EndpointConnectionError

    def gone(**named: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="https://route53.amazonaws.com")

    client.list_resource_record_sets = gone  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        backend(client).read(NAME)
    client.list_resource_record_sets = lambda **named: (_ for _ in ()).throw(refused("NoSuchHostedZone", status=404))  # type: ignore[method-assign]
    with pytest.raises(Refusal, match="NoSuchHostedZone"):
        backend(client).read(NAME)


def test_the_real_client_never_repeats_a_write_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from inferlift.dns.route53 import client as real

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert real().meta.config.retries["total_max_attempts"] == 1


def test_health_checks_are_made_once_and_removed_by_tag(client: Strict) -> None:
    first = health.health_check(client, OWNER, NAME, NEW, path="/health")
    assert health.health_check(client, OWNER, NAME, NEW, path="/health") == first
    other = health.health_check(client, "someone@else", NAME, NEW, path="/health")
    assert other != first
    config = client.inner.get_health_check(HealthCheckId=first)["HealthCheck"]["HealthCheckConfig"]
    assert (config["IPAddress"], config["FullyQualifiedDomainName"], config["EnableSNI"]) == (NEW, NAME, True)
    assert health.remove_health_checks(client, OWNER) == [first]
    assert health.remove_health_checks(client, OWNER) == []
    left = [c["Id"] for c in client.inner.list_health_checks()["HealthChecks"]]
    assert left == [other]
    health.remove_health_checks(client, "someone@else")


def test_latency_records_take_the_place_of_a_simple_one_in_one_batch() -> None:
    made = latency.batch("Z1", NAME, [SIMPLE], {"us-east-1": NEW, "eu-central-1": OLD}, 60)
    said = [
        (c["Action"], c["ResourceRecordSet"]["Name"], c["ResourceRecordSet"].get("Region")) for c in made["Changes"]
    ]
    assert said == [
        ("CREATE", "eu-central-1.ai.demo.test.", None),
        ("CREATE", "us-east-1.ai.demo.test.", None),
        ("DELETE", AT, None),
        ("CREATE", AT, "eu-central-1"),
        ("CREATE", AT, "us-east-1"),
    ]
    last = made["Changes"][-1]["ResourceRecordSet"]
    assert last == {
        "Name": AT, "Type": "A", "SetIdentifier": "inferlift-us-east-1", "Region": "us-east-1",
        "AliasTarget": {
            "HostedZoneId": "Z1", "DNSName": "us-east-1.ai.demo.test.", "EvaluateTargetHealth": True,
        },
    }  # fmt: skip
    assert "TTL" not in json.dumps(last)  # an alias has none; Route 53 refuses one


def test_another_region_keeps_those_that_stand() -> None:
    present = latency.entries("Z1", NAME, ("eu-central-1",))
    made = latency.batch("Z1", NAME, present, {"us-east-1": NEW, "eu-central-1": OLD}, 60)
    assert [c["ResourceRecordSet"]["Name"] for c in made["Changes"] if c["Action"] == "CREATE"] == [
        "us-east-1.ai.demo.test.", AT, AT,
    ]  # fmt: skip
    with pytest.raises(Refusal, match="no answer left"):
        latency.batch("Z1", NAME, present, {}, 60)
    with pytest.raises(Refusal, match="regions"):
        latency.batch("Z1", NAME, [entry(OLD, 100)], {"us-east-1": NEW}, 60)


def test_a_proof_comes_beside_other_texts_and_goes_alone(client: Strict) -> None:
    at = "_acme-challenge.ai.demo.test."

    def texts() -> list[str]:
        found = [r for r in records(client) if r["Name"] == at]
        return sorted(row["Value"] for r in found for row in r["ResourceRecords"])

    put(client, {"Name": at, "Type": "TXT", "TTL": 5, "ResourceRecords": [{"Value": '"theirs"'}]})
    made = backend(client)
    made.prove("_acme-challenge.ai.demo.test", "ours", there=True)
    made.prove("_acme-challenge.ai.demo.test", "ours", there=True)
    assert texts() == ['"ours"', '"theirs"']
    made.prove("_acme-challenge.ai.demo.test", "ours", there=False)
    assert texts() == ['"theirs"']
    for there in (True, False, False):  # alone: the record goes with its last value
        made.prove("_acme-challenge.other.demo.test", "ours", there=there)
    assert not [r for r in records(client) if r["Name"].startswith("_acme-challenge.other")]
