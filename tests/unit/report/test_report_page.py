"""The page: whole, alone, escaped, silent about secrets, and honest about what is not known."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from inferlift.artifacts import Check, Status
from inferlift.report import Attempt, ReportData, Rollback, render
from inferlift.report.data import STAGES
from inferlift.report.render import TEMPLATES
from inferlift.report.view import headline, skipped, tiles
from tests.unit.report import plan_factory as planned
from tests.unit.report import report_factory as made

PARTS = (
    "world", "evidence", "sizing", "images", "service", "measurement", "transfer", "scaled", "cutover", "watch",
)  # fmt: skip
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; `unbalanced` names an end tag that closes nothing open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        self.unbalanced += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words)).replace("\u202f", " ")

    def section(self, name: str) -> bool:
        return any(tag == "section" and a.get("id") == name for tag, a in self.tags)


def without(**changes: object) -> ReportData:
    return made.full().model_copy(update=changes)


def test_a_finished_migration_has_its_nine_stages_and_says_it_moved() -> None:
    page = Page(render(made.full()))
    assert page.unbalanced == []
    rows = [a["data-stage"] for tag, a in page.tags if tag == "tr" and "data-stage" in a]
    assert rows == list(STAGES)
    assert all(page.section(name) for name in STAGES)
    assert "Moved: all users are on the new fleet" in page.text
    assert "9 of 9 done" in page.text


def test_the_page_asks_for_nothing() -> None:
    text = render(planned.full())
    page = Page(text)
    assert page.section("plan")
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "embed", "base", "form", "video"}
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "srcset", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text


@pytest.mark.parametrize("part", PARTS)
def test_any_part_may_be_missing(part: str) -> None:
    page = Page(render(without(**{part: None})))
    assert page.unbalanced == []
    assert all(page.section(name) for name in STAGES)


@pytest.mark.parametrize("last", range(len(PARTS) + 1))
def test_a_run_that_stopped_anywhere_has_a_report(last: int) -> None:
    page = Page(render(without(**dict.fromkeys(PARTS[last:]), rates={}, lock={}, approvals=())))
    assert page.unbalanced == []


def test_nothing_ran_yet() -> None:
    page = Page(render(made.empty()))
    assert page.unbalanced == []
    assert "Nothing has run yet" in page.text
    assert page.text.count("pending") >= 9
    values = [t.value for t in tiles(made.empty())]
    assert set(values) == {"unknown"}


def test_unknown_is_never_zero() -> None:
    page = Page(render(made.full()))
    bill = page.text.split("old side, a month")[1][:60]
    assert bill.split()[0] == "unknown"
    gpu = page.text.split("memory bandwidth")[1][:60]
    assert gpu.split()[0] == "unknown"
    offer = page.text.split("example-gpu-1")[1][:80]
    assert "unknown unknown" in offer
    assert re.search(r"GPU idle unknown", page.text)


def test_what_is_measured_predicted_and_assumed_is_told_apart() -> None:
    text = render(made.full())
    for basis in ("measured", "predicted", "assumed", "declared", "unknown"):
        assert f'class="basis {basis}"' in text
    cost = next(t for t in tiles(made.full()) if t.label.startswith("cost"))
    assert cost.basis == "assumed"


HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)> & "quotes" \''


def takes_text(annotation: object) -> bool:
    """Whether a field takes any text: not a list of words, a time or a number."""
    return annotation in (str, Any) or (
        get_origin(annotation) is not Literal and any(takes_text(part) for part in get_args(annotation))
    )


def hostile(value: object, free: bool = False) -> object:
    """Every text that a model takes freely, replaced by markup. Keys of dictionaries stay."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {name: hostile(getattr(value, name), takes_text(field.annotation)) for name, field in fields.items()}
    if isinstance(value, dict):
        return {key: hostile(inner, free) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(inner, free) for inner in value]
    return HOSTILE if isinstance(value, str) and free else value


def test_no_text_becomes_markup() -> None:
    body = hostile(planned.full())
    assert isinstance(body, dict)
    for row, name in zip(body["stages"], STAGES, strict=True):
        row["name"] = name
    body["held"] = {"stage": HOSTILE, "why": HOSTILE}
    body["notes"] = [HOSTILE]
    body["overruled"] = [{"stage": HOSTILE, "reason": HOSTILE, "at": None, "overruled": HOSTILE}]
    body["lock"] = {HOSTILE: HOSTILE, "tools": {HOSTILE: HOSTILE}}
    body["evidence"]["statuses"] = {HOSTILE: 3}
    body["service"]["configured"]["skipped"] = [HOSTILE]
    for sizing in (body["sizing"], body["measurement"]["sizing"], body["scaled"]["sizing"]):
        sizing["serving"]["reached"][HOSTILE] = sizing["serving"]["tokens_per_s"]
        sizing["batching"]["settings"] = {HOSTILE: 1}
    text = render(ReportData.model_validate(body))
    page = Page(text)
    assert text.count("&lt;script&gt;alert(1)") > 160
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert page.unbalanced == []


@pytest.mark.parametrize("planted", [made.KEY_FILE, made.SSH_KEY, made.DNS_KEY, "/private/planted", "ssh-ed25519"])
def test_no_key_and_no_path_of_one_is_on_the_page(planted: str) -> None:
    assert planted in made.full().model_dump_json()
    assert planted not in render(made.full())


