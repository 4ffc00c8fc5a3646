"""A detached run: started again when a signal ends it, left alone when it ends by itself, and told by `status`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from inferlift import detached
from inferlift.errors import Refusal

pytestmark = pytest.mark.programs


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands in for `python -m inferlift`: a package of that name elsewhere, which proves nothing of deploy."""
    monkeypatch.setattr(detached, "PAUSE_S", 0.0)
    monkeypatch.setattr(detached, "ROOT", tmp_path)
    (tmp_path / "inferlift").mkdir()
    (tmp_path / "inferlift" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "inferlift" / "__main__.py"


@pytest.fixture(autouse=True)
def handlers() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("body", "code", "starts"),
    [
        ("sys.exit(0)", 0, 1),
        ("sys.exit(3)", 3, 1),
        ("os.kill(os.getpid(), 9)", 1, detached.TRIES),
        ("if count < 3: os.kill(os.getpid(), 9)", 0, 3),
    ],
)
def test_what_a_signal_ends_is_started_again(tmp_path, script, body, code, starts) -> None:
    counted = f"import os, sys\nf = open({str(tmp_path / 'n')!r}, 'a+'); f.write('x'); f.flush(); count = f.tell()\n"
    script.write_text(counted + body)
    assert detached.main([str(tmp_path), "deploy"]) == code
    found = json.loads((tmp_path / detached.FILE).read_text())
    assert (found["exit"], found["starts"], found["command"]) == (code, starts, ["deploy"])
    assert f"exit code {code}" in detached.told(tmp_path)


def test_while_one_runs_a_second_is_refused_and_a_stop_is_passed_on(tmp_path, monkeypatch) -> None:
    """A supervisor for real, over a command that waits for its interrupt."""
    (tmp_path / "inferlift").mkdir()
    monkeypatch.setattr(detached, "FIRST_S", 1.0)
    code = (
        "import sys\nfrom pathlib import Path\nfrom inferlift import detached\n"
        f"detached.subprocess.Popen = lambda argv, real=detached.subprocess.Popen, **k: real([sys.executable, '-c', "
        "'import signal, sys; signal.signal(signal.SIGINT, lambda *a: sys.exit(130)); signal.pause()'], **k)\n"
        f"sys.argv = ['inferlift.detached']\nsys.exit(detached.main([{str(tmp_path)!r}, 'deploy']))"
    )
    real = detached.subprocess.Popen
    started = []

    def popen(argv, **named):  # the supervisor, its child replaced
        started.append(real([sys.executable, "-c", code, "inferlift.detached"], **named))
        return started[-1]

    monkeypatch.setattr(detached.subprocess, "Popen", popen)
    assert detached.start(tmp_path, ["deploy"]) is None
    deadline = time.monotonic() + 10
    while detached.look(tmp_path) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    found = detached.look(tmp_path)
    assert found is not None
    assert found["running"]
    assert "detached since" in detached.told(tmp_path)
    with pytest.raises(Refusal, match="goes on since"):
        detached.start(tmp_path, ["deploy"])
    time.sleep(0.3)
    os.kill(found["pid"], signal.SIGTERM)
    assert started[0].wait(10) == 130
    assert "exit code 130" in detached.told(tmp_path)


def test_what_is_wrong_from_the_start_is_told_at_once(tmp_path, script) -> None:
    script.write_text("import sys\nprint('no such profile', file=sys.stderr)\nsys.exit(2)")
    assert detached.main([str(tmp_path), "deploy"]) == 2


def test_a_supervisor_that_is_gone_is_not_running(tmp_path) -> None:
    body = {"pid": 2**22 + 1, "started": "2026", "starts": 1, "exit": None, "command": []}
    (tmp_path / detached.FILE).write_text(json.dumps(body))
    found = detached.look(tmp_path)
    assert found is not None
    assert not found["running"]
    assert "goes on" in detached.told(tmp_path)
    assert detached.told(tmp_path / "nowhere") == ""
