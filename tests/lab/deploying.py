"""One migration of a test's or a bench's own, driven by `./invoke` as a user would."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from inferlift import migration, place, process, provision, toolchain
from inferlift.artifacts import Artifact, World
from inferlift.ledger import reading
from inferlift.profile import ROOT

A = TypeVar("A", bound=Artifact)


class Lab:
    """One migration in a state folder whose path, and so whose labels, are the test's alone."""

    def __init__(self, name: str, profile: str) -> None:
        clone = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
        self.profile = profile
        self.started = 0.0  # when `start` was called last
        self.state = Path(tempfile.gettempdir()) / f"inferlift-test-{clone}-{name}"
        self.env = {**os.environ, "INFERLIFT_STATE": str(self.state), "PYTHONPATH": str(ROOT)}

    @property
    def log_path(self) -> Path:
        return self.state.parent / f"{self.state.name}.log"

    @property
    def place(self) -> place.Place:
        before = os.environ.get("INFERLIFT_STATE")
        os.environ["INFERLIFT_STATE"] = str(self.state)
        try:
            return place.place(self.profile)
        finally:
            os.environ.pop("INFERLIFT_STATE")
            if before is not None:
                os.environ["INFERLIFT_STATE"] = before

    @cached_property
    def folder(self) -> Path:
        """The migration's, looked up once: a test that looks on does so fifty times a second."""
        return self.place.folder

    def invoke(self, *arguments: str, timeout_s: float = 1800) -> subprocess.CompletedProcess[str]:
        """`./invoke ARGUMENTS --profile ...` as a user types it."""
        argv = [str(ROOT / "invoke"), *arguments, "--profile", self.profile]
        done = subprocess.run(
            argv, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        print(f"$ {' '.join(argv[1:])} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def destroyed(self, *more: str) -> subprocess.CompletedProcess[str]:
        """`destroy`, asked for again while the gateway saw users a moment ago: those with a kept connection may just
        have been there, and the profile's quiet time has to pass."""
        for _ in range(20):
            done = self.invoke("destroy", *more)
            if not (done.returncode == 2 and "saw" in done.stderr):
                break
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        self.started = time.time()
        log = self.log_path.open("ab")
        return subprocess.Popen(argv, cwd=ROOT, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def artifact(self, stage: str, model: type[A]) -> A:
        with reading(self.place.folder) as ledger:
            assert ledger is not None
            found = ledger.artifact(stage, model)
        assert found is not None, f"{stage} has no artifact"
        return found

    def intents(self) -> int:
        with reading(self.place.folder) as ledger:
            return len(ledger.intents()) if ledger else 0

    def statuses(self) -> dict[str, str]:
        return {r["stage"]: r["status"] for r in migration.status_rows(self.place)}

    def hosts(self, what: str = "fleet") -> list[str]:
        """Names of this lab's containers by label, running or not."""
        done = process.run(
            [
                "podman",
                "ps",
                "-a",
                "--filter",
                f"label=inferlift.owner={self.place.owner}/{what}",
                "--format",
                "{{.Names}}",
            ],
            timeout_s=30,
        )
        return sorted(done.stdout.split())

    def clear(self) -> None:
        """End what an earlier run left: processes by mark, hosts and networks by label."""
        where = self.place
        process.end(process.remnants(where.owner))
        where.folder.mkdir(parents=True, exist_ok=True)
        for what, remove in (("fleet", provision.destroy_fleet), ("world", provision.destroy_world)):
            assert remove(f"{where.owner}/{what}", where.folder, tools(), lambda line: None) == []
        shutil.rmtree(self.state, ignore_errors=True)
        self.log_path.unlink(missing_ok=True)


@contextmanager
def migration_of(name: str, profile: str, env: Mapping[str, str]) -> Iterator[Lab]:
    """A migration with this in its environment, and in this process's: what is asked here is asked there too."""
    made = Lab(name, profile)
    made.env |= env
    with patch.dict(os.environ, env):
        made.clear()
        try:
            yield made
        finally:
            made.clear()


def approved(lab: Lab, *more: str) -> None:
    """Deploy, giving each plan's hash when it is asked for."""
    given: list[str] = []
    for _ in range(4):
        done = lab.invoke("deploy", *given, *more)
        if done.returncode == 0:
            return
        asked = re.search(r"(?:--plan |as things stand \()([0-9a-f]{12})", done.stderr + done.stdout)
        if asked is None and "verdict is" in done.stderr:
            assert lab.invoke("approve", "--reason", "a test on stand-ins").returncode == 0
            continue
        assert asked is not None, done.stderr[-3000:]
        given = ["--plan", asked[1]]
    raise AssertionError("it asks for an approval again and again")


@contextmanager
def users(world: World, resolver: str, out: Path) -> Iterator[None]:
    """The service's own users, who know nothing of a migration: two requests a second, by name as `resolver` has it."""
    c, config = world.contract, out.with_suffix(".json")
    config.write_text(
        json.dumps(
            {"name": c.name, "resolver": resolver, "ca": c.ca, "key_header": c.key_header, "key": c.key,
             "route": c.routes[0].path, "rate": 2, "max_tokens": 4, "out": str(out), "limit_s": 3600}
        )
    )  # fmt: skip
    child = subprocess.Popen([sys.executable, "-m", "inferlift.load.users", str(config)], cwd=ROOT)
    try:
        yield
    finally:
        child.terminate()
        child.wait(timeout=30)


def tools() -> provision.Tools:
    toolchain.ensure(["debian-packages", "pulumi", "host-image"], lambda line: print(line, file=sys.stderr))
    return provision.Tools(
        pulumi_bin=toolchain.pulumi_bin() / "pulumi",
        python_plugin=None,
        host_image=toolchain.host_image(),
        podman_env=toolchain.podman_env(),
    )
