"""Fit on all rows that count and write inferlift/sizing/speed_fit.json. The same input gives the same file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from inferlift import sizing
from inferlift.errors import InferliftError
from inferlift.speedfit import judging, sample, source

SEED = 1
FILE = Path(sizing.__file__).with_name("speed_fit.json")


def main() -> int:
    rows = sample.read(source.table(lambda line: print(line, file=sys.stderr)))
    counted = [row for row in rows if not row.excluded]
    made = judging.shipped(counted, seed=SEED)
    head = {
        "source": "PyPI aiconfigurator-core 0.12.0, systems/silicon_sample.csv (hash in inferlift/speedfit/sample.txt)",
        "made_by": "python -m inferlift.speedfit",
        "rows": len(counted),
        "excluded": judging.reasons(rows),
    }
    parts = {**head, **made}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in parts.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{FILE.name}: {len(counted)} rows, ranges {json.dumps(made['ranges'])}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferliftError as error:
        print(f"inferlift: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
