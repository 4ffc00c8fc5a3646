"""Each server's own lines (format_cases.yaml), formats that are named, pasted or mapped, and columns against lines."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.audit import audit, layouts
from inferlift.audit.formats import formats, named
from inferlift.audit.layouts import LineReader
from inferlift.errors import DeclarationError

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "format_cases.yaml").read_text(encoding="utf-8"))
ROUTES = ["/predict", "/v1/chat/completions", "/api/v1/predict"]


def told(evidence: Any, dotted: str) -> Any:
    found = evidence.model_dump()
    for part in dotted.split("."):
        found = found[part]
    if isinstance(found, datetime):
        return found.isoformat()
    return list(found) if isinstance(found, tuple) else found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("times", [1, 60], ids=["by line", "in columns"])
def test_format(case: dict[str, Any], times: int) -> None:
    """The same figures whether few lines are read one by one or many in columns."""
    given_format = case.get("named") or (case["format"] if "chosen" in case else None)
    head = [line for line in case["lines"] if line.startswith("#") or line.lower().startswith("timestamp")]
    body = [line for line in case["lines"] if line not in head]
    lines = [line.encode() for line in [*head, *body * times]]
    evidence = audit(lines, routes=ROUTES, format_name=given_format)
    for dotted, wanted in case["expect"].items():
        scaled = dotted in ("n", "inference_n", "errors", "sent_bytes", "latency.n")
        found = told(evidence, dotted)
        if dotted == "statuses":
            found = {code: n // times for code, n in found.items()}
        elif dotted == "shape.request_bytes":
            found = found[: len(wanted)]
        assert found == (wanted * times if scaled else wanted), dotted
    formats_ = case.get("chosen") or case.get("format")
    if formats_:
        assert set(evidence.quality.formats or {}) & set(formats_.split("|"))
    for name, verdict in case.get("triggers", {}).items():
        assert {t.name: t.verdict for t in evidence.triggers}[name] == verdict
    assert any(case.get("question", "") in text for text in (*evidence.quality.questions, ""))
    assert any(case.get("note", "") in text for text in (*evidence.quality.notes, ""))


def test_every_format_has_a_case_and_a_source() -> None:
    seen = {name for case in CASES for name in (case.get("named") or case["format"]).split("|")}
    untried = {known.name for known in formats()} - seen
    assert untried == set()
    assert all(known.source.startswith("https://") for known in formats())


def test_a_mapping_file(tmp_path: Path) -> None:
    mapping = tmp_path / "ours.yaml"
    mapping.write_text(
        "kind: json\nstamp: start\nfields:\n  time: {key: at, type: epoch, unit: ms}\n"
        "  duration: {key: t.took, unit: us}\n  path: t.url\n  method: t.verb\n  status: code\n",
        encoding="utf-8",
    )
    line = '{"at":1791640537250,"t":{"took":1500,"url":"/predict?x","verb":"POST"},"code":200}'
    evidence = audit([line], routes=ROUTES, format_name=str(mapping))
    assert (evidence.latency.p50_ms, evidence.start.isoformat()) == (1.5, "2026-10-10T13:55:37.250000+00:00")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: json\nfields: {path: url}\n", "names no time"),
        ("kind: json\nfields: {time: {key: at, type: iso}, duration: took}\n", "no unit"),
        ("kind: json\nfields: {time: at}\n", "no type"),
        ("kind: xml\nfields: {}\n", "not understood"),
        ("{", "no YAML"),
        ("kind: json\nfields: {time: {key: at, type: epoch, unit: fortnight}}\n", "no unit 'fortnight'"),
        ("kind: json\nfields: {time: {key: at, type: epoch}}\n", "needs a unit"),
        ("kind: json\nfields: {time: {key: at, type: iso}, duration: {key: took, unit: mss}}\n", "did you mean ms"),
        ("kind: json\nfields: {time: {key: at, type: iso}, duraton: took}\n", "did you mean duration"),
        ("kind: json\nfields: {time: {key: at, type: iso, units: s}}\n", "'units' is not understood"),
        ("kind: json\nfields: {time: {key: 5, type: iso}}\n", "names no key"),
        ("kind: json\nstamp: middle\nfields: {time: {key: at, type: iso}}\n", "stamp 'middle'"),
        ("kind: json\nfeilds: 1\nfields: {time: {key: at, type: iso}}\n", "did you mean fields"),
        ("kind: csv\nseparator: '::'\nfields: {time: {key: at, type: iso}}\n", "separator '::'"),
        ("kind: csv\ncolumns: []\nfields: {time: {key: at, type: iso}}\n", "columns is no list"),
        ("kind: csv\ncolumns: [att]\nfields: {time: {key: at, type: iso}}\n", "did you mean att"),
        ("[" * 1100, "no YAML"),
    ],
)
def test_a_wrong_mapping_is_refused(tmp_path: Path, text: str, said: str) -> None:
    mapping = tmp_path / "ours.yaml"
    mapping.write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError, match=said):
        named(str(mapping))


MAPPED = "kind: json\nfields: {time: {key: at, type: iso}, duration: {key: t.tooks, unit: ms}, path: url}\n"


def test_keys_that_never_occur_are_refused_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(MAPPED)
    line = '{"at":"2026-10-10T12:00:00Z","t":{"took":5},"url":"/predict"}'
    with pytest.raises(DeclarationError, match=r"'t.tooks' \(the nearest is 't.took'\) never occurs"):
        audit([line] * 30, format_name=str(tmp_path / "ours.yaml"))
    late = [line] * 900 + [line.replace("took", "tooks")]  # rare, but there
    assert audit(late, format_name=str(tmp_path / "ours.yaml")).n == 901


def test_a_time_in_another_unit_says_which(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("kind: json\nfields: {time: {key: at, type: epoch, unit: s}, path: url}\n")
    with pytest.raises(DeclarationError, match="read as s; as ms it would be"):
        audit(['{"at":1791640537250,"url":"/predict"}'] * 30, format_name=str(tmp_path / "ours.yaml"))


ROWS = [
    ("2026-10-10T12:00:00Z", "POST", "/predict", "200", "250"),
    ("2026-10-10T12:00:01Z", "POST", "/predict", "500", "80"),
]
NAMES = ("when", "verb", "url", "code", "took")


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 0, 1, 3)])
@pytest.mark.parametrize("separator", [",", ";", "|", "tab"])
def test_a_csv_mapping_by_its_header_in_any_order(tmp_path: Path, order: tuple[int, ...], separator: str) -> None:
    mapping = tmp_path / "ours.yaml"
    mapping.write_text(
        f"kind: csv\nseparator: '{separator}'\nfields: {{time: {{key: when, type: iso}}, method: verb, path: url, "
        "status: code, duration: {key: took, unit: ms}}\n"
    )
    sign = "\t" if separator == "tab" else separator
    lines = [sign.join(row[i] for i in order) for row in (NAMES, *ROWS * 20)]
    evidence = audit(lines, routes=ROUTES, format_name=str(mapping))
    assert (evidence.n, evidence.errors, evidence.latency.n, evidence.latency.p95_ms) == (40, 20, 20, 250.0)
    assert (evidence.quality.refused, evidence.quality.examples) == (1, ("line 1: the header",))
    with pytest.raises(DeclarationError, match="never occurs in the first line"):
        audit(lines[1:], routes=ROUTES, format_name=str(mapping))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_files_whose_headers_differ_are_each_read_by_their_own(separator: str) -> None:
    """Two columns that change places would otherwise be read as each other."""
    one = ["timestamp,path,method,duration_ms,bytes_sent", *["2026-10-10T12:00:00Z,/predict,POST,250,17"] * 30]
    two = ["bytes_sent,duration_ms,path,timestamp,method", *["17,250,/predict,2026-10-10T12:00:01Z,POST"] * 30]
    evidence = audit([text.replace(",", separator) for text in [*one, *two, *one]], routes=ROUTES)
    assert (evidence.n, evidence.latency.p50_ms, evidence.latency.max_ms, evidence.sent_bytes) == (
        90,
        250,
        250,
        17 * 90,
    )
    assert evidence.quality.refused == 3


@pytest.mark.parametrize("text", ["apach", "$request $status $msecond nothing", "log_format x '$request $status';"])
def test_a_format_without_a_time_or_a_name_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError):
        named(text)


def test_durations_in_seconds_where_milliseconds_are_said_are_asked_about() -> None:
    line = '{{"timestamp":"2026-10-10T13:55:{:02d}Z","method":"POST","path":"/predict","status":200,"latency_ms":0.3}}'
    evidence = audit([line.format(second) for second in range(30)], routes=ROUTES)
    assert any("are these seconds" in question for question in evidence.quality.questions)


PARTS = st.sampled_from([
    "rt=0.100", "rt=-", "rt=abc", "rt=5.0", 'rt="0.2"', 'uht="0.010, 0.020"', "uht=0.010, 0.020 : 0.030",
    'urt="-"', "rl=20", 'body="a \\" rt=9"', 'x="', "junk", "sid=7", "msec=1791640537.250", "-",
])  # fmt: skip
LINES = st.tuples(
    st.sampled_from(["POST /a HTTP/1.1", "-", "\\x16\\x03", "GET /b?c HTTP/2.0", "POST /a b"]),
    st.sampled_from(["200", "503", "000", "99", "-"]),
    st.sampled_from(["10/Oct/2026:13:55:36 +0200", "31/Feb/2026:13:55:36 +0000", "10/Okt/2026:13:55:36 +0000"]),
    st.lists(PARTS, max_size=4),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_columns_read_what_single_lines_say(rows: list[tuple[str, str, str, list[str]]]) -> None:
    head = '1.1.1.1 - - [{}] "{}" {} 1 "-" "-" {}'
    lines = [head.format(at, request, code, " ".join(parts)).rstrip() for request, code, at, parts in rows]
    many = pl.Series([line for line in lines for _ in range(30)])
    wanted = named("nginx-pairs")
    quick = LineReader(wanted).read(many, {})
    slow_reader = LineReader(wanted)
    slow_reader._layouts = [None] * layouts.MAX_LAYOUTS  # type: ignore[list-item]  # room for none
    slow_reader._match = lambda layout, left, found: left  # type: ignore[method-assign]
    slow = slow_reader.read(many, {})
    assert quick.frame.equals(slow.frame)
    assert quick.refused == slow.refused
