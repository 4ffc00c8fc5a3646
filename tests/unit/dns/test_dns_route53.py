"""The Route 53 back end: the exact change batches, since moto forgives what Route 53 refuses.

moto keeps the records here; it does not prove that Route 53 takes a batch. What Route 53 refuses is refused by the
stand-in before it (route53_standin.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, OWNER, Clock, StandInDns, StandInZone, gate, journal, switch
from route53_standin import AT, BOOK, SIMPLE, Strict, backend, put, records, refused

from inferlift.dns import health
from inferlift.dns.backend import Change, Desired
from inferlift.dns.record import encode, quoted, shares
from inferlift.dns.route53 import Route53
from inferlift.errors import CheckFailed, Refusal, Retryable, Uncertain

pytestmark = pytest.mark.programs


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
