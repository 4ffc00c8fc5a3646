"""Use, costs and triggers from measured figures: pure, with a plan made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from test_watch import COST, END, START, Canned, profile

from inferlift.artifacts import Figure, Memory, Sizing
from inferlift.observe import judge
from inferlift.observe.review import Plan, derived, due, review

DAY = 86400.0
MEMORY = Memory(weights_bytes=1, kv_bytes_per_token=1, kv_bytes=1, overhead_bytes=1, total_bytes=3, explain=())


def figure(value: float | None, unit: str = "") -> Figure:
    return Figure(value=value, unit=unit, basis="unknown" if value is None else "measured", source="given here")


def sizing(replicas: int = 4, hour: float | None = 10.0, **more: Any) -> Sizing:
    given: dict[str, Any] = {
        "verdict": "go", "why": "", "memory": MEMORY, "peak_rps": figure(8.0), "rate_per_replica": figure(2.0),
        "replicas": replicas, "spare": 1, "offers": (), "choice": "g6.xlarge", "cost_per_hour": figure(hour, "EUR/h"),
        "cost_per_1000": figure(1.0, "EUR/1000"), "currency": "EUR",
    }  # fmt: skip
    return Sizing(**{**given, **more})


def judged(figures: dict[str, Figure], seconds: float = 2 * DAY, **more: Any) -> tuple[dict[str, Any], Any]:
    given: dict[str, Any] = {"profile": profile(p95_total_ms=1000.0), "sizing": sizing(), "replicas": 5, **more}
    plan = Plan(**given)
    figures = {"memory_bandwidth_p95_share": figure(None), "p95_total_ms": figure(500.0), **figures}
    figures |= derived(plan, figures)
    return {j.name: j for j in review(plan, figures, seconds)}, due(figures)


def test_low_use_says_what_fewer_hosts_would_save() -> None:
    found, _ = judged({"peak_rps": figure(1.0)}, replanned=sizing(1, 4.0))
    use = found["use"]
    assert use.verdict == "too low"
    assert use.figure.value == pytest.approx(0.1)
    assert use.saving_monthly is not None
    assert use.saving_monthly.value == pytest.approx((10.0 - 4.0) * 730)  # five hosts at 2 an hour
    assert "1+1 x g6.xlarge" in use.why


def test_an_unknown_price_gives_no_saving_and_no_zero() -> None:
    found, _ = judged({"peak_rps": figure(1.0)}, sizing=sizing(hour=None), replanned=sizing(1, None))
    assert found["use"].saving_monthly is None


@pytest.mark.parametrize(("peak", "verdict"), [(5.0, "as planned"), (9.0, "too high"), (None, "unknown")])
def test_use(peak: float | None, verdict: str) -> None:
    found, _ = judged({"peak_rps": figure(peak)})
    assert found["use"].verdict == verdict


def test_memory_bandwidth_counts_where_it_is_higher_than_the_requests_say() -> None:
    found, triggers = judged({"peak_rps": figure(1.0), "memory_bandwidth_p95_share": figure(0.9)})
    assert found["use"].verdict == "too high"
    assert {t.name for t in triggers if t.verdict == "met"} == {"add a replica", "faster memory or more GPUs"}


def test_a_short_watch_is_no_day() -> None:
    assert "a day's peak may be higher" in judged({"peak_rps": figure(5.0)}, seconds=60)[0]["use"].why
    assert "a day's peak" not in judged({"peak_rps": figure(5.0)})[0]["use"].why


@pytest.mark.parametrize(("cost", "verdict"), [(1.1, "as planned"), (2.0, "too high"), (None, "unknown")])
def test_cost_of_a_request_against_the_plan(cost: float | None, verdict: str) -> None:
    found, triggers = judged({"peak_rps": figure(5.0), "cost_per_1000_at_this_rate": figure(cost, "EUR/1000")})
    assert found["cost of 1000 requests"].verdict == verdict
    states = {t.name: t.verdict for t in triggers}
    assert states["a cheaper plan"] == {"as planned": "not met", "too high": "met", "unknown": "no data"}[verdict]


def test_cost_against_the_old_bill() -> None:
    figures = {"peak_rps": figure(5.0), "cost_so_far": figure(480.0, "EUR")}
    found, _ = judged(figures, bill_monthly=figure(9000.0, "EUR/month"))
    bill = found["cost against the old bill"]
    assert bill.figure.value == pytest.approx(7300)
    assert bill.saving_monthly is not None
    assert bill.saving_monthly.value == pytest.approx(1700)
    dearer, _ = judged(figures, bill_monthly=figure(5000.0))
    assert dearer["cost against the old bill"].verdict == "too high"
    assert dearer["cost against the old bill"].saving_monthly is None


def test_triggers_below_a_limit_and_without_data() -> None:
    _, triggers = judged({"peak_rps": figure(5.0), "certificate_days": figure(12.0), "disk_left_share": figure(0.5)})
    states = {t.name: t.verdict for t in triggers}
    assert states["a new certificate"] == "met"
    assert states["a larger disk"] == "not met"
    assert states["more KV cache"] == "no data"


def test_the_watch_plans_anew_for_the_peak_it_saw_and_keeps_that_plan() -> None:
    asked: list[float] = []

    def replan(peak: float) -> Sizing:
        asked.append(peak)
        return sizing(1, 4.0)

    plan = Plan(profile=profile(p95_total_ms=1000.0), sizing=sizing(), replicas=5)
    client: Any = Canned(**{"requests:rate": 1.5})
    seen = judge(client, plan.profile, START, END, cost_per_hour=COST, gpu=False, plan=plan, replan=replan)
    assert asked == [1.5]
    assert seen.replanned is not None
    assert seen.replanned.replicas == 1
    (use,) = [j for j in seen.judgements if j.name == "use"]
    assert use.verdict == "too low"
    assert use.saving_monthly is not None
