"""`invoke bench watch`: what the watch's queries cost Prometheus, on 48 hours of a fleet's history.

The server is Debian's, unpacked, on loopback. Its history is made from synthetic samples (promtool's own importer):
that costs no live scraping, so that the CPU measured is the queries' alone.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from inferlift.dns import loopback
from inferlift.errors import Retryable

PACKAGES = ("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
HOSTS, HOURS, EVERY_S = 2, 48, 15
ROUNDS = 5
BOUND = 0.01  # of one core
INTERVAL_S = 300.0  # a watch judges once in its time: taken as every 5 min
GUARD_S, GUARD_ROUNDS = 15.0, 40  # the guard looks so often


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: query_core_share (of one core, all queries of a watch every five minutes), guard_core_share (the
    guard's, every 15 s), query_cpu_seconds (of one judgement), queries, series, judge_seconds."""
    figures = measure()
    ok = figures["query_core_share"] + figures["guard_core_share"] < BOUND
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures}))
    else:
        for name, value in figures.items():
            print(f"{name:<22} {value}")
    return 0 if ok else 1


def measure() -> dict[str, float]:
    from inferlift.toolchain import store

    found = loopback.programs(store.cache() / "monitor-programs", PACKAGES)
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-watch-") as folder:
        at, end = Path(folder), datetime.now(UTC).replace(microsecond=0)
        series = _history(at / "history.om", end)
        make = [found.path("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
        subprocess.run([*make, str(at / "history.om"), str(at / "data")], check=True, capture_output=True)
        with _server(found, at) as (url, pid):
            client = _Client(url)
            _judged(client, end)  # the server's own caches, as in a watch that asks again
            client.asked, cpu, began = 0, _cpu_s(pid), time.monotonic()
            for _ in range(ROUNDS):
                _judged(client, end)
            used, took = _cpu_s(pid) - cpu, time.monotonic() - began
            asked, cpu = client.asked, _cpu_s(pid)
            for _ in range(GUARD_ROUNDS):
                _guarded(client, end)
            guard = (_cpu_s(pid) - cpu) / GUARD_ROUNDS
    each = used / ROUNDS
    return {
        "query_core_share": round(each / INTERVAL_S, 6),
        "query_cpu_seconds": round(each, 3),
        "judge_seconds": round(took / ROUNDS, 3),
        "guard_core_share": round(guard / GUARD_S, 6),
        "queries": asked // ROUNDS,
        "series": series,
        "history_hours": HOURS,
    }


def _judged(client: Any, end: datetime) -> None:
    from inferlift.declaration import load
    from inferlift.observe import judge
    from inferlift.profile import ROOT

    profile = load("demo", ROOT).profile
    watched = judge(client, profile, end - timedelta(hours=HOURS), end, gpu=True)
    if watched.figures["requests"].value is None or watched.figures["memory_bandwidth_share"].value is None:
        raise Retryable("the history of this measurement is not there", why=watched.why)


def _guarded(client: Any, end: datetime) -> None:
    """One look of the guard: the same queries, by a client that costs the server the same."""
    from inferlift.declaration import load
    from inferlift.dns.fleet_gates import fleet_gates
    from inferlift.profile import ROOT

    for gate in fleet_gates(load("demo", ROOT).profile, 60, minimum=1):
        for query in filter(None, (gate.query, gate.count)):
            client.scalar(query, end)


class _Client:
    """The watch's own client, without TLS and password: that is the server's work, not the queries'."""

    def __init__(self, url: str) -> None:
        from inferlift.observe import Prometheus

        os.environ["INFERLIFT_BENCH_WATCH"] = "none"
        self._client, self.asked = Prometheus(url, "", "bench", "env:INFERLIFT_BENCH_WATCH"), 0

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._client, name)

        def counted(*arguments: Any) -> Any:
            self.asked += 1
            return asked(*arguments)

        return counted


def _history(path: Path, end: datetime) -> int:
    """48 hours of what the watch reads, a sample each scrape; returns how many series."""
    names: dict[str, tuple[str, float, float]] = {}  # series -> (kind, start, rate a second)
    for code in ("2xx", "4xx", "5xx"):
        names[f'haproxy_frontend_http_responses_total{{proxy="users",code="{code}"}}'] = ("counter", 0, 5.0)
    names['haproxy_backend_current_queue{proxy="models"}'] = ("gauge", 3, 0)
    names['haproxy_frontend_http_requests_total{proxy="users"}'] = ("counter", 0, 5.0)
    for n in range(HOSTS):
        who = f'instance="model-{n}"'
        names[f'haproxy_server_status{{proxy="models",server="model-{n}",state="UP"}}'] = ("gauge", 1, 0)
        for le in ("0.1", "0.5", "1", "2", "5", "10", "30", "60", "+Inf"):
            names[f'app_request_seconds_bucket{{{who},le="{le}"}}'] = ("counter", 0, 1.0)
            names[f'app_ttft_seconds_bucket{{{who},le="{le}"}}'] = ("counter", 0, 1.0)
        names[f"app_request_seconds_count{{{who}}}"] = names[f"app_ttft_seconds_count{{{who}}}"] = ("counter", 0, 1.0)
        names[f"vllm:kv_cache_usage_perc{{{who}}}"] = ("gauge", 0.5, 0)
        for cpu in range(16):
            for mode in ("idle", "user", "system", "iowait"):
                names[f'node_cpu_seconds_total{{{who},cpu="{cpu}",mode="{mode}"}}'] = ("counter", 0, 0.25)
        names[f"node_memory_MemAvailable_bytes{{{who}}}"] = ("gauge", 5e10, 0)
        names[f"node_memory_MemTotal_bytes{{{who}}}"] = ("gauge", 1e11, 0)
        names[f'node_filesystem_avail_bytes{{{who},mountpoint="/"}}'] = ("gauge", 5e11, 0)
        names[f'node_filesystem_size_bytes{{{who},mountpoint="/"}}'] = ("gauge", 1e12, 0)
        for gpu in range(8):
            for field in ("GR_ENGINE_ACTIVE", "DRAM_ACTIVE"):
                names[f'DCGM_FI_PROF_{field}{{{who},gpu="{gpu}"}}'] = ("gauge", 0.6, 0)
        for recorded in ("gpu:memory_bandwidth_share", "kv_cache:used_share", "engine:waiting"):
            names[f"inferlift:{recorded}{{{who}}}"] = ("gauge", 0.5, 0)
        for job in ("node", "app", "gpu"):
            names[f'up{{{who},job="{job}"}}'] = ("gauge", 1, 0)
    names['up{instance="gateway-1",job="gateway"}'] = ("gauge", 1, 0)
    names["inferlift:requests:rate"] = ("gauge", 5, 0)
    first = end.timestamp() - HOURS * 3600
    with path.open("w", encoding="utf-8") as file:
        for name, (_, start, rate) in names.items():
            for step in range(HOURS * 3600 // EVERY_S + 1):
                wave = 1 + 0.2 * math.sin(step / 200) if not rate else 1
                file.write(f"{name} {(start * wave) + rate * step * EVERY_S:.6g} {first + step * EVERY_S:.0f}\n")
        file.write("# EOF\n")
    return len(names)


@contextmanager
def _server(found: loopback.Programs, at: Path) -> Iterator[tuple[str, int]]:
    port = loopback.free_port()
    (at / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n", encoding="utf-8")
    argv = [
        found.path("prometheus"), f"--config.file={at}/prometheus.yml", f"--storage.tsdb.path={at}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=30d", "--log.level=error",
    ]  # fmt: skip
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        for _ in range(300):
            try:
                opener.open(f"http://127.0.0.1:{port}/-/ready", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        else:
            raise Retryable("Prometheus did not start for this measurement")
        yield f"http://127.0.0.1:{port}", child.pid
    finally:
        child.terminate()
        child.wait(20)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
