"""The plan made anew from what was measured: the watched peak, and the rate that the load test found."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift.artifacts import Figure
from inferlift.declaration import load
from inferlift.profile import ROOT
from inferlift.stages import watch
from inferlift.stages._plan import planned


def rate(value: float, basis: Any = "measured") -> Figure:
    return Figure(value=value, unit="requests/s", basis=basis, source="the load test")


@pytest.fixture
def ctx() -> Any:
    said: list[str] = []
    return SimpleNamespace(
        profile=load("demo-small", ROOT).profile, progress=SimpleNamespace(note=said.append), said=said
    )


@pytest.mark.parametrize("peak", [0.5, 12.0, 40.0])
def test_replicas_follow_the_watched_peak_at_the_measured_rate(ctx: Any, peak: float) -> None:
    now = planned(ctx.profile, None, rate(5.0))
    new = watch._for_peak(ctx, None, now, peak)
    assert new is not None
    growth = (1 + ctx.profile.requests.growth_per_month) ** ctx.profile.requests.growth_months
    assert new.peak_rps.value == pytest.approx(peak * growth)
    assert (new.rate_per_replica.value, new.rate_per_replica.basis) == (5.0, "measured")
    assert new.replicas == max(1, math.ceil(peak * growth / 5.0))
    assert new.spare == ctx.profile.operations.spare


def test_a_rate_that_nobody_measured_is_not_taken_for_one(ctx: Any) -> None:
    now = planned(ctx.profile, None)
    assert now.rate_per_replica.basis != "measured"
    new = watch._for_peak(ctx, None, now, 3.0)
    assert new is not None
    assert new.rate_per_replica == now.rate_per_replica


def test_a_plan_that_cannot_be_made_is_said_and_none(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise ValueError("no offer")

    now = planned(ctx.profile, None, rate(5.0))
    monkeypatch.setattr(watch, "planned", fails)
    assert watch._for_peak(ctx, None, now, 3.0) is None
    assert "no offer" in ctx.said[0]
