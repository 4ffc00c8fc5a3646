"""The section on plan and cost: whole, honest about what is unknown, and absent where a sizing knows none of it."""

from __future__ import annotations

import re

import pytest

from inferlift.artifacts import Figure, Interval, Sizing
from inferlift.report import ReportData, plan_charts, plan_view, render
from inferlift.report.figures import NARROW
from inferlift.report.view import tiles
from tests.unit.report import plan_factory as planned
from tests.unit.report import report_factory as made
from tests.unit.report.test_report_page import Page

PARTS = ("mean_rps", "serving", "batching", "chain", "timeline", "costs", "tco")
LISTS = ("unreachable", "alternatives", "software", "compat")


def page(data: ReportData) -> Page:
    return Page(render(data))


def having(**changes: object) -> ReportData:
    """The whole plan, changed in all three places where it stands."""
    data, sizing = planned.full(), planned.sizing().model_copy(update=changes)
    assert data.measurement is not None
    assert data.scaled is not None
    return data.model_copy(update={
        "sizing": sizing, "measurement": data.measurement.model_copy(update={"sizing": sizing}),
        "scaled": data.scaled.model_copy(update={"sizing": sizing}),
    })  # fmt: skip


def test_the_plan_has_its_section_and_an_older_sizing_has_none() -> None:
    whole = page(planned.full())
    assert whole.unbalanced == []
    assert whole.section("plan")
    old = page(made.full())
    assert not old.section("plan")
    assert "lab host 0.7 CPU chosen: fits" not in old.text  # the mark is no text of the cell
    assert any(a.get("data-mark") == "chosen" for _, a in old.tags)


@pytest.mark.parametrize("part", [*PARTS, *LISTS])
def test_any_part_of_the_plan_may_be_missing(part: str) -> None:
    without = page(having(**{part: None if part in PARTS else ()}))
    assert without.unbalanced == []
    assert without.section("plan")


@pytest.mark.parametrize("part", [*PARTS[1:], *LISTS])
def test_any_part_alone_makes_a_section_that_holds(part: str) -> None:
    alone = page(having(**{p: None for p in PARTS if p != part}, **{p: () for p in LISTS if p != part}))
    assert alone.unbalanced == []
    assert alone.section("plan") == (part != "batching")


def test_the_choice_is_said_with_its_layout() -> None:
    text = page(planned.full()).text
    assert "4 + 1 spare × gpu8.large in eu-test-1, on demand" in text
    assert "2 × the model on Example GPU, tensor parallel 4, 2 pipeline stages, 64 sessions a copy at once" in text


def test_every_plot_has_a_title_and_says_what_it_shows() -> None:
    found = page(planned.full())
    charts = [a for tag, a in found.tags if tag == "svg" and "chart" in (a.get("class") or "")]
    assert sum("rows" in (a.get("class") or "") for a in charts) == 6
    assert all(a.get("aria-label") for a in charts)
    assert sum(tag == "figure" for tag, _ in found.tags) == sum(tag == "figcaption" for tag, _ in found.tags)


def test_the_sums_are_the_least_where_a_part_is_unknown() -> None:
    found = page(planned.full())
    assert "at least 40 238 EUR/month" in found.text
    assert "Not known, and missing from the sums: egress. The sums are the least it costs." in found.text
    unknown = Figure(value=None, unit="EUR/month", basis="unknown", source="no price")
    costs = planned.costs().model_copy(update={"monthly": unknown, "missing": ("compute",)})
    assert "sums: compute. Without it there is no sum." in page(having(costs=costs)).text
    tile = next(t for t in tiles(planned.full()) if t.label.startswith("cost"))
    assert (tile.value.replace(NARROW, " "), tile.basis) == ("at least 2.56 EUR", "declared")


def test_unknown_is_never_zero() -> None:
    text = page(planned.full()).text.split("Plan and cost")[1].split("Build: the user's images")[0]
    assert re.search(r"egress unknown unknown formula of egress", text)
    assert re.search(r"storage unknown = storage over 36 months", text)
    assert re.search(r"nvme unknown 900 MB/s 3 000 MB/s unknown unknown", text)
    assert re.search(r"weights unknown unknown 48 h 30 min", text)
    assert re.search(r"data 0 s assumed", text)  # a known nothing
    assert re.search(r"cloud host hour cloud on demand 12 345 EUR buy unknown", text)
    assert "The nearest that an offer reaches: 610 ms, gpu8.huge in eu-test-1" in text
    assert "How near an offer comes is not known" in text


