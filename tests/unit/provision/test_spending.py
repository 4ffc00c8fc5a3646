"""When a proof of concept ends by itself, and what a document says of its hosts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import DesiredFleet, Sizing
from inferlift.provision import desired as documents
from inferlift.provision import spending

from .aws_documents import document, profile

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
LAB = DesiredFleet(label="x/fleet", groups=(), floors={})


def test_an_expiry_is_decided_once_and_stays_until_it_has_passed() -> None:
    fleet = document("llm-13b")
    first = spending.expires(fleet, None, NOON)
    assert first == "2026-12-04T12:00:00Z"
    assert spending.expires(fleet, first, NOON + timedelta(hours=71)) == first
    assert spending.expires(fleet, first, NOON + timedelta(hours=80)) == "2026-12-07T20:00:00Z", "made anew, kept anew"


@given(st.none() | st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)), st.integers(1, 1000))
def test_an_expiry_always_lies_ahead(known: datetime | None, hours: int) -> None:
    fleet = document("llm-13b", settings={"expires_hours": hours})
    before = None if known is None else f"{known:%Y-%m-%dT%H:%M}:00Z"
    at = spending.expires(fleet, before, NOON)
    assert at is not None
    assert datetime.fromisoformat(at) - NOON >= min(spending.SOONEST, timedelta(hours=hours))


@pytest.mark.parametrize("fleet", [LAB, document("llm-13b", settings={"expires_hours": None})])
def test_what_has_no_expiry_gets_none(fleet: DesiredFleet) -> None:
    assert spending.expires(fleet, None, NOON) is None


def test_the_lab_spends_nothing() -> None:
    nowhere: Any = None
    assert spending.check_before_spending(LAB, print) == []
    assert spending.ask_fleet(LAB, nowhere, nowhere, print) is None
    assert spending.expiring(LAB, "2026-12-01T12:00:00Z") == LAB


def test_a_document_is_the_targets_own() -> None:
    def nobody() -> Sizing:
        raise AssertionError("the lab's hosts are as its section says")

    lab = documents.fleet_document(profile("demo"), nobody, "x/fleet", {"poc": 1, "scale": 3})
    assert documents.in_words(lab, Path()) == [
        "1 gateway host, 1 CPU each", "3 model hosts, 0.7 CPU each", "1 monitor host, 0.5 CPU each",
    ]  # fmt: skip
    assert documents.in_words(document("multimodal"), Path())[1] == "2 model hosts, p5.4xlarge on-demand in eu-north-1"
    assert documents.in_words(document("multimodal"), Path())[-1].startswith(
        "AWS itself takes them away after 72 hours"
    )
    (queue,) = documents.in_words(document("batch"), Path())
    assert queue.startswith("a queue on at most 48 spot vCPUs (c7i.4xlarge, ")
