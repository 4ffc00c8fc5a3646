"""One look of a switch: what a handful of prompts may say, and the guard's back end by the profile."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift.artifacts import Check, Contract, Route
from inferlift.declaration import load
from inferlift.profile import ROOT, Switch
from inferlift.stages import _guarding
from inferlift.stages._judging import Judge, sampled

WORLD: Any = SimpleNamespace(made=SimpleNamespace(guard_api="https://10.0.0.3:8444", guard_key="file:/g"))
POWERDNS = {"kind": "powerdns", "zone": "x.test", "url": "https://a", "key": "env:K", "ca": "/ca"}
TSIG = {"kind": "rfc2136", "zone": "x.test", "server": "10.0.0.3", "key_name": "k", "key": "env:K", "port": 5353}
ROUTE53 = {"kind": "route53", "zone": "x.test", "zone_id": "Z1"}
HAPROXY = {"kind": "haproxy", "backend": "b", "servers": {"10.0.0.1": "a"}, "front": "10.0.0.9"}


@pytest.mark.parametrize(
    ("right", "n", "verdict"),
    [(0, 0, "inconclusive"), (4, 4, "pass"), (2, 4, "pass"), (0, 4, "fail"), (1, 1, "pass"), (0, 1, "pass"),
     (16, 20, "pass"), (10, 20, "fail"), (0, 3, "fail")],
)  # fmt: skip
def test_a_sample_fails_only_what_is_grossly_wrong(right: int, n: int, verdict: str) -> None:
    assert sampled(0.8, right, n).verdict == verdict


@pytest.mark.parametrize(
    ("switch", "kind", "key", "why"),
    [
        ({}, "powerdns", "file:/g", ""),
        ({"guard": {"enabled": False}}, None, None, "enabled: false"),
        ({"dns": POWERDNS}, None, None, "switch.guard.key"),
        ({"dns": POWERDNS, "guard": {"key": "env:G", "url": "https://p"}}, "powerdns", "env:G", ""),
        ({"dns": TSIG, "guard": {"key": "env:G", "key_name": "g"}}, "rfc2136", "env:G", ""),
        ({"dns": ROUTE53}, "route53", None, ""),
        ({"dns": HAPROXY}, None, None, "no other host"),
    ],
)
def test_the_guard_has_a_key_of_its_own_or_is_not_there(
    switch: dict[str, Any], kind: str | None, key: str | None, why: str
) -> None:
    profile = load("demo", ROOT).profile.model_copy(update={"switch": Switch.model_validate(switch)})
    backend, found, said = _guarding._backend(SimpleNamespace(profile=profile), WORLD)  # type: ignore[arg-type]
    assert (backend.kind if backend else None, found) == (kind, key)
    assert why in said
    assert bool(said) is (backend is None)
    if kind == "rfc2136":
        assert (backend.key_name, backend.port, backend.algorithm) == ("g", 5353, "hmac-sha256")
    if key == "env:G" and kind == "powerdns":
        assert (backend.url, backend.ca) == ("https://p", "/etc/inferlift-guard/ca.pem")


@pytest.mark.parametrize(
    ("old_ms", "new_ms", "n", "verdict"),
    [(1000, 900, 8, "pass"), (1000, 1400, 8, "pass"), (1000, 1600, 8, "fail"), (10, 59, 8, "pass"), (10, 61, 8, "fail"),
     (1000, None, 0, "inconclusive"), (None, 900, 8, "inconclusive"), (1000, 900, 3, "inconclusive")],
)  # fmt: skip
def test_the_first_switch_is_held_against_the_old_side(
    monkeypatch: pytest.MonkeyPatch, old_ms: float | None, new_ms: float | None, n: int, verdict: str
) -> None:
    judge = object.__new__(Judge)
    judge.ctx, judge.service = None, None  # type: ignore[assignment]
    monkeypatch.setattr("inferlift.stages._fleet.origin_target", lambda ctx: "old")
    monkeypatch.setattr("inferlift.stages._fleet.target_of", lambda ctx, service: "new")
    runs = {side: SimpleNamespace(latencies_ms=(ms,) * k if ms else ())
            for side, ms, k in (("old", old_ms, 8), ("new", new_ms, n))}  # fmt: skip
    monkeypatch.setattr(Judge, "_sent", lambda self, target, *more: runs[target])
    (gate,) = judge._against_old()
    assert gate.verdict == verdict


@pytest.mark.parametrize(("answers", "verdict"), [([True] * 3, "pass"), ([True, False, True], "fail")])
@pytest.mark.parametrize("region", [None, "us-east-1.ai.x.test."])
def test_without_users_of_ours_a_client_asks_by_name(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool], verdict: str, region: str | None
) -> None:
    judge, asked = by_name(monkeypatch, region), list[Any]()
    monkeypatch.setattr("inferlift.dns.answers.resolver_answers", lambda at, name: ((f"{at} of {name}",), 1))

    def once(target: Any, timeout_s: float, protocol: Any) -> Check:
        asked.append((target.address, target.resolver, target.name))
        return Check(name="completion", ok=answers[len(asked) - 1], detail="status 503")

    monkeypatch.setattr("inferlift.load.probe.once", once)
    assert judge._by_name(datetime.now(UTC)).verdict == verdict
    # under the users' name, wherever the region's own leads
    address = f"10.0.0.4 of {region}" if region else None
    assert asked == [(address, "10.0.0.4", "ai.x.test")] * 3


def test_a_region_whose_name_has_no_answer_fails_its_users(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = by_name(monkeypatch, "us-east-1.ai.x.test.")
    monkeypatch.setattr("inferlift.dns.answers.resolver_answers", lambda at, name: ((), None))
    gate = judge._by_name(datetime.now(UTC))
    assert gate.verdict == "fail"
    assert "no address for us-east-1.ai.x.test." in gate.why


def by_name(monkeypatch: pytest.MonkeyPatch, region: str | None) -> Judge:
    demo = load("demo", ROOT).profile
    assert demo.lab is not None
    judge = object.__new__(Judge)
    judge.ctx = SimpleNamespace(profile=demo.model_copy(update={"lab": demo.lab.model_copy(update={"users": 0})}))  # type: ignore[assignment]
    contract = Contract(
        name="ai.x.test", certificate="/c", certificate_key="file:/k", key_header="X", key="env:K",
        routes=(Route(path="/a", upstream="/b"),),
    )  # fmt: skip
    servers = SimpleNamespace(address="10.0.0.3"), SimpleNamespace(address="10.0.0.4")
    judge.world = SimpleNamespace(contract=contract, authority=servers[0], resolver=servers[1])  # type: ignore[assignment]
    judge.region = region
    return judge


def test_a_world_without_the_guards_key_is_said() -> None:
    profile = load("demo", ROOT).profile
    none: Any = SimpleNamespace(made=SimpleNamespace(guard_api="", guard_key=None))
    backend, _, said = _guarding._backend(SimpleNamespace(profile=profile), none)  # type: ignore[arg-type]
    assert backend is None
    assert "lab up" in said
