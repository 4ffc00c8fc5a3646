"""The stand-in as a process of its own, and a profile that is moved to it: for the lab's tests and the bench."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from inferlift.profile import ROOT


@contextmanager
def account(name: str, networks: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """An empty account, with a lab host for each instance; what those who use it need in their environment.

    `networks`: region -> the /16 that everything in it lies in. `folder`: where the provider is installed.
    """
    places = [f"{region}={network}" for region, network in networks.items()]
    argv = [sys.executable, "-m", "tests.standin_aws.serve", name, str(folder), *places]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert server.stdout is not None
        told: dict[str, Any] = json.loads(server.stdout.readline())
        yield {**told["environment"], "PATH": f"{told['path']}{os.pathsep}{os.environ['PATH']}"}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=120)


def declared(name: str, network: str, **sections: Mapping[str, Any]) -> str:
    """The profile `demo-aws` as it fits the stand-in, with these sections' keys over it."""
    made: dict[str, Any] = {
        "name": name,
        "extends": "demo-aws",
        "targets": {"acceptance_deadline_s": 240},  # client and hosts share two cores
        # one network for everything in a region, as the stand-in boots hosts
        "aws": {"user_ranges": ["0.0.0.0/0"], "admin_ranges": [network], "cidr": network},
    }
    for section, values in sections.items():
        made[section] = {**made.get(section, {}), **values}
    return yaml.safe_dump(made, sort_keys=False)
