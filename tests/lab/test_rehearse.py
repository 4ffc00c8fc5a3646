"""Faults, planted and met by the command that users type: one on a migration that stands, all in a lab of their own.

All of it by `./invoke test --long -k rehearse`; what single faults do is in docs/faults.md.
"""

from __future__ import annotations

import json

import pytest
from conftest import Lab, lab

pytestmark = pytest.mark.lab


def test_a_fault_on_a_migration_that_stands_ends_as_documented(small: Lab) -> None:
    if set(small.statuses().values()) != {"done"}:
        assert small.invoke("deploy", "--load-origin").returncode == 0
    done = small.invoke("rehearse", "--fault", "model-crash", "--here", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0, told["faults"]
    assert [row["fault"] for row in told["faults"]] == ["model-crash"]
    assert set(small.statuses().values()) == {"done"}
    assert small.invoke("report").returncode == 0
    assert "Faults rehearsed" in (small.place.folder / "report.html").read_text()


@pytest.mark.long
def test_all_fourteen_in_a_lab_of_their_own() -> None:
    for made in lab("rehearsal", "demo-small"):
        done = made.invoke("rehearse", "--fault", "all", "--json", timeout_s=3600)
        told = json.loads(done.stdout)
        assert done.returncode == 0, [row for row in told["faults"] if not row["ok"]]
        assert len(told["faults"]) == 14
