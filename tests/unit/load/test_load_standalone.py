"""The load test of any endpoint: table, JSON, HTML, JUnit, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.errors import DeclarationError, Interrupted
from inferlift.load import columns
from inferlift.load.idle import AfterIdle, after_idle
from inferlift.load.plan import LoadPlan
from inferlift.load.selfcheck import self_check
from inferlift.load.standalone import Asked, standalone
from inferlift.load.target import Target
from inferlift.profile import Targets

pytestmark = pytest.mark.programs


def test_one_endpoint(tested: Any, tmp_path: Path) -> None:
    with Mock(tokens=3) as server:
        code, found = tested(server)
    assert (code, found["ok"], found["verdict"]) == (0, True, "pass")
    figures = found["figures"]
    assert (figures["planned"], figures["ok"], figures["error_share"]) == (40, 40, 0)
    assert figures["ttft_p95_ms"] > 0
    assert figures["quality"] is None
    assert found["endpoints"][0]["warm_up"]["ok"] == 8
    assert server.requests == 48  # the warm-up is sent and is in no figure
    assert found["endpoints"][0]["run"]["body"]["stream"] is True
    assert len(columns.read(tmp_path / "out" / "1.npz")["total_ms"]) == 40


def test_a_server_that_answers_only_500_is_exit_1(tested: Any) -> None:
    with Mock(fault=lambda i: "500") as server:
        code, found = tested(server, warm_up=0)
    assert (code, found["ok"], found["verdict"]) == (1, False, "fail")
    assert found["endpoints"][0]["run"]["counts"]["errors"] == {"http_5xx": 40}


def test_one_in_ten_never_answers(tested: Any) -> None:
    with Mock(fault=lambda i: "hang" if i % 10 == 9 else None) as server:
        code, found = tested(server, warm_up=0, timeout_s=0.2)
    assert code == 1
    assert found["endpoints"][0]["run"]["counts"]["errors"] == {"timeout": 4}


def test_too_few_samples_decide_nothing(tested: Any) -> None:
    with Mock() as server:
        code, found = tested(server, requests=5, targets=Targets(p95_total_ms=1000))
    assert (code, found["ok"]) == (3, None)


def test_a_client_that_was_the_limit_passes_nothing(tested: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "it was slow")
    with Mock() as server:
        code, found = tested(server)
    assert (code, found["verdict"]) == (3, "inconclusive")


def test_two_endpoints_by_the_same_requests(tested: Any, tmp_path: Path) -> None:
    page, junit = tmp_path / "page.html", tmp_path / "gates.xml"
    with Mock(first_s=0.005) as fast, Mock(first_s=0.25) as slow:
        code, found = tested(
            fast, slow, prices=(3.6, None), html=page, junit=junit, users=20, targets=Targets(p95_ttft_ms=200)
        )
        assert sorted(fast.bodies) == sorted(slow.bodies)
    assert code == 1
    first, second = found["endpoints"]
    assert (first["verdict"], second["verdict"]) == ("pass", "fail")
    moved = second["against_first"]["ttft_p95_ms"]
    assert moved["sure"]
    assert 50 < moved["low"] <= moved["value"] <= moved["high"] < 500
    assert first["figures"]["cost_per_1000"] == pytest.approx(1 / first["figures"]["requests_per_s"])
    assert second["figures"]["cost_per_1000"] is None
    suites = ET.parse(junit).getroot()
    assert [(s.get("failures"), s.get("errors")) for s in suites] == [("0", "0"), ("1", "0")]
    text = page.read_text()
    HTMLParser().feed(text)
    assert text.count("<polyline") >= 6
    assert "http" not in text.replace("http://127.0.0.1", "")  # nothing is fetched from anywhere


def test_undecided_is_no_pass_in_junit(tested: Any, tmp_path: Path) -> None:
    with Mock() as server:
        tested(server, requests=5, junit=tmp_path / "x.xml", targets=Targets(p95_total_ms=1000))
    assert ET.parse(tmp_path / "x.xml").getroot()[0].get("errors") != "0"


def test_the_table_says_what_was_sent_and_what_is_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "")  # as in `tested`
    said: list[str] = []
    with Mock() as server:
        wanted = Asked((f"127.0.0.1:{server.port}",), 40, users=2, folder=tmp_path, check_self=False, idle_s=0.0)
        assert standalone(wanted, say=lambda _: None, out=said.append) == 0
    for text in (
        "warm-up, not in the figures",
        "first body as sent",
        "prefix cache avoided",
        "after 0 s idle",
        "verdict: pass",
    ):
        assert text in said[0], text


def failed(found: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in found["endpoints"][0]["gates"] if gate["verdict"] == "fail"]


def test_by_rate_and_by_shape(tested: Any, tmp_path: Path) -> None:
    shape = {"gaps_s": [0.1, 0.3], "request_bytes": [], "routes": {}, "per_minute_peak": 1, "in_flight_peak": 1}
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(shape))
    with Mock() as server:
        for more in ({"rate": 200.0}, {"rate": 200.0, "shape": path}):
            code, found = tested(server, users=None, replace=True, seed=0, **more)
            assert found["endpoints"][0]["run"]["offered_rps"] == pytest.approx(200, rel=0.35)
            assert code in (0, 3) or failed(found) == ["rate kept up"]  # a busy machine that does not says so
        _, found = tested(server, users=None, rate=200.0, arrivals="ramp", replace=True)
        assert found["endpoints"][0]["run"]["offered_rps"] == pytest.approx(110, rel=0.01)
        with pytest.raises(DeclarationError, match="unknown arrivals"):
            tested(server, users=None, rate=200.0, arrivals="x", replace=True)


def test_quality_on_both_sides(tested: Any, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"say {k}", "answer": str(k)}) for k in range(12)))
    right = Mock(reply=lambda body: body["messages"][0]["content"])
    with right as good, Mock(reply=lambda body: "no idea") as bad:
        code, found = tested(good, bad, quality=path, targets=Targets(quality=0.9))
    assert code == 1
    assert [e["figures"]["quality"] for e in found["endpoints"]] == [1.0, 0.0]
    assert found["endpoints"][1]["against_first"]["quality"]["sure"]


def test_first_answer_after_a_pause(tmp_path: Path) -> None:
    """A server that drops its model when nobody asks is told from one that keeps it."""
    slept: list[float] = []

    def uneven(i: int) -> None:
        """One warm answer is slow: what a busy machine adds to the one after the pause is then no claim."""
        if i < 2:
            server.first_s = (0.5, 0.005)[i]

    with Mock(fault=uneven) as server:
        plan = LoadPlan(Target("127.0.0.1", port=server.port, tls=False), 1, ["a"], tmp_path / "s.jsonl", users=1)

        def pause(seconds: float) -> None:
            slept.append(seconds)
            server.first_s = 0.3

        kept = after_idle(plan, 1, sleep=slept.append)
        loaded = after_idle(plan, 60, sleep=pause)
    assert slept == [1, 60]
    assert kept.kept is not False  # a busy machine may take its time, and then nothing is claimed
    assert loaded.kept is False
    assert loaded.added_ms is not None
    assert loaded.added_ms > 100
    with Mock(fault=lambda i: "500") as server:
        plan = LoadPlan(Target("127.0.0.1", port=server.port, tls=False), 1, ["a"], tmp_path / "s.jsonl", users=1)
        assert after_idle(plan, 0, sleep=slept.append).added_ms is None


def test_the_self_check_says_what_this_machine_can_drive() -> None:
    drive = self_check(users=8, requests=100)
    assert drive.stream_rps > 50
    assert drive.plain_rps > 100
    assert "requests/s" in str(drive)


def test_a_dead_warm_up_ends_the_test_and_says_so(tested: Any, tmp_path: Path) -> None:
    with Mock(fault=lambda i: "500") as server:
        code, found = tested(server, html=tmp_path / "p.html", junit=tmp_path / "j.xml")
        assert server.requests == 8
    assert (code, found["verdict"]) == (1, "fail")
    one = found["endpoints"][0]
    assert "none of 8 warm-up requests was answered: 8 http_5xx (status 500" in one["not_begun"]
    assert (one["figures"]["sent"], one["figures"]["error_share"]) == (0, 1.0)
    assert "not begun" in (tmp_path / "p.html").read_text()


def test_the_first_details_of_each_class_of_error_are_shown(tmp_path: Path) -> None:
    said: list[str] = []
    with Mock(fault=lambda i: "429" if i % 4 == 1 else "truncated" if i % 4 == 2 else None) as server:
        wanted = Asked((f"127.0.0.1:{server.port}",), 40, users=2, folder=tmp_path, check_self=False, warm_up=0)
        assert standalone(wanted, say=lambda _: None, out=said.append) == 1
    assert 'http_4xx, e.g.: status 429: {"error":{"message":"planned"}}' in said[0]
    assert "truncated, e.g.: the stream ended without [DONE]" in said[0]


def test_no_two_runs_send_the_same_texts(tested: Any, tmp_path: Path) -> None:
    """Warm-up, idle, knee steps, the run, and the next test: no text comes twice, and a seed repeats them all."""
    with Mock(tokens=1) as server:
        _, first = tested(server, idle_s=0.0)
        tested(server, folder=tmp_path / "b", users=None, find_knee=400.0, rate=300.0, knee_seconds=0.1)
        assert len(set(server.bodies)) == len(server.bodies) > 90
        before = len(server.bodies)
        tested(server, folder=tmp_path / "c", idle_s=0.0, seed=first["endpoints"][0]["seed"])
        assert set(server.bodies[before:]) <= set(server.bodies[:before])
    assert "avoided" in first["endpoints"][0]["run"]["prefix_cache"]


def test_a_rate_that_was_not_kept_up_does_not_pass(tested: Any) -> None:
    with Mock(slots=2, first_s=0.02, tokens=1) as server:  # 100 a second at most
        code, found = tested(server, users=None, rate=300.0, arrivals="constant", requests=150, warm_up=0)
        assert (code, found["verdict"]) == (1, "fail")
        kept = {g["name"]: g for g in found["endpoints"][0]["gates"]}["rate kept up"]
        assert "were unanswered when the last one was sent" in kept["why"]
        code, found = tested(server, users=None, rate=50.0, arrivals="constant", requests=50, warm_up=0, replace=True)
        assert (code, found["verdict"]) == (0, "pass")


def test_the_verdict_of_a_knee_is_of_the_run_at_the_knee(tested: Any) -> None:
    with Mock(slots=4, first_s=0.02, tokens=1) as server:  # 200 a second at most
        code, found = tested(
            server, users=None, rate=40.0, find_knee=1000.0, knee_seconds=0.25, seed=0, requests=40, warm_up=0,
            targets=Targets(p95_total_ms=600, error_share=0.0),
        )  # fmt: skip
    one = found["endpoints"][0]
    assert (code, found["verdict"]) == (0, "pass")
    assert 40 <= one["knee"]["rate"] < 400
    assert one["figures"]["planned"] == 40
    assert one["run"]["offered_rps"] == pytest.approx(one["knee"]["rate"], rel=0.4)


def test_below_the_lowest_rate_the_verdict_is_no_pass(tested: Any) -> None:
    with Mock(first_s=0.05) as server:
        code, found = tested(
            server, users=None, rate=50.0, find_knee=100.0, knee_seconds=0.3, seed=0, requests=40, warm_up=0,
            targets=Targets(p95_total_ms=10),
        )  # fmt: skip
    assert (code, found["verdict"], found["figures"]["knee_per_s"]) == (1, "fail", None)


def test_figures_of_several_endpoints_stand_at_the_top(tested: Any) -> None:
    with Mock() as one, Mock(fault=lambda i: "500" if i > 20 else None) as other:
        _, found = tested(one, other)
    assert found["figures"]["endpoint_1_error_share"] == 0
    assert found["figures"]["endpoint_2_error_share"] > 0
    assert found["figures"]["error_share"] == found["figures"]["endpoint_1_error_share"]


def test_ctrl_c_leaves_a_partial_report_and_no_traceback(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    with Mock(first_s=0.05, gap_s=0.01) as server:
        code = (
            "import sys; from pathlib import Path; from inferlift.load.standalone import Asked, standalone\n"
            f"sys.exit(standalone(Asked(('127.0.0.1:{server.port}',), 10**5, users=4, warm_up=4,"
            f" folder=Path({str(tmp_path / 's')!r}), html=Path({str(page)!r})), as_json=True))"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        give_up = time.monotonic() + 20
        while server.requests < 60 and time.monotonic() < give_up:
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        out, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped: the report holds what was measured until now" in err
    found = json.loads(out)
    counts = found["endpoints"][0]["run"]["counts"]
    assert (found["ok"], found["verdict"], found["interrupted"]) == (None, "inconclusive", True)
    assert counts["ok"] > 20
    assert counts["errors"].keys() <= {"interrupted"}
    assert counts["sent"] == counts["ok"] + counts["errors"].get("interrupted", 0) < counts["planned"]
    assert "stopped by hand" in page.read_text()


def test_ctrl_c_before_anything_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inferlift.load.standalone.self_check", stop)
    with pytest.raises(Interrupted):
        standalone(Asked(("http://h",), folder=tmp_path / "x"), say=lambda _: None)


def test_after_a_pause_nothing_is_claimed_that_warm_answers_show_too() -> None:
    assert AfterIdle(1, 10, 40, 20).kept is True
    assert AfterIdle(1, 10, 900, 20).kept is False
    assert AfterIdle(1, 10, 900, 1000).kept is None
    assert AfterIdle(1, None, 900).kept is None
