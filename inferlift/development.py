"""The project's own tasks: check, test, bench."""

from __future__ import annotations

import difflib
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inferlift.errors import DeclarationError

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "playbooks": ["ansible-lint", "--offline", "-q", "playbooks"],
}


def check(root: Path) -> int:
    """All checks, two at a time; the output of what failed. Returns 1 when one did."""
    tools = Path(sys.executable).parent

    def run(name: str) -> tuple[str, int, str, float]:
        start = time.monotonic()
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(tools / CHECKS[name][0]), *CHECKS[name][1:]],
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return name, done.returncode, done.stdout, time.monotonic() - start

    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for name, code, output, seconds in pool.map(run, CHECKS):
            print(f"{name:<10} {'ok' if code == 0 else 'FAILED'}  {seconds:.1f} s", flush=True)
            if code:
                failed = 1
                print(output, flush=True)
    return failed


PARTS = {
    "unit": ["-m", "not programs", "-n", "auto", "--dist", "worksteal", "tests/unit"],
    "programs": ["-m", "programs", "-n", "auto", "--dist", "worksteal", "tests/unit"],
    "lab": ["-m", "lab and not long", "tests/lab"],
    "long": ["-m", "long", "tests/lab"],
}


def test(root: Path, parts: Sequence[str] = (), *, expression: str = "") -> int:
    """These of PARTS; none named: checks, then all but `long`, quick ones first. Stops at the first that fails."""
    if not parts and not expression and check(root):
        return 1
    select = ["-k", expression] if expression else []
    for name in parts or ("unit", "programs", "lab"):
        if code := _pytest(root, [*PARTS[name], *select]):
            return code
    return 0


BENCHES = ("deploy", "sizing", "load", "audit", "aws", "hosts", "switch", "watch")


def bench(root: Path, name: str, *, as_json: bool = False, soak: bool = False, whole: bool = False) -> int:
    """The bench's exit code: 0 where every bound was kept. Each module of inferlift/bench has `run(root, as_json=)`."""
    if name not in BENCHES:
        near = difflib.get_close_matches(name, BENCHES, 1)
        raise DeclarationError(
            f"there is no bench {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            why=f"there are: {', '.join(BENCHES)}",
            next_command=f"./invoke bench {near[0] if near else 'deploy'}",
        )
    if whole and name != "aws":
        raise DeclarationError("--whole is for the bench of AWS", next_command="./invoke bench aws --whole")
    module = importlib.import_module(f"inferlift.bench.{name}_chain" if whole else f"inferlift.bench.{name}")
    if soak and name != "load":
        raise DeclarationError("--soak is for the bench of the load test", next_command="./invoke bench load --soak")
    return int(module.run(root, as_json=as_json, **({"soak": True} if soak else {})))


def _pytest(root: Path, arguments: list[str]) -> int:
    """Pytest's exit code; "no test selected" (5) is a pass only where an expression selects."""
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=root, check=False).returncode
    return 0 if code == 5 and "-k" in arguments else code
