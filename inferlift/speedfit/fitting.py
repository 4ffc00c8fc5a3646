"""From rows to coefficients: the form's, the corrections', and the widths of the 90 % ranges."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferlift.sizing import roofline, speed
from inferlift.sizing.correction import features
from inferlift.sizing.speed import architecture
from inferlift.speedfit.regression import Floats, boost, least_squares
from inferlift.speedfit.sample import Row

STARTS: Mapping[str, tuple[float, float, float]] = {
    # share of the data sheet's bandwidth and FLOP/s: 1 / value
    "weights": (1.22, 1.17, 1.4),
    "weights8": (0.1, 1e-3, 0.5),
    "weights4": (0.2, 1e-3, 2.0),
    "weights_only4": (0.05, 1e-3, 0.15),
    "kv": (1.3, 1.05, 3.0),
    "kv_latent": (0.5, 1e-3, 5.0),
    "kv_hybrid": (0.5, 1e-3, 9.0),
    "flops": (1.5, 1.35, 2.2),
    "flops8": (0.2, 1e-3, 1.5),
    "flops4": (0.6, 1e-3, 3.0),
    "look": (2.0, 1.2, 6.0),
    "link": (1.5, 1.0, 6.0),
    "a2a": (1.5, 0.3, 6.0),
    # seconds a layer
    "layer": (15e-6, 3e-6, 60e-6),
    "layer_shared": (8e-6, 1e-6, 40e-6),
    "layer_log": (3e-6, 1e-7, 20e-6),
    "layer_moe": (20e-6, 2e-6, 80e-6),
    "layer_latent": (5e-6, 1e-7, 60e-6),
    "layer_fast": (0.8, 0.4, 1.2),
    "layer_vllm": (1.2, 0.5, 2.5),
    "layer_sglang": (1.2, 0.5, 2.5),
    # seconds a step
    "host": (0.5e-3, 1e-4, 3e-3),
    "host_each": (20e-6, 1e-6, 200e-6),
    "host_vllm": (1.0, 0.3, 3.0),
    "host_sglang": (1.0, 0.3, 3.0),
    "prompt_vllm": (1.0, 0.5, 2.0),
    "prompt_sglang": (0.9, 0.4, 2.0),
    "part": (0.2, 0.02, 1.0),
    "drafted": (0.7, 0.3, 1.0),
}
FIRST: Mapping[str, tuple[float, float, float]] = {
    "first": (0.02, 2e-3, 0.2),
    "first_layer": (3e-4, 1e-5, 3e-3),
    "alone": (1.2, 0.7, 3.0),
    "queue": (1.0, 0.01, 10.0),
    "first_step": (1.5, 0.3, 5.0),
    "together": (0.05, 1e-3, 0.6),
    "together_apart": (0.05, 1e-3, 0.6),
    "lag": (0.3, 0.01, 1.5),
    "handover": (0.1, 1e-3, 1.0),
    "first_vllm": (1.0, 0.5, 2.0),
    "first_sglang": (1.0, 0.4, 2.5),
}
# room: by Little's law more requests in flight than there is room for change no throughput
FIXED = {"layer_no_link": 20e-6, "plain_engine": 1.0, "room": 1.0}
FIGURES = ("ttft", "tpot", "rate")
INNER = ("measured", "busy", "crowded", "pools", "pools, not told")
BANDS = (*INNER, "new gpu", "new model", "new kind")
FEWEST = 30  # rows of a band from which its own misses say its range
FEWEST_SEEN = 5  # rows of an architecture from which corrections count as learnt for it
_POINTS = {band: dict.fromkeys(FIGURES, (1.0, 1.0)) for band in BANDS}
TPOT_TREES: Mapping[str, Any] = {
    "trees": 300,
    "rate": 0.12,
    "leaves": 24,
    "least": 10,
    "ridge": 4.0,
    "tilt": 0.35,
    "clip": 0.35,
}
TTFT_TREES: Mapping[str, Any] = {
    "trees": 300,
    "rate": 0.12,
    "leaves": 32,
    "least": 4,
    "ridge": 3.0,
    "tilt": 0.4,
    "clip": 0.4,
}


@dataclass(frozen=True)
class Table:
    """Rows as arrays."""

    terms: Mapping[str, Floats]
    ttft: Floats
    tpot: Floats
    weights: Floats


def table(rows: Sequence[Row]) -> Table:
    told = [roofline.terms(row.run) for row in rows]
    return Table(
        {key: np.array([t[key] for t in told]) for key in told[0]},
        np.array([row.ttft_s for row in rows]),
        np.array([row.tpot_s for row in rows]),
        np.ones(len(rows)),
    )


def fit(rows: Sequence[Row], *, first_token: bool = True) -> dict[str, Any]:
    """What speed.of reads: {"form", "tpot": trees, "ttft": trees, "seen", "span", "newest", "ranges"}.

    `ranges` are points here; see calibrated. `first_token` False: no trees for the time to the first token.
    """
    t = table(rows)
    known = _form(t)
    tpot = roofline.tpot_s(t.terms, known)
    prompts = roofline.prompts_s(t.terms, known)
    ttft = roofline.ttft_s(t.terms, known, tpot)
    seen: dict[str, set[str]] = defaultdict(set)
    rows_of = Counter(name for row in rows for name in _tells_of(row))
    newest: dict[str, float] = defaultdict(lambda: -1.0)
    for row in rows:
        for name in _tells_of(row):
            if rows_of[name] >= FEWEST_SEEN:
                seen[name].add(row.run.gpu.name)
                newest[name] = max(newest[name], row.run.month)
    runs = [row.run for row in rows]
    span = {
        "requests in flight": _ends(run.concurrency for run in runs),
        "input tokens": _ends(run.input_tokens for run in runs),
        "output tokens": _ends(run.output_tokens for run in runs),
    }
    return {
        "form": known,
        "tpot": boost(_matrix(t, tpot, tpot, prompts), np.log(t.tpot / tpot), t.weights, **TPOT_TREES),
        "ttft": boost(_matrix(t, ttft, tpot, prompts), np.log(t.ttft / ttft), t.weights, **TTFT_TREES)
        if first_token
        else [],
        "seen": {key: sorted(gpus) for key, gpus in sorted(seen.items())},
        "span": span,
        "newest": dict(sorted(newest.items())),
        "ranges": _POINTS,
    }


def form_only(rows: Sequence[Row]) -> dict[str, Any]:
    """As `fit`, without corrections: what a model that was not measured gets."""
    span = dict.fromkeys(("requests in flight", "input tokens", "output tokens"), (0.0, math.inf))
    made = {"form": _form(table(rows)), "tpot": [], "ttft": [], "seen": {}, "span": span, "newest": {}}
    return {**made, "ranges": _POINTS}


def calibrated(rows: Sequence[Row], *, folds: tuple[Sequence[Row], Sequence[Row]]) -> dict[str, Any]:
    """`fit` with 90 % ranges: what a fit on the first of `folds` misses of the second, band by band.

    A band with too few rows has the form's own misses, which no correction narrows.
    """
    inner = fit(folds[0])
    plain = missed(folds[1], {**inner, "seen": {}})
    told: dict[str, list[Miss]] = defaultdict(list)
    for miss in missed(folds[1], inner):
        told[miss.band].append(miss)
    ranges = {b: widths(told[b] if b in INNER and len(told[b]) >= FEWEST else plain) for b in BANDS}
    return {**fit(rows), "ranges": ranges}


@dataclass(frozen=True)
class Miss:
    """How a row came out: log(measured / predicted) of each figure, and its shares of error."""

    row: Row
    band: str
    logs: tuple[float, float, float]
    errors: tuple[float, float, float]  # |predicted / measured - 1|
    inside: tuple[bool, bool, bool]
    half_widths: tuple[float, float, float]  # of the range, as a share of the prediction


def missed(rows: Sequence[Row], made: Mapping[str, Any]) -> list[Miss]:
    found = []
    for row in rows:
        said = speed.of(row.run, made)
        measured = (row.ttft_s * 1e3, row.tpot_s * 1e3, row.tokens_per_s)
        pairs = list(zip((said.ttft_ms, said.tpot_ms, said.tokens_per_s), measured, strict=True))
        found.append(
            Miss(
                row,
                said.band,
                _three(math.log(m / r.value) for r, m in pairs),
                _three(abs(r.value / m - 1) for r, m in pairs),
                _three(r.low <= m <= r.high for r, m in pairs),
                _three((r.high - r.low) / 2 / r.value for r, m in pairs),
            )
        )
    return found


def widths(misses: Sequence[Miss], weights: Sequence[float] | None = None) -> dict[str, tuple[float, float]]:
    """Factors on a prediction between which 90 % of the measurements lie, by figure."""
    given = np.array(weights if weights is not None else [1.0] * len(misses))
    bands = {}
    for i, figure in enumerate(FIGURES):
        logs = np.array([miss.logs[i] for miss in misses])
        order = np.argsort(logs)
        steps = np.cumsum(given[order]) / given.sum()
        low, high = (logs[order][min(int(np.searchsorted(steps, s)), len(logs) - 1)] for s in (0.05, 0.95))
        bands[figure] = (round(min(math.exp(low), 0.98), 3), round(max(math.exp(high), 1.02), 3))
    return bands


def _form(t: Table) -> dict[str, float]:
    made = least_squares(
        lambda c: np.log(roofline.tpot_s(t.terms, {**FIXED, **c}) / t.tpot), STARTS, scale=0.2, weights=t.weights
    )
    known = {**FIXED, **made}
    tpot = roofline.tpot_s(t.terms, known)
    first = least_squares(
        lambda c: np.log(roofline.ttft_s(t.terms, {**known, **c}, tpot) / t.ttft), FIRST, scale=0.3, weights=t.weights
    )
    return {**known, **first}


def _matrix(t: Table, time_s: Floats, tpot: Floats, prompts: Floats) -> Floats:
    keys = list(t.terms)
    columns = [t.terms[k] for k in keys]
    return np.array(
        [
            features(dict(zip(keys, values, strict=True)), float(a), float(b), float(c))
            for *values, a, b, c in zip(*columns, time_s, tpot, prompts, strict=True)
        ]
    )


def _three(values: Iterable[Any]) -> Any:
    return tuple(values)


def _tells_of(row: Row) -> tuple[str, ...]:
    """Pools are like one pool in much; what was measured on pools alone says little of one pool."""
    name = architecture(row.run)
    return (name,) if row.run.pools else (name, f"{name} apart")


def _ends(values: Iterable[float]) -> tuple[float, float]:
    listed = list(values)
    return min(listed), max(listed)
