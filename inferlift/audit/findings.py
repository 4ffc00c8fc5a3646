"""Software first: what would be cheaper to change than the hardware. A finding is no reason to move."""

from __future__ import annotations

import polars as pl

from inferlift.artifacts import Figure
from inferlift.artifacts.evidence import Finding, GpuUse, HostLook
from inferlift.audit.concurrency import CROWDED, Serial
from inferlift.audit.figures import median_us

CACHEABLE = 0.2
OVERSIZED_BYTES = 1_000_000  # assumption: a photo at the 1568 px that vision models scale down to is smaller as JPEG
OVERSIZED = 0.05
SERIAL, TOGETHER = 0.7, 0.5  # exponent of latency over requests in flight
COLD_RATIO = 3.0
LEAST_COLD = 5


def findings(
    rows: pl.DataFrame,
    cold: pl.Series | None,
    serial: Serial | None,
    untold: str,
    source: str,
    gpu: GpuUse | None,
    host: HostLook | None,
) -> tuple[Finding, ...]:
    """`rows`: inference requests (start, duration, answered, received, body if logged); `cold`: starts after five quiet
    minutes; `serial`, `untold`: of concurrency.py."""
    return (
        _identical(rows, source),
        _oversized(rows, source),
        _one_at_a_time(serial, untold, source),
        _loaded_anew(rows, cold, source, gpu, host),
    )


def _identical(rows: pl.DataFrame, source: str) -> Finding:
    name, advice = "identical requests", "cache answers by the request's content before buying hardware for them"
    bodies = rows["body"].drop_nulls() if "body" in rows.columns else pl.Series("body", [], dtype=pl.UInt64)
    if len(bodies) < 20:
        return _nothing(
            name, "share", source, "bodies are not logged", "log $request_body to a file of its own for a day"
        )
    value = 1 - bodies.n_unique() / len(bodies)
    why = f"{value:.1%} of {len(bodies)} bodies had been sent before"
    return _told(name, value, "share", len(bodies), source, value > CACHEABLE, why, advice)


def _oversized(rows: pl.DataFrame, source: str) -> Finding:
    name, advice = (
        "oversized inputs",
        "scale images down and cut texts at the sender: what the model discards still costs",
    )
    sizes = rows["received"].drop_nulls()
    if len(sizes) < 20:
        return _nothing(
            name, "share", source, "sizes of requests are not logged", "add $request_length to the log_format"
        )
    value = int((sizes > OVERSIZED_BYTES).sum()) / len(sizes)
    limit = f"{OVERSIZED_BYTES / 1e6:g} MB (assumption: larger than what models use)"
    why = f"{value:.1%} of {len(sizes)} requests are over {limit}"
    return _told(name, value, "share", len(sizes), source, value > OVERSIZED, why, advice)


def _one_at_a_time(found: Serial | None, untold: str, source: str) -> Finding:
    name = "one request at a time"
    advice = "switch on continuous batching (vLLM), parallel slots (llama.cpp) or dynamic batching (Triton)"
    if found is None:
        why = untold or "too few requests at numbers in flight that differ by a factor of three"
        return _nothing(name, "exponent", source, why, "")
    if found.crowded < CROWDED:
        why = f"low load: only {found.crowded:.0%} of the requests met two others ({CROWDED:.0%} are needed)"
        return _nothing(name, "exponent", source, why, "")
    why = (
        f"from one request to the next latency grows as (requests in flight) ^ {found.exponent:.2f} "
        f"(95 %: {found.low:.2f} to {found.high:.2f}), up to {found.most} in flight (n={found.n})"
    )
    serial = found.exponent >= SERIAL and found.low > TOGETHER
    if not serial and not (found.exponent <= TOGETHER and found.high < SERIAL):
        return _nothing(name, "exponent", source, f"undecided: {why}", "")
    if serial:
        why += ": nothing is gained by sending together, so requests wait for each other"
    return _told(name, found.exponent, "exponent", found.n, source, serial, why, advice)


def _loaded_anew(
    rows: pl.DataFrame, quiet: pl.Series | None, source: str, gpu: GpuUse | None, host: HostLook | None
) -> Finding:
    name, advice = "model loaded anew", "keep the model in memory between requests"
    if host is not None and host.model_kept_in_memory is not None:
        kept = host.model_kept_in_memory
        why = f"{host.host}: {'; '.join(host.model_processes) if kept else 'no process holds a model'}"
        return _told(name, 0.0 if kept else 1.0, "share of looks", 1, f"look at {host.host}", not kept, why, advice)
    if gpu is not None and gpu.memory_used_max_mib and gpu.memory_used_min_mib is not None and gpu.samples >= 20:
        share = gpu.memory_used_min_mib / gpu.memory_used_max_mib
        why = f"GPU memory in use lay between {gpu.memory_used_min_mib:.0f} and {gpu.memory_used_max_mib:.0f} MiB"
        return _told(name, share, "least / most memory", gpu.samples, gpu.source, share < 0.3, why, advice)
    timed = rows["answered"] & rows["duration"].is_not_null()
    if quiet is None or int(timed.sum()) < 20:
        return _nothing(name, "cold / usual, medians", source, "too few requests with a duration", "")
    after = rows["start"].is_in(quiet.implode())
    cold, warm = rows["duration"].filter(timed & after), rows["duration"].filter(timed & ~after)
    if len(cold) < LEAST_COLD or len(warm) < 20:
        why = f"only {len(cold)} requests came after five quiet minutes"
        return _nothing(
            name, "cold / usual, medians", source, why, "look at the host (--host) or at GPU memory (--gpu)"
        )
    usual, first = median_us(warm), median_us(cold)
    if not usual or first is None:
        return _nothing(name, "cold / usual, medians", source, "durations are zero", "")
    counts = f"{len(cold)} against {len(warm)}"
    why = f"after five quiet minutes the first request takes {first / usual:.1f} times the usual ({counts})"
    return _told(
        name, first / usual, "cold / usual, medians", len(cold), source, first / usual >= COLD_RATIO, why, advice
    )


def _told(name: str, value: float, unit: str, n: int, source: str, found: bool, why: str, advice: str) -> Finding:
    figure = Figure(value=value, unit=unit, basis="measured", source=source, n=n)
    verdict = "found" if found else "not found"
    return Finding(name=name, verdict=verdict, figure=figure, why=why, advice=advice if found else "")


def _nothing(name: str, unit: str, source: str, why: str, advice: str) -> Finding:
    figure = Figure(value=None, unit=unit, basis="unknown", source=source, n=0)
    return Finding(name=name, verdict="no data", figure=figure, why=why, advice=advice)
