"""Write the workload's data folder: `make_data.py FOLDER`. The same bytes on every machine and every time.

Some hundred small documents and a few MB of index, so that moving them is more than one copy of one file. The
glossary and the prompts beside this script are copied into it.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

DOCUMENTS = 300
INDEX_BYTES = 3 * 1024 * 1024
SUBJECTS = (
    "The gateway",
    "A replica",
    "The queue",
    "The index",
    "A certificate",
    "The model",
    "The backup",
    "A client",
)
VERBS = ("restarts", "is renewed", "is measured", "fills up", "answers late", "is copied", "is drained", "is replaced")
WHEN = ("every night", "after an update", "under load", "once a month", "when a host fails", "before a release")


def main(target: Path) -> None:
    source = Path(__file__).resolve().parent / "data"
    folder = target.with_name(f".{target.name}.new")  # renamed when whole: a killed run leaves no half folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    chance = random.Random(20240601)  # noqa: S311 - for variety, not for secrets
    (folder / "documents").mkdir(exist_ok=True)
    for number in range(1, DOCUMENTS + 1):
        lines = [f"# Note {number}", ""]
        for _ in range(chance.randint(4, 24)):
            lines.append(f"{chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(WHEN)}.")
        (folder / "documents" / f"kb-{number:04}.md").write_text("\n".join(lines) + "\n")
    (folder / "index").mkdir(exist_ok=True)
    for part in range(3):
        (folder / "index" / f"part-{part}.bin").write_bytes(chance.randbytes(INDEX_BYTES // 3))
    folder.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
