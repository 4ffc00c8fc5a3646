"""The way to the switch: durations from the profile, the critical path, and what breaks a 48-hour plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import Figure, Timeline, TimelineStep
from inferlift.sizing.timeline import Circumstances, copy_hours, timeline
from tests.unit.sizing.planning import a_profile, an_offer

READY = Circumstances(weights_bytes=16e9, quota_suffices=True, fleet_rps=10, old_ttl_s=300, stock_image=True)


def step(found: Timeline, name: str) -> TimelineStep:
    return next(each for each in found.steps if each.name == name)


def quick(**sections: Any) -> Any:
    told = {"operations": {"approvals_hours": 4}, "network": {"bandwidth_gbps": 1}, **sections}
    return a_profile(**told)


def test_a_prepared_move_fits_into_48_hours() -> None:
    found = timeline(quick(), an_offer(), READY)
    assert found.fits_plan is True
    assert found.longer == ()
    assert found.unknown == ()
    assert found.critical_path == (
        "audit", "size", "approval-1", "hosts", "weights", "load-test", "approval-2", "scale", "switch",
    )  # fmt: skip
    assert found.hours_to_verdict == pytest.approx(found.hours_to_switch + 48)
    assert step(found, "weights").hours == pytest.approx(16 * 8 / 0.7 / 3600)
    assert step(found, "weights").basis == "predicted"
    assert step(found, "load-test").hours == pytest.approx(2 * 1000 / 10 / 3600)


def test_an_unknown_quota_breaks_the_plan_and_is_named_first() -> None:
    ask = Circumstances(weights_bytes=16e9, fleet_rps=10, old_ttl_s=300, stock_image=True)
    found = timeline(quick(), an_offer(), ask)
    assert found.fits_plan is False
    assert "quota" in found.critical_path
    assert "approval-1" not in found.critical_path
    assert found.longer[0].startswith("quota: 48 h of")
    assert "the quota is not known" in found.longer[0]
    p5 = timeline(quick(), an_offer("p5.48xlarge"), ask)
    assert step(p5, "quota").hours == 72


def test_two_terabytes_over_a_gigabit_are_on_the_critical_path() -> None:
    """2 TB at 0.7 Gbit/s take 6.3 h, at 0.1 Gbit/s 63 h."""
    found = timeline(quick(data={"state": "read-only", "size_gb": 2000}), an_offer(), READY)
    assert step(found, "data").hours == pytest.approx(6.35, rel=0.01)
    assert "data" in found.critical_path
    slow = timeline(
        quick(data={"state": "read-only", "size_gb": 2000}, network={"bandwidth_gbps": 0.1}), an_offer(), READY
    )
    assert slow.fits_plan is False
    assert slow.longer[0].startswith("data: 63.5 h")


def test_the_second_pass_copies_what_came_meanwhile() -> None:
    changing = quick(data={"state": "read-write", "size_gb": 2000, "ingest_gb_per_day": 240})
    found = timeline(changing, an_offer(), READY)
    first = step(found, "data").hours
    assert first is not None
    assert step(found, "second-pass").hours == pytest.approx(copy_hours(240 * first / 24, 1, 0.7))


def test_a_measured_link_replaces_the_declared_one() -> None:
    asked = quick(data={"state": "read-only", "size_gb": 450})
    found = timeline(asked, an_offer(), Circumstances(weights_bytes=16e9, quota_suffices=True, measured_gbps=1))
    assert step(found, "data").hours == pytest.approx(1.0)
    assert "measured" in step(found, "data").source


def test_a_step_that_was_done_takes_what_it_took() -> None:
    done = Figure(value=0.2, unit="h", basis="measured", source="the ledger")
    found = timeline(
        quick(), an_offer(), Circumstances(weights_bytes=1e9, quota_suffices=True, measured={"hosts": done})
    )
    assert (step(found, "hosts").hours, step(found, "hosts").basis) == (0.2, "measured")


def test_unknown_is_said_and_the_plan_is_not_promised() -> None:
    asked = a_profile(operations={"approvals_hours": 4}, data={"state": "read-only"})
    found = timeline(asked, an_offer(network_gbps=None), Circumstances(quota_suffices=True))
    assert set(found.unknown) == {"weights", "data"}
    assert found.fits_plan is None
    assert step(found, "data").hours is None
    assert "data.size_gb is not given" in step(found, "data").source


def test_assumptions_are_called_so() -> None:
    found = timeline(quick(), an_offer(), Circumstances(weights_bytes=1e9))
    for each in found.steps:
        if each.basis == "assumed":
            assert "assumption" in each.source, each.name
    assert step(found, "old-ttl").basis == "assumed"
    assert timeline(quick(), an_offer()).unknown == ("weights",)


def test_hosts_that_exist_need_no_quota() -> None:
    found = timeline(quick(), an_offer(region=None), Circumstances(weights_bytes=1e9))
    assert step(found, "quota").hours == 0


@given(
    approvals=st.floats(0, 500), size=st.floats(0, 1e5), gbps=st.floats(0.01, 100), rps=st.floats(0.1, 1e4),
    ttl=st.floats(1, 1e6), quota=st.sampled_from([True, False, None]),
)  # fmt: skip
def test_the_path_is_the_longest_way_and_slack_is_what_it_says(
    approvals: float, size: float, gbps: float, rps: float, ttl: float, quota: bool | None
) -> None:
    asked = a_profile(
        operations={"approvals_hours": approvals},
        network={"bandwidth_gbps": gbps},
        data={"state": "read-only", "size_gb": size},
    )
    known = Circumstances(weights_bytes=16e9, quota_suffices=quota, fleet_rps=rps, old_ttl_s=ttl)
    found = timeline(asked, an_offer(), known)
    by_name = {each.name: each for each in found.steps}
    assert sum(by_name[name].hours or 0 for name in found.critical_path) == pytest.approx(found.hours_to_switch)
    for each in found.steps:
        assert each.ends_at == pytest.approx(each.starts_at + (each.hours or 0))
        for before in each.after:
            assert each.starts_at >= by_name[before].ends_at - 1e-9
        assert each.slack_hours >= 0
        if each.critical:
            assert each.slack_hours == pytest.approx(0, abs=1e-6 * max(1.0, found.hours_to_verdict))
    assert (found.fits_plan is False) == (found.hours_to_switch > found.plan_hours)
    assert bool(found.longer) == (found.hours_to_switch > found.plan_hours)


def test_copy_hours() -> None:
    assert copy_hours(450, 1) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="above 0"):
        copy_hours(1, 0)
