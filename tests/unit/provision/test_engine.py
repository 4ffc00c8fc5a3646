"""The command line's handling, with a stand-in for the CLI: how the real one ends is seen in tests/lab."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi import automation
from pulumi.automation._cmd import CommandResult

from inferlift.errors import CheckFailed, Refusal, Uncertain
from inferlift.provision import engine as module
from inferlift.provision.engine import Engine, InterruptibleCommand, environment, passphrase, write_shell_environment
from inferlift.provision.models import Tools
from inferlift.provision.settling import PARENT, StackFiles

pytestmark = pytest.mark.programs

CLI = """#!/bin/sh
[ "$1" = version ] && { echo v3.274.1; echo asked >> "$PULUMI_HOME/asked"; exit 0; }
trap 'echo INT >> signals; sleep 0.3; exit 1' INT
trap 'echo TERM >> signals; exit 1' TERM
echo "$@" > arguments; env > environment; echo "$$" > pid
case "$*" in
  *wait*) echo ready; n=0; while [ $n -lt 300 ]; do sleep 0.02; n=$((n+1)); done;;
  *fail*) echo out; echo "the stack is currently locked by someone" >&2; exit 255;;
esac
echo done
"""


@pytest.fixture
def command(tmp_path: Path) -> InterruptibleCommand:
    binary = tmp_path / "pulumi"
    binary.write_text(CLI)
    binary.chmod(0o755)
    return InterruptibleCommand(binary, tmp_path / "home")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))


def test_output_and_environment(command: InterruptibleCommand, tmp_path: Path) -> None:
    lines: list[str] = []
    result = command.run(["up"], str(tmp_path), {"A": "b"}, lines.append)
    assert (result.code, result.stdout, lines) == (0, "done", ["done"])
    assert (tmp_path / "arguments").read_text() == "--non-interactive up\n"
    seen = (tmp_path / "environment").read_text().splitlines()
    assert "A=b" in seen
    assert any(line.startswith(f"{PARENT}={os.getpid()}:") for line in seen)


def test_a_failure_becomes_the_engines_own_error(command: InterruptibleCommand, tmp_path: Path) -> None:
    with pytest.raises(automation.ConcurrentUpdateError):
        command.run(["fail"], str(tmp_path), {})


def test_an_interrupt_is_one_sigint_and_waits_for_the_end(command: InterruptibleCommand, tmp_path: Path) -> None:
    def interrupt_thrice() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        for _ in range(3):
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_thrice)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            command.run(["wait"], str(tmp_path), {})
        assert (tmp_path / "signals").read_text() == "INT\n"
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
    finally:
        thread.join()


def test_an_interrupt_while_the_engine_is_started_is_one_sigint_too(
    command: InterruptibleCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def slowly(*arguments: Any, **options: Any) -> Any:
        child = real(*arguments, **options)
        until(lambda: (tmp_path / "pid").exists())
        os.kill(os.getpid(), signal.SIGINT)  # the caller does not have the child yet
        return child

    monkeypatch.setattr(module.subprocess, "Popen", slowly)
    with pytest.raises(KeyboardInterrupt):
        command.run(["wait"], str(tmp_path), {})
    assert (tmp_path / "signals").read_text() == "INT\n"


def test_the_engine_gets_a_sigint_when_its_starter_dies(command: InterruptibleCommand, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from inferlift.provision.engine import InterruptibleCommand;"
        "InterruptibleCommand(Path(sys.argv[1]), Path(sys.argv[2])).run(['wait'], sys.argv[3], {})"
    )
    root = str(Path(module.__file__).parents[2])
    starter = subprocess.Popen(
        [sys.executable, "-c", code, command.command, str(tmp_path / "home"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": root},
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    starter.kill()
    starter.wait()
    until(lambda: (tmp_path / "signals").exists())
    assert (tmp_path / "signals").read_text() == "INT\n"


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_version_is_asked_once_for_a_binary(command: InterruptibleCommand, tmp_path: Path) -> None:
    InterruptibleCommand(tmp_path / "pulumi", tmp_path / "home")
    assert str(command.version) == "3.274.1"
    assert (tmp_path / "home" / "asked").read_text() == "asked\n"


def test_a_missing_engine_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed) as caught:
        InterruptibleCommand(tmp_path / "absent", tmp_path)
    assert caught.value.next_command == "./invoke doctor"


def test_the_passphrase_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    passphrase(path)
    first = path.read_text()
    passphrase(path)
    assert path.read_text() == first
    assert len(first) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("")  # killed between making and writing
    passphrase(path)
    assert len(path.read_text()) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_environment_names_the_passphrase_by_file_only(tmp_path: Path) -> None:
    files = StackFiles(tmp_path, "inferlift-lab", "fleet")
    files.prepare()
    passphrase(files.passphrase)
    tools = Tools(tmp_path / "engine" / "pulumi", tmp_path / "plugin dir", "image", {"CONTAINERS_CONF": "/a b/c"})
    write_shell_environment(files, tools)
    text = (files.root / "env").read_text()
    secret = files.passphrase.read_text()
    assert secret not in text
    assert secret not in str(environment(files, tools))
    shown = subprocess.run(
        ["sh", "-c", f". {files.root}/env; echo $CONTAINERS_CONF; echo $PATH; $PULUMI_PYTHON_CMD -m pip list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[0] == "/a b/c"
    assert shown[1].startswith(f"{files.bin}:{tmp_path}/engine:{tmp_path}/plugin dir:")
    assert '"pulumi"' in shown[2]


@pytest.mark.parametrize(
    ("diagnostic", "raised"),
    [
        ("<{%fg 1%}>a container named x exists and is not ours<{%reset%}>", Refusal),
        ("podman run exited with 125", CheckFailed),
    ],
)
def test_failures_carry_the_diagnostics_and_no_output(tmp_path: Path, diagnostic: str, raised: type[Exception]) -> None:
    engine = Engine(tmp_path, "inferlift-lab", "fleet", Tools(tmp_path, None, "image"))
    result = CommandResult(stdout="SECRET", stderr="SECRET", code=255)

    def fail() -> None:
        with engine._judged("up"):
            engine._note_error(_event(diagnostic))
            raise automation.CommandError(result)

    with pytest.raises(raised) as caught:
        fail()
    assert "SECRET" not in str(caught.value)
    assert diagnostic.replace("<{%fg 1%}>", "").replace("<{%reset%}>", "") in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_held_lock_is_uncertain(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "inferlift-lab", "fleet", Tools(tmp_path, None, "image"))
    result = CommandResult(stdout="", stderr="", code=255)
    with pytest.raises(Uncertain), engine._judged("up"):
        raise automation.ConcurrentUpdateError(result)


def _event(message: str) -> Any:
    return SimpleNamespace(diagnostic_event=SimpleNamespace(severity="error", message=message))
