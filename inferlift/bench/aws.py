"""bench aws: the program and a preview for `llm-70b`; a no-op update against the engine's no-op of as many resources.

Measured against the tests' stand-ins for AWS and for Pulumi's provider: the figures say how long the program and the
engine take, not how long AWS does.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PREVIEW_LIMIT_S, NOOP_LIMIT = 6.0, 1.3
RUNS = 3


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: preview_seconds (loading the program and the first preview of a new stack), noop_ratio (medians)."""
    figures = measure(root, lambda line: print(line, file=sys.stderr))
    ok = figures["preview_seconds"] <= PREVIEW_LIMIT_S and figures["noop_ratio"] <= NOOP_LIMIT
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures}))
    else:
        bounds = {"preview_seconds": PREVIEW_LIMIT_S, "noop_ratio": NOOP_LIMIT}
        for name, value in figures.items():
            print(f"{name:<20} {value:.3g}" + (f"  (bound {bounds[name]:g})" if name in bounds else ""))
    return 0 if ok else 1


def measure(root: Path, say: Callable[[str], None]) -> dict[str, float]:
    """Both in one run, on one machine, the two kinds of no-op by turns."""
    from inferlift import toolchain

    sys.path.insert(0, str(root))
    # tests only, and never shipped: by name, so that nothing here depends on them
    standin: Any = import_module("tests.standin_aws.cloud")
    provider: Any = import_module("tests.standin_aws.provider")
    document: Any = import_module("tests.unit.provision.aws_documents").document

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    toolchain.ensure(["pulumi"], say)
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-aws-") as place, standin.cloud() as cloud:
        folder = Path(place)
        path = provider.install(folder / "bin").parent
        os.environ.update({**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": cloud.url})
        os.environ["PATH"] = f"{path}{os.pathsep}{os.environ['PATH']}"
        return _figures(folder, document("llm-70b"), toolchain.pulumi_bin() / "pulumi", say)


def _figures(folder: Path, desired: Any, pulumi: Path, say: Callable[[str], None]) -> dict[str, float]:
    from inferlift.provision import Tools
    from inferlift.provision.aws import resolve as resolving
    from inferlift.provision.aws import target
    from inferlift.provision.aws.session import Session
    from inferlift.provision.engine import Engine
    from inferlift.provision.targets import ssh_key

    tools = Tools(pulumi_bin=pulumi, python_plugin=None, host_image="")
    key = ssh_key(folder / "fleet").with_suffix(".pub").read_text().strip()
    quiet = _nothing
    started = time.monotonic()
    from inferlift.provision.aws import program as aws_program

    loaded = time.monotonic() - started
    settled = resolving.resolve(desired, Session(), quiet)
    engine = Engine(folder / "fleet", *target.STACK, tools, kinds="aws:")
    started = time.monotonic()
    program = aws_program.fleet_program(settled, key)
    count = len(engine.ask(program))
    previews = [time.monotonic() - started, *(_seconds(lambda: engine.ask(program)) for _ in range(RUNS - 1))]
    say(f"{count} resources; loading the program {loaded:.1f} s, previews {', '.join(f'{s:.1f}' for s in previews)} s")

    engine.up(program, quiet)
    bare_engine = Engine(folder / "bare", "inferlift-bare", "bare", tools, kinds="aws:")
    bare = bare_program(count)
    bare_engine.up(bare, quiet)
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_seconds(lambda: engine.up(program, quiet)))
        theirs.append(_seconds(lambda: bare_engine.up(bare, quiet)))
    told = [", ".join(f"{s:.1f}" for s in times) for times in (ours, theirs)]
    say(f"no-op updates: {told[0]} s, of bare resources {told[1]} s")
    return {
        "preview_seconds": loaded + previews[0],
        "noop_ratio": statistics.median(ours) / statistics.median(theirs),
        "noop_seconds": statistics.median(ours),
        "resources": float(count),
    }


def bare_program(count: int) -> Callable[[], None]:
    """As many resources of one simple kind as the fleet has, without components, names or dependencies of note."""

    def program() -> None:
        import pulumi
        import pulumi_aws as aws

        place = pulumi.ResourceOptions(provider=aws.Provider("bare", region=aws.Region.EU_CENTRAL1))
        for number in range(count):
            aws.ec2.Eip(f"address-{number}", domain="vpc", tags={"number": str(number)}, opts=place)

    return program


def _seconds(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _nothing(line: str) -> None:
    """Nobody reads along."""
