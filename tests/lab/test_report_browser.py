"""The report in a real browser: opened from disk, at a desk and on a phone, in light and dark.

The data is made up (tests/unit/report/*_factory.py); a real run's page is what `./invoke deploy` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferlift import toolchain
from inferlift.report import render
from inferlift.report.data import STAGES
from inferlift.report.screenshot import screenshot
from tests.lab.pages import requests, show
from tests.unit.report import plan_factory as planned
from tests.unit.report import report_factory as made

pytestmark = pytest.mark.lab
WIDTHS = {"desk": 1280, "tablet": 768, "phone": 360}
A4 = 688  # CSS pixels across A4 within the page's margins of 14 mm
PAGES = {"finished": planned.full(), "nothing": made.empty()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    for name, data in PAGES.items():
        (folder / f"{name}.html").write_text(render(data), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize("name", list(PAGES))
def test_it_opens_from_disk_without_errors_and_asks_for_nothing(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    show(browser, pages[name], 1280)
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert pages[name].as_uri() in asked  # the log does see requests
    assert [url for url in asked if url != pages[name].as_uri() and not url.startswith("data:")] == []


def test_a_page_that_would_ask_is_caught(browser: Any, tmp_path: Path) -> None:
    """The two checks above can fail: an image from elsewhere, and a script that throws."""
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://127.0.0.1:9/x.png"><script>throw new Error("planted")</script>', encoding="utf-8")
    show(browser, bad, 1280)
    assert "http://127.0.0.1:9/x.png" in requests(browser)
    assert any("planted" in entry["message"] for entry in browser.get_log("browser"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS.values()), ids=list(WIDTHS))
def test_nothing_runs_off_the_side(browser: Any, pages: dict[str, Path], width: int, scheme: str) -> None:
    for page in pages.values():
        show(browser, page, width, scheme)
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        wide, off = browser.execute_script(
            "const w = document.documentElement.clientWidth;"
            "return [document.documentElement.scrollWidth - w, [...document.body.querySelectorAll('*')]"
            ".filter(e => e.getClientRects().length && e.getBoundingClientRect().right > w + 1)"
            ".map(e => e.tagName + ': ' + e.textContent.trim().slice(0, 60))]"
        )
        assert wide <= 0
        assert off == []


def test_nothing_runs_off_a4_paper(browser: Any, pages: dict[str, Path]) -> None:
    for page in pages.values():
        show(browser, page, A4, media="print")
        wide = browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0


@pytest.mark.parametrize("width", list(WIDTHS.values()), ids=list(WIDTHS))
def test_the_nine_stages_can_be_seen(browser: Any, pages: dict[str, Path], width: int) -> None:
    from selenium.webdriver.common.by import By

    show(browser, pages["finished"], width)
    rows = browser.find_elements(By.CSS_SELECTOR, "tr[data-stage]")
    assert [r.get_attribute("data-stage") for r in rows] == list(STAGES)
    for row in rows:
        assert row.is_displayed()
        assert row.get_attribute("data-stage") in row.text
        assert "done" in row.text
    assert browser.find_element(By.ID, "verdict").text.startswith("Moved")


def test_charts_are_drawn_as_wide_as_their_column_with_readable_labels(browser: Any, pages: dict[str, Path]) -> None:
    for width in WIDTHS.values():
        show(browser, pages["finished"], width)
        charts = browser.execute_script(
            "return [...document.querySelectorAll('svg.chart')].map(c => [c.getBoundingClientRect().width,"
            " c.parentElement.getBoundingClientRect().width,"
            " parseFloat(getComputedStyle(c.querySelector('text')).fontSize),"
            " c.querySelectorAll('path, rect, circle').length])"
        )
        assert len(charts) >= 8
        for drawn, column, font, shapes in charts:
            assert abs(drawn - column) <= 1
            assert font >= 11
            assert shapes > 0


def test_labels_of_a_phones_charts_do_not_touch(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["finished"], WIDTHS["phone"])
    touching = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart')].flatMap(c => {"
        " const t = [...c.querySelectorAll('text.tick')].map(e => [e.textContent, e.getBoundingClientRect()]);"
        " return t.flatMap(([a, x], i) => t.slice(i + 1).filter(([b, y]) =>"
        " x.left < y.right && y.left < x.right && x.top < y.bottom - 3 && y.top < x.bottom - 3)"
        ".map(([b]) => a + ' / ' + b)); })"
    )
    assert touching == []


def test_dark_is_dark_and_paper_is_white(browser: Any, pages: dict[str, Path]) -> None:
    def back(scheme: str, media: str = "") -> int:
        show(browser, pages["finished"], 1280, scheme, media)
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    assert back("light") > 700
    assert back("dark") < 120
    assert back("dark", "print") == 765


def test_paper_holds_what_a_screen_folds_away(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["finished"], 1280, media="print")
    heights = browser.execute_script(
        "return [...document.querySelectorAll('details:not([open]) > :not(summary)')]"
        ".map(e => e.getBoundingClientRect().height)"
    )
    assert len(heights) >= 4
    assert min(heights) > 0


def test_the_readmes_picture_is_made_by_its_command(pages: dict[str, Path], tmp_path: Path) -> None:
    toolchain.ensure(["chromium"], print)
    picture = tmp_path / "report.png"
    screenshot(pages["finished"], picture)
    body = picture.read_bytes()
    assert body.startswith(b"\x89PNG")
    assert (int.from_bytes(body[16:20], "big"), int.from_bytes(body[20:24], "big")) == (1280, 1400)
    assert 40_000 < len(body) < 300_000
