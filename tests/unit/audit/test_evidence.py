"""The audit's cases (cases.yaml), its files, its window, and a slow reference."""

from __future__ import annotations

import gzip
import itertools
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift.artifacts import Evidence
from inferlift.audit import audit
from inferlift.errors import DeclarationError

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
HEAD = '10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "POST /api/chat HTTP/1.1" 200 100 "-" "-"'
START = datetime(2026, 10, 10, 12, tzinfo=UTC)


def line(second: float, duration_s: float, *, status: int = 200, path: str = "/api/chat") -> str:
    stamp = (START + timedelta(seconds=math.floor(second))).strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'10.0.0.1 - - [{stamp}] "POST {path} HTTP/1.1" {status} 9 "-" "-" rt={duration_s:.3f} rl=50'


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {trigger.name: trigger.verdict for trigger in evidence.triggers}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    lines = [text.replace("HEAD", HEAD).encode("latin-1") for text in case["lines"]]
    evidence = audit(lines, routes=["/api/chat"])
    told = evidence.model_dump()
    for dotted, wanted in case["expect"].items():
        found = told
        for part in dotted.split("."):
            found = found[part]
        if isinstance(found, datetime):
            found = found.isoformat()
        assert (list(found) if isinstance(found, tuple) else found) == wanted, dotted
    for name, verdict in case.get("triggers", {}).items():
        assert verdicts(evidence)[name] == verdict


def test_percentiles_are_nearest_rank_and_need_enough_samples() -> None:
    few = audit([line(i, (i + 1) / 1000) for i in range(19)], routes=["/api/chat"])
    assert (few.latency.p50_ms, few.latency.p95_ms, few.latency.p99_ms) == (10.0, None, None)
    assert verdicts(few)["P95 over 500 ms"] == "no data"
    enough = audit([line(i, (i + 1) / 1000) for i in range(100)], routes=["/api/chat"])
    assert (enough.latency.p50_ms, enough.latency.p95_ms, enough.latency.p99_ms) == (50.0, 95.0, 99.0)
    assert verdicts(enough)["P95 over 500 ms"] == "not met"