def test_a_skipped_check_is_no_proof_and_stands_with_what_was_left_out() -> None:
    page = Page(render(made.full()))
    assert "2 ok, 1 skipped (no proof)" in page.text
    lines = {s.what: s.where for s in skipped(made.full())}
    assert lines["check: GPU library loads: no GPU here"] == "made-up-app"
    assert lines["memory bandwidth: no GPU in this fleet"] == "watch"
    time_sync = next(where for what, where in lines.items() if what.startswith("time sync"))
    assert time_sync.split(", ")[:3] == ["gateway-1", "monitor-1", "model-1"]
    assert any(what.startswith("GPU: none in this fleet") for what in lines)


def test_a_fleet_with_a_gpu_is_not_said_to_have_none() -> None:
    data = made.full()
    assert data.scaled is not None
    service = data.scaled.service
    hosts = tuple(h.model_copy(update={"gpu": "Example GPU"}) for h in service.fleet.hosts)
    fleet = service.fleet.model_copy(update={"hosts": hosts})
    scaled = data.scaled.model_copy(update={"service": service.model_copy(update={"fleet": fleet})})
    assert not any(s.what.startswith("GPU: none") for s in skipped(without(scaled=scaled)))


def test_a_failed_check_is_shown_at_once() -> None:
    data = made.full()
    assert data.service is not None
    bad = Check(name="model-1: port 8081", ok=False, detail="nobody listens")
    service = data.service.model_copy(update={"checks": (*data.service.checks, bad)})
    page = Page(render(without(service=service)))
    assert "nobody listens" in page.text
    assert "1 failed" in page.text


CASES = [
    ({}, "good", "Moved: all users"),
    ({"watch": made.watch("inconclusive")}, "wait", "does not decide"),
    ({"watch": made.watch("fail")}, "bad", "the watch says no"),
    ({"watch": None}, "wait", "unknown"),
    ({"stages": made.stages(load=Status.FAILED)}, "bad", "Stopped in load"),
    ({"stages": made.stages(scale=Status.HELD)}, "wait", "Held in scale"),
    ({"stages": made.stages(switch=Status.UNCERTAIN)}, "wait", "In switch, not finished"),
    ({"stages": made.stages(migrate=Status.NOT_APPLICABLE)}, "good", "Moved"),
    ({"stages": made.stages(watch=Status.PENDING), "watch": None}, "plain", "8 of 9 stages done"),
    ({"held": {"stage": "size", "why": "verdict stay"}}, "wait", "Held in size"),
    ({"held": {}}, "wait", "Held in an unknown stage"),
    ({"cutover": made.cutover(rolled_back=True), "stages": made.stages(switch=Status.FAILED)}, "bad", "Rolled back"),
    ({"rollback": Rollback(at="2026-11-30", seconds=None)}, "bad", "Rolled back"),
]


@pytest.mark.parametrize(("changes", "tone", "said"), CASES)
def test_the_headline_says_where_it_stands(changes: dict[str, object], tone: str, said: str) -> None:
    found = headline(without(**changes))
    assert (found.tone, said in found.title) == (tone, True), found
    assert found.why
    assert found.title in Page(render(without(**changes))).text


def test_what_was_not_accepted_is_shown_and_not_mixed_in() -> None:
    run = made.load_run("new", 1000, 400.0, 30_000, failed=12)
    attempt = Attempt(stage="load", runs=(run,), gates=made.measurement().gates)
    data = without(attempts=(attempt,), stages=made.stages(load=Status.FAILED), measurement=None)
    page = Page(render(data))
    assert "was not accepted" in page.text
    assert "12 reset" in page.text
    assert next(t for t in tiles(data) if t.label.startswith("load")).value == "unknown"


def test_a_rolled_back_switch_says_so_beside_its_steps() -> None:
    page = Page(render(without(cutover=made.cutover(rolled_back=True))))
    assert "It rolled itself back in 2.2 s: p95 total failed twice in a row" in page.text


def test_a_reason_stands_beside_the_verdict_it_overrules() -> None:
    page = Page(render(without(overruled=(made.overruled(),))))
    assert "the campaign starts tomorrow" in page.text
    assert "Overruled: too few samples" in page.text


@pytest.mark.parametrize("status", [Status.UNCERTAIN, Status.FAILED, Status.HELD, Status.PENDING])
def test_an_earlier_result_is_not_passed_off_as_the_last(status: Status) -> None:
    assert "of an earlier run" in Page(render(without(stages=made.stages(poc=status)))).text
    assert "of an earlier run" not in Page(render(made.full())).text


# --- colours ----------------------------------------------------------------------------------------------------------


def palettes() -> list[dict[str, str]]:
    """Colours of the light scheme and of the dark one, which is the second block that sets them."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in (light, dark)]


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("part", ["p1", "p2", "p3", "p4", "p5", "p6"])
def test_parts_of_a_bar_stand_out_in_light_and_dark(nth: int, part: str) -> None:
    """WCAG 2.1 AA: 3 to 1 for graphics."""
    colours = palettes()[nth]
    a, b = sorted((luminance(colours[part]), luminance(colours["card"])), reverse=True)
    assert (a + 0.05) / (b + 0.05) >= 3


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("ink", ["ink", "soft", "new", "old", "third", "good", "bad", "wait"])
def test_text_stands_out_in_light_and_dark(nth: int, ink: str) -> None:
    """WCAG 2.1 AA: 4.5 to 1 for text."""
    colours = palettes()[nth]
    for back in ("paper", "card", "wash"):
        a, b = sorted((luminance(colours[ink]), luminance(colours[back])), reverse=True)
        assert (a + 0.05) / (b + 0.05) >= 4.5, (ink, back)
