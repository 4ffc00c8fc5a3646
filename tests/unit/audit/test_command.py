"""The command's faces, files of every kind, bad input, software first, and what more users would meet."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rich.console import Console

from inferlift import alone
from inferlift.artifacts import Evidence
from inferlift.audit import audit, bench, blocks, command, show
from inferlift.audit.formats import named
from inferlift.errors import DeclarationError

START = datetime(2026, 10, 10, 12, tzinfo=UTC)


def line(ms: float, duration_ms: float, more: str = "", *, path: str = "/api/chat", status: int = 200) -> str:
    """A request that ended `ms` after START."""
    at = START + timedelta(milliseconds=ms)
    epoch = f"{at.timestamp():.3f}"
    stamp = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    told = f'10.0.0.1 - - [{stamp}] "POST {path} HTTP/1.1" {status} 9 "-" "-" rt={duration_ms / 1000:.3f} msec={epoch}'
    return told + more


def finding(evidence: Evidence, name: str) -> Any:
    return next(one for one in evidence.findings if one.name == name)


PACKED = {
    "a.log": lambda data: data,
    "a.log.gz": gzip.compress,
    "a.log.bz2": bz2.compress,
    "a.log.zst": lambda data: zstandard.compress(data[:500]) + zstandard.compress(data[500:]),
    "gzipped as .log": gzip.compress,
}
TEXT = "".join(f"{line(i * 1000, 100 + i)}\n" for i in range(40)).encode()


@pytest.mark.parametrize("name", PACKED)
def test_packed_files_say_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[name](TEXT))  # type: ignore[no-untyped-call]
    assert (audit([path]).n, audit([path]).latency.max_ms) == (40, 139.0)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(TEXT)))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert command.audit_files(["-"]).n == 40


def test_blocks_cut_anywhere_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(2)
    parts = [line(i * 50, noise.randrange(1, 900)).encode() for i in range(400)]
    for at in (3, 77, 200):
        parts[at] = [b"", b"junk \xff\x00", b"y" * 70_000][at % 3]
    (tmp_path / "a.log").write_bytes(b"\n".join(parts) + b"\nhalf")
    whole = audit([tmp_path / "a.log"])
    assert (whole.quality.lines, whole.quality.refused) == (401, 4)
    for size in (200, 4096, 70_001):
        monkeypatch.setattr(blocks, "BLOCK", size)
        assert audit([tmp_path / "a.log"]) == whole


def test_millions_of_routes_are_folded() -> None:
    lines = [line(i, 5, path=f"/c/{'abcdefghij'[i % 10] * 3}{chr(97 + i % 26)}x{i:x}y") for i in range(3000)]
    words = [line(i, 5, path=f"/say/{''.join(chr(97 + (i // 26**k) % 26) for k in range(4))}") for i in range(12_000)]
    evidence = audit(lines + words)
    assert len(evidence.routes) <= 10_001
    assert sum(route.n for route in evidence.routes) == evidence.inference_n == 15_000
    assert {"/c/*", "/say/..."} <= {route.route for route in evidence.routes}


def test_the_clock_the_zones_and_copies() -> None:
    back = [line(100_000, 5), line(40_000, 5), line(50_000, 5), line(50_000, 5)]
    told = audit(back).quality
    assert (told.steps_back, told.largest_step_back_s, told.repeated_lines) == (1, 60.0, 1)
    mixed = [line(0, 5), line(0, 5).replace("+0000", "+0200")]
    assert any("mixed" in note for note in audit(mixed).quality.notes)


def test_silences() -> None:
    lines = [line(i * 60_000, 5) for i in range(200)] + [line((200 * 60 + 7 * 3600) * 1000, 5)]
    assert "7.0 h without a line" in audit(lines).quality.gaps[0]


def test_a_zone_for_times_that_have_none() -> None:
    haproxy = '10.0.1.2:3 [06/Jul/2026:12:14:14.655] in b/s 1/0/3/6/9 200 27 - - ---- 1/1/1/1/0 0/0 "POST /p HTTP/1.1"'
    assert audit([haproxy], zone="Europe/Berlin").start.hour == 10
    with pytest.raises(DeclarationError, match="no time zone"):
        command.audit_files(["-"], zone="Europe/Nowhere")


def test_identical_and_oversized_requests() -> None:
    same = [line(i * 100, 5, f' rl={2_000_000 if i % 4 == 0 else 300} body="{i % 10}"') for i in range(100)]
    evidence = audit(same)
    assert (evidence.cacheable_share, evidence.oversized_share) == (pytest.approx(0.9), 0.25)
    assert finding(evidence, "identical requests").verdict == finding(evidence, "oversized inputs").verdict == "found"
    fresh = audit([line(i * 100, 5, f' rl=300 body="{i}"') for i in range(100)])
    assert {f.verdict for f in fresh.findings[:2]} == {"not found"}
    assert {f.verdict for f in audit([line(0, 5)] * 50).findings[:2]} == {"no data"}


def served(workers: int, seed: int = 3, per_s: float = 1.6) -> list[str]:
    """A queue: `workers` at once, 500 ms each; requests in the order of their ends."""
    noise, free, at, rows = random.Random(seed), [0.0] * workers, 0.0, []
    for k in range(4000):
        at += noise.expovariate(per_s * (0.4 + (k // 400 % 3) * 0.3))
        mine = min(range(workers), key=free.__getitem__)
        free[mine] = max(free[mine], at) + 0.5
        rows.append((free[mine], free[mine] - at))
    return [line(end * 1000, took * 1000) for end, took in sorted(rows)]


def whole_seconds(lines: list[str]) -> list[str]:
    return [text.split(" msec=")[0] for text in lines]


def slower_by_itself() -> list[str]:
    """The same arrivals all the time; answers take 1, 2, 4 and 8 s in turns for a reason that lies elsewhere."""
    noise, at, rows = random.Random(1), 0.0, []
    for k in range(4000):
        at += noise.expovariate(2.0)
        took = (1, 2, 4, 8)[k // 500 % 4] * noise.lognormvariate(0, 0.5)
        rows.append((at + took, took))
    return [line(end * 1000, took * 1000) for end, took in sorted(rows)]


def test_one_request_at_a_time_and_1000_users() -> None:
    alone, together = audit(served(1)), audit(served(50, per_s=12.0))
    assert finding(alone, "one request at a time").verdict == "found"
    assert alone.batched is False
    assert finding(together, "one request at a time").verdict == "not found"
    assert together.batched is True
    verdict = {t.name: t for t in alone.triggers}
    assert verdict["latency grows with concurrency"].verdict == "met"
    assert verdict["over 500 ms at 1000 users"].verdict == "no data"
    assert "too far" in verdict["over 500 ms at 1000 users"].why  # 12 in flight say nothing of 1000


def test_1000_users_are_told_with_a_range_where_the_log_saw_enough() -> None:
    crowded = audit(served(50, per_s=130.0))
    told = crowded.at_1000
    assert told is not None
    assert 100 < told.most_in_flight < 1000
    truth = (1000 - 50) / 100 * 1000 + 500  # 100 a second are served; the others wait
    assert (told.latency_low_ms or 0) < truth * 1.1
    assert (told.latency_high_ms or 0) > truth * 0.8
    assert (told.latency_low_ms or 0) < (told.latency_ms or 0) < (told.latency_high_ms or 0)
    assert {t.name: t.verdict for t in crowded.triggers}["over 500 ms at 1000 users"] == "met"


def test_what_is_slow_by_itself_is_not_blamed_on_concurrency() -> None:
    """By Little's law alone more requests are in flight while answers take longer."""
    evidence = audit(slower_by_itself())
    told = {t.name: t for t in evidence.triggers}
    for name in ("latency grows with concurrency", "errors grow with concurrency", "over 500 ms at 1000 users"):
        assert told[name].verdict == "no data"
        assert "Little's law" in told[name].why
    assert finding(evidence, "one request at a time").verdict == "not found"
    assert told["P95 over 500 ms"].verdict == "met"


