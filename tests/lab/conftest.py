"""A lab of the test's own: a state folder and labels that no other clone or test uses, cleared before and after."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from configured_site import site  # noqa: F401  (a fixture)
from deploying import Lab, approved, migration_of, tools, users
from dns_sides import found  # noqa: F401  (a fixture)

from inferlift import toolchain
from inferlift.report.screenshot import FLAGS

__all__ = ["Lab", "approved", "migration_of", "tools", "users"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the lab's time goes, file by file."""
    seconds: Counter[str] = Counter()
    for report in (
        r for reports in terminalreporter.stats.values() for r in reports if isinstance(r, pytest.TestReport)
    ):
        seconds[report.nodeid.partition("::")[0].rpartition("/")[2]] += round(report.duration, 1)
    if seconds:
        terminalreporter.section("seconds by file")
    for file, took in seconds.most_common():
        terminalreporter.write_line(f"{took:7.1f} {file}")


def lab(name: str, profile: str) -> Iterator[Lab]:
    with migration_of(name, profile, {}) as made:
        yield made


@pytest.fixture(scope="module")
def demo() -> Iterator[Lab]:
    yield from lab("demo", "demo")


@pytest.fixture(scope="session")
def small() -> Iterator[Lab]:
    """The profile with 100 requests. One migration serves test_kills.py, which makes it, and test_small.py."""
    yield from lab("small", "demo-small")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    toolchain.ensure(["chromium"], print)
    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    driver.set_page_load_timeout(30)
    try:
        yield driver
    finally:
        driver.quit()