def test_an_unknown_cost_of_1000_says_why() -> None:
    why = Figure(value=None, unit="EUR/1000", basis="unknown", source="the rate is unknown")
    costs = planned.costs().model_copy(update={"per_1000": why})
    data = having(costs=costs)
    assert "unknown unknown · the rate is unknown" in page(data).text
    assert next(t for t in tiles(data) if t.label.startswith("cost")).value == "unknown"


def test_every_basis_stands_with_its_figure() -> None:
    text = render(planned.full()).split('id="plan"')[1].split("</section>")[0]
    for basis in ("predicted", "assumed", "declared", "unknown"):
        assert f'class="basis {basis}"' in text


def test_ways_without_a_total_are_named_in_one_line_and_not_drawn() -> None:
    found = planned.tco()
    assert plan_view.uncompared(found) == [
        ("rent over 36 months", ["rented hardware"]), ("output tokens over 36 months", ["managed service"]),
    ]  # fmt: skip
    chart = plan_charts.tco(found)
    assert chart is not None
    labels = [(row.label, row.value.replace(NARROW, " ")) for row in chart.rows]
    assert labels == [
        ("buy, cheapest", "810 000 EUR"),
        ("cloud reserved", "at least 820 000 EUR"),
        ("cloud on demand", "1 473 000 EUR"),
    ]
    assert chart.rows[0].spans[-1].high == 810_000
    assert [mark.value for mark in chart.marks] == [30_000 * 36]


def test_nothing_is_called_the_cheapest_where_no_total_is_whole() -> None:
    found = planned.tco().model_copy(update={"cheapest": None, "saving_monthly": None})
    text = page(having(tco=found)).text
    assert "No way's total is whole, so none is called the cheapest" in text
    assert "a quarter lower or higher" not in text


def test_a_tco_of_unknowns_is_a_line_not_a_wall() -> None:
    lost = tuple(
        planned.option(way, {"hardware": None}, whole=False) for way in ("buy", "lease", "cloud on demand")
    )  # fmt: skip
    found = planned.tco().model_copy(update={"options": lost, "cheapest": None, "checks": (), "bill_monthly": None})
    assert plan_charts.tco(found) is None
    text = page(having(tco=found)).text
    assert "Not compared: buy, lease, cloud on demand (hardware over 36 months)" in text


def test_a_way_alone_is_not_the_cheapest_of_anything() -> None:
    found = planned.tco()
    alone = found.model_copy(update={"options": (found.options[0], *found.options[3:])})
    chart = plan_charts.tco(alone)
    assert chart is not None
    assert [row.label for row in chart.rows] == ["buy"]
    text = page(having(tco=alone)).text
    assert "The only way whose total is whole: buy" in text
    assert "a quarter lower or higher" not in text


def test_what_changes_the_winner_comes_first() -> None:
    changing, steady = plan_view.deciding(planned.tco())
    assert [one.name for one in changing] == ["cloud_host_hour"]
    assert [one.name for one in steady] == ["electricity_per_kwh"]
    text = page(planned.full()).text
    assert text.index("cloud host hour cloud on demand") < text.index("electricity per kwh")


def test_the_offers_are_the_cheapest_ten_and_the_choice() -> None:
    chart = plan_charts.offers(planned.sizing(), planned.full().profile)
    assert chart is not None
    assert [row.label for row in chart.rows][-1] == "3 × gpu8.large, eu-test-1"
    assert len(chart.rows) == 11
    assert [row.spans[0].tone for row in chart.rows] == ["plain"] * 10 + ["new"]
    assert chart.rows[0].value.endswith("1 missed")
    assert [key.label for key in chart.keys] == ["the choice", "misses a target"]
    assert [mark.label.replace(NARROW, " ") for mark in chart.marks] == ["target 2.5 EUR"]
    assert "1 usable offer without a known price: gpu8.unpriced" in chart.note
    assert "3 dearer ones not drawn" in chart.note


def test_a_target_of_cost_far_off_is_said_not_drawn() -> None:
    profile = planned.full().profile.model_copy(update={"max_cost_per_1000": 400.0})
    chart = plan_charts.offers(planned.sizing(), profile)
    assert chart is not None
    assert chart.marks == ()
    assert "beyond the right edge" in chart.note


def test_offers_without_any_known_cost_are_no_plot() -> None:
    unknown = tuple(planned.offer(f"gpu.{k}", None) for k in range(4))
    sizing = planned.sizing().model_copy(update={"offers": unknown})
    assert plan_charts.offers(sizing, planned.full().profile) is None


def test_of_many_offers_the_rest_is_counted_by_reason() -> None:
    found = plan_view.offers(planned.sizing())
    assert len(found.shown) == plan_view.SHOWN
    assert plan_view.is_choice(found.shown[0], planned.sizing())
    assert found.more == 2
    assert [(one.reason, one.n) for one in found.others] == [("it has 16 GiB, 70 are needed", 3), ("fits", 1)]
    total = len(found.shown) + found.more + sum(one.n for one in found.others)
    assert total == len(planned.sizing().offers)