def test_low_load_says_nothing_of_requests_that_wait_for_each_other() -> None:
    assert finding(audit(served(1, per_s=0.15)), "one request at a time").verdict == "no data"


def test_whole_seconds_say_what_ran_together_only_for_long_requests() -> None:
    """Short ones lie anywhere in their second: the numbers in flight are noise, and nothing is read off them."""
    noise, at, lines = random.Random(4), 0.0, []
    for _ in range(20_000):
        at += noise.expovariate(30)
        lines.append(line(at * 1000, noise.lognormvariate(-1, 0.7) * 1000).split(" msec=")[0])
    short = audit(lines)
    told = {t.name: t for t in short.triggers}
    for name in ("latency grows with concurrency", "errors grow with concurrency", "over 500 ms at 1000 users"):
        assert told[name].verdict == "no data"
        assert "whole seconds" in told[name].why
    assert finding(short, "one request at a time").verdict == "no data"
    low, high = short.in_flight_bounds or (0, 0)
    assert low <= short.in_flight_peak <= high
    long = audit(whole_seconds(served(1)))
    assert {t.name: t.verdict for t in long.triggers}["latency grows with concurrency"] == "met"


def test_the_bounds_decide_where_stamps_are_whole_seconds() -> None:
    def flying(n: int, took_ms: float) -> Any:
        evidence = audit(whole_seconds([line(i * 1000 / 600, took_ms) for i in range(n)]))
        return next(t for t in evidence.triggers if t.name == "over 500 in flight"), evidence.in_flight_bounds

    few, bounds = flying(700, 800.0)  # 480 at once: fewer than 500 as well as more than 500 is possible
    assert bounds[0] < 500 < bounds[1]
    assert (few.verdict, "500 lies within" in few.why) == ("no data", True)
    assert flying(3000, 4000.0)[0].verdict == "met"
    assert flying(300, 100.0)[0].verdict == "not met"
    assert audit([line(i * 10, 100.0) for i in range(50)]).in_flight_bounds is None


