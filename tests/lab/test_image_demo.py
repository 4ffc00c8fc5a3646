"""`./invoke deploy --profile demo-image-small`: an image service moved end to end, with 100 pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Lab, lab

from inferlift.artifacts import Cutover, Measurement, Scaled, Sizing

pytestmark = [pytest.mark.lab, pytest.mark.long]

STAGES = ("audit", "size", "build", "poc", "load", "migrate", "scale", "switch", "watch")


@pytest.fixture(scope="module")
def image() -> Iterator[Lab]:
    yield from lab("image", "demo-image-small")


def test_all_nine_stages_are_done(image: Lab) -> None:
    assert image.invoke("deploy", timeout_s=1800).returncode == 0
    assert {stage: image.statuses()[stage] for stage in STAGES} == dict.fromkeys(STAGES, "done")


def test_every_picture_was_answered_and_its_text_is_exact(image: Lab) -> None:
    measured = image.artifact("load", Measurement)
    assert (measured.run.counts.ok, measured.run.counts.planned) == (100, 100)
    assert measured.quality.n == 40
    assert measured.quality.share is not None
    assert measured.quality.share >= 0.95


def test_triton_batches_as_the_plan_says(image: Lab) -> None:
    plan = image.artifact("size", Sizing).batching
    assert plan is not None
    assert plan.settings["max_batch_size"] >= plan.preferred_batch_size


def test_all_in_flight_were_answered_and_no_user_lost_a_request(image: Lab) -> None:
    assert all(gate.verdict == "pass" for gate in image.artifact("scale", Scaled).gates)
    cutover = image.artifact("switch", Cutover)
    assert all(case.same for case in cutover.parity)
    assert sum(users.failed for users in cutover.users) == 0
    assert sum(users.new for users in cutover.users) > 0


def test_the_same_command_again_changes_nothing(image: Lab) -> None:
    before = image.intents()
    again = image.invoke("deploy", timeout_s=600)
    assert again.returncode == 0
    assert image.intents() == before
