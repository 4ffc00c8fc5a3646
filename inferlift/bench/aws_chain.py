"""`invoke bench aws --whole`: all nine stages with `target: aws` and the demo's 1000 requests, on the tests' stand-ins.

Each instance is a lab host of this machine, so the figures say what the chain itself takes and whether a request is
lost in it, not how long AWS makes a host or how fast one of its hosts answers.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from inferlift import migration
from inferlift.artifacts import Cutover, Measurement, Scaled
from inferlift.bench.deploy import PROFILE, memory, tell

REGION, NETWORK = "eu-central-1", "10.245.0.0/16"


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: whole_seconds, requests and failed_requests of the load test, of the acceptance with every user in
    flight, of users while they were moved; peak_rss_mb. Bound: it comes to its end, and no request failed. Beside them
    the seconds of each stage."""
    with redirect_stdout(sys.stderr):
        figures, stages = measure(root, print)
    ok = all(value == 0 for name, value in figures.items() if name.startswith("failed")) and "watch" in stages
    return tell(ok, figures, stages, as_json=as_json)


def measure(root: Path, say: Callable[[str], None]) -> tuple[dict[str, float | None], dict[str, float]]:
    """(figures, seconds of the stages that ended). Everything that was made is removed again."""
    from inferlift.declaration import load

    sys.path.insert(0, str(root))
    # tests only, and never shipped: by name, so that nothing here depends on them
    standin: Any = import_module("tests.standin_aws.account")
    deploying: Any = import_module("tests.lab.deploying")
    demo = load(PROFILE, root).profile
    declared = standin.declared(
        "bench-aws", NETWORK, targets={"acceptance_deadline_s": 900}, load={"requests": demo.load.requests},
        requests={"in_flight_peak": demo.requests.in_flight_peak}, watch={"seconds": demo.watch.seconds},
        lab={"traffic_requests": demo.lab.traffic_requests} if demo.lab else {},
        switch={"steps": list(demo.switch.steps), "ttl_s": demo.switch.ttl_s, "min_samples": demo.switch.min_samples},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="il-bench-aws-") as place:
        folder = Path(place)
        (folder / "bench-aws.yaml").write_text(declared)
        say(f"{demo.load.requests} requests through all stages; each command's output follows when it ends")
        with (
            standin.account("bench-aws", {REGION: NETWORK}, folder / "bin") as account,
            deploying.migration_of("bench-aws", str(folder / "bench-aws.yaml"), account) as lab,
        ):
            with memory() as peak:
                started = time.monotonic()
                try:
                    deploying.approved(lab)
                except AssertionError:  # the run's own words were printed
                    say("the chain did not come to its end: what it left undone is unknown below")
                seconds = time.monotonic() - started
            done = {r["stage"]: r["seconds"] for r in migration.status_rows(lab.place) if r["status"] == "done"}
            figures = {
                "whole_seconds": round(seconds, 1) if "watch" in done else None,
                **_requests(lab, done),
                "peak_rss_mb": round(peak[0] / 2**20),
            }
            if "switch" in done:
                assert lab.invoke("rollback").returncode == 0  # noqa: S101 - the way back is a part of it
            lab.destroyed("--delete-data")
    return figures, done


def _requests(lab: Any, done: Mapping[str, float]) -> dict[str, float | None]:
    """Those of the stages that ended; None is unknown."""
    found: dict[str, float | None] = dict.fromkeys(
        ("requests", "failed_requests", "accepted_requests", "failed_accepted_requests", "users_requests",
         "failed_users_requests")
    )  # fmt: skip
    if "load" in done:
        load = lab.artifact("load", Measurement).run.counts
        found |= {"requests": load.planned, "failed_requests": load.planned - load.ok}
    if "scale" in done:
        accepted = lab.artifact("scale", Scaled).acceptance.counts
        found |= {"accepted_requests": accepted.planned, "failed_accepted_requests": accepted.planned - accepted.ok}
    if "switch" in done:
        users = lab.artifact("switch", Cutover).users
        found |= {
            "users_requests": sum(u.old + u.new + u.failed for u in users),
            "failed_users_requests": sum(u.failed for u in users),
        }
    return found
