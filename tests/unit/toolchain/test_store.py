"""Things are made once, whole or not at all, whoever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.toolchain import store

pytestmark = pytest.mark.programs

MAKER = """
import sys, time
from pathlib import Path
from inferlift.toolchain import store
target = store.cache() / "thing"
with store.locked("thing", lambda line: print(line, flush=True)):
    if not target.exists():
        with store.workshop("thing") as work:
            left = sorted(p.name for p in work.iterdir())
            (work / "half").write_text("x")
            print("making", left, flush=True)
            time.sleep(float(sys.argv[1]))
            store.place(work / "half", target)
print("there", flush=True)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "inferlift"


def maker(seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKER, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_a_second_process_waits_and_says_for_whom(own_cache: Path) -> None:
    first = maker(0.7)
    assert first.stdout is not None
    assert first.stdout.readline() == "making []\n"
    second = maker(0.0)
    assert second.communicate(timeout=20)[0] == f"thing: process {first.pid} is making it; waiting\nthere\n"
    assert first.communicate(timeout=20)[0] == "there\n"
    assert (own_cache / "thing").read_text() == "x"


def test_a_killed_maker_leaves_nothing_that_counts(own_cache: Path) -> None:
    first = maker(60)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=20)
    assert (own_cache / "tmp" / f"thing.{first.pid}" / "half").exists()
    assert not (own_cache / "thing").exists()
    assert maker(0).communicate(timeout=20)[0] == "making []\nthere\n"
    assert (own_cache / "thing").exists()
    assert not list((own_cache / "tmp").iterdir())


def test_an_interrupted_maker_cleans_up(own_cache: Path) -> None:
    def interrupted() -> None:
        with store.workshop("thing") as work:
            (work / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list((own_cache / "tmp").iterdir())


def test_no_room_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil._ntuple_diskusage(10_000_000_000, 9_000_000_000, 1_000_000_000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    store.need_space(1000)
    with pytest.raises(Refusal, match=r"1001 MB are needed .* 1000 MB are free"):
        store.need_space(1001)


def test_an_unwritable_cache_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Refusal, match="cannot be written"), store.locked("thing", print):
        pass


def test_a_failed_program_is_reported_with_its_last_lines_and_the_log(own_cache: Path) -> None:
    with pytest.raises(Retryable) as caught:
        store.run_logged("thing", ["sh", "-c", "echo one; echo no route to host >&2; exit 7"], timeout_s=10)
    assert "exited with 7" in caught.value.what
    assert "no route to host" in caught.value.why
    assert str(own_cache / "logs" / "thing.log") in caught.value.why
    assert "network" in caught.value.next_command


def test_an_absent_program_is_named() -> None:
    with pytest.raises(CheckFailed, match="no-such-program is not installed"):
        store.run_logged("thing", ["no-such-program"], timeout_s=10)


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(Retryable, match="had not finished after 0 s"):
        store.run_logged("thing", ["sleep", "60"], timeout_s=0.2)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs util-linux's setpriv")
def test_a_makers_program_ends_with_it(tmp_path: Path) -> None:
    script = (
        "from inferlift.toolchain import store\n"
        f"store.run_logged('thing', ['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'], timeout_s=90)"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen([sys.executable, "-c", script], env=env)
    deadline = time.monotonic() + 10
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait(timeout=10)
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
