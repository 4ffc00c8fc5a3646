"""What drift makes of what Pulumi, Ansible and DNS say; they are stand-ins here, the lab asks the real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import drift, provision
from inferlift.artifacts import Check
from inferlift.errors import Retryable
from inferlift.provision.models import Drift
from inferlift.stages import _configuring, _fleet, _wanted
from inferlift.stages.switch import SwitchStage


class Ledger:
    def document(self, name: str) -> Any:
        return {"service": {}, "floors": {"poc": 1}}.get(name)


@pytest.fixture
def ctx(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(_wanted, "document", lambda ctx, floors: SimpleNamespace(static=None))
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=None))
    told = SimpleNamespace(drifts=[], changed=0, checks=[Check(name="weights", ok=True)])
    monkeypatch.setitem(provision.__dict__, "drift_fleet", lambda *given: told.drifts)
    hosts = lambda: {"model-1": {"changed": told.changed}, "gateway-1": {"changed": 0}}  # noqa: E731
    monkeypatch.setattr(_configuring, "configure_fleet", lambda ctx, fleet, check: SimpleNamespace(hosts=hosts()))
    monkeypatch.setattr(SwitchStage, "verify", lambda self, ctx, cutover: told.checks)
    made = SimpleNamespace(
        ledger=Ledger(), folder=None, tools=lambda: None, optional=lambda s, m: SimpleNamespace(name="ai.x")
    )
    made.told = told
    return made


def test_nothing_drifted(ctx: Any) -> None:
    found = drift.drift(ctx)
    assert [c.name for c in found] == ["hosts", "configuration", "DNS"]
    assert all(c.ok and not c.skipped for c in found)
    assert all("as it was left" in line for line in drift.lines(found))


def test_each_place_names_what_drifted(ctx: Any) -> None:
    ctx.told.drifts = [Drift(resource="host model-2", change="gone")]
    ctx.told.changed = 3
    ctx.told.checks = [Check(name="weights", ok=False, detail="old 50 %")]
    said = "\n".join(drift.lines(drift.drift(ctx)))
    assert "host model-2 is gone" in said
    assert "3 things on model-1" in said
    assert "old 50 %" in said
    assert said.count("DRIFT") == 3


@pytest.mark.parametrize("error", [Retryable("the authority does not answer"), RuntimeError("an engine's own")])
def test_what_cannot_be_looked_at_is_no_proof(ctx: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def away(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(SwitchStage, "verify", away)
    (dns,) = [c for c in drift.drift(ctx) if c.name == "DNS"]
    assert not dns.ok
    assert "could not be looked at" in dns.detail


def test_before_anything_was_made_nothing_is_looked_at(ctx: Any) -> None:
    ctx.ledger = SimpleNamespace(document=lambda name: None)
    assert [c.skipped for c in drift.drift(ctx)] == [True]
