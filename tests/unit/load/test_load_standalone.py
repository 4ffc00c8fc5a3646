"""The load test of any endpoint: table, JSON, HTML, JUnit, exit codes, and what is refused before anything is sent."""

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
from inferlift.load.endpoint import Sent, target
from inferlift.load.idle import AfterIdle, after_idle
from inferlift.load.options import asked
from inferlift.load.outputs import prepare
from inferlift.load.plan import LoadPlan
from inferlift.load.protocols import Chat, KServe, KServeGrpc
from inferlift.load.selfcheck import self_check
from inferlift.load.standalone import Asked, standalone
from inferlift.load.target import Target
from inferlift.profile import Targets


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # the stand-in shares this process's interpreter, which can really hold the client up; see the test of that
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "")

    def _go(*servers: Mock, **more: Any) -> tuple[int, dict[str, Any]]:
        said: list[str] = []
        urls = tuple(f"http://127.0.0.1:{server.port}" for server in servers)
        wanted = Asked(urls, **({"requests": 40, "users": 4, "check_self": False, "folder": tmp_path / "out"} | more))
        code = standalone(wanted, as_json=True, say=lambda _: None, out=said.append)
        assert len(said) == 1
        return code, json.loads(said[0])

    return _go


def test_one_endpoint(go: Any, tmp_path: Path) -> None:
    with Mock(tokens=3) as server:
        code, found = go(server)
    assert (code, found["ok"], found["verdict"]) == (0, True, "pass")
    figures = found["figures"]
    assert (figures["planned"], figures["ok"], figures["error_share"]) == (40, 40, 0)
    assert figures["ttft_p95_ms"] > 0
    assert figures["quality"] is None
    assert found["endpoints"][0]["warm_up"]["ok"] == 8
    assert server.requests == 48  # the warm-up is sent and is in no figure
    assert found["endpoints"][0]["run"]["body"]["stream"] is True
    assert len(columns.read(tmp_path / "out" / "1.npz")["total_ms"]) == 40


def test_a_server_that_answers_only_500_is_exit_1(go: Any) -> None:
    with Mock(fault=lambda i: "500") as server:
        code, found = go(server, warm_up=0)
    assert (code, found["ok"], found["verdict"]) == (1, False, "fail")
    assert found["endpoints"][0]["run"]["counts"]["errors"] == {"http_5xx": 40}


def test_one_in_ten_never_answers(go: Any) -> None:
    with Mock(fault=lambda i: "hang" if i % 10 == 9 else None) as server:
        code, found = go(server, warm_up=0, timeout_s=0.2)
    assert code == 1
    assert found["endpoints"][0]["run"]["counts"]["errors"] == {"timeout": 4}


def test_too_few_samples_decide_nothing(go: Any) -> None:
    with Mock() as server:
        code, found = go(server, requests=5, targets=Targets(p95_total_ms=1000))
    assert (code, found["ok"]) == (3, None)


def test_a_client_that_was_the_limit_passes_nothing(go: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "it was slow")
    with Mock() as server:
        code, found = go(server)
    assert (code, found["verdict"]) == (3, "inconclusive")


def test_two_endpoints_by_the_same_requests(go: Any, tmp_path: Path) -> None:
    page, junit = tmp_path / "page.html", tmp_path / "gates.xml"
    with Mock(first_s=0.005) as fast, Mock(first_s=0.25) as slow:
        code, found = go(
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


def test_undecided_is_no_pass_in_junit(go: Any, tmp_path: Path) -> None:
    with Mock() as server:
        go(server, requests=5, junit=tmp_path / "x.xml", targets=Targets(p95_total_ms=1000))
    assert ET.parse(tmp_path / "x.xml").getroot()[0].get("errors") != "0"


def test_the_table_says_what_was_sent_and_what_is_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "")  # as in `go`
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


def test_by_rate_and_by_shape(go: Any, tmp_path: Path) -> None:
    shape = {"gaps_s": [0.1, 0.3], "request_bytes": [], "routes": {}, "per_minute_peak": 1, "in_flight_peak": 1}
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(shape))
    with Mock() as server:
        for more in ({"rate": 200.0}, {"rate": 200.0, "shape": path}):
            code, found = go(server, users=None, replace=True, seed=0, **more)
            assert found["endpoints"][0]["run"]["offered_rps"] == pytest.approx(200, rel=0.35)
            assert code in (0, 3) or failed(found) == ["rate kept up"]  # a busy machine that does not says so
        _, found = go(server, users=None, rate=200.0, arrivals="ramp", replace=True)
        assert found["endpoints"][0]["run"]["offered_rps"] == pytest.approx(110, rel=0.01)
        with pytest.raises(DeclarationError, match="unknown arrivals"):
            go(server, users=None, rate=200.0, arrivals="x", replace=True)


