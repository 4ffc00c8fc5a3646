"""Dockerfiles of the kinds people have, moved, built for real by podman on the Debian base, and run.

There is no Alpine image here to run the before: what each must answer is written down in image_cases.yaml.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferlift import process, toolchain
from inferlift.errors import CheckFailed
from inferlift.images import build, rewrite
from inferlift.toolchain.images import base_image, podman_env

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
CASES = HERE.parent / "unit" / "images" / "cases"
EXPECTED: dict[str, Any] = yaml.safe_load((HERE / "image_cases.yaml").read_text(encoding="utf-8"))
RUN = ["podman", "run", "--rm", "--runtime", "runc", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000"]
QUICK = sorted(name for name, row in EXPECTED.items() if row.get("quick"))
SLOW = sorted(set(EXPECTED) - set(QUICK))


@pytest.fixture(scope="module")
def base() -> str:
    toolchain.ensure(["base-image"], print)
    return base_image()


def test_every_case_says_what_it_must_do() -> None:
    assert set(EXPECTED) == {path.stem for path in CASES.glob("*.in")}
    assert len(EXPECTED) >= 25
    assert all("answer" in row or "match" in row for row in EXPECTED.values())


@pytest.fixture(scope="module")
def begun(
    request: pytest.FixtureRequest, base: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The selected cases, a few side by side: most of each is waiting for an archive or for one core."""
    names = [
        i.callspec.params["name"]
        for i in request.session.items
        if i.module is request.module and hasattr(i, "callspec")
    ]
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(_build_and_run, name, base, tmp_path_factory.mktemp("case")) for name in names}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", QUICK)
def test_it_builds_and_answers(name: str, begun: dict[str, Future[None]]) -> None:
    begun[name].result()


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_the_larger_ones_too(name: str, begun: dict[str, Future[None]]) -> None:
    begun[name].result()


def _build_and_run(name: str, base: str, folder: Path) -> None:
    expected = EXPECTED[name]
    context = folder / "context"
    context.mkdir()
    for file, content in expected.get("files", {}).items():
        (context / file).write_text(content, encoding="utf-8")
    moved = rewrite((CASES / f"{name}.in").read_text(encoding="utf-8"), base)
    assert rewrite(moved.text, base).changes == ()
    out = folder / "image.tar"
    try:
        image = build(context, moved.text, base, f"inferlift-test-{name}", out, podman_env(), print, owner="test")
    except CheckFailed as error:
        log = out.with_suffix(".log")
        pytest.fail(f"{error}\n{log.read_text()[-3000:] if log.exists() else ''}", pytrace=False)
    assert [c for c in image.checks if not c.ok] == []
    loaded = process.run(["podman", "load", "-q", "-i", image.archive], timeout_s=300).stdout
    tag = loaded.split("Loaded image:")[-1].strip()
    try:
        done = subprocess.run(
            [*RUN, "--network", "none", tag, *expected.get("run", [])], capture_output=True, text=True, timeout=120
        )
    finally:
        process.run(["podman", "rmi", "-f", tag], timeout_s=60, check=False)
    said = done.stdout + (done.stderr if expected.get("stream") == "both" else "")
    assert done.returncode == 0, done.stderr
    if "answer" in expected:
        assert said == expected["answer"]
    else:
        assert re.search(expected["match"], said, re.MULTILINE)
