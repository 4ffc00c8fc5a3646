"""What Prometheus is asked about the new side: every target has its gate, and a fleet that is gone fails without one
request."""

from __future__ import annotations

from inferlift.declaration import load
from inferlift.dns.fleet_gates import fleet_gates
from inferlift.dns.gating import metric_gates
from inferlift.profile import ROOT

DEMO = load("demo", ROOT).profile


def test_every_target_has_its_gate_and_counts_its_samples() -> None:
    found = {g.name: g for g in fleet_gates(DEMO, 30, minimum=15)}
    assert list(found) == ["errors", "P95", "TTFT P95", "waiting requests", "gateways away", "no replica"]
    assert found["P95"].target == DEMO.targets.p95_total_ms
    assert found["errors"].target == DEMO.targets.error_share
    assert all("[30s]" in g.query for g in found.values() if g.count)
    assert [n for n, g in found.items() if g.count is None] == ["waiting requests", "gateways away", "no replica"]
    bare = DEMO.model_copy(update={"targets": DEMO.targets.model_copy(update={"p95_ttft_ms": None})})
    assert "TTFT P95" not in [g.name for g in fleet_gates(bare, 30, minimum=15)]


def answered(**values: float) -> dict[str, str]:
    """Verdicts of a store that knows only these: part of a query -> value."""

    def ask(query: str) -> float | None:
        return next((v for part, v in values.items() if part in query), None)

    return {g.name: g.verdict for g in metric_gates(ask, fleet_gates(DEMO, 30, minimum=15))}


def test_a_gateway_that_is_gone_fails_although_nothing_else_is_known() -> None:
    verdicts = answered(up=1.0)  # 1 - min(up{job="gateway"})
    assert verdicts["new side gateways away"] == "fail"
    assert verdicts["new side errors"] == "inconclusive"


def test_nothing_known_decides_nothing() -> None:
    assert set(answered().values()) == {"inconclusive"}