def test_quality_on_both_sides(go: Any, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"say {k}", "answer": str(k)}) for k in range(12)))
    right = Mock(reply=lambda body: body["messages"][0]["content"])
    with right as good, Mock(reply=lambda body: "no idea") as bad:
        code, found = go(good, bad, quality=path, targets=Targets(quality=0.9))
    assert code == 1
    assert [e["figures"]["quality"] for e in found["endpoints"]] == [1.0, 0.0]
    assert found["endpoints"][1]["against_first"]["quality"]["sure"]


def test_a_key_is_sent_and_written_nowhere(go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711")
    with Mock(key="planted-4711") as server:
        code, found = go(server, key="env:USER_KEY", key_header="X-Api-Key", html=tmp_path / "p.html")
    assert code == 0
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert all(b"planted" not in text for text in [*written, json.dumps(found).encode()])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"users": 4, "rate": 1.0}, "do not go together"),
        ({"prices": (1.0, 2.0)}, "2 prices for 1"),
        ({"key": "env:NOT_SET_ANYWHERE"}, "cannot be read"),
        ({"key": "secret-in-plain"}, "cannot be read"),
        ({"requests": 0}, "at least one request"),
        ({"users": None, "shape": Path("/nonexistent")}, "no traffic shape"),
        ({"quality": Path("/nonexistent")}, "cannot be read"),
        ({"sent": Sent("telepathy")}, "unknown protocol"),
        ({"sent": Sent("http")}, "needs a body"),
        ({"sent": Sent("kserve")}, "needs a model"),
        ({"sent": Sent("image")}, "at least one file"),
        ({"sent": Sent(extra="[1]")}, "no JSON object"),
    ],
)
def test_refused_before_anything_is_sent(go: Any, more: dict[str, Any], told: str) -> None:
    with Mock() as server:
        with pytest.raises(DeclarationError, match=told):
            go(server, **more)
        assert server.requests == 0


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "http://user:pass@x/", "http://x:a"])
def test_what_is_no_endpoint(url: str) -> None:
    with pytest.raises(DeclarationError) as error:
        target(url, Chat(["a"]))
    assert "pass" not in str(error.value).replace("http://user:pass@x/", "")


