"""What a run says is judged by the hosts expected, with the words of the task that failed, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.configure.events import Log, forms_of, scrub
from inferlift.errors import CheckFailed, Retryable

# Recorded from a real run: one host refused SSH, one task failed on another.
RECORDED = Path(__file__).with_name("events_failed_and_unreachable.jsonl")
HOSTS = ("fleet-gw", "fleet-m1", "fleet-mon")


def events() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def stats(**counts: dict[str, int]) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "event_data": counts}


def failed(res: dict[str, Any], kind: str = "runner_on_failed", **more: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": "a", "task": "Write", "res": res, **more}}


def read(*rows: dict[str, Any], secrets: tuple[str, ...] = ()) -> Log:
    log = Log(secrets=secrets)
    for row in rows:
        log.take(row)
    return log


def test_the_recorded_run_names_hosts_tasks_and_messages() -> None:
    log = read(*events())
    with pytest.raises(CheckFailed) as caught:
        log.judge(HOSTS)
    assert caught.value.what == "2 of 3 hosts not configured: fleet-m1, fleet-mon"
    assert (
        "fleet-m1: Copy the image: Destination directory /var/lib/inferlift/images does not exist" in caught.value.why
    )
    assert "fleet-mon: Look at the host: " in caught.value.why
    assert "Connection refused" in caught.value.why


def test_digests_and_skip_lines_are_collected() -> None:
    log = read(*events())
    assert set(log.digests["fleet-gw"]) == {"base", "gateway"}
    assert sorted(line.split(": ")[0:2] for line in log.skipped) == [
        ["fleet-gw", "time sync"],
        ["fleet-m1", "time sync"],
    ]


def test_what_a_task_of_several_items_leaves_out_is_collected() -> None:
    items = [{"inferlift_skipped": ["one"], "inferlift_removed": ["r"]}, {"inferlift_skipped": []}, {}]
    log = read({"event": "runner_on_ok", "event_data": {"host": "a", "task": "Take", "res": {"results": items}}})
    assert list(log.skipped) == ["a: one"]
    assert log.removed == {"a": {"r"}}


def test_progress_is_one_line_a_task_not_one_a_host() -> None:
    row = {"event": "playbook_on_task_start", "event_data": {"task": "Write"}}
    log = Log()
    assert [log.take(row), log.take(row)] == ["Write", None]


def test_all_well() -> None:
    log = read(stats(processed={"a": 1, "b": 1}, ok={"a": 3, "b": 4}, changed={"b": 2}))
    assert log.judge(["b", "a"]) == {
        "a": {"ok": 3, "changed": 0, "failed": 0, "unreachable": 0, "skipped": 0},
        "b": {"ok": 4, "changed": 2, "failed": 0, "unreachable": 0, "skipped": 0},
    }


@pytest.mark.parametrize(
    ("rows", "error", "what"),
    [
        ([stats(processed={})], CheckFailed, "2 of 2 hosts were not processed: a, b"),
        ([stats()], CheckFailed, "2 of 2 hosts were not processed: a, b"),
        ([], CheckFailed, "2 of 2 hosts were not processed: a, b"),
        ([stats(processed={"a": 1}, ok={"a": 1})], CheckFailed, "1 of 2 hosts were not processed: b"),
        ([stats(processed={"a": 1, "b": 1}, failures={"b": 1})], CheckFailed, "1 of 2 hosts not configured: b"),
        ([stats(processed={"a": 1, "b": 1}, dark={"b": 1})], Retryable, "1 of 2 hosts not configured: b"),
    ],
)
def test_success_is_never_assumed(rows: list[dict[str, Any]], error: type[Exception], what: str) -> None:
    with pytest.raises(error) as caught:
        read(*rows).judge(["a", "b"])
    assert caught.value.what == what  # type: ignore[attr-defined]


def test_a_loop_tells_of_the_item_that_failed() -> None:
    res = {"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "no space left"}]}
    assert read(failed(res)).troubles[0].message == "no space left"


def test_a_validator_tells_of_the_checks_that_said_no() -> None:
    rows = [{"name": "port", "ok": True, "detail": "x"}, {"name": "firewall", "ok": False, "detail": "flushed"}]
    message = read(failed({"msg": "non-zero return code", "stdout": json.dumps(rows)})).troubles[0].message
    assert message == "firewall: flushed"


def test_an_ignored_failure_is_none() -> None:
    assert read(failed({"msg": "x"}, ignore_errors=True)).troubles == []


def test_messages_are_without_secrets() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEH\n-----END PRIVATE KEY-----"
    log = read(
        failed(
            {
                "msg": 'wrong key pa"ss-word-1 and MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEH',
                "stderr": 'in JSON: pa\\"ss-word-1',
            }
        ),
        secrets=forms_of([pem, 'pa"ss-word-1']),
    )
    assert log.troubles[0].message == "wrong key (secret) and (secret) | in JSON: (secret)"


@given(st.lists(st.text(min_size=4), min_size=1), st.lists(st.text()))
def test_no_secret_survives(secrets: list[str], around: list[str]) -> None:
    text = "|".join(a + s for a, s in zip(around, secrets, strict=False))
    clean = scrub(text, secrets)
    assert not [s for s in secrets if s in clean and s not in "(secret)"]


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
def test_a_failure_of_any_shape_has_a_message(res: Any) -> None:
    log = read(failed({"stdout": json.dumps(res)}))
    assert log.troubles[0].message
