"""Gates: fail before inconclusive before pass, and nothing passes on too little."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from inferlift.artifacts import Counts, Figure, LoadRun, Quality
from inferlift.load.figures import percentiles
from inferlift.load.gates import gates, verdict
from inferlift.profile import Targets


def load_run(n: int = 200, total: float = 1000, ttft: float = 100, *, planned: int | None = None,
             errors: dict[str, int] | None = None, limited: bool = False) -> LoadRun:  # fmt: skip
    failed = sum((errors or {}).values())
    return LoadRun(
        label="new", started=datetime.now(UTC), seconds=10,
        counts=Counts(planned=planned or n + failed, sent=n + failed, ok=n, errors=errors or {}),
        total=percentiles([total] * n, "total"), ttft=percentiles([ttft] * n, "first_token"), tokens_out=None,
        rate_rps=n / 10, in_flight_peak=4, send_delay_p95_ms=0, client_limited=limited,
        client_limit="lag" if limited else "", samples="-",
    )  # fmt: skip


GOOD = Quality(n=20, correct=19, share=0.95, wrong=("'x': 'y', expected 'z'",))
ALL = Targets(p95_ttft_ms=200, p95_total_ms=2000, error_share=0.0, quality=0.8)


@pytest.mark.parametrize(
    ("run", "quality", "name", "expected"),
    [
        (load_run(), GOOD, None, "pass"),
        (load_run(ttft=300), GOOD, "p95 TTFT", "fail"),
        (load_run(total=3000), GOOD, "p95 total", "fail"),
        (load_run(total=2000, ttft=200), GOOD, None, "pass"),
        (load_run(errors={"reset": 1}), GOOD, "error share", "fail"),
        (load_run(planned=201), GOOD, "all requests sent", "fail"),
        (load_run(planned=201), GOOD, "error share", "fail"),
        (load_run(limited=True), GOOD, "p95 total", "inconclusive"),
        (load_run(limited=True, total=9000), GOOD, "p95 total", "inconclusive"),
        (load_run(limited=True, errors={"http_5xx": 3}), GOOD, "error share", "fail"),
        (load_run(n=19), GOOD, "p95 TTFT", "inconclusive"),
        (load_run(n=19), GOOD, "error share", "inconclusive"),
        (load_run(), Quality(n=20, correct=10, share=0.5), "quality", "fail"),
        (load_run(), Quality(n=9, correct=9, share=1.0), "quality", "inconclusive"),
        (load_run(), Quality(n=0, correct=0, share=None), "quality", "inconclusive"),
        (load_run(), None, "quality", "inconclusive"),
        (load_run(n=0, errors={"http_5xx": 50}), GOOD, "error share", "fail"),
    ],
)
def test_each_gate(run: LoadRun, quality: Quality | None, name: str | None, expected: str) -> None:
    found = gates(ALL, run, quality)
    assert verdict(found) == expected
    if name:
        assert {g.name: g.verdict for g in found}[name] == expected


def test_only_declared_targets_make_gates() -> None:
    assert [g.name for g in gates(Targets(), load_run(), GOOD)] == ["all requests sent", "error share"]
    assert "quality" not in {g.name for g in gates(ALL, load_run(), None, quality=False)}


def test_errors_within_the_target_pass() -> None:
    found = gates(Targets(error_share=0.02), load_run(n=198, errors={"timeout": 2}), None)
    assert verdict(found) == "pass"
    assert found[1].figure.value == pytest.approx(0.01)


@pytest.mark.parametrize(("value", "expected"), [(0.01, "pass"), (0.06, "fail"), (None, "inconclusive")])
def test_cost(value: float | None, expected: str) -> None:
    cost = Figure(value=value, unit="EUR", basis="measured", source="test")
    found = gates(Targets(max_cost_per_1000=0.05), load_run(), None, cost_per_1000=cost)
    assert verdict(found) == expected


def test_nothing_judged_is_nothing_passed() -> None:
    none: Any = ()
    assert verdict(none) == "inconclusive"