def test_triggers_met() -> None:
    busy = [line(i // 12, 50.0) for i in range(700)]  # 720 a minute, 600 in flight
    told = verdicts(audit(busy, routes=["/api/chat"]))
    assert told["P95 over 500 ms"] == "met"
    assert told["over 500 inference requests a minute"] == "met"
    assert told["over 500 in flight"] == "met"
    assert told["bill up 40 % in a quarter"] == "no data"
    assert told["GPU missing or idle"] == "no data"


def test_500_is_not_over_500() -> None:
    told = verdicts(audit([line(i // 10, 0.5) for i in range(500)], routes=["/api/chat"]))
    assert told["P95 over 500 ms"] == "not met"
    assert told["over 500 inference requests a minute"] == "not met"


def test_latency_that_grows_with_concurrency() -> None:
    alone = [line(i * 10, 0.2) for i in range(50)]
    together = [line(1000 + i // 5, 2.0) for i in range(50)]
    assert verdicts(audit(alone + together, routes=["/api/chat"]))["latency grows with concurrency"] == "met"
    flat = [line(i * 10, 0.9) for i in range(50)] + [line(1000 + i // 5, 0.9) for i in range(50)]
    assert verdicts(audit(flat, routes=["/api/chat"]))["latency grows with concurrency"] == "not met"
    assert verdicts(audit(alone, routes=["/api/chat"]))["latency grows with concurrency"] == "no data"


def test_requests_that_follow_each_other_are_not_in_flight_together() -> None:
    one_client = [line(i * 0.25, 0.24) for i in range(200)]  # four in each whole second
    assert audit(one_client, routes=["/api/chat"]).in_flight_peak == 1


def test_guess_without_routes_is_every_post_with_ids_folded() -> None:
    evidence = audit([line(0, 0.1, path="/v1/chat/8f3a77"), line(1, 0.1, path="/v1/chat/77b1c0")])
    assert [route.route for route in evidence.routes] == ["/v1/chat/*"]


def test_rotated_set_in_order_once(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(line(200, 0.1) + "\n", encoding="utf-8")
    (tmp_path / "access.log.1").write_text(line(100, 0.2) + "\n", encoding="utf-8")
    with gzip.open(tmp_path / "access.log.2.gz", "wb") as file:
        file.write((line(0, 0.3) + "\n").encode())
    with gzip.open(tmp_path / "access.log.2.gz", "ab") as file:  # a second gzip member
        file.write((line(1, 0.3) + "\n").encode())
    with gzip.open(tmp_path / "access.log.1.gz", "wb") as file:  # the copy that logrotate left behind
        file.write((line(100, 0.2) + "\n").encode())
    (tmp_path / "again.log").hardlink_to(tmp_path / "access.log")
    evidence = audit(sorted(tmp_path.iterdir()), routes=["/api/chat"])
    assert evidence.n == 4
    assert evidence.shape.gaps_s == (0.0, 1.0, 99.1, 100.1)
    assert len(evidence.quality.notes) == 2


def test_missing_folder_and_no_log(tmp_path: Path) -> None:
    for logs in ([], [tmp_path / "none.log"], [tmp_path]):
        with pytest.raises(DeclarationError):
            audit(logs)


def test_a_pinned_window_finds_the_same_in_grown_logs(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("junk\n" + "".join(f"{line(i, 0.3)}\n" for i in range(50)), encoding="utf-8")
    until = START + timedelta(seconds=40, milliseconds=300)  # the second it falls into is not over yet: left out
    first = audit([log], routes=["/api/chat"], until=until)
    assert (first.n, first.end) == (40, until)
    with log.open("a", encoding="utf-8") as file:
        file.write("more junk\n" + "".join(f"{line(i, 9.0)}\n" for i in range(50, 90)))
    assert audit([log], routes=["/api/chat"], until=until) == first
    assert audit([log], routes=["/api/chat"], since=first.start, until=first.end) == first
    whole = audit([log], routes=["/api/chat"])
    assert whole.n == 90
    assert audit([log], routes=["/api/chat"], since=whole.start, until=whole.end) == whole


def test_a_window_without_a_zone_is_refused() -> None:
    with pytest.raises(DeclarationError, match="time zone"):
        audit([line(0, 0.1)], since=datetime(2026, 1, 1))


def test_a_window_without_requests_is_evidence_of_none() -> None:
    later = START + timedelta(days=1)
    quiet = audit([line(0, 0.1)], routes=["/api/chat"], since=later)
    assert (quiet.n, quiet.inference_n, quiet.errors, quiet.error_share, quiet.start) == (0, 0, 0, None, later)
    assert {trigger.verdict for trigger in quiet.triggers} == {"no data"}
    before = audit([line(0, 0.1)], routes=["/api/chat"], until=START)
    assert (before.n, before.end) == (0, START)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 130),
        st.integers(0, 40_000),
        st.sampled_from([200, 200, 200, 404, 429, 499, 500]),
        st.sampled_from(["/api/chat", "/api/chat/x", "/other"]),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=120, deadline=None)
@given(ROWS)
def test_against_a_slow_reference(rows: list[tuple[int, int, int, str]]) -> None:
    lines = [line(s, ms / 1000, status=code, path=path) for s, ms, code, path in rows]
    evidence = audit(lines, routes=["/api/chat"])
    assert evidence.quality.repeated_lines == len(lines) - len(set(lines))
    assert evidence.quality.steps_back == sum(b < a - 1 for (a, *_), (b, *_) in itertools.pairwise(rows))
    moments: list[tuple[int, int, int, str]] = []  # microseconds
    for at, (second, ms, code, path) in enumerate(rows):
        twins = [i for i, row in enumerate(rows) if row[0] == second]
        stamp = int(START.timestamp() + second) * 10**6
        moments.append((stamp + (2 * twins.index(at) + 1) * 500_000 // len(twins), ms, code, path))
    mine = [row for row in moments if row[3].startswith("/api/chat")]
    answered = sorted(float(ms) for _, ms, code, _ in mine if code < 400)
    assert evidence.inference_n == len(mine)
    assert evidence.errors == sum(code in (429, 499, 500) for _, _, code, _ in mine)
    stamps = [end // 10**6 * 10**6 for end, *_ in mine]
    assert evidence.per_minute_peak == max(
        (sum(start <= e < start + 60 * 10**6 for e in stamps) for start in stamps), default=0
    )
    intervals = [(end - ms * 1000, end) for end, ms, *_ in mine]
    peak = max((sum(a <= start < b for a, b in intervals) for start, _ in intervals), default=0)
    assert evidence.in_flight_peak == max(peak, min(len(mine), 1))
    seconds = [(stamp // 10**6, ms * 1000) for stamp, (_, ms, *_) in zip(stamps, mine, strict=True)]
    instants = range(min((s for s, _ in seconds), default=0) - 41, max((s for s, _ in seconds), default=0) + 2)
    most = max(sum((s * 10**6 - us) // 10**6 <= t <= s for s, us in seconds) for t in instants)
    least_ = max(sum(-((us - 10**6 - s * 10**6) // 10**6) <= t <= s for s, us in seconds) for t in instants)
    assert evidence.in_flight_bounds == ((max(least_, 1), most) if mine else None)
    assert not mine or max(least_, 1) <= evidence.in_flight_peak <= most
    for percent, found, least in (
        (50, evidence.latency.p50_ms, 1),
        (90, evidence.latency.p90_ms, 10),
        (95, evidence.latency.p95_ms, 20),
    ):
        smallest = [v for v in answered if sum(w <= v for w in answered) * 100 >= percent * len(answered)]
        assert found == (smallest[0] if len(answered) >= least else None)
    for route in (*evidence.routes, *evidence.other_routes):
        own = [
            row for row in moments if (row in mine) == route.inference and (route.inference or row[3] == route.route)
        ]
        quick = sorted(float(ms) for _, ms, code, _ in own if code < 400)
        assert (route.n, route.latency.n) == (len(own), len(quick))
        assert route.errors == sum(code in (429, 499, 500) for _, _, code, _ in own)
        assert route.latency.p50_ms == (quick[math.ceil(len(quick) / 2) - 1] if quick else None)
    begun = [(start // (3600 * 10**6), row) for (start, _), row in zip(intervals, mine, strict=True)]
    for hour in evidence.hours:
        own = [row for at, row in begun if f"{datetime.fromtimestamp(at * 3600, UTC):%Y-%m-%dT%H}" == hour.hour]
        quick = sorted(float(ms) for _, ms, code, _ in own if code < 400)
        codes = [str(code) for _, _, code, _ in own]
        assert hour.statuses == {code: codes.count(code) for code in codes}
        assert (hour.n, hour.latency.p50_ms) == (len(own), quick[math.ceil(len(quick) / 2) - 1] if quick else None)
    assert sum(hour.n for hour in evidence.hours) == len(mine)
    assert sum(hour.sent_bytes or 0 for hour in evidence.hours) == 9 * len(mine)
    starts = sorted(start for start, _ in intervals)
    assert evidence.shape.gaps_s == pytest.approx(
        [0.0] * bool(starts) + [(b - a) / 1e6 for a, b in itertools.pairwise(starts)], abs=1e-3
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 398), st.integers(2, 40)), max_size=3, unique_by=lambda pair: pair[0]))
def test_silences_against_a_slow_reference(silences: list[tuple[int, int]]) -> None:
    """400 lines, 30 s apart, but for these silences of whole hours: the longest three, longest first."""
    hours, at, lines = dict(silences), 0, []
    for k in range(400):
        at += hours.get(k, 0) * 3600 or 30
        lines.append(line(at, 0.1))
    told = [float(text.split(": ")[1].split(" h")[0]) for text in audit(lines).quality.gaps]
    assert told == sorted((float(length) for length in hours.values()), reverse=True)


# An audit costs a hundred times what one line in it does: several at once.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=400), min_size=4, max_size=6))
def test_random_bytes_never_break_it(tmp_path: Path, junk: list[bytes]) -> None:
    parts = [part for k, some in enumerate(junk) for part in (line(2 * k, 0.1).encode(), some)]
    (tmp_path / "a.log").write_bytes(b"\n".join([*parts, line(2 * len(junk), 0.1).encode()]) + b"\n")
    evidence = audit([tmp_path / "a.log"], routes=["/api/chat"])
    assert evidence.n >= 1
    assert evidence.quality.lines == evidence.quality.understood + evidence.quality.refused


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(HEAD) + 20), st.integers(0, 5), st.binary(max_size=4)), min_size=6))
def test_mutated_lines_never_break_it(cuts: list[tuple[int, int, bytes]]) -> None:
    whole = (HEAD + ' rt=0.100 urt="0.050"').encode()
    evidence = audit([whole, *(whole[:at] + junk + whole[at + cut :] for at, cut, junk in cuts)], routes=["/api/chat"])
    assert evidence.quality.lines == evidence.quality.understood + evidence.quality.refused == 1 + len(cuts)
