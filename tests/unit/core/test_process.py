"""Children that can be found again by their mark, and ended; secrets by reference; a folder's digest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferlift import process, secret
from inferlift.errors import CheckFailed, DeclarationError
from inferlift.tree import tree_digest

STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


def started(mark: str, code: str = STUBBORN) -> subprocess.Popen[str]:
    env = {**os.environ, process.OWNER: mark}
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def test_a_marked_child_is_found_and_ended_even_when_it_ignores_sigterm(tmp_path: Path) -> None:
    mark = f"test/{tmp_path.name}/{os.getpid()}"
    ours, other = started(mark), started(f"{mark}x")
    try:
        assert process.remnants(mark) == [ours.pid]
        process.end([ours.pid], grace_s=0.2)
        assert ours.wait(timeout=5) == -9
        assert process.remnants(mark) == []
        assert other.poll() is None, "another mark is another's process"
    finally:
        for child in (ours, other):
            child.kill()
            child.wait()


def test_what_must_outlive_the_run_does_not_carry_the_mark() -> None:
    assert process.OWNER not in process.unmarked({process.OWNER: "a", "PATH": "/bin"})


def test_run_says_what_failed_and_how_it_can_be_brought() -> None:
    with pytest.raises(CheckFailed, match="not installed") as missing:
        process.run(["no-such-program-anywhere"], timeout_s=1)
    assert "doctor" in str(missing.value)
    with pytest.raises(CheckFailed, match="exited with 3"):
        process.run(["sh", "-c", "echo why >&2; exit 3"], timeout_s=5)
    with pytest.raises(CheckFailed, match="longer than"):
        process.run(["sleep", "5"], timeout_s=0.1)


def test_a_secret_is_read_by_reference_and_its_value_never_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("planted-value\n")
    monkeypatch.setenv("PLANTED", "planted-value")
    assert secret.resolve(f"file:{tmp_path / 'key'}") == secret.resolve("env:PLANTED") == "planted-value"
    for wrong in ("env:ABSENT_HERE", f"file:{tmp_path}", "planted-value", "https://a"):
        with pytest.raises(DeclarationError):
            secret.resolve(wrong)


def test_a_tree_digest_is_of_names_content_and_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = tree_digest(tmp_path)
    (tmp_path / "a").touch()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "b").write_text("2")
    assert tree_digest(tmp_path) == before
    (tmp_path / "a").chmod(0o755)
    changed = tree_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "c")
    assert len({before, changed, tree_digest(tmp_path)}) == 3


def test_grpc_does_not_meddle_with_children_that_are_forked_after_the_engine_ran() -> None:
    look = "import inferlift.provision, os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    env = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
