"""GPU use, servers' metrics and bills (reading_cases.yaml), what triggers make of them, and the cost of waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.artifacts.evidence import HostLook
from inferlift.audit import audit
from inferlift.audit.bills import bill
from inferlift.audit.gpu import gpu_use
from inferlift.audit.servers import server_metrics
from inferlift.audit.waiting import cost_of_waiting
from inferlift.errors import DeclarationError

CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "reading_cases.yaml").read_text(encoding="utf-8")
)
READERS: dict[str, Callable[[Path], Any]] = {"gpu": gpu_use, "servers": server_metrics, "bills": bill}
SLOW = '10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "POST /api/chat HTTP/1.1" 200 100 "-" "-" rt=0.900'
NO_TIME = SLOW.removesuffix(" rt=0.900")


@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind in READERS for case in CASES[kind]], ids=lambda value: str(value)[:60]
)
def test_reading(tmp_path: Path, kind: str, case: dict[str, Any]) -> None:
    path = tmp_path / "given"
    path.write_text(case["text"], encoding="utf-8")
    told = READERS[kind](path).model_dump(mode="json")
    for key, wanted in case["expect"].items():
        assert told[key] == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), key


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["said"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, case: dict[str, str]) -> None:
    path = tmp_path / "given"
    path.write_text(case["text"], encoding="utf-8")
    with pytest.raises(DeclarationError, match=case["said"]):
        READERS[case["kind"]](path)


@pytest.mark.parametrize("kind", list(READERS))
def test_a_missing_file_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be read"):
        READERS[kind](tmp_path / "none")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(READERS)), st.binary(max_size=300))
def test_random_bytes_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("x") / "given"
    case = CASES[kind][0]["text"].encode()
    path.write_bytes(case[: len(junk) * 2] + junk)
    with contextlib.suppress(DeclarationError):
        assert READERS[kind](path) is not None


def trigger(name: str, **given_: Any) -> Any:
    lines = given_.pop("lines", [SLOW] * 30)
    evidence = audit(lines, routes=["/api/chat"], **given_)
    return next(one for one in evidence.triggers if one.name == name)


def test_an_idle_gpu_counts_only_while_inference_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text("index, utilization.gpu [%]\n" + "0, 0 %\n" * 9 + "0, 50 %\n", encoding="utf-8")
    use = gpu_use(path)
    assert trigger("GPU missing or idle", gpu=use).verdict == "met"
    assert trigger("GPU missing or idle", gpu=use, lines=[SLOW.replace("0.900", "0.100")] * 30).verdict == "not met"
    assert trigger("GPU missing or idle", gpu=use, lines=[NO_TIME] * 30).verdict == "no data"
    busy = use.model_copy(update={"idle_share": 0.1})
    assert trigger("GPU missing or idle", gpu=busy).verdict == "not met"
    assert trigger("GPU missing or idle").verdict == "no data"


def test_a_host_without_a_gpu_or_with_a_busy_cpu() -> None:
    look = HostLook(host="old", at="2026-10-10", gpus=(), cpu_busy_share=0.97, io_wait_share=0.01)
    assert trigger("GPU missing or idle", host=look).verdict == "met"
    bound = trigger("bound by CPU, network or storage", host=look)
    assert (bound.verdict, bound.figure.value) == ("met", 0.97)
    calm = look.model_copy(update={"cpu_busy_share": 0.2})
    assert trigger("bound by CPU, network or storage", host=calm).verdict == "not met"
    waits = look.model_copy(update={"cpu_busy_share": 0.2, "io_wait_share": 0.5})
    assert "storage" in trigger("bound by CPU, network or storage", host=waits).why


def test_time_outside_of_the_server_behind_the_proxy() -> None:
    far = [SLOW + ' urt="0.100"'] * 30
    assert trigger("bound by CPU, network or storage", lines=far).verdict == "met"
    near = trigger("bound by CPU, network or storage", lines=[SLOW + ' urt="0.890"'] * 30)
    assert (near.verdict, "--host" in near.why) == ("no data", True)


def test_a_servers_bucket_decides_where_the_log_has_no_durations(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    path.write_text(CASES["servers"][0]["text"], encoding="utf-8")
    server = server_metrics(path)
    decided = trigger("P95 over 500 ms", servers=[server], lines=[NO_TIME] * 30)
    assert (decided.verdict, decided.figure.value, decided.figure.n) == ("met", pytest.approx(0.1), 100)
    fast = server.model_copy(update={"over_500_share": 0.05})
    assert trigger("P95 over 500 ms", servers=[fast], lines=[NO_TIME] * 30).verdict == "not met"


def test_the_bill(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text("month,amount\n2026-07,100\n2026-10,141\n", encoding="utf-8")
    assert trigger("bill up 40 % in a quarter", bill=bill(path)).verdict == "met"
    path.write_text("month,amount\n2026-07,100\n2026-10,140\n", encoding="utf-8")
    assert trigger("bill up 40 % in a quarter", bill=bill(path)).verdict == "not met"


def test_the_published_example_of_the_cost_of_waiting() -> None:
    """50,000 visitors, 2 EUR, 30 %, 3 s to 0.3 s. Published: 21 %, and both 6,300 and 2,100 EUR a month. 21 % is three
    seconds, not 2.7; 2,100 is one second."""
    ours = cost_of_waiting(visitors=50_000, value=2, ai_share=0.3, seconds_now=3, seconds_then=0.3)
    assert ours.lost_share == pytest.approx(0.189)
    assert (ours.low, ours.high) == (pytest.approx(2_100), pytest.approx(5_670))
    published = cost_of_waiting(visitors=50_000, value=2, ai_share=0.3, seconds_now=3, seconds_then=0)
    assert (published.lost_share, published.high) == (pytest.approx(0.21), pytest.approx(6_300))
    assert any("assumption" in line for line in ours.inputs)


def test_the_cost_of_waiting_has_bounds() -> None:
    slower = cost_of_waiting(
        visitors=10, value=1, ai_share=1, seconds_now=1, seconds_then=2, team_hours=2, hour_cost=50
    )
    assert (slower.low, slower.high, slower.lost_share) == (100, 100, 0)
    endless = cost_of_waiting(visitors=10, value=1, ai_share=1, seconds_now=100, seconds_then=0)
    assert endless.high == 10
    for wrong in ({"ai_share": 30.0}, {"visitors": -1.0}):
        given_ = {"visitors": 1.0, "value": 1.0, "ai_share": 0.5, "seconds_now": 1.0, "seconds_then": 0.0}
        with pytest.raises(DeclarationError):
            cost_of_waiting(**{**given_, **wrong})
