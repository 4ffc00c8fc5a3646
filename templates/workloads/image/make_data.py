"""Write the workload's data folder: `make_data.py FOLDER`. The same bytes on every machine and every time.

The patterns beside this script, and an archive of scans as such a service gathers them: some hundred small files.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

SCANS = 200
LARGEST = 24 * 1024  # bytes


def main(target: Path) -> None:
    source = Path(__file__).resolve().parent / "data"
    folder = target.with_name(f".{target.name}.new")  # renamed when whole: a killed run leaves no half folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    chance = random.Random(20240602)  # noqa: S311 - for variety, not for secrets
    for number in range(1, SCANS + 1):
        place = folder / "archive" / f"{number % 10:02}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"scan-{number:04}.bin").write_bytes(chance.randbytes(chance.randint(400, LARGEST)))
    folder.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
