"""A migration that stands in the lab: its commands as users type them, its hosts by SSH, where its users are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift import process, ssh
from inferlift.artifacts import Host, Service, World
from inferlift.errors import Refusal
from inferlift.ledger import reading
from inferlift.place import Place
from inferlift.profile import ROOT

LIMIT_S = 900.0


@dataclass(frozen=True)
class Ended:
    code: int
    text: str  # stdout and stderr


@dataclass(frozen=True)
class Standing:
    place: Place
    profile: str  # as it is typed: a name or a path
    say: Callable[[str], None]

    def invoke(self, line: str) -> Ended:
        """`./invoke LINE --profile ...`, in this migration's state folder."""
        done = subprocess.run(
            self.argv(line), cwd=ROOT, env=self.env(), capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        self._keep(line, done.stdout + done.stderr)
        return Ended(done.returncode, done.stdout + done.stderr)

    def start(self, line: str) -> subprocess.Popen[bytes]:
        """The same in the background, in a process group of its own."""
        return subprocess.Popen(
            self.argv(line), cwd=ROOT, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def argv(self, line: str) -> list[str]:
        return [sys.executable, "-m", "invoke", *line.split(), "--profile", self.profile]

    def env(self) -> dict[str, str]:
        return {**process.unmarked(), "INFERLIFT_STATE": str(self.place.state), "PYTHONPATH": str(ROOT)}

    def service(self) -> Service:
        with reading(self.place.folder) as ledger:
            body = ledger.document("service") if ledger else None
        if body is None:
            raise Refusal("no fleet stands here", next_command=f"./invoke deploy --profile {self.profile}")
        return Service.model_validate(body)

    def world(self) -> World:
        with reading(self.place.folder) as ledger:
            found = ledger.artifact("world", World) if ledger else None
        if found is None:
            raise Refusal("no old world stands here", next_command=f"./invoke lab up --profile {self.profile}")
        return found

    def hosts(self, role: str) -> tuple[Host, ...]:
        return self.service().fleet.by_role(role)

    def on(self, host: Host, command: str, *, check: bool = True) -> str:
        return ssh.run(host, command, timeout_s=60, check=check).stdout

    def statuses(self) -> dict[str, str]:
        from inferlift.migration import status_rows

        return {row["stage"]: row["status"] for row in status_rows(self.place)}

    def users(self) -> str:
        """old, new or both, by what the authority answers."""
        from inferlift.dns import answers

        world = self.world()
        seen = answers.authority_share(world.authority.address, world.contract.name, 60).hits
        sides = {"old" if address == world.origin.address else "new" for address in seen}
        return "both" if len(sides) > 1 else next(iter(sides), "nobody")

    def _keep(self, line: str, text: str) -> None:
        folder = self.place.state / "rehearsal-logs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "commands.log").open("a", encoding="utf-8") as file:
            file.write(f"$ invoke {line}\n{text}\n")


def own_place(profile: str) -> tuple[Place, Path]:
    """The rehearsal's own lab: a copy of the profile by another name, in a state folder of its own.

    Raises Refusal for a profile that is not of the lab."""
    from inferlift.place import place, state_folder

    base = lab_only(place(profile))
    folder = state_folder() / "rehearsal"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{base.profile.name}-rehearsal.yaml"
    write_profile(path, base.profile_path)
    before = os.environ.get("INFERLIFT_STATE")
    os.environ["INFERLIFT_STATE"] = str(folder)
    try:
        return place(str(path)), path
    finally:
        os.environ.pop("INFERLIFT_STATE")
        if before is not None:
            os.environ["INFERLIFT_STATE"] = before


def lab_only(where: Place) -> Place:
    """Raises Refusal for any other target: nothing is broken on purpose where somebody pays or is served."""
    if where.profile.origin is not None:
        raise Refusal(
            "faults are rehearsed on the lab's own old world only",
            why=f"the old side of {where.profile.name} is a service that exists, with users of its own",
            next_command="./invoke rehearse --fault all --profile demo-small",
        )
    if where.profile.target != "lab" or where.profile.server.kind != "llamacpp":
        raise Refusal(
            "faults are rehearsed in the lab only, with llama.cpp as model server",
            why=f"{where.profile.name} is for the target {where.profile.target}, server {where.profile.server.kind}",
            next_command="./invoke rehearse --fault all --profile demo-small",
        )
    return where


def write_profile(path: Path, base: Path, changes: dict[str, Any] | None = None) -> None:
    """Small and quick: what is rehearsed is how a fault ends, not what the hardware can do."""
    import yaml

    told: dict[str, Any] = {
        "name": path.stem,
        "extends": base.stem,
        "description": "the same, for the rehearsal of faults",
        "requests": {"in_flight_peak": 40},
        "targets": {"p95_total_ms": 20000, "p95_ttft_ms": 18000},  # of a busy machine
        "load": {"requests": 30},
        "switch": {"steps": [10, 100]},
        "watch": {"seconds": 30},  # enough requests on a busy machine, too
        **(changes or {}),
    }
    temporary = path.with_suffix(".part")
    temporary.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    temporary.replace(path)
