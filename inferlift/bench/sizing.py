"""`invoke bench sizing`: how right the speed predictions are on measurements that the fit has not seen."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inferlift.errors import CheckFailed

SEEDS = (1, 2, 3)
LIMITS = {
    "tpot_error": 0.12,
    "throughput_error": 0.15,
    "ttft_error": 0.25,
    "tpot_error_new_gpu": 0.20,
    "width_90": 0.30,
    "excluded_share": 0.02,
    "measured_error": 0.25,
    "size_seconds": 1.0,
    # of processor, for one call with the tables read
    "plan_cpu_seconds": 1.0,
    "region_cpu_seconds": 0.2,
    "offers_cpu_seconds": 0.2,
    "tco_cpu_seconds": 0.1,
    "prediction_cpu_seconds": 0.8e-3,
}
COVERAGE = (0.85, 0.95)


def run(root: Path, *, as_json: bool = False) -> int:
    """Fits anew on the train parts; prints the figures and what they must be. 0: all are met."""
    if importlib.util.find_spec("numpy") is None:
        raise CheckFailed(
            "bench sizing needs numpy, which only the fit uses",
            next_command=f"{sys.executable} -m pip install numpy, then run the same command again",
        )
    start = time.monotonic()
    figures, more = _figures(lambda line: print(line, file=sys.stderr))
    profile, seconds = _size_seconds(root)
    figures["size_seconds"] = round(seconds, 3)
    figures |= _cpu_seconds(root)
    more["size_profile"] = profile
    more["bench_seconds"] = round(time.monotonic() - start, 1)
    missed = [name for name, most in LIMITS.items() if not figures[name] <= most]
    if not COVERAGE[0] <= figures["coverage_90"] <= COVERAGE[1]:
        missed.append("coverage_90")
    ok = not missed
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures, "missed": missed, **more}))
    else:
        for name, value in figures.items():
            wanted = "0.85 to 0.95" if name == "coverage_90" else f"at most {LIMITS[name]:g}"
            print(f"{name:<22} {value:<8g} {wanted:<14} {'MISSED' if name in missed else 'ok'}")
        for name, value in more.items():
            print(f"{name:<22} {value if isinstance(value, str | float) else json.dumps(value)}")
    return 0 if ok else 1


def _figures(say: Any) -> tuple[dict[str, float], dict[str, Any]]:
    from inferlift.sizing import speed
    from inferlift.speedfit import elsewhere, judging, sample, source

    rows = sample.read(source.table(say))
    counted, excluded = [r for r in rows if not r.excluded], [r for r in rows if r.excluded]
    by_rows = judging.in_parallel(judging.random_split, [(counted, excluded, seed, False) for seed in SEEDS])
    apart, _ = judging.in_parallel(judging.random_split, [(counted, [], SEEDS[0], True)])[0]
    systems = list(sample.SYSTEMS)
    left_out = judging.in_parallel(judging.without_gpu, [(counted, system, False) for system in systems])
    new_gpu = {s: judging.judged(found).errors["tpot"] for s, found in zip(systems, left_out, strict=True)}
    said = elsewhere.errors(speed.fitted())
    counts = [row.id for row in elsewhere.published() if row.counts]
    first, with_excluded = by_rows[0]
    figures = {
        "tpot_error": first.errors["tpot"],
        "throughput_error": first.errors["rate"],
        "ttft_error": first.errors["ttft"],
        "tpot_error_new_gpu": sum(new_gpu.values()) / len(new_gpu),
        "coverage_90": first.coverage["tpot"],
        "width_90": first.widths["tpot"],
        "excluded_share": len(excluded) / len(rows),
        "measured_error": sum(said[i] for i in counts) / len(counts),
    }
    more = {
        "seeds": [_rounded(found.errors) for found, _ in by_rows],
        "with_excluded": _rounded(with_excluded.errors),
        "one_pool": _rounded(first.one_pool),
        "coverage": _rounded(first.coverage),
        "half_widths": _rounded(first.widths),
        "copies_together": {
            "errors": _rounded(apart.errors),
            "one_pool": _rounded(apart.one_pool),
            "coverage": _rounded(apart.coverage),
            "half_widths": _rounded(apart.widths),
        },
        "new_gpu": _rounded(new_gpu),
        "new_gpu_coverage": _rounded(_covered(left_out, systems)),
        "excluded": dict(judging.reasons(rows)),
        "test_rows": first.rows,
        "measured": _rounded(said),
        "measured_not_counted": {row.id: row.why_not for row in elsewhere.published() if not row.counts},
    }
    return {name: round(value, 4) for name, value in figures.items()}, more


def _covered(left_out: list[Any], systems: list[str]) -> dict[str, float]:
    """Share of each GPU type's rows (one pool, plain decoding) within the range that the other types' misses give."""
    from inferlift.speedfit import judging

    found = {}
    for i, system in enumerate(systems):
        planned = judging.as_planned(left_out[i])
        if len(planned) < judging.FEWEST:
            continue
        low, high = judging.new_gpu([part for j, part in enumerate(left_out) if j != i])["tpot"]
        ratios = [math.exp(miss.logs[1]) for miss in planned]
        found[system] = sum(low <= ratio <= high for ratio in ratios) / len(ratios)
    return found


def _size_seconds(root: Path) -> tuple[str, float]:
    """A whole `invoke size` of the first of these profiles there is; the median of three runs."""
    profile = next(name for name in ("llm-13b", "demo") if (root / "profiles" / f"{name}.yaml").exists())
    taken = []
    for _ in range(3):
        start = time.monotonic()
        subprocess.run(
            [str(root / "invoke"), "size", "--profile", profile, "--json"],
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,  # a verdict other than go is no failure of the planner
        )
        taken.append(time.monotonic() - start)
    return profile, sorted(taken)[1]


def _cpu_seconds(root: Path) -> dict[str, float]:
    """The least of five: whole plan over all regions, one region's offers read and compared, TCO, one prediction."""
    from inferlift.declaration import load
    from inferlift.prices import offers
    from inferlift.sizing import size, speed
    from inferlift.sizing.hardware import Layout, gpus
    from inferlift.stages._plan import offers_of, planned, tco_of

    profile = load("llm-70b", root).profile
    region, card = offers("aws", "us-east-1"), next(gpu for gpu in gpus() if gpu.name == "H200 SXM")
    plan = planned(profile, None)
    offer = next(o for o in offers_of(profile) if (o.region, o.name) == (plan.region, plan.choice))
    costs = plan.costs
    assert costs is not None  # noqa: S101 - every plan of a cloud has them
    calls: dict[str, Callable[[], object]] = {
        "plan": lambda: planned(profile, None),
        "region": lambda: size(profile, None, region),
        "offers": lambda: offers("aws", "eu-west-1"),
        "tco": lambda: tco_of(profile, plan, offer, costs),
        "prediction": lambda: speed.predict(
            profile.model, card, Layout(4), engine="vllm", input_tokens=1024, output_tokens=1024, concurrency=20
        ),
    }
    return {f"{name}_cpu_seconds": round(min(_took(call) for _ in range(5)), 5) for name, call in calls.items()}


def _took(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