def test_few_offers_stand_as_they_are() -> None:
    assert plan_view.offers(made.sizing()).shown == made.sizing().offers


RANGES = [
    ("p95_ttft_ms", (100, 200, 300), 400, "met over the whole range"),
    ("p95_ttft_ms", (100, 200, 500), 400, "met as predicted, missed at the unlucky end of the range"),
    ("p95_ttft_ms", (100, 450, 500), 400, "missed as predicted, met at the lucky end of the range"),
    ("p95_ttft_ms", (410, 450, 500), 400, "missed as predicted"),
    ("min_tokens_per_s", (21, 25, 30), 20, "met over the whole range"),
    ("min_tokens_per_s", (15, 25, 30), 20, "met as predicted, missed at the unlucky end of the range"),
    ("min_tokens_per_s", (5, 15, 30), 20, "missed as predicted, met at the lucky end of the range"),
    ("p95_ttft_ms", (1, 2, 3), None, ""),
]


@pytest.mark.parametrize(("key", "values", "target", "said"), RANGES)
def test_a_range_is_held_against_its_target(
    key: str, values: tuple[float, float, float], target: float | None, said: str
) -> None:
    low, value, high = values
    assert plan_view.judged(key, Interval(value=value, low=low, high=high, unit="ms"), target) == said


def test_ranges_show_value_ends_and_target() -> None:
    first, second = plan_charts.reached(planned.sizing(), planned.full().profile)
    assert (first.rows[0].dot, first.rows[0].whisker) == (480, (350, 700))
    assert [mark.value for mark in first.marks] == [500]
    assert first.note.startswith("met as predicted, missed")
    assert second.marks == ()
    said = plan_view.unpredicted(planned.sizing(), planned.full().profile)
    assert [one.replace(NARROW, " ") for one in said] == ["tokens a second that each user sees (target 20 tokens/s)"]


def test_steps_lie_along_the_time() -> None:
    chart = plan_charts.gantt(planned.timeline())
    assert chart is not None
    rows = {row.label: row for row in chart.rows}
    assert "data" not in rows
    assert chart.note == "take no time: data"
    assert (rows["quota"].spans[0].low, rows["quota"].spans[0].high) == (1800, 48.5 * 3600)
    assert rows["quota"].strong
    assert rows["quota"].whisker is None
    assert rows["image"].whisker == (1.5 * 3600, 48.5 * 3600)
    assert (rows["weights"].spans, rows["weights"].value) == ((), "unknown")
    assert [mark.value for mark in chart.marks] == [48 * 3600, 50.5 * 3600]
    assert chart.x.high >= 98.5 * 3600


def test_the_chain_shows_exceptions_and_its_bottleneck() -> None:
    found = page(planned.full())
    marked = [a["data-mark"] for tag, a in found.tags if tag == "td" and "data-mark" in a]
    assert marked.count("bottleneck") == 1
    assert "little-traffic : 0.1 of 5 Gbit/s" in found.text
    assert "too small" in found.text
    assert "generation 5" in found.text


def test_what_fails_or_is_unknown_comes_before_what_agrees() -> None:
    text = page(planned.full()).text
    assert text.index("eu-test-1 is outside of eu") < text.index("the account's quota is not known")
    assert text.index("the account's quota is not known") < text.index("1 of 3 agree")


def test_old_prices_are_said_at_the_top_of_the_plan() -> None:
    text = page(planned.full()).text
    assert "333 days old" in text.split("Plan and cost")[1][:300]


def test_a_single_known_part_of_the_costs_is_no_plot() -> None:
    costs = planned.costs()
    assert plan_charts.costs(costs.model_copy(update={"lines": costs.lines[:1]})) is None
    chart = plan_charts.costs(costs)
    assert chart is not None
    assert [key.label.replace(NARROW, " ") for key in chart.keys] == ["compute 40 150 EUR", "disks 88 EUR"]
    assert chart.note.endswith("egress")
    unknown = Figure(value=None, unit="EUR/month", basis="unknown", source="no price")
    assert plan_charts.costs(costs.model_copy(update={"monthly": unknown})) is None


def test_a_sizing_from_before_the_planner_is_read_and_shown() -> None:
    body = made.sizing().model_dump(mode="json", exclude_defaults=True)
    assert not {"costs", "tco", "timeline", "chain", "serving"} & set(body)
    assert not plan_view.has_plan(Sizing.model_validate(body))
