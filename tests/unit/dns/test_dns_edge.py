"""Regions of a name on Route 53: the exact batches, the switch of each region, the ways back.

Behind `Strict`, which refuses what Route 53 refuses. That Route 53 answers a user with the nearest region, and leaves
out one whose health check fails, is not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, PLAN, Clock, Killed, gate, no_intent
from route53_standin import AT, BOOK, SIMPLE, Strict, backend, put, records, refused

from inferlift import profile
from inferlift.artifacts import Gate
from inferlift.dns.answers import Answers
from inferlift.dns.edge import Edge, Leg
from inferlift.dns.eyes import Net
from inferlift.dns.latency import Regions, regional
from inferlift.dns.record import shares
from inferlift.dns.route53 import Route53
from inferlift.dns.switch import Switch
from inferlift.errors import CheckFailed, Refusal, Uncertain

pytestmark = pytest.mark.programs

NEAR, FAR = "eu-central-1", "us-east-1"
LEGS = (Leg(NEAR, regional(NAME, NEAR), NEW), Leg(FAR, regional(NAME, FAR), "192.0.2.30"))
NAMES = [NAME, *(leg.name for leg in LEGS)]
CHECKS = {NEW: "hc-near", "192.0.2.30": "hc-far"}


def back(client: Strict, **more: Any) -> Route53:
    given = {"names": NAMES, "addresses": [OLD, NEW, "192.0.2.30"], "health_checks": CHECKS, **more}
    return backend(client, **given)


def regions(client: Strict, *wanted: str, intent: Any = no_intent, **more: Any) -> Regions:
    return Regions(back(client, **more), NAME, OLD, wanted or (NEAR, FAR), intent, lambda line: None)


def alias(client: Strict, region: str) -> dict[str, Any]:
    target = {"HostedZoneId": client.zone, "DNSName": f"{region}.{AT}", "EvaluateTargetHealth": True}
    return {"Name": AT, "Type": "A", "SetIdentifier": f"inferlift-{region}", "Region": region, "AliasTarget": target}


def said(batch: dict[str, Any]) -> list[tuple[str, Any]]:
    """A batch without its journal."""
    found = [(c["Action"], c["ResourceRecordSet"]) for c in batch["Changes"]]
    return [(what, record) for what, record in found if record["Type"] != "TXT"]


def test_regions_are_made_in_one_batch_and_change_nobodys_answer(client: Strict) -> None:
    regions(client).make()
    assert said(client.batches[0]) == [
        ("DELETE", SIMPLE),
        *(("CREATE", {**SIMPLE, "Name": f"{region}.{AT}"}) for region in (NEAR, FAR)),
        *(("CREATE", alias(client, region)) for region in (NEAR, FAR)),
    ]
    assert client.batches[0]["Changes"][-1]["ResourceRecordSet"]["Name"] == BOOK
    assert regions(client).read().kind == "spread"
    regions(client).make()
    assert len(client.batches) == 1, "made once"


def test_the_way_back_is_on_record_before_the_write_and_is_the_exact_inverse(client: Strict) -> None:
    before, noted = records(client), []

    @contextmanager
    def intent(action: str, name: str, was: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
        assert client.batches == [], "nothing was written yet"
        noted.append((action, name, planned))
        yield

    regions(client, intent=intent).make()
    ((action, name, planned),) = noted
    assert (action, name, planned["batch"]) == ("spread", NAME, client.batches[0])
    json.dumps(planned)  # a ledger takes it
    client.change_resource_record_sets(HostedZoneId=client.zone, ChangeBatch=planned["inverse"])
    assert records(client) == before


def test_another_region_joins_those_that_stand(client: Strict) -> None:
    regions(client, NEAR).make()
    regions(client).make()
    assert said(client.batches[1]) == [
        ("DELETE", alias(client, NEAR)),
        ("CREATE", {**SIMPLE, "Name": f"{FAR}.{AT}"}),
        *(("CREATE", alias(client, region)) for region in (NEAR, FAR)),
    ]
    with pytest.raises(Refusal, match="not wanted any more: us-east-1"):
        regions(client, NEAR).make()


def test_given_back_as_it_was_found(client: Strict) -> None:
    before = records(client)
    regions(client).make()
    regions(client).unmake()
    assert records(client) == before
    regions(client).unmake()
    assert len(client.batches) == 2, "nothing to do any more"


MEDDLED: list[tuple[dict[str, Any], str]] = [
    ({**SIMPLE, "ResourceRecords": [{"Value": "192.0.2.66"}]}, "not 192.0.2.10 alone"),
    ({**SIMPLE, "ResourceRecords": [{"Value": OLD}, {"Value": "192.0.2.66"}]}, "not 192.0.2.10 alone"),
    ({**SIMPLE, "Type": "AAAA", "ResourceRecords": [{"Value": "2001:db8::1"}]}, "not a record that can get regions"),
    ({**SIMPLE, "Name": f"{FAR}.{AT}"}, "stands already"),
]


@pytest.mark.parametrize(("record", "words"), MEDDLED)
def test_what_somebody_else_wrote_is_left_alone(client: Strict, record: dict[str, Any], words: str) -> None:
    put(client, record)
    with pytest.raises(Refusal, match=words):
        regions(client).make()
    assert client.batches == []


def test_other_writers_other_names_and_no_region_are_refused(client: Strict) -> None:
    with pytest.raises(Refusal, match="is not a name of this profile"):
        regions(client, names=[NAME]).make()
    with pytest.raises(Refusal, match="no answer left"):
        Regions(back(client), NAME, OLD, (), no_intent, print).make()
    regions(client).make()
    with pytest.raises(Refusal, match="belong to another writer"):
        regions(client, owner="somebody@else").make()
    with pytest.raises(Refusal, match="belong to another writer"):
        regions(client, owner="somebody@else").unmake()
    latency = alias(client, FAR)
    client.inner.change_resource_record_sets(
        HostedZoneId=client.zone, ChangeBatch={"Changes": [{"Action": "DELETE", "ResourceRecordSet": latency}]}
    )
    with pytest.raises(Refusal, match="not a record that can get regions") as caught:
        regions(client).make()
    assert "not those of its journal" in caught.value.why


def test_a_change_after_the_look_is_refused_and_a_lost_answer_is_settled_by_reading(client: Strict) -> None:
    made = regions(client)
    change = made.propose(made.read())
    put(client, {**SIMPLE, "TTL": 300})
    with pytest.raises(Refusal, match="someone else writes it too"):
        made.apply(change)
    put(client, SIMPLE)
    client.after = [refused("InternalFailure", status=500)]
    with pytest.raises(Uncertain):
        made.make()
    made.make()
    assert len(client.batches) == 1


# --- the switch of each region -----------------------------------------------------------------------------------


class Dns:
    """Authority and resolver that answer what the API has: the name by any of its regions."""

    def __init__(self, client: Strict) -> None:
        self.back, self.regions = back(client), regions(client)
        self.lost = False  # the authority knows no alias

    def weights(self, name: str) -> dict[str, float]:
        if name != NAME or self.regions.read().kind != "spread":
            return shares(self.back.read(name).weights)
        each = [shares(self.back.read(leg.name).weights) for leg in LEGS]
        return {} if self.lost else {a: sum(e.get(a, 0.0) for e in each) / len(each) for e in each for a in e}

    def shares(self, authority: str, name: str, n: int) -> Answers:
        hits = {a: round(n * share) for a, share in self.weights(name).items()}
        return Answers(n, hits, n - sum(hits.values()), 3600)

    def net(self) -> Net:
        return Net(
            self.shares, lambda resolver, name: (tuple(self.weights(name))[-1:], 1),
            lambda authority, name: self.back.read(name).journal,
        )  # fmt: skip


def edge(client: Strict, gates: Any = lambda name, weight: "pass", **more: Any) -> tuple[Edge, Dns]:
    clock, dns, plan = Clock(), Dns(client), profile.Switch(**{**PLAN.model_dump(), "ttl_s": 60})

    def switch(leg: Leg) -> Switch:
        def judged(weight: int) -> tuple[Gate, ...]:
            return (gate(gates(leg.name, weight)),)

        return Switch(
            back(client, **more), leg.name, OLD, leg.new, plan, gates=judged, on_intent=no_intent, authority="a",
            resolver="r", clock=clock, sleep=clock.sleep, net=dns.net(),
        )  # fmt: skip

    return Edge(regions(client, **more), LEGS, switch, ("a",), dns.net(), lambda line: None), dns


def test_each_region_is_switched_to_its_own_side_with_its_health_check(quick: Strict) -> None:
    before = records(quick)
    moving, dns = edge(quick)
    result = moving.run()
    assert not result.rolled_back
    assert [s.weight for s in result.steps] == [0, 1, 10, 50, 100] * 2
    assert dns.weights(NAME) == {NEW: 0.5, "192.0.2.30": 0.5}
    for leg in LEGS:
        (only,) = [r for r in records(quick) if r["Name"] == leg.name and r["Type"] == "A"]
        assert (only["HealthCheckId"], only["ResourceRecords"]) == (CHECKS[leg.new], [{"Value": leg.new}])
    assert moving.run().rolled_back is False, "again: nothing to do"
    with pytest.raises(Refusal, match=r"not 192\.0\.2\.10 alone"):
        moving.regions.unmake()
    moving.rollback()
    assert dns.weights(NAME) == {OLD: 1.0}
    moving.regions.unmake()
    assert records(quick) == before


def test_where_one_region_fails_the_users_of_all_go_back(quick: Strict) -> None:
    moving, dns = edge(quick, lambda name, weight: "fail" if name == LEGS[1].name and weight == 10 else "pass")
    result = moving.run()
    assert result.rolled_back
    assert result.why.startswith("us-east-1: new side errors")
    assert dns.weights(NAME) == {OLD: 1.0}
    assert moving.run().rolled_back, "the same attempt has ended"
    fresh, _ = edge(quick, run="run-2")
    assert not fresh.run().rolled_back


def test_an_authority_that_answers_nothing_gets_the_simple_record_back(quick: Strict) -> None:
    before = records(quick)
    moving, dns = edge(quick)
    dns.lost = True
    with pytest.raises(CheckFailed, match=r"answers nothing for ai\.demo\.test"):
        moving.run()
    assert records(quick) == before


@pytest.mark.parametrize("batch", [0, 1, 2, 4, 8, 12, 18])  # of 19, the first of each kind
def test_killed_after_any_batch_it_goes_on(quick: Strict, batch: int) -> None:
    moving, dns = edge(quick)
    quick.after = [*[None] * batch, Killed()]
    with pytest.raises(Killed):
        moving.run()
    assert sum(dns.weights(NAME).values()) == pytest.approx(1.0), "somebody answers everybody"
    assert not moving.run().rolled_back
    assert dns.weights(NAME) == {NEW: 0.5, "192.0.2.30": 0.5}


def test_rolled_back_before_regions_were_made_is_nothing_to_do(quick: Strict) -> None:
    moving, _ = edge(quick)
    assert moving.rollback().authority_s == 0.0
    assert quick.batches == []
