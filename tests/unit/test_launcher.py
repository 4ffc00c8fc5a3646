"""./invoke, run for real in a small clone with a stand-in for uv.

The stand-in makes a folder with a "python" that prints what it was called with: nothing here proves that the lock
installs. `./invoke` on a fresh clone proves that, as .ci/run does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

REPO = Path(__file__).parents[2]

UV = """#!/bin/sh
# Stand-in for uv: notes its calls, makes a .venv that answers.
echo "$*" >>"$CALLS"
case "$1" in
    --version) echo "uv 0.0.0"; exit 0 ;;
    venv)
        mkdir -p .venv/bin
        cat >.venv/bin/python <<'PYTHON'
#!/bin/sh
case "$1" in -c) exit 0 ;; esac
echo "$PWD|$INFERLIFT_CWD|$*"
exit "${ANSWER:-0}"
PYTHON
        chmod +x .venv/bin/python ;;
    pip)
        [ -n "${FAIL:-}" ] && { echo "error: no route to the index" >&2; exit 2; }
        sleep "${SLOW:-0}"
        touch .venv/installed ;;
esac
"""


class Clone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a clone"
        self.folder.mkdir()
        self.calls = folder / "calls"
        shutil.copy(REPO / "invoke", self.folder / "invoke")
        (self.folder / "requirements.lock").write_text("one==1\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "uv").write_text(UV)
        (self.bin / "uv").chmod(0o755)
        (self.bin / "python3").symlink_to(sys.executable)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "CALLS": str(self.calls), "HOME": str(folder)}

    def start(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.folder / "invoke", *arguments],
            cwd=cwd or self.folder,
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, cwd: Path | None = None, **env: str) -> tuple[int, str, str]:
        process = self.start(*arguments, cwd=cwd, **env)
        out, err = process.communicate(timeout=20)
        return process.returncode, out, err

    def made(self) -> int:
        """How many environments were made so far."""
        return sum(line.startswith("venv") for line in self.uv_calls())

    def installed(self) -> int:
        return sum(line.startswith("pip sync") for line in self.uv_calls())

    def uv_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_the_first_use_makes_the_environment_with_hashes_and_later_ones_do_not(clone: Clone) -> None:
    code, out, err = clone.run("--list")
    assert (code, out) == (0, f"{clone.folder}|{clone.folder}|-m inferlift --list\n")
    assert "making the Python environment" in err
    assert any("--require-hashes requirements.lock" in call for call in clone.uv_calls())
    before = clone.uv_calls()
    assert clone.run("--list") == (0, f"{clone.folder}|{clone.folder}|-m inferlift --list\n", "")
    assert clone.uv_calls() == before


def test_arguments_folder_and_exit_code_pass_through(clone: Clone, tmp_path: Path) -> None:
    clone.run()
    code, out, _ = clone.run("deploy", "--reason", "two words", "", cwd=tmp_path, ANSWER="3")
    assert code == 3
    assert out == f"{clone.folder}|{tmp_path}|-m inferlift deploy --reason two words \n"


def test_what_is_compiled_is_kept_even_where_the_image_forbids_it(clone: Clone) -> None:
    clone.run()
    (clone.folder / ".venv/bin/python").write_text('#!/bin/sh\necho "${PYTHONDONTWRITEBYTECODE-unset}"\n')
    assert clone.run(PYTHONDONTWRITEBYTECODE="1") == (0, "unset\n", "")


def test_a_link_to_the_launcher_finds_its_folder(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(clone.folder / "invoke")
    done = subprocess.run([tmp_path / "link"], cwd=tmp_path, env=clone.env, capture_output=True, text=True, timeout=20)
    assert done.stdout.startswith(f"{clone.folder}|")


def test_a_changed_lock_is_installed_into_the_same_environment(clone: Clone) -> None:
    clone.run()
    (clone.folder / "requirements.lock").write_text("one==2\n")
    clone.run()
    assert (clone.made(), clone.installed()) == (1, 2)
    clone.run()
    assert (clone.made(), clone.installed()) == (1, 2)


def test_a_moved_clone_gets_a_new_environment(clone: Clone) -> None:
    clone.run()
    clone.folder = clone.folder.rename(clone.folder.with_name("elsewhere"))
    assert clone.run()[1].startswith(f"{clone.folder}|")
    assert clone.made() == 2


def test_a_vanished_python_is_replaced(clone: Clone) -> None:
    clone.run()
    (clone.folder / ".venv/bin/python").unlink()
    (clone.folder / ".venv/bin/python").symlink_to("/nonexistent/python3")
    assert clone.run()[0] == 0
    assert clone.made() == 2


def test_two_first_uses_at_once_make_one_environment(clone: Clone) -> None:
    first = clone.start("one", SLOW="1")
    wait_for(lambda: clone.installed() == 1)
    second = clone.start("two")
    out = [p.communicate(timeout=20) for p in (first, second)]
    assert [o.rpartition("|")[2] for o, _ in out] == ["-m inferlift one\n", "-m inferlift two\n"]
    assert "waiting for it" in out[1][1]
    assert (clone.made(), clone.installed()) == (1, 1)


def test_what_a_killed_first_use_left_is_made_anew(clone: Clone) -> None:
    first = clone.start(SLOW="30")
    wait_for(lambda: clone.installed() == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=20)
    assert (clone.folder / ".venv/bin/python").exists()  # half an environment is there
    code, out, _ = clone.run("again")
    assert (code, out.rpartition("|")[2]) == (0, "-m inferlift again\n")
    assert (clone.folder / ".venv/installed").exists()
    assert clone.made() == 2


def test_no_network_is_one_message_and_the_next_call_tries_again(clone: Clone) -> None:
    code, out, err = clone.run(FAIL="1")
    assert (code, out) == (1, "")
    assert "error: no route to the index" in err
    assert "next: check the network" in err
    assert clone.run()[0] == 0


def test_an_old_python_is_refused_with_what_to_do(clone: Clone) -> None:
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        (clone.bin / name).unlink(missing_ok=True)
        (clone.bin / name).write_text("#!/bin/sh\nexit 1\n")
        (clone.bin / name).chmod(0o755)
    code, _, err = clone.run()
    assert code == 2
    assert "Python 3.11 or later is needed" in err
    assert "apt-get install python3" in err
    assert not (clone.folder / ".venv").exists()


def wait_for(condition: object, limit_s: float = 10.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
