"""Worked examples (worked.yaml), offers, replicas, costs and verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import Evidence, Figure, Offer
from inferlift.audit import audit
from inferlift.declaration import load
from inferlift.errors import DeclarationError
from inferlift.prices import offers
from inferlift.profile import Model, Profile, Server
from inferlift.sizing import deadline_s, evidence_inputs, needed_replicas, size
from inferlift.sizing.hardware import assumptions, gpu, gpus
from inferlift.sizing.memory import GIB, kv_bytes_per_token, memory, tensor_parallel_sizes, weights_bytes

WORKED: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "worked.yaml").read_text(encoding="utf-8"))
BASE = load("base", Path(__file__).parent.parent / "declaration_cases" / "root").profile
START = datetime(2026, 10, 10, 12, tzinfo=UTC)


def profile(**sections: dict[str, Any]) -> Profile:
    told = BASE.model_dump()
    for name, change in sections.items():
        told[name] = {**told[name], **change}
    return Profile.model_validate(told)


def model(**change: Any) -> Model:
    return Model.model_validate({"name": "m", "source": "s", **change})


def evidence(per_minute: int, duration_s: float, minutes: int = 2) -> Evidence:
    """A log of `per_minute` requests in each minute."""
    lines = []
    for at in range(per_minute * minutes):
        moment = START + timedelta(seconds=int(at * 60 / per_minute))
        stamp = moment.strftime("%d/%b/%Y:%H:%M:%S +0000")
        lines.append(f'1.1.1.1 - - [{stamp}] "POST /c HTTP/1.1" 200 1 "-" "-" rt={duration_s:.3f}')
    return audit(lines, routes=["/c"])


@pytest.mark.parametrize("example", WORKED, ids=lambda example: example["name"])
def test_worked_example(example: dict[str, Any]) -> None:
    subject = model(**example["model"])
    assert weights_bytes(subject) / GIB == pytest.approx(example["weights_gib"], rel=2e-3)
    assert tensor_parallel_sizes(subject, 8) == example["tensor_parallel"]
    if "kv_bytes_per_token" in example:
        assert kv_bytes_per_token(subject) == example["kv_bytes_per_token"]


def test_kv_heads_are_rounded_up_per_gpu() -> None:
    subject = model(**WORKED[0]["model"])  # 8 kv heads
    assert [kv_bytes_per_token(subject, tp) for tp in (1, 2, 8, 16)] == [131072, 65536, 16384, 16384]


def test_kv_at_eight_bits_is_half() -> None:
    assert kv_bytes_per_token(model(**WORKED[0]["model"], kv_bits=8)) == 65536


def test_memory_is_the_sum_of_its_parts_and_says_so() -> None:
    need = memory(model(**WORKED[0]["model"]), Server(slots=4, context_per_slot=8192), on_gpu=True)
    assert need.kv_bytes == 131072 * 4 * 8192
    assert need.total_bytes == need.weights_bytes + need.kv_bytes + need.overhead_bytes
    text = "\n".join(need.explain)
    assert "2 * 32 layers * 8 kv heads * 128 head_dim * 16 bits / 8 = 131072 bytes" in text
    assert f"{need.total_bytes / GIB:.3f} GiB" in text


def _big(kind: int, slots: int, bits: float = 16) -> Profile:
    return profile(
        model={"parameters_active": None, **WORKED[kind]["model"], "weight_bits": bits},
        server={"slots": slots, "context_per_slot": 2048},
        requests={"per_minute_peak": 60.0},
    )


def test_70b_at_16_bit_wants_two_80_gb_gpus_and_gets_a_host_that_has_them() -> None:
    plan = size(_big(2, 4), None, offers("aws", "us-east-1"))
    told = {offer.offer: offer for offer in plan.offers}
    assert not told["p5.4xlarge"].fits  # one H100
    assert "GiB of GPU memory" in told["p5.4xlarge"].reason
    assert told["p5.48xlarge"].fits
    assert not told["g6e.4xlarge"].fits
    assert told[plan.choice].usd_per_hour.value == min(
        offer.usd_per_hour.value for offer in plan.offers if offer.fits and offer.usd_per_hour.value is not None
    )


def test_8b_at_16_bit_does_not_fit_a_t4() -> None:
    told = {offer.offer: offer for offer in size(_big(0, 4), None, offers("aws", "us-east-1")).offers}
    assert not told["g4dn.xlarge"].fits
    assert told["g6e.xlarge"].fits


def test_not_offered_unknown_and_sliced() -> None:
    plan = size(_big(0, 4), None, offers("aws"))
    told = {offer.offer: offer for offer in plan.offers}
    assert told["p5.48xlarge"].reason == "not offered in eu-central-1"
    assert "slice of a GPU" in told["g6f.xlarge"].reason
    unknown = told["g6e.xlarge"]  # fits, no price for the region
    assert unknown.fits
    assert unknown.usd_per_hour.value is None
    assert unknown.per_1000.value is None
    assert "price is unknown" in unknown.reason
    assert told[plan.choice].usd_per_hour.value is not None


def test_a_model_that_fits_nowhere_is_refused_with_numbers() -> None:
    with pytest.raises(DeclarationError, match="fits no offer") as caught:
        size(_big(4, 1, 16), None, offers("aws", "us-east-1")[:20])
    assert "GiB" in caught.value.why
    with pytest.raises(DeclarationError, match="fits no offer"):
        size(profile(lab={"model_memory_mb": 200}), None, offers("lab"))


def test_no_offers_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no offers"):
        size(BASE, None, ())


@pytest.mark.parametrize(
    ("peak", "rate", "needed"), [(10.0, 3.0, 4), (9.0, 3.0, 3), (0.3, 0.1, 3), (0.0, 3.0, 1), (0.7, 0.1, 7)]
)
def test_replicas_for_a_peak(peak: float, rate: float, needed: int) -> None:
    assert needed_replicas(peak, rate) == needed


def test_replicas_for_a_burst_with_a_deadline() -> None:
    assert needed_replicas(1.0, 5.0, in_flight=1000, deadline_s=100.0) == 2
    assert needed_replicas(1.0, 5.0, in_flight=1001, deadline_s=100.0) == 3
    with pytest.raises(ValueError, match="above 0"):
        needed_replicas(1.0, 0.0)


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3))
def test_replicas_suffice_and_one_fewer_does_not(peak: float, rate: float) -> None:
    count = needed_replicas(peak, rate)
    assert count * rate >= peak * (1 - 1e-6)
    assert count == 1 or (count - 1) * rate < peak * (1 + 1e-6)


@given(st.integers(1, 5000), st.integers(1, 64), st.floats(0.1, 100))
def test_the_deadline_is_met_with_the_spare_and_missed_without(requests: int, replicas: int, rate: float) -> None:
    limit, why = deadline_s(requests, replicas, rate)
    third = requests / 3

    def seconds(before: int) -> float:  # one of them is lost after a third
        return third / (before * rate) + (2 * third / ((before - 1) * rate) if before > 1 else float("inf"))

    assert requests / (replicas * rate) < limit
    assert seconds(replicas + 1) < limit
    assert seconds(replicas) > limit
    assert str(requests) in why


def test_deadline_with_a_margin() -> None:
    assert deadline_s(1000, 2, 5.0, margin=1.5)[0] == pytest.approx(150.0)
    with pytest.raises(ValueError, match="above 0"):
        deadline_s(1000, 2, 0.0)


def test_peak_from_evidence_grows_by_the_horizon() -> None:
    busy = evidence(120, 2.0)
    grown = profile(requests={"growth_per_month": 0.1, "growth_months": 6})
    plan = size(grown, busy, offers("lab"))
    assert plan.peak_rps.value == pytest.approx(2.0 * 1.1**6)
    assert size(BASE, busy, offers("lab")).peak_rps.value == pytest.approx(2.0)
    declared = size(profile(requests={"per_minute_peak": 600.0}), busy, offers("lab"))
    assert (declared.peak_rps.value, declared.peak_rps.basis) == (10.0, "declared")


def test_measured_rate_replaces_the_prediction() -> None:
    busy = evidence(600, 2.0)
    predicted = size(BASE, busy, offers("lab"))
    assert predicted.rate_per_replica.basis == "predicted"
    rate = Figure(value=2.0, unit="requests/s", basis="measured", source="load run", n=1000)
    measured = size(BASE, busy, offers("lab"), measured_rate=rate)
    assert measured.rate_per_replica == rate
    assert measured.replicas == 5
    assert (measured.spare, measured.choice) == (1, predicted.choice)
    with pytest.raises(DeclarationError, match="measured rate"):
        size(BASE, busy, offers("lab"), measured_rate=rate.model_copy(update={"value": None}))


def test_cost_counts_the_spare_and_converts_the_currency() -> None:
    rate = Figure(value=2.0, unit="requests/s", basis="measured", source="load run")
    offer = Offer(name="h", vcpu=1, ram_gib=4, usd_per_hour=1.15, source="a price list", date="2026-11-01")
    plan = size(BASE, evidence(600, 2.0), [offer], measured_rate=rate)
    assert plan.offers[0].usd_per_hour.value == pytest.approx(6 * 1.15)  # 5 + 1 spare
    assert plan.cost_per_hour.value == pytest.approx(6.0)  # EUR at 1.15
    assert plan.cost_per_1000.value == pytest.approx(6.0 / 36000 * 1000)
    assert "at the peak rate" in plan.cost_per_1000.source
    assert plan.cost_per_hour.at == "2026-11-01"


def test_cost_is_at_the_mean_rate_where_the_logs_span_a_day() -> None:
    rate = Figure(value=2.0, unit="requests/s", basis="measured", source="load run")
    offer = Offer(name="h", vcpu=1, ram_gib=4, usd_per_hour=1.15, source="a price list", date="2026-11-01")
    sparse = evidence(600, 2.0).model_copy(update={"end": START + timedelta(hours=48)})  # 1200 requests in two days
    plan = size(BASE, sparse, [offer], measured_rate=rate)
    assert plan.cost_per_1000.value == pytest.approx(6.0 / (0.0069 * 3600) * 1000)
    assert "at the mean rate" in plan.cost_per_1000.source
    assert any("at the peak rate" in note for note in plan.notes)


def test_unknown_price_stays_unknown() -> None:
    plan = size(BASE, evidence(600, 2.0), offers("static"))
    assert (plan.cost_per_hour.value, plan.cost_per_1000.value) == (None, None)
    assert (plan.cost_per_hour.basis, plan.offers[0].usd_per_hour.value) == ("unknown", None)
    limited = size(profile(targets={"max_cost_per_1000": 1.0}), evidence(600, 2.0), offers("static"))
    assert limited.verdict == "conditional"


def test_verdicts() -> None:
    lab = offers("lab")
    assert size(BASE, evidence(120, 2.0), lab).verdict == "go"
    assert size(BASE, evidence(60, 0.1), lab).verdict == "stay"
    few = size(BASE, evidence(5, 0.1), lab)  # too few samples for a P95
    assert (few.verdict, "P95" in few.why) == ("defer", True)
    assert size(BASE, None, lab).verdict == "defer"
    assert size(profile(requests={"per_minute_peak": 60.0}), None, lab).verdict == "conditional"
    hard = profile(targets={"p95_ttft_ms": 1.0})
    out_of_reach = size(hard, evidence(120, 2.0), lab)
    assert out_of_reach.verdict == "conditional"
    assert "first token after" in out_of_reach.why
    dear = size(profile(targets={"max_cost_per_1000": 0.0001}), evidence(120, 2.0), lab)
    assert (dear.verdict, "per 1000" in dear.why) == ("conditional", True)


def test_the_same_inputs_give_the_same_plan() -> None:
    busy = evidence(120, 2.0)
    later = evidence(120, 3.0)
    assert evidence_inputs(busy) == evidence_inputs(later)
    assert size(BASE, busy, offers("lab")).replicas == size(BASE, later, offers("lab")).replicas
    assert evidence_inputs(busy) != evidence_inputs(evidence(180, 2.0))
    assert evidence_inputs(None) is None


def test_all_offers_are_compared() -> None:
    every = offers("aws", "us-east-1")
    plan = size(_big(2, 4), None, every)
    assert len(plan.offers) == len(every) > 50


def test_a100_of_40_and_of_80_gb_are_told_apart() -> None:
    assert [card.name for vram in (40960, 81920) if (card := gpu("A100", vram))] == ["A100-40GB SXM", "A100-80GB SXM"]
    assert gpu("RTX 9999", 1) is None


def test_every_gpu_and_assumption_has_a_source() -> None:
    assert [card.name for card in gpus() if not card.source] == []
    assert [name for name, row in assumptions().items() if not row.source or not row.unit] == []
