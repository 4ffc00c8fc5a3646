"""The plan made anew from what was measured: the watched peak, and the rate that the load test found; every site's
history judged."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import observe
from inferlift.artifacts import Check, Figure, Gate, Service, Watch
from inferlift.declaration import load
from inferlift.errors import Held, Retryable
from inferlift.profile import ROOT
from inferlift.stages import _fleet, watch
from inferlift.stages._plan import planned
from inferlift.stages.watch import WatchStage, Window
from tests.moving import service_at


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


SITES = {"eu-central-1": "192.0.2.20", "eu-north-1": "192.0.2.30"}
WINDOW = Window(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 3, tzinfo=UTC))


class Monitors:
    """A stand-in for the judgement of each monitor: what it says, by its address."""

    def __init__(self, said: dict[str, str], patch: pytest.MonkeyPatch, folder: Path, sites: dict[str, str]) -> None:
        self.said, self.asked = said, list[str]()
        service = service_at(folder, sites)
        assert isinstance(service, Service)
        patch.setattr(_fleet, "current", lambda ctx: service)
        patch.setattr(observe.Prometheus, "of", lambda part: part.fleet.by_role("monitor")[0].address)
        patch.setattr(observe, "judge", self.judge)
        patch.setattr(observe, "up", lambda at: [Check(name="metrics", ok=self.said[at] == "pass", detail="")])

    def judge(self, at: str, profile: Any, start: datetime, end: datetime, **more: Any) -> Watch:
        self.asked.append(at)
        said = self.said[at]
        if said == "silent":
            raise Retryable(f"Prometheus at {at} does not answer", why="timed out")
        figure = Figure(value=1.0, unit="share", basis="measured", source="stand-in")
        gate = Gate(name="errors", verdict=said, target=0.0, figure=figure, why="stand-in")  # type: ignore[arg-type]
        return Watch(start=start, end=end, gates=(gate,), figures={}, series=(), verdict=gate.verdict, why=gate.name)


@pytest.fixture
def judged(ctx: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The verdict of a watch whose monitors say this, site by site."""
    ctx.need = lambda stage, model: SimpleNamespace(sizing=planned(ctx.profile, None, rate(5.0)))
    ctx.optional = lambda stage, model: None

    def judge(*said: str) -> tuple[Watch, Monitors]:
        sites = dict(list(SITES.items())[: len(said)])
        monitors = Monitors(dict(zip(sites.values(), said, strict=True)), monkeypatch, tmp_path, sites)
        return WatchStage()._judge(ctx, WINDOW, ()), monitors

    return judge


@pytest.mark.parametrize(
    ("near", "far", "verdict", "named"),
    [
        ("pass", "pass", "pass", "all 2 gates of 2 sites hold"),
        ("pass", "fail", "fail", "eu-north-1: errors"),
        ("fail", "pass", "fail", "eu-central-1: errors"),
        ("pass", "inconclusive", "inconclusive", "eu-north-1: errors"),
        ("silent", "fail", "fail", "eu-north-1: errors"),
    ],
)
def test_every_site_is_judged_by_its_own_monitor(judged: Any, near: str, far: str, verdict: str, named: str) -> None:
    watched, monitors = judged(near, far)
    assert monitors.asked == list(SITES.values())
    assert watched.verdict == verdict
    assert watched.why.startswith(named)
    assert {g.name.split(": ")[0] for g in watched.gates} == set(SITES)


def test_a_site_whose_monitor_is_silent_holds_the_watch(judged: Any) -> None:
    with pytest.raises(Held, match="cannot be judged at eu-north-1") as held:
        judged("pass", "silent")
    assert "192.0.2.30 does not answer" in held.value.why


def test_one_site_is_judged_as_ever(judged: Any) -> None:
    watched, _ = judged("pass")
    assert ([g.name for g in watched.gates], watched.why) == (["errors"], "errors")
    with pytest.raises(Held, match=r"^the watch cannot be judged\n"):
        judged("silent")


def test_later_every_sites_targets_are_looked_at(judged: Any, ctx: Any) -> None:
    watched, monitors = judged("pass", "pass")
    monitors.said["192.0.2.30"] = "fail"
    found = WatchStage().verify(ctx, watched)
    assert [(c.name, c.ok) for c in found] == [("eu-central-1: metrics", True), ("eu-north-1: metrics", False)]
