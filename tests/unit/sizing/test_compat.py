"""What must agree before money is spent: each check passes, fails or does not know, with the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import CompatCheck
from inferlift.profile import Operations
from inferlift.profile.formats import weight_formats
from inferlift.sizing import compat
from inferlift.sizing.hardware import gpus
from tests.unit.sizing.planning import a_gpu, a_profile, an_offer, g4dn

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("compat_cases.yaml").read_text(encoding="utf-8"))


def judged(found: CompatCheck, case: dict[str, Any]) -> None:
    assert found.verdict == case["verdict"], found
    assert case.get("says", "") in found.detail
    assert found.verdict == "pass" or found.next_step, "a fail or an unknown says what to do"


@pytest.mark.parametrize("case", CASES["weights"], ids=lambda case: f"{case['gpu']}-{case['format']}")
def test_weight_formats(case: dict[str, Any]) -> None:
    judged(compat.weights(a_gpu(case["gpu"]), case["format"]), case)


@pytest.mark.parametrize("case", CASES["kv"], ids=lambda case: f"{case['gpu']}-{case['format']}")
def test_kv_formats(case: dict[str, Any]) -> None:
    judged(compat.cache_of(a_gpu(case["gpu"]), case["format"]), case)


@pytest.mark.parametrize("case", CASES["driver"], ids=lambda case: f"{case['cuda']}-{case['driver']}")
def test_drivers(case: dict[str, Any]) -> None:
    found = compat.driver_of(a_gpu("A10G"), case["cuda"], case["driver"])
    judged(found, case)
    if found.verdict == "fail":
        assert "cuda-compat-" in found.next_step


@pytest.mark.parametrize("case", CASES["toolkit"], ids=lambda case: f"{case['gpu']}-{case['cuda']}")
def test_toolkits(case: dict[str, Any]) -> None:
    judged(compat.toolkit(a_gpu(case["gpu"]), case["cuda"]), case)


@pytest.mark.parametrize("instance_type", CASES["quota_codes"])
def test_quota_codes(instance_type: str) -> None:
    found = compat.quota_code(instance_type)
    assert found is not None
    assert [found["on_demand"], found["spot"]] == CASES["quota_codes"][instance_type]


def test_every_format_of_the_profile_and_every_gpu_get_an_answer() -> None:
    for gpu in gpus():
        for name in weight_formats():
            found = compat.weights(gpu, name)
            assert found.detail
            assert found.verdict == "pass" or found.next_step


def test_newer_toolkits_never_ask_for_older_drivers() -> None:
    told = sorted(compat._table()["cuda"]["toolkits"].items(), key=lambda pair: compat.version(pair[0]))
    drivers = [compat.version(driver) for _, driver in told]
    assert drivers == sorted(drivers)


def test_nvswitch_hosts_want_fabric_manager_of_the_drivers_version() -> None:
    eight = an_offer("p5.48xlarge", gpu="H100", gpu_count=8, vcpu=192)
    assert compat.fabric(eight, None, None).verdict == "unknown"
    assert "hold both" in compat.fabric(eight, "570.133.20", None).next_step
    assert compat.fabric(eight, "570.133.20", "570.133.20").verdict == "pass"
    assert compat.fabric(eight, "570.133.20", "570.124.06").verdict == "fail"
    one = an_offer("p5.4xlarge", gpu="H100", gpu_count=1, vcpu=16)
    assert compat.fabric(one, None, None).verdict == "pass"
    own = an_offer("own host", region=None, gpu_count=8)
    assert compat.fabric(own, None, None).verdict == "unknown"


def test_residency_against_the_regions_that_really_offer_the_type() -> None:
    """eu-central-1 offers no p5; within the Union, H100 is in eu-north-1."""
    union = Operations.model_validate({"residency": ["eu"]})
    virginia = an_offer("p5.4xlarge", region="us-east-1")
    found = compat.residency(union, virginia, ("us-east-1", "eu-north-1"))
    assert found.verdict == "fail"
    assert "eu-north-1" in found.next_step
    assert "us-east-1" not in found.next_step
    assert compat.residency(union, an_offer(), ()).verdict == "pass"
    assert compat.residency(union, an_offer(region=None), ()).verdict == "unknown"
    missing = compat.offered(an_offer("p5.4xlarge", offered=False), ("eu-north-1",))
    assert missing.verdict == "fail"
    assert "eu-north-1" in missing.next_step
    assert "describe-instance-type-offerings" in compat.offered(an_offer(offered=None)).next_step
    assert compat.offered(an_offer(region=None)).verdict == "pass"
    assert compat.residency(Operations(), an_offer(region=None)).verdict == "pass"


@pytest.mark.parametrize(
    ("change", "hosts", "most"), [("rolling", 3, 4), ("blue-green", 3, 6), ("rolling", 1, 2), ("blue-green", 1, 2)]
)
def test_surge(change: Any, hosts: int, most: int) -> None:
    assert compat.surge_hosts(hosts, change) == most
    told = compat.surge(hosts, Operations.model_validate({"model_change": change}))
    assert f"{most} while the model changes" in told.detail


def test_quota_counts_the_surge() -> None:
    """Three g4dn.xlarge run in 12 vCPU, and need 16 while the model changes host by host."""
    enough = compat.quota(g4dn(), 3, Operations.model_validate({"quota_vcpus": 16}))
    assert enough.verdict == "pass"
    short = compat.quota(g4dn(), 3, Operations.model_validate({"quota_vcpus": 12}))
    assert short.verdict == "fail"
    assert "only the change exceeds it" in short.detail
    assert "--quota-code L-DB2E81BA --desired-value 16 --region eu-central-1" in short.next_step
    none = compat.quota(g4dn(), 3, Operations.model_validate({"quota_vcpus": 0}))
    assert "the running hosts alone exceed it" in none.detail
    asked = compat.quota(g4dn(), 3, Operations())
    assert asked.verdict == "unknown"
    assert "get-service-quota" in asked.next_step
    assert "L-3819A6DF" in compat.quota(g4dn(), 3, Operations(), spot=True).next_step
    assert "ask AWS for" in compat.quota(an_offer("p6-b200.48xlarge", vcpu=192), 1, Operations(), spot=True).next_step
    assert compat.quota(an_offer(region=None), 3, Operations()).verdict == "pass"
    assert compat.quota(an_offer(vcpu=None), 3, Operations()).verdict == "unknown"


def test_all_checks_of_a_choice() -> None:
    asked = a_profile(model={"weight_format": "fp16", "kv_format": "fp8"}, operations={"residency": ["eu"]})
    found = compat.checks(asked, g4dn(), a_gpu("T4"), hosts=2, cuda="12.8", driver="570.133.20")
    verdicts = {check.name: check.verdict for check in found}
    assert verdicts == {
        "weight format": "pass", "server": "pass", "KV format": "pass", "CUDA toolkit": "pass", "driver": "pass",
        "Fabric Manager": "pass", "residency": "pass", "offered": "pass", "surge capacity": "pass", "quota": "unknown",
    }  # fmt: skip
    on_cpu = compat.checks(asked, an_offer(gpu=None, gpu_count=0), None, hosts=2)
    assert "driver" not in {check.name for check in on_cpu}


@given(st.integers(1, 500), st.integers(0, 100_000), st.sampled_from(["rolling", "blue-green"]))
def test_quota_passes_exactly_when_the_surge_fits(hosts: int, has: int, change: str) -> None:
    operations = Operations.model_validate({"quota_vcpus": has, "model_change": change})
    found = compat.quota(an_offer(), hosts, operations)
    assert (found.verdict == "pass") == (compat.surge_hosts(hosts, operations.model_change) * 4 <= has)


@pytest.mark.parametrize(
    ("kind", "form", "verdict"),
    [
        ("llamacpp", "q4_k_m", "pass"), ("llamacpp", "fp8", "fail"), ("llamacpp", "awq-int4", "fail"),
        ("vllm", "awq-int4", "pass"), ("vllm", "q4_k_m", "unknown"), ("triton", "q4_k_m", None), ("vllm", None, None),
    ],
)  # fmt: skip
def test_a_server_reads_some_formats(kind: str, form: str | None, verdict: str | None) -> None:
    change = {"hidden": 4096, "vocab": 128256, "weight_format": form, "weight_bits": None if form else 16}
    found = compat.reader(a_profile(model=change, server={"kind": kind}))
    assert [check.verdict for check in found] == ([] if verdict is None else [verdict])


def test_every_format_is_told_of_by_some_server() -> None:
    table = yaml.safe_load((Path(compat.__file__).parent / "compat.yaml").read_text(encoding="utf-8"))["readers"]
    known = {name for row in table.values() for name in (*row["reads"], *row.get("tries", ()))}
    assert known == set(weight_formats())
