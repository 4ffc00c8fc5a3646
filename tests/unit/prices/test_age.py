"""How old prices are, at the edges."""

from __future__ import annotations

import datetime

import pytest

from inferlift.prices import age_days, age_note, oldest

TODAY = datetime.date(2026, 11, 30)


@pytest.mark.parametrize(
    ("date", "days"),
    [
        ("2026-11-30", 0),
        ("2026-09-01", 90),
        ("2026-07", 152),  # a month counts from its first day
        ("2026-12-01", -1),
        ("", None),
        ("2026-13", None),
        ("2026-07..2026-09", None),
        ("July 2026", None),
    ],
)
def test_age(date: str, days: int | None) -> None:
    assert age_days(date, TODAY) == days


def test_a_plan_says_it_after_ninety_days_and_not_before() -> None:
    assert age_note("2026-09-01", TODAY) == ""  # 90 days
    said = age_note("2026-08-31", TODAY)
    assert "91 days old" in said
    assert "./invoke prices --refresh" in said


def test_what_has_no_age_is_said_too() -> None:
    assert "not known" in age_note("", TODAY)
    assert "after today" in age_note("2026-12-24", TODAY)


def test_the_oldest_counts_and_no_date_is_oldest_of_all() -> None:
    assert oldest(["2026-09-06", "2026-07", "2026-08-17"]) == "2026-07"
    assert oldest(["2026-09-06", ""]) == ""
    assert oldest([]) == ""
