"""All nine stages onto own hosts, killed once on the way, and given back as they were. The old world is the lab's.

The hosts stand in for Debian machines on which the packages are already (plain_hosts says what else they cannot show):
packages that come and go are test_static.py's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab, approved, tools
from plain_hosts import PlainHosts, State, assert_same
from waiting import until

from inferlift.artifacts import Cutover, Measurement, Scaled, Service, Watch
from inferlift.profile import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]
MODELS = 3
SAMPLES = "/var/lib/prometheus/metrics2/theirs"  # of the Prometheus that the owner ran on that host before
PROFILE = """name: t-own
extends: demo-small
description: The small demo moved to hosts that exist
target: static
requests:
  growth_months: 0
targets:
  acceptance_deadline_s: 300    # client and hosts share two cores here
watch:
  seconds: 60                   # four scrapes
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainHosts]:
    hosts = PlainHosts("own", 72, tmp_path_factory.mktemp("own"))
    names = ["gateway-1", *(f"model-{n}" for n in range(1, MODELS + 1)), "monitor-1"]
    try:
        hosts.raise_hosts(names, tools().host_image)
        yield hosts
    finally:
        hosts.sweep()


@pytest.fixture(scope="module")
def before(plain: PlainHosts) -> dict[str, State]:
    plain.on("gateway-1", "printf '#!/usr/sbin/nft -f\\n# of the owner\\n' > /etc/nftables.conf")
    plain.on("model-1", "useradd -r theirs && mkdir -p /srv/theirs && echo keep > /srv/theirs/file")
    plain.on("monitor-1", f"mkdir -p {SAMPLES} && echo keep > {SAMPLES}/chunk")
    return plain.states()


@pytest.fixture(scope="module")
def own(plain: PlainHosts, before: dict[str, State], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path = tmp_path_factory.mktemp("profile") / "t-own.yaml"
    path.write_text(PROFILE + plain.section(MODELS))
    lab = Lab("own", str(path))
    lab.clear()
    try:
        yield lab
    finally:
        shutil.rmtree(lab.place.folder / "static", ignore_errors=True)  # the hosts themselves are swept
        lab.clear()


def test_killed_while_hosts_are_configured_it_goes_on_through_all_nine_stages(own: Lab, plain: PlainHosts) -> None:
    approved(own, "--to", "size")
    plan = re.search(r"plan ([0-9a-f]{12})", own.invoke("plan").stdout)
    assert plan is not None
    argv = [str(ROOT / "invoke"), "deploy", "--profile", own.profile, "--to", "poc", "--plan", plan[1]]
    child = own.start(*argv)
    begun = "ls /etc/inferlift/base.json 2>/dev/null || true"
    assert until(lambda: child.poll() is not None or plain.on("gateway-1", begun).strip() != "", 300)
    assert child.poll() is None, own.log()[-3000:]
    kill_tree(child.pid)
    child.wait()
    approved(own)
    assert set(own.statuses().values()) == {"done"}
    service = own.artifact("poc", Service)
    assert all((h.container or "").startswith("machine:") for h in service.fleet.hosts)
    assert own.artifact("load", Measurement).run.counts.ok == 100
    assert [g.verdict for g in own.artifact("scale", Scaled).gates] == ["pass", "pass"]
    assert own.artifact("switch", Cutover).rolled_back is False
    assert own.artifact("watch", Watch).gates


def test_a_second_deploy_changes_nothing(own: Lab) -> None:
    intents = own.intents()
    done = own.invoke("deploy")
    assert done.returncode == 0
    assert done.stderr.count(" verified: ") == 10
    assert own.intents() == intents


def test_destroy_leaves_the_machines_as_they_were(own: Lab, plain: PlainHosts, before: dict[str, State]) -> None:
    refused = own.invoke("destroy")
    assert refused.returncode == 2
    assert "DNS points at the fleet" in refused.stderr
    assert own.invoke("rollback").returncode == 0
    own.destroyed()
    assert_same(before, plain.states())
    assert plain.on("model-1", "cat /srv/theirs/file") == "keep\n"
    assert plain.on("monitor-1", f"cat {SAMPLES}/chunk") == "keep\n"
    assert own.invoke("destroy").returncode == 0, "nothing to give back is no error"


def kill_tree(pid: int) -> None:
    children = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    os.kill(pid, signal.SIGKILL)
    for child in children:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            kill_tree(child)
