"""One verdict of several sites: which one failed is named, and no site makes up for another."""

from __future__ import annotations

from typing import Any

import pytest
from test_watch import COST, END, START, Canned, profile

from inferlift.artifacts import Figure, Watch
from inferlift.observe import Plan, joined, judge, unasked

NEAR, FAR = "eu-central-1", "eu-north-1"
BILL = Figure(value=400.0, unit="EUR/month", basis="assumed", source="the bill")


def part(**values: Any) -> Watch:
    targets = profile(p95_total_ms=1000.0, error_share=0.01)
    return judge(Canned(**values), targets, START, END, cost_per_hour=COST)  # type: ignore[arg-type]


def plan() -> Plan:
    made: Any = type("Sizing", (), {"currency": "EUR"})()
    return Plan(profile=profile(), sizing=made, replicas=0, bill_monthly=BILL)


@pytest.mark.parametrize(
    ("near", "far", "verdict", "why"),
    [
        ({}, {}, "pass", "all 8 gates of 2 sites hold"),
        ({}, {"5xx": 20.0}, "fail", f"{FAR}: errors: 0.02 share, target 0.01"),
        ({"5xx": 20.0}, {}, "fail", f"{NEAR}: errors: 0.02 share, target 0.01"),
        ({}, {"up[": None}, "inconclusive", f"{FAR}: targets up: no data"),
        ({"up[": None}, {"5xx": 20.0}, "fail", f"{FAR}: errors"),
    ],
)
def test_the_site_that_fails_is_named(near: Any, far: Any, verdict: str, why: str) -> None:
    whole = joined({NEAR: part(**near), FAR: part(**far)}, plan())
    assert whole.verdict == verdict
    assert whole.why.startswith(why)
    assert len(whole.gates) == 8
    assert {g.name.split(": ")[0] for g in whole.gates} == {NEAR, FAR}


def test_figures_and_series_keep_their_site_and_costs_are_added_up() -> None:
    whole = joined({NEAR: part(), FAR: part(haproxy_frontend_http_responses_total=500.0)}, plan())
    assert whole.figures[f"{NEAR}: requests"].value == 1000
    assert whole.figures[f"{FAR}: requests"].value == 500
    assert whole.figures["cost_so_far"].value == pytest.approx(0.12)
    assert whole.figures["cost_per_1000_at_this_rate"].value == pytest.approx(0.08)
    assert {s.name for s in whole.series} >= {f"request rate, {NEAR}", f"request rate, {FAR}"}
    (bill,) = [j for j in whole.judgements if j.name == "cost against the old bill"]
    assert bill.figure.value == pytest.approx(2 * 0.36 * 730)
    assert bill.verdict == "too high", "one site alone would have been cheaper than before"


def test_a_price_that_is_unknown_at_one_site_is_unknown_of_all() -> None:
    without = judge(Canned(), profile(), START, END)  # type: ignore[arg-type]
    whole = joined({NEAR: part(), FAR: without}, plan())
    assert "cost_so_far" not in whole.figures
    assert [j.verdict for j in whole.judgements] == ["unknown"]


def test_a_site_that_could_not_be_asked_never_passes() -> None:
    good = part()
    whole = joined({NEAR: good, FAR: unasked(good, "Prometheus does not answer")}, plan())
    assert whole.verdict == "inconclusive"
    assert whole.why == f"{FAR}: history: no data (Prometheus does not answer)"
