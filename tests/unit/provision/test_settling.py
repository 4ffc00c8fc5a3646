from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.errors import Uncertain
from inferlift.provision import settling
from inferlift.provision.settling import PARENT, StackFiles, end_orphans, lock_holder, parent_mark

pytestmark = pytest.mark.programs

SAMPLES = Path(__file__).parent / "states"
FAST = ((0.1, signal.SIGINT), (1.0, signal.SIGTERM), (0.1, signal.SIGKILL))
DEAD = "999999999:1"


@pytest.fixture
def files(tmp_path: Path) -> StackFiles:
    stack = StackFiles(tmp_path, "inferlift-lab", "fleet")
    stack.prepare()
    stack.checkpoint.parent.mkdir(parents=True)
    return stack


@pytest.mark.parametrize(
    ("sample", "pending", "resources"), [("killed.json", 3, 4), ("settled.json", 0, 7), ("empty.json", 0, 0)]
)
def test_what_a_state_file_says(files: StackFiles, sample: str, pending: int, resources: int) -> None:
    files.checkpoint.write_text((SAMPLES / sample).read_text())
    assert files.readable()
    assert files.pending() == pending
    assert len(files.resources()) == resources


@settings(deadline=None)
@given(cut=st.integers(0, 400))
def test_a_torn_state_file_gives_way_to_the_backup(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    files = StackFiles(tmp_path_factory.mktemp("torn"), "inferlift-lab", "fleet")
    files.checkpoint.parent.mkdir(parents=True)
    whole = (SAMPLES / "settled.json").read_text()
    files.checkpoint.write_text(whole[:cut])
    assert not files.readable()
    files.checkpoint.with_name("fleet.json.bak").write_text(whole)
    files.restore_torn()
    assert len(files.resources()) == 7


@pytest.mark.parametrize("text", ["", "{", '{"user.cache_control":"","md'])
def test_what_is_torn_beside_the_state_goes_and_what_is_whole_stays(files: StackFiles, text: str) -> None:
    files.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    workspaces = files.home / "workspaces"
    workspaces.mkdir(parents=True, exist_ok=True)
    beside = files.checkpoint.with_name("fleet.json.attrs")
    whole = files.checkpoint.with_name("fleet.json.bak.attrs")
    selected = workspaces / "inferlift-lab-1-workspace.json"
    beside.write_text(text)
    selected.write_text(text)
    whole.write_text('{"md5": "x"}')
    assert files.torn_beside() == sorted([beside, selected])
    files.restore_torn()
    assert files.torn_beside() == []
    assert not beside.exists()
    assert whole.exists()


def test_a_torn_state_file_without_a_backup_is_dropped(files: StackFiles) -> None:
    files.checkpoint.write_text("{")
    files.restore_torn()
    assert not files.checkpoint.exists()


def test_a_whole_state_file_stays(files: StackFiles) -> None:
    whole = (SAMPLES / "killed.json").read_text()
    files.checkpoint.write_text(whole)
    files.checkpoint.with_name("fleet.json.bak").write_text("older")
    files.restore_torn()
    assert files.checkpoint.read_text() == whole


def lock(files: StackFiles, content: str) -> Path:
    path = files.state / ".pulumi/locks/organization/inferlift-lab/fleet/a.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert files.locks() == [path]
    return path


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": "x"}', '{"pid": 999999999}'])
def test_a_lock_of_nobody(files: StackFiles, content: str) -> None:
    assert lock_holder(lock(files, content)) is None


def test_a_lock_whose_pid_is_another_program_by_now(files: StackFiles) -> None:
    assert lock_holder(lock(files, json.dumps({"pid": os.getpid()}))) is None


def test_a_lock_that_is_held(files: StackFiles, engine: subprocess.Popen[bytes]) -> None:
    path = lock(files, json.dumps({"pid": engine.pid}))
    assert lock_holder(path) == engine.pid
    engine.kill()
    time.sleep(0.05)  # a zombie now: nobody has waited for it
    assert lock_holder(path) is None


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose executable is called pulumi."""
    binary = tmp_path / "bin" / "pulumi"
    binary.parent.mkdir()
    binary.write_bytes(Path("/bin/sleep").read_bytes())
    binary.chmod(0o755)
    child = subprocess.Popen([binary, "60"])
    while Path(f"/proc/{child.pid}/exe").readlink().name != "pulumi":
        time.sleep(0.01)
    yield child
    child.kill()
    child.wait()


def process_of(home: Path, parent: str | None, code: str = "import time; time.sleep(60)") -> subprocess.Popen[bytes]:
    env = {"PULUMI_HOME": str(home), **({PARENT: parent} if parent else {})}
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", f"print(1, flush=True); {code}"], env=env, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_orphans_are_ended_even_when_they_ignore_signals(tmp_path: Path) -> None:
    deaf = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; time.sleep(60)"
    children = [process_of(tmp_path, DEAD), process_of(tmp_path, DEAD, deaf)]
    assert end_orphans(tmp_path, FAST) == 2
    assert [c.wait(timeout=1) for c in children] == [-signal.SIGINT, -signal.SIGKILL]
    assert end_orphans(tmp_path, FAST) == 0


def test_an_orphan_that_is_ending_is_not_disturbed(tmp_path: Path) -> None:
    child = process_of(tmp_path, DEAD, "import time; time.sleep(0.3)")
    assert end_orphans(tmp_path, ((5.0, signal.SIGKILL),)) == 1
    assert child.wait(timeout=1) == 0


def test_a_live_run_is_left_alone_and_named(tmp_path: Path) -> None:
    child = process_of(tmp_path, parent_mark())
    try:
        with pytest.raises(Uncertain, match="another run") as caught:
            end_orphans(tmp_path, FAST)
        assert str(os.getpid()) in caught.value.why
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_other_homes_and_a_persons_own_pulumi_are_left_alone(tmp_path: Path) -> None:
    children = [process_of(tmp_path / "other", DEAD), process_of(tmp_path, None)]
    try:
        assert end_orphans(tmp_path, FAST) == 0
        assert [c.poll() for c in children] == [None, None]
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_a_pid_used_again_is_not_the_parent(tmp_path: Path) -> None:
    pid, _, started = parent_mark().partition(":")
    child = process_of(tmp_path, f"{pid}:{int(started) - 1}")
    assert end_orphans(tmp_path, FAST) == 1
    child.wait(timeout=1)


def test_the_mark_names_this_process() -> None:
    assert settling._alive(parent_mark())
    assert not settling._alive(DEAD)
    assert not settling._alive("")
