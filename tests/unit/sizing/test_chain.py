"""The checklist as computed minima: how an exception reads, what is too small, and which link is the bottleneck."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import inferlift.sizing.chain as sizing_chain
from inferlift.artifacts import Chain, ChainLink
from inferlift.sizing.chain import GIB, Question, bytes_of_a_request, chain, load_seconds
from inferlift.sizing.hardware import Layout
from tests.unit.sizing.planning import a_gpu, a_profile, an_offer, g4dn

SEVEN_GB = 7e9  # 13B at 4 bit


def link(found: Chain, name: str) -> ChainLink:
    return next(each for each in found.links if each.name == name)


def test_a_t4_for_images_reads_as_exceptions() -> None:
    """16 GB of memory and PCIe 3 are below the checklist, and fine for ResNet-50 on one card."""
    asked = a_profile("image", requests={"cpu_ms": 7.3})
    found = chain(
        Question(
            asked, g4dn(nvme_mb_s=500), a_gpu("T4"), weights_bytes=51e6, need_bytes=2.0 * GIB, peak_rps=30, busy=0.1
        )
    )
    vram, pcie, nvme, ram = (link(found, name) for name in ("vram", "pcie", "nvme", "ram"))
    assert (vram.verdict, vram.exception, vram.has) == ("exception", "fits-a-smaller-card", 16)
    assert (pcie.verdict, pcie.exception, pcie.has) == ("exception", "one-gpu-a-copy", 3)
    assert (nvme.verdict, nvme.exception) == ("exception", "loaded-in-time")
    assert (ram.verdict, ram.exception, ram.has) == ("exception", "weights-and-headroom", 16)
    assert "each copy of the model lies on one GPU" in pcie.why
    assert link(found, "cpu").verdict == "ok"
    assert not found.too_small


def test_a_g5_xlarge_for_13b_at_4_bit_reads_as_an_exception() -> None:
    """16 GB of host memory hold 7 GB of weights and 4 GiB of headroom; the card is of the 24 GB class."""
    found = chain(Question(a_profile(), an_offer(), a_gpu("A10G"), weights_bytes=SEVEN_GB, need_bytes=15 * GIB))
    ram = link(found, "ram")
    assert ram.verdict == "exception"
    assert ram.exception == "weights-and-headroom"
    assert ram.needed == pytest.approx(SEVEN_GB / GIB + 4)
    assert ram.needed is not None
    assert ram.has == 16 > ram.needed
    assert ram.rule == 64
    assert link(found, "vram").verdict == "ok"
    assert link(found, "pcie").verdict == "ok"


def test_13b_at_16_bit_is_too_much_for_both_memories() -> None:
    found = chain(Question(a_profile(), an_offer(), a_gpu("A10G"), weights_bytes=26e9, need_bytes=26 * GIB))
    assert {each.name for each in found.too_small} == {"ram", "vram"}
    assert "26 of 22.4 GiB usable" in link(found, "vram").why


def test_a_card_that_is_full_to_the_brim_is_too_small() -> None:
    found = chain(Question(a_profile(), an_offer(), a_gpu("A10G"), weights_bytes=SEVEN_GB, need_bytes=21.5 * GIB))
    assert link(found, "vram").verdict == "too small"
    assert "10% stays free" in link(found, "vram").why


def test_layers_split_over_a_slow_bus_are_no_exception() -> None:
    four = Layout(tensor=4)
    t4s = g4dn(gpu_count=4, vcpu=48, ram_gib=192)
    found = chain(Question(a_profile(), t4s, a_gpu("T4"), weights_bytes=30e9, need_bytes=10 * GIB, layout=four))
    assert link(found, "pcie").verdict == "too small"
    assert "4 GPUs, whose sums cross this bus" in link(found, "pcie").why


def test_the_bottleneck_is_the_link_that_is_used_most() -> None:
    """7.3 ms of CPU a request at 300/s are 2.19 vCPU and one for the GPU's server: 80 % of 4, and too much."""
    asked = a_profile("image", requests={"cpu_ms": 7.3})
    question = Question(asked, g4dn(), a_gpu("T4"), weights_bytes=51e6, need_bytes=GIB, peak_rps=300, busy=0.4)
    found = chain(question)
    assert found.bottleneck == "cpu"
    assert link(found, "cpu").utilisation == pytest.approx(3.19 / 4)
    assert link(found, "cpu").verdict == "too small"
    busy = chain(
        Question(asked, g4dn(vcpu=64), a_gpu("T4"), weights_bytes=51e6, need_bytes=GIB, peak_rps=300, busy=0.4)
    )
    assert busy.bottleneck == "gpu"
    assert "40%" in busy.why


def test_unknown_is_said_and_never_zero() -> None:
    found = chain(Question(a_profile(), an_offer(network_gbps=None, vcpu=None), a_gpu("A10G"), weights_bytes=SEVEN_GB))
    for name in ("latency", "network", "cpu", "nvme", "vram", "gpu"):
        assert link(found, name).verdict == "unknown", name
        assert link(found, name).utilisation is None
    assert found.bottleneck is None
    assert "56 s from a plain network disk" in link(found, "nvme").why
    assert "requests.cpu_ms is not known" in link(found, "cpu").why


