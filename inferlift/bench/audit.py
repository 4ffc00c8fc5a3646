"""bench audit: lines a second, memory and linearity on made nginx logs, GoAccess on the same file in the same run."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: ratio_to_goaccess, peak_rss_mb (10 M lines), linearity (seconds a line, 10 M over 2 M)."""
    from inferlift.audit import bench

    figures = bench.bench(say=lambda line: print(line, file=sys.stderr))
    ok = bench.passed(figures)
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures}))
    else:
        for name, value in figures.items():
            bound = f"  (bound {bench.LIMITS[name]:g})" if name in bench.LIMITS else ""
            print(f"{name:<20} {value:.3g}{bound}")
    return 0 if ok else 1
