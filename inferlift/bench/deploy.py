"""`invoke bench deploy`: the whole demo, the no-op, and the bare engines' no-op, in one run on this machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from inferlift import migration, place

PROFILE = "demo"


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: demo_seconds, noop_seconds, noop_ratio (to bare pulumi + ansible), peak_rss_mb, list_seconds."""
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-") as state:
        os.environ["INFERLIFT_STATE"] = state
        with memory() as peak:
            demo_s = _timed(root, "deploy", "--profile", PROFILE)
        try:
            noop_s = statistics.median(_timed(root, "deploy", "--profile", PROFILE) for _ in range(3))
            pulumi_s, ansible_s = _bare()
            listing_s = statistics.median(_timed(root, "--list") for _ in range(5))
            rows = migration.status_rows(place.place(PROFILE))
        finally:
            _clear()
    figures = {
        "demo_seconds": round(demo_s, 1),
        "noop_seconds": round(noop_s, 2),
        "noop_ratio": round(noop_s / (pulumi_s + ansible_s), 3),
        "peak_rss_mb": round(peak[0] / 2**20),
        "list_seconds": round(listing_s, 3),
        "bare_pulumi_seconds": round(pulumi_s, 2),
        "bare_ansible_seconds": round(ansible_s, 2),
    }
    ok = demo_s <= 600 and noop_s <= 5 and figures["noop_ratio"] <= 0.5 and peak[0] <= 4 * 2**30 and listing_s <= 0.6
    stages = {r["stage"]: r["seconds"] for r in rows}
    return tell(ok, figures, stages, as_json=as_json)


def tell(ok: bool, figures: Mapping[str, float | None], stages: Mapping[str, float], *, as_json: bool) -> int:
    """The exit code, when the figures and the seconds of each stage are printed; None is unknown."""
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures, "stages": stages}))
    else:
        for name, value in {**figures, **{f"stage {k}": v for k, v in stages.items()}}.items():
            print(f"{name:<26} {'unknown' if value is None else value}")
    return 0 if ok else 1


def _timed(root: Path, *arguments: str) -> float:
    start = time.monotonic()
    subprocess.run([str(root / "invoke"), *arguments], check=True, stdout=sys.stderr, cwd=root)
    return time.monotonic() - start


def _bare() -> tuple[float, float]:
    """Seconds of the engines' own no-ops on the same fleet: Pulumi up, then the playbook."""
    from inferlift import provision
    from inferlift.stages import _configuring, _wanted

    with migration.session(place.place(PROFILE), f"bench --profile {PROFILE}") as ctx:
        ctx.stage, ctx.key = "poc", f"bench {time.time()}"
        wanted = _wanted.document(ctx, ctx.ledger.document("floors"))
        tools = ctx.tools()
        start = time.monotonic()
        fleet = provision.apply_fleet(wanted, ctx.folder, tools, ctx.say)
        middle = time.monotonic()
        done = _configuring.configure_fleet(ctx, fleet)
        if done.changed:
            print(f"the playbook's second run changed {done.changed} things", file=sys.stderr)
        return middle - start, done.seconds


def _clear() -> None:
    """The bench's own world and fleet, by label; its users ended with the deploy."""
    from inferlift.teardown import lab_down

    with migration.session(place.place(PROFILE), f"bench --profile {PROFILE}") as ctx:
        left = [*migration.stages()["poc"].undo(ctx), *lab_down(ctx)]
    if left:
        print("left by the bench: " + ", ".join(left), file=sys.stderr)


@contextmanager
def memory() -> Iterator[list[int]]:
    """The most memory taken from the whole machine while the block ran, in bytes: hosts, engines and client."""
    before, peak, over = _available(), [0], threading.Event()

    def sample() -> None:
        while not over.wait(0.5):
            peak[0] = max(peak[0], before - _available())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel tells no MemAvailable")
