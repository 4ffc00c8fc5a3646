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
from inferlift.audit.gpu import gpu_readings, gpu_use
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


def readings(day: str, percents: list[int], hour: str = "13:55") -> str:
    rows = [f"{day} {hour}:{36 + i % 2}.000, 0, {percent} %" for i, percent in enumerate(percents)]
    return "timestamp, index, utilization.gpu [%]\n" + "\n".join(rows) + "\n"


IDLE = [0] * 18 + [50] * 2


def test_an_idle_gpu_counts_only_while_inference_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(readings("2026/10/10", IDLE), encoding="utf-8")
    use = gpu_readings(path)
    assert trigger("GPU missing or idle", gpu=use).verdict == "met"
    assert trigger("GPU missing or idle", gpu=use, lines=[SLOW.replace("0.900", "0.100")] * 30).verdict == "not met"
    assert trigger("GPU missing or idle", gpu=use, lines=[NO_TIME] * 30).verdict == "no data"
    path.write_text(readings("2026/10/10", [90] * 20), encoding="utf-8")
    assert trigger("GPU missing or idle", gpu=gpu_readings(path)).verdict == "not met"
    assert trigger("GPU missing or idle").verdict == "no data"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (readings("2024/09/08", IDLE), "the readings are of 2024-09-08 13:55 to 2024-09-08 13:55 UTC, the log is not"),
        ("index, utilization.gpu [%]\n" + "0, 0 %\n" * 20, "the readings carry no time"),
        (readings("2026/10/10", [0] * 5), "5 readings fall into the log's time, 10 are needed"),
        (readings("2026/10/10", IDLE, "15:55"), "the log is not"),
    ],
)
def test_readings_of_another_time_decide_nothing(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(text, encoding="utf-8")
    found = trigger("GPU missing or idle", gpu=gpu_readings(path))
    assert (found.verdict, said in found.why) == ("no data", True), found.why
    evidence = audit([SLOW] * 30, routes=["/api/chat"], gpu=gpu_readings(path))
    if "are needed" not in said:
        assert evidence.gpu_idle_share is None
        assert {f.name: f.verdict for f in evidence.findings}["model loaded anew"] == "no data"


def test_readings_of_a_host_with_another_zone(tmp_path: Path) -> None:
    """nvidia-smi writes the host's own time: 15:55 in Berlin is 13:55 of the log."""
    path = tmp_path / "gpu.csv"
    path.write_text(readings("2026/10/10", IDLE, "15:55") + "2026/10/11 15:55:36.000, 0, 99 %\n", encoding="utf-8")
    evidence = audit([SLOW] * 30, routes=["/api/chat"], gpu=gpu_readings(path), zone="Europe/Berlin")
    assert evidence.gpu is not None
    assert (evidence.gpu.matched, evidence.gpu.samples, evidence.gpu_idle_share) == (True, 20, 0.9)
    assert any("1 of 21 readings are outside" in note for note in evidence.gpu.notes)
    assert any("taken as Europe/Berlin" in note for note in evidence.gpu.notes)


def test_only_requests_that_ran_while_the_gpu_was_read_say_whether_inference_was_slow(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(readings("2026/10/10", IDLE), encoding="utf-8")
    quick = [SLOW.replace("0.900", "0.100")] * 30
    later = [SLOW.replace("13:55:36", "14:55:36")] * 300
    found = trigger("GPU missing or idle", gpu=gpu_readings(path), lines=quick + later)
    assert (found.verdict, "P95 100 ms" in found.why) == ("not met", True), found.why
    assert trigger("P95 over 500 ms", lines=quick + later).verdict == "met"


def test_a_look_at_the_host_of_another_day_tells_nothing_of_the_load() -> None:
    look = HostLook(host="old", at="2026-12-24T10:00:00+00:00", gpus=(), cpu_busy_share=0.97, io_wait_share=0.01)
    found = trigger("bound by CPU, network or storage", host=look)
    assert (found.verdict, "75 days away" in found.why) == ("no data", True), found.why


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
