"""Locust's workers send a test's shares: nothing is lost or doubled, and percentiles are of all samples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.errors import CheckFailed, DeclarationError
from inferlift.load import distributed
from inferlift.load.asked import Asked
from inferlift.load.endpoint import Sent
from inferlift.load.figures import nearest_rank
from inferlift.load.plan import LoadPlan
from inferlift.load.samples import Sample, line, read_samples
from inferlift.load.scenario import protocol_of, scenario, share, target_of
from inferlift.load.standalone import standalone
from inferlift.load.target import Target

pytestmark = pytest.mark.programs


def test_two_workers_send_each_request_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed loop over two processes: what the server saw, what the samples hold and what is told are the same."""
    monkeypatch.setenv("USER_KEY", "planted-4711")
    said: list[str] = []
    with Mock(first_s=0.02, gap_s=0.002, fault=lambda i: "429" if i % 50 == 49 else None) as server:
        asked = Asked(
            (f"http://127.0.0.1:{server.port}",), 201, users=10, workers=2, warm_up=0, folder=tmp_path / "s",
            key="env:USER_KEY",
        )  # fmt: skip
        standalone(asked, as_json=True, say=lambda _: None, out=said.append)
        bodies = list(server.bodies)
        assert all(b"planted-4711" in head for head in server.heads)
    one = json.loads(said[0])["endpoints"][0]
    run = one["run"]
    assert run["workers"] == 2
    assert len(set(bodies)) == len(bodies) == 201
    assert run["counts"] == {"planned": 201, "sent": 201, "ok": 197, "errors": {"http_4xx": 4}, "retried": 0}
    samples = list(read_samples(tmp_path / "s" / "1.jsonl"))
    assert sorted(s["i"] for s in samples) == list(range(201))
    good = sorted(s["total_ms"] for s in samples if "error" not in s)
    assert run["total"]["p95_ms"] == pytest.approx(nearest_rank(good, 95), abs=0.01)
    assert run["in_flight_peak"] == server.peak == 10
    assert run["tokens_out"] == 197 * 4
    assert run["gaps"]["n"] == 197 * 3
    assert run["connections"] == server.accepted == 10
    assert "planted" not in said[0] + (tmp_path / "s" / "1.jsonl").read_text()


def test_an_open_loop_keeps_its_times_over_workers(tmp_path: Path) -> None:
    times = tuple(k * 0.01 for k in range(100))
    with Mock(first_s=0.03) as server:
        plan = LoadPlan(
            Target("127.0.0.1", port=server.port, tls=False), 100, ["a"], tmp_path / "s.jsonl", schedule_s=times
        )
        found = distributed.run(plan, Sent(), 2, "127.0.0.1", 0, users=40)
    assert found.counts.ok == server.requests == 100
    rows = sorted(read_samples(tmp_path / "s.jsonl"), key=lambda s: s["i"])
    assert [s["at_s"] for s in rows] == pytest.approx(list(times), abs=1e-5)
    assert found.offered_rps == pytest.approx(100)


def test_what_the_workers_cannot_do_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with Mock() as server:
        url = (f"http://127.0.0.1:{server.port}",)
        for more, told in (
            ({"users": 1}, "1 users for 2 workers"),
            ({"bind": "nowhere"}, "not HOST:PORT"),
            ({"sent": Sent("kserve-grpc", model="m", tensors=_tensors(tmp_path))}, "speak HTTP"),
        ):
            with pytest.raises(DeclarationError, match=told):
                standalone(Asked(url, 10, workers=2, folder=tmp_path / "x", **more), say=lambda _: None)  # type: ignore[arg-type]
        assert server.requests == 0


def test_a_lost_worker_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = subprocess.Popen

    def keep(argv: list[str], **more: Any) -> Any:
        started.append(popen(argv, **more))
        return started[-1]

    monkeypatch.setattr(distributed.subprocess, "Popen", keep)
    with Mock(first_s=0.02) as server:
        plan = LoadPlan(Target("127.0.0.1", port=server.port, tls=False), 10_000, ["a"], tmp_path / "s.jsonl", users=4)

        def kill() -> None:
            give_up = time.monotonic() + 30
            while server.requests < 40 and time.monotonic() < give_up:
                time.sleep(0.05)
            os.kill(started[1].pid, signal.SIGKILL)  # the first is the master

        threading.Thread(target=kill, daemon=True).start()
        with pytest.raises(CheckFailed, match="is gone"):
            distributed.run(plan, Sent(), 2, "127.0.0.1", 0)
    assert all(child.poll() is not None for child in started)


def test_ctrl_c_with_workers_leaves_a_partial_report(tmp_path: Path) -> None:
    with Mock(first_s=0.05) as server:
        code = (
            "import sys; from pathlib import Path; from inferlift.load.standalone import Asked, standalone\n"
            f"sys.exit(standalone(Asked(('127.0.0.1:{server.port}',), 10**5, users=4, warm_up=0, workers=2,"
            f" folder=Path({str(tmp_path / 's')!r})), as_json=True))"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        give_up = time.monotonic() + 30
        while server.requests < 30 and time.monotonic() < give_up:
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=30)
        seen = server.requests
    assert child.returncode == 130, err
    assert "Traceback" not in err
    counts = json.loads(out)["endpoints"][0]["run"]["counts"]
    assert counts["sent"] == seen >= 30
    assert counts["sent"] == counts["ok"] + sum(counts["errors"].values())


def test_shares_hold_every_request_once_and_files_travel(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")
    plan = LoadPlan(
        Target("h", address="10.0.0.1", key="env:K", key_header="X"), 10, ["a"], tmp_path / "s",
        schedule_s=tuple(float(k) for k in range(10)), texts="run",
    )  # fmt: skip
    told = scenario(plan, Sent(texts=words), 3)
    due = [share(told, k)["due_s"] for k in range(3)]
    assert sorted(at for times in due for at in times) == [float(k) for k in range(10)]
    words.unlink()
    (tmp_path / "there").mkdir()
    protocol = protocol_of(share(told, 1), tmp_path / "there")
    assert b"[run-1] two" in protocol.body(1)
    assert target_of(told) == plan.target
    assert "K" not in os.environ  # the reference travels, and no value


def test_percentiles_are_of_all_samples_and_not_of_the_workers_percentiles(tmp_path: Path) -> None:
    """One worker fast, one slow: the mean of their medians is nobody's latency."""
    plan = LoadPlan(Target("h"), 300, ["a"], tmp_path / "s.jsonl", users=2)
    took = [10.0] * 200 + [1000.0] * 100
    rows = [Sample(i=i, at_s=0.0, total_ms=ms, ttft_ms=ms, status=200, chunks=1) for i, ms in enumerate(took)]
    plan.samples.write_text("".join(map(line, rows)))
    record = {"seconds": 1.0, "connections": 1, "stamped": True, "cpu_share": 0.5, "gaps": [[5, 2]], "lags": []}
    found = distributed.merged(plan, [record, record | {"cpu_share": 0.9, "seconds": 2.0}], datetime.now(UTC))
    assert (found.total.n, found.total.p50_ms, found.total.p95_ms) == (300, 10.0, 1000.0)
    assert (found.connections, found.cpu_share, found.seconds) == (2, 0.9, 2.0)
    assert found.gaps is not None
    assert found.gaps.n == 4
    assert found.in_flight_peak == 300


def _tensors(folder: Path) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps([[{"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}]]))
    return path
