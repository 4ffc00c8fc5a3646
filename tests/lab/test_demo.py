"""The full demo, once: `./invoke deploy --profile demo` with its 1000 requests, as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Lab

from inferlift import ssh
from inferlift.artifacts import Cutover, Evidence, Images, Measurement, Scaled, Service, Transfer, Watch
from inferlift.migration import ORDER
from tests.lab.pages import requests, show

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def deployed(demo: Lab) -> Lab:
    done = demo.invoke("deploy", timeout_s=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return demo


def test_all_nine_stages_are_done(deployed: Lab) -> None:
    assert deployed.statuses() == dict.fromkeys(ORDER, "done")


def test_the_evidence_counts_its_samples_and_says_what_it_has_no_data_for(deployed: Lab) -> None:
    evidence = deployed.artifact("audit", Evidence)
    assert evidence.inference_n >= deployed.place.profile.lab.traffic_requests
    assert evidence.quality.refused == 0
    triggers = {t.name: t for t in evidence.triggers}
    assert triggers["P95 over 500 ms"].verdict == "met"
    assert {t.verdict for t in evidence.triggers} >= {"met", "no data"}
    assert evidence.gpu_idle_share is None


def test_the_alpine_dockerfile_was_moved_and_runs_in_front_of_the_model(deployed: Lab) -> None:
    (image,) = deployed.artifact("build", Images).images
    assert any("apk" in c.before and "apt-get" in c.after for c in image.changes)
    host = deployed.artifact("poc", Service).fleet.by_role("model")[0]
    running = ssh.run(host, "systemctl is-active app llamacpp && podman ps --format '{{.Names}}'").stdout.split()
    assert running[:2] == ["active", "active"]
    assert len(running) == 3, "one container, the user's"


def test_the_thousand_requests_were_answered_and_add_up(deployed: Lab) -> None:
    measured = deployed.artifact("load", Measurement)
    counts = measured.run.counts
    assert (counts.planned, counts.unsent) == (1000, 0)
    assert counts.balanced
    assert measured.verdict == "pass"
    assert measured.run.ttft is not None
    assert measured.run.ttft.p95_ms is not None
    assert measured.run.tokens_out
    assert measured.origin_live is None, "the old side is not loaded unless asked"
    assert measured.quality.share is not None
    assert Path(measured.run.samples).read_bytes().count(b"\n") >= 1000


def test_data_arrived_with_equal_checksums_in_two_passes(deployed: Lab) -> None:
    transfer = deployed.artifact("migrate", Transfer)
    assert transfer.files > 100
    assert len(transfer.passes) >= 2


def test_a_thousand_in_flight_then_again_with_a_replica_killed(deployed: Lab) -> None:
    scaled = deployed.artifact("scale", Scaled)
    assert scaled.acceptance.in_flight_peak == 1000
    assert scaled.acceptance.counts.ok == 1000
    assert scaled.acceptance.seconds <= scaled.deadline_s
    assert scaled.service.replicas == scaled.sizing.replicas + scaled.sizing.spare
    assert 1000 - scaled.with_loss.counts.ok <= scaled.in_flight_on_lost
    assert scaled.with_loss.seconds <= scaled.deadline_s
    assert [g.verdict for g in scaled.gates] == ["pass", "pass"]


def test_no_user_saw_a_failure_while_weights_moved(deployed: Lab) -> None:
    cutover = deployed.artifact("switch", Cutover)
    assert [s.weight for s in cutover.steps if s.weight] == [1, 10, 50, 100]
    assert all(c.same for c in cutover.parity)
    assert cutover.parity
    assert {u.client for u in cutover.users} == {"resolving", "keep-alive"}
    assert sum(u.failed for u in cutover.users) == 0
    assert all(u.new > 0 for u in cutover.users if u.client == "resolving")
    assert all(s.authority_share is not None for s in cutover.steps)


def test_the_watch_judged_stored_history_and_pretends_no_gpu(deployed: Lab) -> None:
    watched = deployed.artifact("watch", Watch)
    assert watched.verdict == "pass"
    gpu = [f for name, f in watched.figures.items() if "gpu" in name.lower() or "bandwidth" in name.lower()]
    assert gpu
    assert all(f.value is None and f.basis == "unknown" for f in gpu)


def test_a_second_deploy_verifies_every_stage_and_does_nothing(deployed: Lab) -> None:
    before = deployed.intents()
    done = deployed.invoke("deploy")
    assert done.returncode == 0
    assert done.stderr.count(" verified: ") == 10  # the old world and the nine stages
    assert deployed.intents() == before


def test_the_report_opens_in_a_browser_without_errors_or_requests(deployed: Lab, browser: Any) -> None:
    page = deployed.place.folder / "report.html"
    for width in (1280, 360):
        show(browser, page, width)
        assert browser.get_log("browser") == []
        assert [u for u in requests(browser) if u != page.as_uri() and not u.startswith("data:")] == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    text = browser.execute_script("return document.body.innerText")
    assert all(stage in text for stage in ORDER)
