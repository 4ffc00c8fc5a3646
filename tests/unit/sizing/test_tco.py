"""The comparison over years: worked examples (tco_worked.yaml), identities, unknowns, what changes the answer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from inferlift.artifacts import Figure, Tco
from inferlift.errors import DeclarationError
from inferlift.profile import tco as profile_tco
from inferlift.sizing.cost import UNPRICED, Priced
from inferlift.sizing.tco import TcoInputs, assumptions, figures, lines, tco
from inferlift.sizing.tco_assumptions import TABLE
from inferlift.sizing.tco_site import circuit_kw, hosts_per_rack
from inferlift.sizing.tco_ways import annuity, energy_kwh_month

WORKED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "tco_worked.yaml").read_text(encoding="utf-8"))
WHOLE = WORKED["whole"]
INPUTS = TcoInputs(
    currency=WHOLE["currency"],
    usd_rate=WHOLE["usd_rate"],
    hosts=2,
    gpus_per_host=2,
    gpu="L40S",
    gpu_tdp_w=350,
    host_kw=5,
    server=Priced(120_000, "a quotation", "2026-11-01"),
    rented_gpu_hour=Priced(3, "a catalogue"),
    cloud_host_hour=Priced(12, "a price list", "2026-11-01"),
    api_in=Priced(6, "a price list"),
    api_out=Priced(8, "a price list"),
    input_tokens_month=400e6,
    output_tokens_month=200e6,
)
ASSUMED = assumptions(WHOLE["currency"], WHOLE["usd_rate"], WHOLE["assumptions"])


def totals(found: Tco) -> dict[str, float | None]:
    return {option.way: option.total.value for option in found.options}


@pytest.mark.parametrize("case", WORKED["annuities"])
def test_annuity(case: dict[str, float]) -> None:
    found = annuity(case["price"], case["residual"], case["rate"], case["months"])
    assert found == pytest.approx(case["month"], abs=0.005)


@given(
    price=st.floats(1, 1e7),
    share=st.floats(0, 0.9),
    rate=st.floats(0, 0.5),
    months=st.integers(1, 120),
)
def test_an_annuity_pays_the_price_back(price: float, share: float, rate: float, months: int) -> None:
    each, i = annuity(price, price * share, rate, months), rate / 12
    paid = sum(each / (1 + i) ** month for month in range(1, months + 1))
    assert paid + price * share / (1 + i) ** months == pytest.approx(price, rel=1e-6)


@pytest.mark.parametrize("case", WORKED["energy"])
def test_energy(case: dict[str, float]) -> None:
    found = energy_kwh_month(case["kw"], int(case["hosts"]), case["busy"], case["idle"], case["pue"])
    assert found == pytest.approx(case["kwh"])


@pytest.mark.parametrize("case", WORKED["racks"])
def test_racks(case: dict[str, float]) -> None:
    assert hosts_per_rack(case["kw"], case["limit"]) == case["hosts"]


def test_the_whole_worked_example() -> None:
    found = tco(INPUTS, ASSUMED)
    assert totals(found) == pytest.approx(WHOLE["totals"])
    buy = next(option for option in found.options if option.way == "buy")
    assert {line.name: line.total for line in buy.lines} == pytest.approx(WHOLE["buy"])
    assert found.break_even_utilisation.value == pytest.approx(WHOLE["break_even"], abs=1e-5)
    assert found.cheapest == "managed service"
    assert [option.total.value for option in found.options] == sorted(WHOLE["totals"].values())
    # 120000 over 36 months of 200 million output tokens
    assert found.options[0].per_million_output_tokens.value == pytest.approx(120_000 / 36 / 200)


@settings(max_examples=40, deadline=None)
@given(
    server=st.floats(1_000, 1e6),
    cloud=st.floats(0.5, 200),
    kw=st.floats(0.3, 15),
    idle=st.floats(0, 1),
)
def test_at_the_break_even_both_cost_the_same(server: float, cloud: float, kw: float, idle: float) -> None:
    subject = replace(INPUTS, server=Priced(server, "s"), cloud_host_hour=Priced(cloud, "s"), host_kw=kw)
    assumed = assumptions("EUR", 1.2, {"idle_power_share": idle})
    share = tco(subject, assumed).break_even_utilisation.value
    if share is None or not 0 < share <= 1:
        return
    there = totals(tco(replace(subject, busy_share=share, running_share=share), assumed))
    assert there["buy"] == pytest.approx(there["cloud on demand"], rel=1e-9)


def test_a_break_even_beyond_all_hours_is_told_as_such() -> None:
    cheap = tco(replace(INPUTS, cloud_host_hour=Priced(2, "s")), ASSUMED).break_even_utilisation
    assert cheap.value is not None
    assert cheap.value > 1
    assert "around the clock" in cheap.source
    free = tco(replace(INPUTS, cloud_host_hour=Priced(0.01, "s")), ASSUMED).break_even_utilisation
    assert (free.value, "never pays" in free.source) == (None, True)


def test_the_currency_is_consistent() -> None:
    inputs = replace(
        INPUTS, storage_gb=100, cloud_gb_month=Priced(0.1, "s"), egress_gb_month=9, egress_gb=Priced(1, "s")
    )
    euro = totals(tco(replace(inputs, usd_rate=1.15), assumptions("EUR", 1.15)))
    dollar = totals(tco(replace(inputs, currency="USD", usd_rate=1.0), assumptions("USD", 1.0, {"eur_usd": 1.15})))
    assert {way: total * 1.15 for way, total in euro.items() if total} == pytest.approx(dollar)


def test_an_unknown_main_price_leaves_a_way_without_a_total() -> None:
    found = tco(replace(INPUTS, server=UNPRICED, rented_gpu_hour=UNPRICED), ASSUMED)
    assert {way for way, total in totals(found).items() if total is None} == {"buy", "lease", "rented hardware"}
    assert found.break_even_utilisation.value is None
    assert any("buy, lease" in note or "lease, buy" in note for note in found.notes)
    assert found.cheapest == "managed service"


def test_a_way_that_misses_a_part_is_at_least_and_never_called_the_cheapest() -> None:
    inputs = replace(INPUTS, api_in=Priced(600, "s"), storage_gb=1000, host_kw=None, gpu_tdp_w=None)
    found = tco(inputs, ASSUMED)
    buy = next(option for option in found.options if option.way == "buy")
    assert buy.missing == ("electricity", "colocation")
    assert buy.total.value == pytest.approx(263_600 + 1000 * 0.05 * 36)
    cloud = next(option for option in found.options if option.way == "cloud reserved")
    assert cloud.missing == ("storage",)
    assert found.cheapest == "rented hardware"
    assert any("at least 2" in line for line in lines(found))


def test_nothing_known_is_no_answer() -> None:
    found = tco(TcoInputs(currency="EUR", usd_rate=1.2, hosts=1), assumptions("EUR", 1.2))
    assert (found.cheapest, found.saving_monthly) == (None, None)
    assert set(totals(found).values()) == {None}
    assert "unknown" in "\n".join(lines(found))


def test_a_task_that_writes_nothing_has_no_price_a_token() -> None:
    found = tco(replace(INPUTS, output_tokens_month=0, api_out=UNPRICED), ASSUMED)
    managed = next(option for option in found.options if option.way == "managed service")
    assert managed.total.value == pytest.approx(400 * 6 / 1.2 * 36)
    assert managed.per_million_output_tokens.value is None


def test_the_draw_of_a_host_comes_from_its_gpus_where_it_is_not_known() -> None:
    found = tco(replace(INPUTS, host_kw=None), assumptions("EUR", 1.2, {"host_power_factor": 2}))
    assert "1.4 kW" in found.checks[0].detail  # 2 * 350 W * 2


def test_sensitivity_names_what_changes_the_answer() -> None:
    inputs = replace(INPUTS, api_in=UNPRICED, cloud_host_hour=Priced(20, "s"), rented_gpu_hour=Priced(4.2, "s"))
    found = tco(inputs, ASSUMED)
    assert found.cheapest == "buy"
    rows = {row.name: row for row in found.sensitivity}
    assert (rows["server"].cheapest_low, rows["server"].cheapest_high) == ("buy", "rented hardware")
    assert rows["server"].changes
    assert (rows["rented_gpu_hour"].cheapest_low, rows["rented_gpu_hour"].changes) == ("rented hardware", True)
    assert not rows["admin_rate"].changes
    # the same by asking anew
    dearer = tco(replace(inputs, server=Priced(150_000, "s")), ASSUMED)
    assert dearer.cheapest == "rented hardware"
    assert rows["server"].margin_high == pytest.approx(dearer.options[1].total.value - dearer.options[0].total.value)  # type: ignore[operator]
    # what moves no total is no row: liquid cooling is not used, circuits cost nothing
    assert not {"pue_liquid", "circuit_amps", "rack_limit_kw_air"} & set(rows)
    assert "pue_air" in rows


def test_against_the_present_bill() -> None:
    bill = Figure(value=5_000, unit="EUR/month", basis="declared", source="hosting.bill_monthly")
    found = tco(replace(INPUTS, bill_monthly=bill), ASSUMED)
    assert found.saving_monthly is not None
    assert found.saving_monthly.value == pytest.approx(5_000 - 120_000 / 36)
    assert any("saves 1,667 a month" in line for line in lines(found))
    read = figures(found)
    assert (read["bill_monthly"], read["total.buy"]) == (5_000, pytest.approx(352_160))
    assert read["saving_monthly"] == found.saving_monthly.value
    assert figures(tco(INPUTS, ASSUMED))["saving_monthly"] is None


@pytest.mark.parametrize(
    ("cooling", "kw", "ok", "said"),
    [
        ("air", 10.2, True, "1 a rack, 2 racks"),
        ("air", 21.0, False, "direct liquid cooling or immersion would do"),
        ("liquid", 10.2, True, "9 a rack, 1 rack"),
        ("immersion", 120.0, False, "not one host"),
    ],
)
def test_a_rack_takes_what_its_cooling_takes(cooling: str, kw: float, ok: bool, said: str) -> None:
    found = tco(replace(INPUTS, cooling=cooling, host_kw=kw), assumptions("EUR", 1.2))
    rack = found.checks[0]
    assert (rack.ok, rack.skipped) == (ok, False)
    assert said in rack.detail


def test_circuits_and_ups_are_checked_where_the_site_is_known() -> None:
    assert circuit_kw(400, 32, 0.95, 0.8) == pytest.approx(16.85, abs=0.005)
    skipped = {check.name: check for check in tco(replace(INPUTS, host_kw=10.2), assumptions("EUR", 1.2)).checks}
    assert skipped["circuits"].skipped
    assert skipped["UPS"].skipped
    assert "2 circuits" in skipped["circuits"].detail
    assert "21.5 kVA" in skipped["UPS"].detail  # 20.4 / 0.95
    inputs = replace(INPUTS, host_kw=10.2, circuits=1, ups_kva=30)
    checked = {check.name: check for check in tco(inputs, assumptions("EUR", 1.2)).checks}
    assert (checked["circuits"].ok, checked["UPS"].ok) == (False, True)
    few = replace(inputs, circuits=2, ups_kva=21)
    again = {check.name: check for check in tco(few, assumptions("EUR", 1.2)).checks}
    assert (again["circuits"].ok, again["UPS"].ok) == (True, False)


def test_hardware_is_bought_again_after_its_life() -> None:
    longer = assumptions("EUR", 1.2, {**WHOLE["assumptions"], "years": 6, "hardware_life_years": 3})
    buy = next(option for option in tco(INPUTS, longer).options if option.way == "buy")
    assert buy.lines[0].total == pytest.approx(400_000)


def test_every_assumption_is_listed_with_its_source_and_can_be_changed() -> None:
    found = tco(INPUTS, assumptions("EUR", 1.15, {"admin_rate": 100}))
    rows = {row.name: row for row in found.assumptions}
    assert set(rows) == set(yaml.safe_load(TABLE.read_text(encoding="utf-8")))
    assert [name for name, row in rows.items() if not row.source] == []
    assert (rows["admin_rate"].value, rows["admin_rate"].declared) == (100, True)
    assert rows["electricity_per_kwh"].value == 0.1902  # in EUR as its source says
    assert rows["colocation_per_kw_month"].value == pytest.approx(217.30 / 1.15)
    said = "\n".join(lines(found, explain=True))
    assert [name for name in rows if f"  {name} " not in said] == []
    assert "cloud_reserved_discount 0.48 (0.32 to 0.6) share off" in said
    short = lines(found)
    assert "years 3" not in "\n".join(short)
    assert short[-1] == (
        f"{len(rows)} assumptions, 1 of them the profile's own (its tco section changes them);"
        " --explain lists them, inferlift/sizing/tco.yaml has them"
    )


def test_an_assumed_reserved_price_is_a_range() -> None:
    told = assumptions("EUR", 1.15)
    reserved = {option.way: option for option in tco(INPUTS, told).options}["cloud reserved"]
    assert reserved.total.value is not None
    assert "no reserved price is known: 48% less than on demand is assumed; 32% to 60% less would be" in reserved.note
    own = {
        option.way: option for option in tco(INPUTS, assumptions("EUR", 1.15, {"cloud_reserved_discount": 0.4})).options
    }
    assert "no reserved price" not in own["cloud reserved"].note
    known = replace(INPUTS, reserved_host_hour=Priced(3.0, "test"))
    assert "no reserved price" not in {one.way: one for one in tco(known, told).options}["cloud reserved"].note


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"admin_rates": 1.0}, "admin_rate"),
        ({"years": 0.0}, "above 0"),
        ({"residual_share": 1.5}, "at most 1"),
        ({"pue_air": -1.0}, "0 or more"),
        ({"pue_air": math.nan}, "0 or more"),
    ],
)
def test_a_wrong_assumption_is_refused_by_name(declared: dict[str, float], said: str) -> None:
    with pytest.raises(DeclarationError) as told:
        assumptions("EUR", 1.15, declared)
    assert said in told.value.why


def test_the_profiles_section_has_every_assumption_as_a_key() -> None:
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    assert set(table) <= set(profile_tco.Tco.model_fields)
    section = profile_tco.Tco(cooling="liquid", years=4, server_price=1000)
    assert section.assumed() == {"years": 4}
    assert assumptions("EUR", 1.15, section.assumed())["years"].value == 4
    assert [name for name, field in profile_tco.Tco.model_fields.items() if not field.description] == []
    with pytest.raises(ValidationError):
        profile_tco.Tco(residual_share=1.2)


@pytest.mark.parametrize("change", [{"hosts": 0}, {"usd_rate": 0}, {"busy_share": 1.1}, {"running_share": -0.1}])
def test_impossible_inputs(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|lie between"):
        tco(replace(INPUTS, **change), ASSUMED)
    with pytest.raises(ValueError, match="above 0"):
        annuity(1, 0, 0, 0)
