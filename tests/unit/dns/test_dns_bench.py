"""What `bench switch` prints and how it ends; the measurement itself runs in tests/lab/test_dns_backends.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferlift.bench import switch as bench_switch

GOOD = {
    "rollback_seconds": 0.04, "kills": 219, "boundaries_hit": 28, "boundaries": 28, "empty_answers": 0,
    "failed_requests": 0, "hand_work": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "ends"),
    [
        ({}, 0), ({"rollback_seconds": 2.5}, 1), ({"kills": 12}, 1), ({"boundaries_hit": 27}, 1),
        ({"empty_answers": 1}, 1), ({"failed_requests": 1}, 1), ({"hand_work": 1}, 1),
    ],
)  # fmt: skip
def test_one_json_object_with_the_figures(
    changed: dict[str, Any], ends: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_switch, "measure", lambda **named: {**GOOD, **changed})
    assert bench_switch.run(Path(), as_json=True) == ends
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is (ends == 0)
    assert said["verdict"] == ("fail" if ends else "pass")
    assert said["figures"] == {**GOOD, **changed}
