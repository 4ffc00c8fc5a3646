"""The price table as it is shown."""

from __future__ import annotations

import datetime

from inferlift.prices import table

TODAY = datetime.date(2026, 11, 30)


def test_what_has_a_price_is_shown_with_its_age() -> None:
    shown = table("aws", "us-east-1", today=TODAY)
    row = next(line for line in shown.lines if line.startswith("p5.48xlarge"))
    assert "8 x H100" in row
    assert "55.04" in row
    assert row.endswith("85")  # days since 2026-09-06
    assert shown.figures["usd_per_hour.p5.48xlarge"] == 55.04
    assert shown.figures["oldest_days"] == 152


def test_ages_over_the_limit_are_said_once() -> None:
    late = [note for note in table("aws", "us-east-1", today=TODAY).notes if "days old" in note]
    assert len(late) == 1
    assert table("aws", "us-east-1", today=datetime.date(2026, 7, 30)).figures["over_age"] == 0
    soon = table("aws", "us-east-1", today=datetime.date(2026, 9, 7), gpu="T4")
    assert [note for note in soon.notes if "days old" in note] == []


def test_unknown_and_reserved_are_told_and_not_shown_as_zero() -> None:
    shown = table("aws", "eu-north-1", today=TODAY)
    assert shown.figures["usd_per_hour.g5.xlarge"] is None
    assert any("price unknown" in note and "g5.xlarge" in note for note in shown.notes)
    assert any("reserve only" in note and "p5e.48xlarge" in note for note in shown.notes)
    assert not any(line.startswith("g5.xlarge") for line in shown.lines)
    assert any(line.startswith("egress, a GB") and "unknown" in line for line in shown.lines)


def test_a_gpu_that_the_region_does_not_have_is_said_with_the_regions_that_do() -> None:
    notes = table("aws", "eu-central-1", today=TODAY, gpu="H100").notes
    (said,) = [note for note in notes if note.startswith("not sold in eu-central-1: p5.48xlarge")]
    assert "eu-north-1" in said.partition("sold in:")[2]
    assert not any("price unknown" in note for note in notes)
    whole = table("aws", "eu-central-1", today=TODAY).notes
    assert any(note.startswith("not sold in eu-central-1 (") and "p5.4xlarge" in note for note in whole)


def test_the_lab_and_own_hosts_have_tables_too() -> None:
    assert table("lab", today=TODAY).figures["priced"] == 1
    assert table("static", today=TODAY).figures == {
        "offers": 1,
        "priced": 0,
        "spot_priced": 0,
        "oldest_days": None,
        "newest_days": None,
        "over_age": 0,
        "usd_per_hour.own host": None,
    }