def test_urls() -> None:
    tensor = [[{"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}]]
    assert target("h:81", Chat(["a"])).url == "http://h:81/v1/chat/completions"
    assert target("https://h/own?x=1", Chat(["a"])).url == "https://h/own?x=1"
    assert target("http://h", KServe("m", tensor)).route == "/v2/models/m/infer"
    assert target("http://h:8001", KServeGrpc("m", tensor)).route == "/inference.GRPCInferenceService/ModelInfer"
    assert target("https://[::1]:8443/", Chat(["a"])).name == "::1"


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


def test_options_as_typed() -> None:
    found = asked(["http://h"], users=4, prices=["1.5"], body="t.json", protocol="kserve", model="m", idle=3)
    assert (found.users, found.rate, found.prices, found.idle_s) == (4, None, (1.5,), 3)
    assert found.sent.tensors == Path("t.json")
    assert found.sent.body is None
    assert not asked(["http://h"], cached=True).sent.fresh
    assert found.targets.quality is None
    assert asked(["http://h"], prices=["-", "2"]).prices == (None, 2.0)
    assert asked(["http://h"], quality="q.jsonl").targets.quality == 0.9


@pytest.mark.parametrize(
    "wrong",
    [{"users": -1}, {"rate": -1.0}, {"timeout": 0.0}, {"prices": ["cheap"]}, {"p95_ttft": 9.0, "p95_total": 5.0},
     {"error_share": 2.0}, {"quality_share": -0.1}, {"rate": float("nan")}, {"rate": float("inf")},
     {"knee": float("nan")}, {"idle": float("inf")}, {"p95_ttft": float("nan")}, {"p95_total": float("inf")},
     {"deadline": float("nan")}, {"timeout": float("inf")}, {"error_share": float("nan")}, {"prices": ["nan"]},
     {"prices": ["inf"]}, {"prices": ["-1"]}, {"seed": "-1"}, {"seed": "x"}, {"max_tokens": 0}, {"requests": 0},
     {"warm_up": -2}, {"workers": -1}, {"check": "x"}, {"body": "x"}, {"images": ["x"]}, {"rows": "x"}, {"ca": "x"},
     {"arrivals": "bursty"}, {"key_header": "X-Key"}, {"protocol": "image", "stream": False},
     {"protocol": "http", "quality": "q"}],
)  # fmt: skip
def test_options_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        asked(["http://h"], **wrong)


def test_a_dead_warm_up_ends_the_test_and_says_so(go: Any, tmp_path: Path) -> None:
    with Mock(fault=lambda i: "500") as server:
        code, found = go(server, html=tmp_path / "p.html", junit=tmp_path / "j.xml")
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


def test_no_two_runs_send_the_same_texts(go: Any, tmp_path: Path) -> None:
    """Warm-up, idle, knee steps, the run, and the next test: no text comes twice, and a seed repeats them all."""
    with Mock(tokens=1) as server:
        _, first = go(server, idle_s=0.0)
        go(server, folder=tmp_path / "b", users=None, find_knee=400.0, rate=300.0, knee_seconds=0.1)
        assert len(set(server.bodies)) == len(server.bodies) > 90
        before = len(server.bodies)
        go(server, folder=tmp_path / "c", idle_s=0.0, seed=first["endpoints"][0]["seed"])
        assert set(server.bodies[before:]) <= set(server.bodies[:before])
    assert "avoided" in first["endpoints"][0]["run"]["prefix_cache"]


def test_a_former_result_is_not_replaced_unasked(go: Any, tmp_path: Path) -> None:
    page, junit, folder = tmp_path / "p.html", tmp_path / "j.xml", tmp_path / "out"
    with Mock() as server:
        go(server, html=page, junit=junit)
        sent, text = server.requests, page.read_text()
        for more in ({}, {"folder": tmp_path / "o2", "html": page}, {"folder": tmp_path / "o2", "junit": junit}):
            with pytest.raises(DeclarationError, match="replace") as error:
                go(server, **more)
            assert "--replace" in error.value.next_command
        assert server.requests == sent
        go(server, html=page, junit=junit, folder=folder, replace=True)
        assert page.read_text() != text


@pytest.mark.parametrize(
    "more",
    [{"html": Path("/proc/x/p.html")}, {"junit": Path("/dev/null/j.xml")}, {"folder": Path("/proc/x")},
     {"html": Path("/tmp")}],
)  # fmt: skip
def test_where_nothing_can_be_written_nothing_is_sent(go: Any, more: dict[str, Any]) -> None:
    with Mock() as server:
        with pytest.raises(DeclarationError):
            go(server, **more)
        assert server.requests == 0


def test_two_tests_of_the_same_second_have_folders_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {prepare(Asked(("http://h",))) for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() for folder in folders)


def test_a_rate_that_was_not_kept_up_does_not_pass(go: Any) -> None:
    with Mock(slots=2, first_s=0.02, tokens=1) as server:  # 100 a second at most
        code, found = go(server, users=None, rate=300.0, arrivals="constant", requests=150, warm_up=0)
        assert (code, found["verdict"]) == (1, "fail")
        kept = {g["name"]: g for g in found["endpoints"][0]["gates"]}["rate kept up"]
        assert "were unanswered when the last one was sent" in kept["why"]
        code, found = go(server, users=None, rate=50.0, arrivals="constant", requests=50, warm_up=0, replace=True)
        assert (code, found["verdict"]) == (0, "pass")


def test_the_verdict_of_a_knee_is_of_the_run_at_the_knee(go: Any) -> None:
    with Mock(slots=4, first_s=0.02, tokens=1) as server:  # 200 a second at most
        code, found = go(
            server, users=None, rate=40.0, find_knee=1000.0, knee_seconds=0.25, seed=0, requests=40, warm_up=0,
            targets=Targets(p95_total_ms=600, error_share=0.0),
        )  # fmt: skip
    one = found["endpoints"][0]
    assert (code, found["verdict"]) == (0, "pass")
    assert 40 <= one["knee"]["rate"] < 400
    assert one["figures"]["planned"] == 40
    assert one["run"]["offered_rps"] == pytest.approx(one["knee"]["rate"], rel=0.4)


def test_below_the_lowest_rate_the_verdict_is_no_pass(go: Any) -> None:
    with Mock(first_s=0.05) as server:
        code, found = go(
            server, users=None, rate=50.0, find_knee=100.0, knee_seconds=0.3, seed=0, requests=40, warm_up=0,
            targets=Targets(p95_total_ms=10),
        )  # fmt: skip
    assert (code, found["verdict"], found["figures"]["knee_per_s"]) == (1, "fail", None)


def test_figures_of_several_endpoints_stand_at_the_top(go: Any) -> None:
    with Mock() as one, Mock(fault=lambda i: "500" if i > 20 else None) as other:
        _, found = go(one, other)
    assert found["figures"]["endpoint_1_error_share"] == 0
    assert found["figures"]["endpoint_2_error_share"] > 0
    assert found["figures"]["error_share"] == found["figures"]["endpoint_1_error_share"]


def test_a_key_in_the_query_is_sent_and_shown_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, junit = tmp_path / "p.html", tmp_path / "j.xml"
    with Mock(raw=lambda head, body: (403, "text/plain", b"no right for " + head.split(b" ")[1])) as server:
        urls = [f"http://127.0.0.1:{server.port}/v1/chat/completions?api_key=planted-{k}&n=1" for k in "ab"]
        wanted = Asked(tuple(urls), 24, users=2, folder=tmp_path / "s", warm_up=0, html=page, junit=junit,
                       check_self=False)  # fmt: skip
        standalone(wanted)
        assert any(b"api_key=planted-a" in head for head in server.heads)
    said = capsys.readouterr()
    texts = [said.out, said.err, *(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())]
    assert "planted" not in "".join(texts)
    assert "api_key=***" in said.out
    for wrong in ("http://u:planted-pw@h:1/", "http://h:99999/?key=planted-k", "ftp://h/?key=planted-k"):
        with pytest.raises(DeclarationError) as error:
            target(wrong, Chat(["a"]))
        assert "planted" not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        (401, "application/json", b'{"error":{"message":"Incorrect API key provided: planted-4711-secret"}}'),
        (500, "text/plain", b"x" * 100 + b" planted-4711-secret"),  # cut in the middle of the key
        (200, "application/json", b'{"error": "planted-4711-secret"}'),
        (200, "text/event-stream", b'data: {"error":{"message":"key planted-4711-secret"}}\n\n'),
        (200, "text/event-stream", b"data: planted-4711-secret\n\n"),
    ],
)
def test_a_key_that_the_server_echoes_lands_nowhere(
    go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, bytes]
) -> None:
    monkeypatch.setenv("USER_KEY", "planted-4711-secret")
    with Mock(raw=lambda head, body: answer) as server:
        for k, stream in enumerate((True, False)):
            _, found = go(
                server, key="env:USER_KEY", html=tmp_path / f"{k}.html", junit=tmp_path / f"{k}.xml", warm_up=0,
                folder=tmp_path / str(k), sent=Sent(stream=stream),
            )  # fmt: skip
            assert found["endpoints"][0]["run"]["counts"]["ok"] == 0
            assert "planted" not in json.dumps(found)
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"planted" not in written
    assert b"***" in written


