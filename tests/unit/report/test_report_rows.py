"""Rows on one axis: labels, escapes, and nothing drawn for what is not known."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.report.figures import number
from inferlift.report.plots import Mark, linear
from inferlift.report.rows import MOST_LETTERS, Row, Rows, Span, stacked


def chart(*rows: Row, marks: tuple[Mark, ...] = (), high: float = 10.0) -> Rows:
    return Rows(title="t", says="s", x=linear(0, high, number), rows=rows, marks=marks)


def numbers(svg: str, attribute: str) -> list[float]:
    return [float(found) for found in re.findall(rf'<rect [^>]*?{attribute}="([\d.]+)%?"', svg)]


@given(st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=8))
def test_stacked_parts_fill_their_sum(amounts: list[float]) -> None:
    spans = stacked([(amount, "p1", "") for amount in amounts])
    assert spans[0].low == 0
    assert spans[-1].high == pytest.approx(sum(amounts))
    assert all(a.high == b.low for a, b in pairwise(spans))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_bar_stays_inside_the_picture(a: float, b: float) -> None:
    low, high = sorted((a, b))
    svg = str(chart(Row("r", "v", spans=(Span(low, high, "p1"),))).svg())
    (left,), (width,) = numbers(svg, "x"), numbers(svg, "width")
    assert left >= 1.5
    assert left + width <= 98.52  # two roundings to a hundredth


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    svg = str(chart(*(Row(str(k), "", spans=(Span(0, k, "p1"),)) for k in (2.5, 5, 10))).svg())
    assert numbers(svg, "width") == [24.25, 48.5, 97.0]


def test_a_bar_too_thin_to_see_has_a_line() -> None:
    assert 'class="thin p2"' in str(chart(Row("r", "v", spans=(Span(3, 3.001, "p2"),))).svg())
    assert "thin" not in str(chart(Row("r", "v", spans=(Span(3, 4, "p2"),))).svg())


def test_a_row_without_a_bar_draws_none() -> None:
    svg = str(chart(Row("weights", "unknown")).svg())
    assert "<rect" not in svg
    assert "<circle" not in svg
    assert ">unknown<" in svg


def test_a_range_has_ends_and_a_point() -> None:
    svg = str(chart(Row("r", "v", whisker=(2, 6), dot=4)).svg())
    assert svg.count('class="whisker third"') == 3
    assert svg.count("<circle") == 1


def test_marks_stand_one_above_the_other() -> None:
    svg = str(chart(Row("r", "v"), marks=(Mark(2, "first"), Mark(9, "second"))).svg())
    heights = re.findall(r'class="mark-text"[^>]* y="(\d+)"', svg)
    assert len(set(heights)) == 2


def test_all_text_is_escaped() -> None:
    evil = '<b>"&'
    row = Row(evil, evil, spans=(Span(1, 2, "p1", evil),), dot=3)
    svg = str(Rows(title="t", says=evil, x=linear(0, 5, lambda v: evil), rows=(row,), marks=(Mark(2, evil),)).svg())
    assert "<b>" not in svg
    assert svg.count("&lt;b&gt;") > 6


@given(st.text(min_size=1, max_size=200), st.text(max_size=20))
def test_label_and_value_fit_a_phone_and_the_whole_label_is_kept(label: str, value: str) -> None:
    shown = Row(label, value)
    svg = chart(shown).svg()
    drawn = re.search(r"</title>(.*?)</text>", str(svg), re.S)
    assert drawn is not None
    assert len(svg.__class__(drawn[1]).unescape()) + len(value) <= MOST_LETTERS or len(label) <= 12
    assert str(svg.escape(label)) in str(svg)
