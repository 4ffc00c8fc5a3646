"""How numbers are written: unknown stays a word, and rounding never makes something perfect."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.report import figures

CASES = list(csv.reader(Path(__file__).with_name("quantities.csv").read_text(encoding="utf-8").splitlines()))[1:]
WRITERS = (figures.number, figures.milliseconds, figures.seconds, figures.size, figures.memory, figures.share)


@pytest.mark.parametrize(("value", "unit", "said"), CASES)
def test_a_quantity_is_said_as_people_say_it(value: str, unit: str, said: str) -> None:
    number = None if value == "null" else float(value)
    assert figures.quantity(number, unit).replace(figures.NARROW, " ") == said


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_unknown(write: Callable[[float | None], str], value: float | None) -> None:
    assert write(value) == "unknown"


@given(st.floats(min_value=0, max_value=1))
def test_only_all_is_100_percent_and_only_none_is_0(value: float) -> None:
    text = figures.share(value).replace(figures.NARROW, "")
    assert (text == "100%") == (value == 1)
    assert (text == "0%") == (value == 0)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_number_keeps_three_digits(value: float) -> None:
    read = float(figures.number(value).replace(figures.NARROW, ""))
    assert math.isclose(read, value, rel_tol=0.005, abs_tol=0)


@given(st.floats(min_value=1e-3, max_value=1e6), st.floats(min_value=1e-3, max_value=1e6))
def test_seconds_never_say_60_seconds_after_minutes(a: float, b: float) -> None:
    for value in (a, b):
        text = figures.seconds(value).replace(figures.NARROW, "")
        assert "min60s" not in text.replace(" ", "")
        assert "h60min" not in text.replace(" ", "")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "unknown"),
        ("2026-11-01", "2026-11-01"),
        ("2026-11-30T19:23:05.345689+00:00", "2026-11-30 19:23:05 UTC"),
        ("2026-11-30T20:23:05+01:00", "2026-11-30 19:23:05 UTC"),
        (datetime(2026, 11, 30, 19, 23, 5, tzinfo=UTC), "2026-11-30 19:23:05 UTC"),
        ("last tuesday", "last tuesday"),
    ],
)
def test_times_are_utc(value: str | datetime | None, said: str) -> None:
    assert figures.moment(value) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [("p95_total_ms", "P95 total"), ("cpu_used_share", "cpu used"), ("rate_rps", "rate"), ("gpu", "GPU"), ("", "")],
)
def test_a_key_becomes_words(name: str, said: str) -> None:
    assert figures.words(name) == said