def test_errors_that_grow_with_concurrency() -> None:
    rows = [(i * 2000, 500, 200) for i in range(300)]
    rows += [(10**6 + i * 10, 500, 503 if i % 3 == 0 else 200) for i in range(300)]
    evidence = audit([line(at, ms, status=code) for at, ms, code in rows])
    verdict = {t.name: t.verdict for t in evidence.triggers}
    assert verdict["errors grow with concurrency"] == "met"
    calm = audit([line(at, ms) for at, ms, _ in rows])
    assert {t.name: t.verdict for t in calm.triggers}["errors grow with concurrency"] == "not met"


def test_cold_starts() -> None:
    warm = [line(k * 3_600_000 + i * 1000, 200) for k in range(8) for i in range(30)]
    cold = [line(k * 3_600_000 - 1000, 9000) for k in range(1, 8)]
    rows = sorted(warm + cold, key=lambda text: text.split("msec=")[1])
    assert finding(audit(rows), "model loaded anew").verdict == "found"
    assert finding(audit(warm), "model loaded anew").verdict == "not found"


def test_day_curve_growth_and_burstiness() -> None:
    noise, lines = random.Random(5), []
    for day in range(60):
        for _ in range(round(40 * 1.5 ** (day / 30.4))):
            lines.append((day * 86_400 + noise.choice([9, 10, 14]) * 3600 + noise.random() * 3600) * 1000)
    evidence = audit([line(at, 5) for at in sorted(lines)])
    curve = evidence.day_curve or ()
    assert (len(curve), sum(curve)) == (24, pytest.approx(1, abs=1e-3))
    assert evidence.growth_per_month == pytest.approx(0.5, abs=0.08)
    assert audit([line(at, 5) for at in sorted(lines)[:300]]).growth_per_month is None
    bursts = [line(k * 60_000 + i, 5) for k in range(60) for i in range(30)]
    assert (audit(bursts).shape.dispersion or 0) > 10
    steady = [line(k * 1000, 5) for k in range(3000)]
    assert (audit(steady).shape.dispersion or 0) < 0.2


def test_the_faces(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEXT + b"junk\n")
    evidence = command.audit_files([str(tmp_path / "*.log")], routes=["/api/chat"])
    told = show.as_json(evidence)
    assert json.loads(json.dumps(told)) == told
    assert (told["ok"], told["verdict"], told["figures"]["refused"]) == (True, "not met", 1)
    assert told["figures"]["gpu_idle_share"] is None
    assert Evidence.model_validate(told["artifact"]) == evidence
    console = Console(file=io.StringIO(), width=200)
    show.print_evidence(evidence, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("P95 over 500 ms", "not met", "Software first", "/api/chat", "1 refused", "for example line 41"):
        assert part in text


def test_since() -> None:
    assert command.moment("2026-10-10", "--since") == datetime(2026, 10, 10, tzinfo=UTC)
    assert command.moment("2026-10-10T12:00+02:00", "--since") == datetime(2026, 10, 10, 10, tzinfo=UTC)
    week = command.moment("7d", "--since")
    assert week is not None
    assert timedelta(days=6) < datetime.now(UTC) - week < timedelta(days=8)
    with pytest.raises(DeclarationError, match="is no time"):
        command.moment("yesterday", "--since")


@pytest.mark.parametrize("text", ["9999999d", "99999999999999999999w", "0001-01-01", "9999-12-31", "2026-13-01", "-3d"])
def test_a_window_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="is no time"):
        command.moment(text, "--since")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"since": "2026-11-01"}, "no line lies in the window (from 2026-11-01 00:00:00 UTC)"),
        ({"until": "2026-10-01"}, "its 40 lines are of 2026-10-10 12:00:00 to 2026-10-10 12:00:39"),
        ({"since": "2026-10-12", "until": "2026-10-11"}, "ends before it begins"),
        ({"routes": ["/api/chatt"]}, "none of its 40 requests goes to /api/chatt"),
        ({"routes": ["/api/chatt"]}, "--routes /api/chat"),
        ({"routes": ["/API/CHAT"]}, "there is: /api/chat (40)"),
    ],
)
def test_what_matches_nothing_is_refused_with_what_there_is(tmp_path: Path, options: Any, said: str) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    with pytest.raises(DeclarationError) as error:
        command.audit_files([str(tmp_path / "a.log")], **options)
    assert said in str(error.value)
    assert error.value.exit_code == 2


