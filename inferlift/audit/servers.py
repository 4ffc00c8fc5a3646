"""/metrics text of vLLM and Triton -> ServerMetrics. "P95 over 500 ms" is decided by a bucket that ends at 500 ms, so
nothing is interpolated.

Sources: https://docs.vllm.ai/en/latest/design/metrics.html; Triton's docs/user_guide/metrics.md.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from inferlift.artifacts.evidence import ServerMetrics
from inferlift.errors import DeclarationError

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Samples = dict[str, list[tuple[dict[str, str], float]]]


def server_metrics(path: Path) -> ServerMetrics:
    """Raises DeclarationError for a file that cannot be read or holds neither server's metrics."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DeclarationError(f"metrics {path} cannot be read", why=str(error.strerror or error)) from None
    samples, refused = _samples(text)
    notes = (f"{refused} lines were not understood",) if refused else ()
    if any(name.startswith("vllm:") for name in samples):
        return _vllm(samples, notes)
    if any(name.startswith("nv_inference_") for name in samples):
        return _triton(samples, notes)
    raise DeclarationError(
        f"{path.name} holds no metrics of vLLM or Triton",
        why="expected vllm:... or nv_inference_... samples",
        next_command="curl http://HOST:8000/metrics (vLLM) or http://HOST:8002/metrics (Triton)",
    )


def _vllm(samples: Samples, notes: tuple[str, ...]) -> ServerMetrics:
    first, total = "vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds"
    name = first if f"{first}_bucket" in samples else total
    succeeded = _sum(samples, "vllm:request_success_total")
    hits, asked = _sum(samples, "vllm:prefix_cache_hits_total"), _sum(samples, "vllm:prefix_cache_queries_total")
    return ServerMetrics(
        server="vLLM",
        requests=_whole(_sum(samples, f"{name}_count")),
        failed=_whole(_sum(samples, "http_requests_total", status="5xx")),
        over_500_share=_over(samples, name, 0.5),
        clock="first_token" if name == first else "total",
        mean_ms=_mean(samples, name, 1000),
        queue_mean_ms=_mean(samples, "vllm:request_queue_time_seconds", 1000),
        batch_mean=None,
        prefix_hit_share=hits / asked if hits is not None and asked else None,
        waiting=_sum(samples, "vllm:num_requests_waiting"),
        notes=(*notes, *((f"{succeeded:.0f} requests finished",) if succeeded is not None else ())),
    )


def _triton(samples: Samples, notes: tuple[str, ...]) -> ServerMetrics:
    """Durations are cumulative counters: only means. The histogram of first responses is off by default."""
    ok, failed = _sum(samples, "nv_inference_request_success"), _sum(samples, "nv_inference_request_failure")
    busy, queued = _sum(samples, "nv_inference_request_duration_us"), _sum(samples, "nv_inference_queue_duration_us")
    count, runs = _sum(samples, "nv_inference_count"), _sum(samples, "nv_inference_exec_count")
    histogram = "nv_inference_first_response_histogram_ms"
    over = _over(samples, histogram, 500)
    return ServerMetrics(
        server="Triton",
        requests=_whole(None if ok is None else ok + (failed or 0)),
        failed=_whole(failed),
        over_500_share=over,
        clock="first_token" if over is not None else "total",
        mean_ms=busy / 1000 / ok if busy is not None and ok else None,
        queue_mean_ms=queued / 1000 / ok if queued is not None and ok else None,
        batch_mean=count / runs if count is not None and runs else None,
        prefix_hit_share=None,
        waiting=_sum(samples, "nv_inference_pending_request_count"),
        notes=notes if over is not None else (*notes, "means only: the histogram of first responses is switched off"),
    )


def _over(samples: Samples, name: str, bound: float) -> float | None:
    """Share above a bucket's bound; None where there is no such bucket, or a label's buckets do not add up."""
    at = inf = 0.0
    found = False
    for labels, value in samples.get(f"{name}_bucket", ()):
        edge = _number(labels.get("le", ""))
        if edge == bound:
            at, found = at + value, True
        elif edge == math.inf:
            inf += value
    return 1 - at / inf if found and inf and at <= inf else None


def _mean(samples: Samples, name: str, factor: float) -> float | None:
    total, count = _sum(samples, f"{name}_sum"), _sum(samples, f"{name}_count")
    return total / count * factor if total is not None and count else None


def _sum(samples: Samples, name: str, **wanted: str) -> float | None:
    values = [v for labels, v in samples.get(name, ()) if all(labels.get(k) == w for k, w in wanted.items())]
    return math.fsum(values) if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _samples(text: str) -> tuple[Samples, int]:
    found: Samples = {}
    refused = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        value = _number(match[3]) if match else None
        if match is None or value is None or math.isnan(value):
            refused += 1
            continue
        found.setdefault(match[1], []).append((dict(_LABEL.findall(match[2] or "")), value))
    return found, refused


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