def test_little_traffic_excuses_a_slow_network() -> None:
    quiet = Question(a_profile(), an_offer(), a_gpu("A10G"), weights_bytes=1e9, peak_rps=10, request_bytes=50_000)
    found = link(chain(quiet), "network")
    assert (found.verdict, found.exception) == ("exception", "little-traffic")
    assert found.load == pytest.approx(10 * 50_000 * 8 / 1e9)
    heavy = Question(a_profile(), an_offer(), a_gpu("A10G"), weights_bytes=1e9, peak_rps=3000, request_bytes=50_000)
    assert link(chain(heavy), "network").verdict == "too small"
    fast = Question(a_profile(), an_offer(network_gbps=25), a_gpu("A10G"), weights_bytes=1e9, peak_rps=10)
    assert link(chain(fast), "network").verdict == "ok"


@pytest.mark.parametrize(
    ("task", "budget", "measured", "verdict", "exception"),
    [
        ("chat", None, 12, "ok", ""),
        ("chat", None, 35, "too small", ""),
        ("chat", 50, 35, "exception", "budget-allows"),
        ("chat", 50, 60, "too small", ""),
        ("batch", None, 200, "exception", "nobody-waits"),
        ("batch", None, None, "exception", "nobody-waits"),
        ("chat", 50, None, "unknown", ""),
    ],
)
def test_latency(task: str, budget: float | None, measured: float | None, verdict: str, exception: str) -> None:
    asked = a_profile(task, network={"latency_budget_ms": budget})
    found = link(chain(Question(asked, an_offer(), a_gpu("A10G"), weights_bytes=1e9, latency_ms=measured)), "latency")
    assert (found.verdict, found.exception) == (verdict, exception)


def test_a_host_without_a_gpu_needs_the_servers_memory() -> None:
    host = an_offer("c7i.4xlarge", gpu=None, gpu_count=0, vram_mib=None, vcpu=16, ram_gib=32)
    found = chain(Question(a_profile("batch"), host, None, weights_bytes=1e9, need_bytes=4.0 * GIB))
    assert link(found, "ram").needed == pytest.approx(5)
    assert (link(found, "vram").verdict, link(found, "pcie").verdict) == ("ok", "ok")


def test_a_slice_of_a_gpu_has_a_slice_of_its_memory() -> None:
    quarter = an_offer("g6f.2xlarge", gpu="L4", gpu_fraction=0.25, vram_mib=5722, gpu_count=0)
    found = chain(Question(a_profile(), quarter, a_gpu("L4"), weights_bytes=4e9, need_bytes=5.2 * GIB))
    assert link(found, "vram").has == 6
    assert link(found, "vram").verdict == "too small"


def test_what_a_request_weighs() -> None:
    assert bytes_of_a_request(a_profile()) == 300 * 5 + 200 * 250
    assert bytes_of_a_request(a_profile("image")) == pytest.approx(1280 * 720 * 0.3)


def test_load_time() -> None:
    """140 GB at 3000 MB/s take 47 s, at 125 MB/s 19 minutes."""
    assert load_seconds(140e9, 3000) == pytest.approx(46.7, rel=0.01)
    assert load_seconds(140e9, 125) == 1120


@given(
    weights=st.floats(1e6, 1e12), need=st.floats(1e6, 1e12), ram=st.floats(1, 4000), rps=st.floats(0, 1e5),
    gbps=st.floats(0.1, 400), vcpu=st.floats(1, 192), cpu_ms=st.floats(0, 1000), reads=st.floats(10, 30_000),
)  # fmt: skip
def test_no_link_is_fine_below_its_need(
    weights: float, need: float, ram: float, rps: float, gbps: float, vcpu: float, cpu_ms: float, reads: float
) -> None:
    asked = a_profile(requests={"cpu_ms": cpu_ms})
    offer = an_offer(ram_gib=ram, network_gbps=gbps, vcpu=vcpu, nvme_mb_s=reads)
    found = chain(Question(asked, offer, a_gpu("A10G"), weights_bytes=weights, need_bytes=need, peak_rps=rps, busy=0.5))
    for each in found.links:
        if each.name != "latency" and each.has is not None and each.needed is not None and each.has < each.needed:
            assert each.verdict == "too small", each
        if each.verdict == "exception":
            assert each.exception
            assert each.rule is not None
        assert each.why
    tight = link(found, found.bottleneck or "")
    used = [
        each.utilisation for each in found.links if each.utilisation is not None and each.name not in ("ram", "vram")
    ]
    assert tight.utilisation == max(used)


@pytest.mark.parametrize("name", ["chain", "compat", "timeline", "vision", "image_tokens"])
def test_every_figure_of_the_tables_has_a_source(name: str) -> None:
    """Wherever a table holds a value or hours, a source stands beside it: an address, an assumption, a fit."""
    told = yaml.safe_load((Path(sizing_chain.__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
    found = 0
    for entry in entries(told):
        if {"value", "hours", "rule", "min_driver", "min_compute", "efficiency", "kind"} & set(entry):
            assert re.search(r"https?://|assumption|fitted|checklist|computed|predicted|cache-type", entry["source"])
            found += 1
    assert found >= 3


def entries(told: Any) -> Iterator[dict[str, Any]]:
    if isinstance(told, dict):
        yield told
        for value in told.values():
            yield from entries(value)