def test_one_route_of_several_that_matches_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    found = command.audit_files([str(tmp_path / "a.log")], routes=["/api/chat", "/api/gone"], since="2026-10-01")
    assert "no inference request goes to /api/gone" in found.quality.notes
    assert any("the log begins after the window does" in note for note in found.quality.notes)
    assert (found.start, found.routes[0].per_s) == (START, pytest.approx(40 / 39.001))


def test_standard_input_that_is_closed_or_read_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DeclarationError, match="standard input is closed"):
        command.audit_files(["-"])
    with pytest.raises(DeclarationError, match="once only"):
        command.run("-", sample_file=str(tmp_path / "out"))
    with pytest.raises(DeclarationError, match="no log was given"):
        command.run(" , ")


def test_a_format_file_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours.yaml").write_text(
        "kind: json\nfields: {time: {key: at, type: iso}, duration: {key: took, unit: ms}, path: url, method: verb}\n"
    )
    (tmp_path / "a.log").write_text('{"at":"2026-10-10T12:00:00Z","took":5,"url":"/api/chat","verb":"POST"}\n')
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path))
    monkeypatch.chdir("/")
    assert alone.audit_files("a.log", format_name="ours.yaml", as_json=True) == 0


def test_by_hour_bytes_and_status() -> None:
    lines = [line(i * 60_000, 100, status=(200, 200, 500, 404)[i % 4]) for i in range(180)]
    hours = audit(lines).hours
    assert [hour.hour for hour in hours] == ["2026-10-10T11", "2026-10-10T12", "2026-10-10T13", "2026-10-10T14"]
    assert hours[1].statuses == {"200": 30, "404": 15, "500": 15}
    assert [hour.sent_bytes for hour in hours] == [9, 540, 540, 531]
    assert sum(n for _, n in audit(lines).rate_curve) > 0


def test_eighty_columns(tmp_path: Path) -> None:
    long = [line(i * 1000, 1234567, path=f"/api/chat/{'very-long-name-' * 8}{'ab'[i % 2]}") for i in range(200)]
    console = Console(file=io.StringIO(), width=80)
    show.print_evidence(audit(long), console=console)
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, rows)) <= 80
    assert not any("\u2026" in row for row in rows)  # nothing is cut off


def test_no_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no log matches"):
        command.audit_files([str(tmp_path / "none*")])


def test_the_benchmarks_lines_are_read_whole(tmp_path: Path) -> None:
    bench.write(tmp_path / "a.log", 3000)
    evidence = audit([tmp_path / "a.log"])
    assert (evidence.n, evidence.quality.refused, evidence.first_byte is not None) == (3000, 0, True)
    assert bench.passed({"ratio_to_goaccess": 10, "peak_rss_mb": 1024, "linearity": 1.2})
    assert not bench.passed({"ratio_to_goaccess": 9.9, "peak_rss_mb": 100, "linearity": 1})


def test_a_named_format_stays_in_charge() -> None:
    assert audit([line(0, 5)], format_name="nginx-pairs").n == 1
    assert named("nginx-pairs").timed


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "".join(f'{line(i * 1000, 100 + i)} body="{i}"\n' for i in range(40))
    (tmp_path / "a.log").write_text(body)
    given = {"sample_file": str(tmp_path / "out.jsonl"), "waiting": "visitors=1000,value=2,ai=0.5,then=0.1"}
    assert command.run(str(tmp_path / "*.log"), as_json=True, **given) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"]["waiting_high"] == pytest.approx(1000 * (0.137 - 0.1) * 0.07)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40
    assert command.run(str(tmp_path / "a.log")) == 0
    assert "Reasons to move" in capsys.readouterr().out
    with pytest.raises(DeclarationError, match="then missing"):
        command.run(str(tmp_path / "a.log"), waiting="visitors=1,value=1,ai=1")
    with pytest.raises(DeclarationError, match="not understood"):
        command.run(str(tmp_path / "a.log"), waiting="visitors=many")
