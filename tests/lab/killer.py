"""Runs a deploy and kills it, without warning, at the first intent boundary that was not hit yet.

Started again and again it goes through all boundaries of one migration: `python killer.py PROFILE HITS_FILE`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from inferlift import migration, place
from inferlift.errors import InferliftError
from inferlift.plan import approver
from inferlift.stages.base import Options


def main(profile: str, hits: Path) -> int:
    def kill_at_a_new_boundary(name: str) -> None:
        known = hits.read_text().splitlines() if hits.exists() else []
        if name in known:
            return
        with hits.open("a") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with migration.session(
            place.place(profile),
            f"deploy --profile {profile} --load-origin",
            options=Options(load_origin=True),
            on_boundary=kill_at_a_new_boundary,
        ) as ctx:
            migration.deploy(ctx, approve=approver(ask=False, given=None))
    except InferliftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
