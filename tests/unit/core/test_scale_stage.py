"""The acceptance: every replica takes part in it, and in the run that loses one."""

from __future__ import annotations

from typing import Any

import pytest

from inferlift.errors import CheckFailed
from inferlift.stages import _configuring
from inferlift.stages.scale import ScaleStage


def test_the_acceptance_begins_when_every_replica_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(_configuring, "wait_up", lambda ctx, service: seen.append("waited"))
    monkeypatch.setattr(ScaleStage, "_burst", lambda *_: seen.append("sent"))
    nobody: Any = None
    ScaleStage()._whole(nobody, nobody, 60.0)
    assert seen == ["waited", "sent"]


def test_nothing_is_sent_to_a_fleet_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(ctx: Any, service: Any) -> None:
        raise CheckFailed("the gateway sends nothing to model-4")

    monkeypatch.setattr(_configuring, "wait_up", away)
    monkeypatch.setattr(ScaleStage, "_burst", lambda *_: pytest.fail("sent"))
    nobody: Any = None
    with pytest.raises(CheckFailed, match="model-4"):
        ScaleStage()._whole(nobody, nobody, 60.0)
