"""A migration whose stages are stand-ins: they prove the order, the resume and the holding, not any stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from inferlift import migration, place
from inferlift.artifacts import Artifact, Check, Cutover
from inferlift.declaration import load
from inferlift.errors import Held
from inferlift.profile import ROOT
from inferlift.stages.base import Context, Stage


class Thing(Artifact):
    count: int


class StandInStage(Stage):
    """Counts its runs; depends on what the test says; is as true as the test says."""

    artifact = Thing

    def __init__(self, name: str) -> None:
        self.name = name
        self.depends: dict[str, Any] = {"on": 1}
        self.runs = self.repairs = 0
        self.ok = True
        self.fails: Exception | None = None
        self.hold = False  # after it acted
        self.acted = 0

    def key(self, ctx: Context) -> dict[str, Any]:
        return self.depends

    def preview(self, ctx: Context) -> list[str]:
        return []

    def run(self, ctx: Context) -> Artifact:
        if self.fails:
            raise self.fails
        self.runs += 1
        made = ctx.step("act", self._act, Thing)
        if self.hold:
            raise Held("does not decide", why=f"{made.count}")
        return made

    def _act(self) -> Thing:
        self.acted += 1
        return Thing(count=self.runs)

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        return [Check(name=f"{self.name} stands", ok=self.ok, detail="as the test says")]

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        self.repairs += 1
        self.ok = True
        return self.run(ctx)


class StandInSwitch(StandInStage):
    artifact = Cutover

    def run(self, ctx: Context) -> Artifact:
        self.runs += 1
        return Cutover(
            name="ai.demo.test", old="a", new="b", ttl_before_s=1, ttl_s=1, steps=(), parity=(),
            rehearsed_rollback_s=None, users=(), rolled_back=False,
        )  # fmt: skip


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandInStage]:
    made = {n: StandInSwitch(n) if n == "switch" else StandInStage(n) for n in ("world", *migration.ORDER)}
    monkeypatch.setattr(migration, "stages", lambda: made)
    return made


@pytest.fixture
def where(tmp_path: Path) -> place.Place:
    declared = load("demo-small", ROOT)
    # an owner of this test's own: settling ends processes by it, and another clone's tests may run beside these
    owner = f"{uuid4().hex[:8]}/demo-small-lab"
    return place.Place(declared.profile, declared.path, tmp_path / "demo-small-lab", owner)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
