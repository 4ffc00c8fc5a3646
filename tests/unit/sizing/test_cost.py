"""Costs part by part: worked by hand, sums, what is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import Figure
from inferlift.sizing.cost import CostInputs, Priced, Step, costs, lines, mean_of_day

EGRESS = (Step(0.0, 0, 100, "s", "2026-05-06"), Step(0.09, 100, 10_000, "s"), Step(0.085, 10_000, 50_000, "s"))


def rate(value: float | None, basis: Any = "measured") -> Figure:
    return Figure(value=value, unit="requests/s", basis=basis, source="a test")


# 3 hosts of 1.15 USD an hour at 1.15 USD/EUR are 3 EUR an hour
INPUTS = CostInputs(
    currency="EUR",
    usd_rate=1.15,
    usd_rate_note="a bank, 2026-11-01",
    hosts=3,
    host_hour=Priced(1.15, "a price list", "2026-11-01"),
    capacity_rps=rate(20.0, "predicted"),
    peak_rps=rate(10.0),
    mean_rps=rate(4.0),
    output_tokens=200,
    disk_gb=0,
    egress_gb=0,
)


def by_name(inputs: CostInputs) -> dict[str, float | None]:
    return {line.name: line.monthly.value for line in costs(inputs).lines}


def test_compute_alone() -> None:
    found = costs(INPUTS)
    assert found.hourly.value == pytest.approx(3.0)
    assert found.monthly.value == pytest.approx(2190.0)  # 730 hours
    assert found.per_1000.value == pytest.approx(3 / (4 * 3600) * 1000)
    assert found.per_1000_at_peak.value == pytest.approx(3 / (10 * 3600) * 1000)
    assert found.per_million_output_tokens.value == pytest.approx(3 / (4 * 3600 * 200) * 1e6)
    assert (found.utilisation_mean.value, found.utilisation_peak.value) == (pytest.approx(0.2), pytest.approx(0.5))
    assert found.missing == ()
    assert "1 EUR = 1.15 USD (a bank, 2026-11-01)" in found.monthly.source
    assert found.monthly.at == "2026-11-01"


def test_each_part_for_itself() -> None:
    inputs = replace(
        INPUTS,
        currency="USD",
        usd_rate=1.0,
        disk_gb=100,
        disk_gb_month=Priced(0.08, "s"),
        egress_gb=15_000,
        egress=EGRESS,
        addresses=3,
        address_hour=Priced(0.005, "s"),
        balancers=1,
        balancer_hour=Priced(0.0225, "s"),
    )
    parts = by_name(inputs)
    assert parts == pytest.approx(
        {
            "compute": 3 * 1.15 * 730,
            "disks": 24.0,  # 3 * 100 GB * 0.08
            "egress": 1316.0,  # 100 free, 9900 * 0.09, 5000 * 0.085
            "addresses": 10.95,  # 3 * 730 * 0.005
            "load balancer": 16.425,  # 730 * 0.0225
        }
    )
    assert costs(inputs).monthly.value == pytest.approx(sum(value or 0 for value in parts.values()))


@pytest.mark.parametrize(
    ("gb", "usd"), [(50, 0.0), (100, 0.0), (101, 0.09), (10_000, 891.0), (10_001, 891.085), (50_000, 4291.0)]
)
def test_egress_by_steps(gb: float, usd: float) -> None:
    parts = by_name(replace(INPUTS, currency="USD", usd_rate=1.0, egress_gb=gb, egress=EGRESS))
    assert parts["egress"] == pytest.approx(usd)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"disk_gb": 100}, "disks"),
        ({"disk_gb": None}, "disks"),
        ({"egress_gb": None}, "egress"),
        ({"egress_gb": 10}, "egress"),
        ({"egress_gb": 50_001, "egress": EGRESS}, "egress"),  # beyond the last step
        ({"egress_gb": 200, "egress": (*EGRESS[:1], Step(None, 100, 10_000))}, "egress"),
        ({"addresses": 1}, "addresses"),
        ({"balancers": 1}, "load balancer"),
    ],
)
def test_what_is_unknown_is_missing_from_the_sum_and_named(change: dict[str, Any], missing: str) -> None:
    found = costs(replace(INPUTS, **change))
    assert found.missing == (missing,)
    assert found.monthly.value == pytest.approx(2190.0)
    assert found.at_least == "at least "
    assert any(missing in note for note in found.notes)
    assert any(line.startswith("month") and "at least" in line for line in lines(found))


def test_without_a_price_for_the_hosts_there_is_no_sum() -> None:
    known = {"disk_gb": 100, "disk_gb_month": Priced(0.08, "s")}
    found = costs(replace(INPUTS, host_hour=Priced(None, "nobody says"), **known))  # type: ignore[arg-type]
    assert (found.monthly.value, found.hourly.value, found.per_1000.value) == (None, None, None)
    assert found.monthly.basis == "unknown"
    assert "compute" in found.missing
    assert any("unknown" in line for line in lines(found))


def test_without_a_mean_rate_the_peak_is_the_least() -> None:
    found = costs(replace(INPUTS, mean_rps=None))
    assert found.per_1000.value == found.per_1000_at_peak.value
    assert "peak rate" in found.per_1000.source
    assert found.utilisation_mean.value is None
    assert any("the least" in note for note in found.notes)


def test_without_any_rate_or_token_there_is_no_price_for_them() -> None:
    found = costs(replace(INPUTS, mean_rps=None, peak_rps=rate(None, "unknown"), output_tokens=0))
    assert (found.per_1000.value, found.per_million_output_tokens.value, found.utilisation_peak.value) == (None,) * 3
    assert found.monthly.value is not None
    assert costs(replace(INPUTS, output_tokens=0)).per_million_output_tokens.value is None


def test_an_assumed_part_makes_the_sum_assumed() -> None:
    found = costs(replace(INPUTS, addresses=1, address_hour=Priced(0.005, "assumption: so", basis="assumed")))
    assert (found.lines[0].monthly.basis, found.monthly.basis) == ("declared", "assumed")


def test_the_mean_of_a_day() -> None:
    curve = (1.0,) * 6 + (0.5,) * 6 + (0.0,) * 12  # 9 of 24 hours' worth
    mean = mean_of_day(rate(10.0, "declared"), curve)
    assert mean is not None
    assert (mean.value, mean.basis) == (pytest.approx(10 * 9 / 24), "declared")
    assert mean_of_day(rate(10.0), curve).basis == "predicted"  # type: ignore[union-attr]
    assert mean_of_day(rate(10.0), None) is None
    assert mean_of_day(rate(None), curve) is None
    assert mean_of_day(rate(10.0), (0.0,) * 24) is None


@given(curve=st.lists(st.floats(0, 1), min_size=24, max_size=24).filter(lambda c: max(c) > 0.01))
def test_the_mean_is_never_above_the_peak(curve: list[float]) -> None:
    mean = mean_of_day(rate(7.0), curve)
    assert mean is not None
    assert mean.value is not None
    assert 0 <= mean.value <= 7.0 * (1 + 1e-9)


@given(gb=st.floats(0.1, 50_000), more=st.floats(0.1, 1000))
def test_more_egress_never_costs_less(gb: float, more: float) -> None:
    first = by_name(replace(INPUTS, egress_gb=gb, egress=EGRESS))["egress"]
    second = by_name(replace(INPUTS, egress_gb=min(50_000, gb + more), egress=EGRESS))["egress"]
    assert first is not None
    assert second is not None
    assert second >= first - 1e-9


@pytest.mark.parametrize("change", [{"hosts": 0}, {"usd_rate": 0.0}])
def test_impossible_inputs(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        costs(replace(INPUTS, **change))
