"""All nine stages with `target: aws`: Pulumi's engine, a stand-in provider, and a lab host for each instance.

What the stand-in does not prove is in tests/standin_aws/__init__.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Lab

from inferlift.artifacts import Cutover, Service, Watch
from inferlift.profile import ROOT

pytestmark = pytest.mark.lab
PROFILE = """
name: t-aws
extends: demo-aws
targets:
  acceptance_deadline_s: 240    # client and hosts share two cores here
watch:
  seconds: 16
aws:
  user_ranges: ["0.0.0.0/0"]
  cidr: 10.243.0.0/16           # one network for everything, as the stand-in boots hosts
"""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The stand-in as a process of its own; its environment."""
    folder = tmp_path_factory.mktemp("bin")
    argv = [sys.executable, "-m", "tests.standin_aws.serve", "t-aws-deploy", "10.243.0.0/16", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert server.stdout is not None
        told: dict[str, Any] = json.loads(server.stdout.readline())
        yield {**told["environment"], "PATH": f"{told['path']}{os.pathsep}{os.environ['PATH']}"}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=120)


@pytest.fixture(scope="module")
def lab(account: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    profile = tmp_path_factory.mktemp("profile") / "t-aws.yaml"
    profile.write_text(PROFILE)
    made = Lab("aws", str(profile))
    made.env |= account
    with pytest.MonkeyPatch.context() as patch:
        for key, value in account.items():
            patch.setenv(key, value)
        made.clear()
        try:
            yield made
        finally:
            made.clear()


def approved(lab: Lab, *more: str) -> None:
    """Deploy, giving each plan's hash when it is asked for."""
    given: list[str] = []
    for _ in range(3):
        done = lab.invoke("deploy", *given, *more)
        if done.returncode == 0:
            return
        asked = re.search(r"--plan ([0-9a-f]{12})|as things stand \(([0-9a-f]{12})\)", done.stderr + done.stdout)
        assert asked is not None, done.stderr
        given = ["--plan", asked[1] or asked[2]]
    raise AssertionError("it asks for an approval again and again")


def test_all_nine_stages(lab: Lab) -> None:
    approved(lab)
    assert set(lab.statuses().values()) == {"done"}
    service = lab.artifact("poc", Service)
    assert all(h.container and h.container.startswith("i-") for h in service.fleet.hosts)
    assert lab.artifact("switch", Cutover).rolled_back is False
    assert lab.artifact("watch", Watch).gates
    logs = (lab.place.folder / "runs").glob("*/run.log")
    assert any("nothing of the fleet expires any more" in log.read_text() for log in logs)


def test_back_and_gone(lab: Lab) -> None:
    assert lab.invoke("rollback").returncode == 0
    done = lab.invoke("destroy")
    assert done.returncode == 0
    assert "nothing is left" in done.stdout + done.stderr