def test_a_key_in_the_body_is_not_shown(go: Any, tmp_path: Path) -> None:
    body = tmp_path / "b.j2"
    body.write_text('{"api_key": "planted-1", "max_tokens": 4, "inner": [{"Password": "planted-2"}], "i": {{ i }}}')
    with Mock(raw=lambda head, body: (200, "text/plain", b"ok")) as server:
        _, found = go(server, sent=Sent("http", body=body))
        assert b"planted-1" in server.bodies[0]
    shown = found["endpoints"][0]["run"]["body"]
    assert shown == {"api_key": "***", "max_tokens": 4, "inner": [{"Password": "***"}], "i": 0}
    assert "planted" not in (tmp_path / "out" / "1.jsonl").read_text()


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


@pytest.mark.parametrize("key", ["a\nb", "schlüssel€"])
def test_what_no_header_can_carry_is_told_without_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("USER_KEY", key)
    with pytest.raises(DeclarationError) as error:
        standalone(Asked(("http://h",), key="env:USER_KEY", folder=tmp_path / "x"), say=lambda _: None)
    assert key not in str(error.value)
    with pytest.raises(DeclarationError, match="a space"):
        standalone(Asked(("http://h/a b",), folder=tmp_path / "x"), say=lambda _: None)


def test_a_host_with_letters_of_its_own_language() -> None:
    assert target("http://münchen.test/x", Chat(["a"])).name == "xn--mnchen-3ya.test"
