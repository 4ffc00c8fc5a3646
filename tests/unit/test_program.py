"""The command line's manners: wrong words are exit 2 with the nearest right one, help needs no arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferlift.profile import ROOT
from tests.unit.command_line import typed


def invoke(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inferlift", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deplyo"], "did you mean deploy?"),
        (["deploy", "--profil", "demo"], "did you mean --profile?"),
        (["diff"], "positional arguments"),
        (["bench"], "positional arguments"),
        (["bench", "deplo"], "did you mean deploy?"),
        (["--lst"], "--lst"),
        (["deploy", "--profile"], "profile"),
        (["audit", "--gpu", "x.csv"], "--gpu without --logs"),
        (["audit", "--logs", ""], "--logs is empty"),
        (["load", "--requests", "10", "--users", "2"], "without --url"),
        (["load", "--url", "http://127.0.0.1:9/x", "--requests", "abc"], "not a number"),
        (["switch", "--name", "", "--old", "192.0.2.1"], "without --name"),
    ],
)
def test_a_wrong_command_line_is_exit_2_and_says_what_can_be_typed(words: list[str], said: str) -> None:
    done = typed(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_ends_with_the_exit_code_and_says_why() -> None:
    done = invoke("deploy", "--profile", "dmeo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'demo'?" in done.stderr


def test_help_after_the_name_asks_for_no_arguments_and_explains_each_option() -> None:
    done = invoke("diff", "--help")
    assert done.returncode == 0, done.stderr
    assert "lock.json" in done.stdout


@pytest.mark.parametrize("how", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}], ids=str)
def test_letters_that_a_terminal_cannot_show_are_escaped(tmp_path: Path, how: dict[str, str]) -> None:
    text = (ROOT / "profiles" / "llm-13b.yaml").read_text(encoding="utf-8")
    profile = tmp_path / "p.yaml"
    profile.write_text(text.replace("name: Llama-2-13B", "name: Größe-\u65e5-Llama-2-13B"), encoding="utf-8")
    words = [sys.executable, "-m", "inferlift", "size", "--profile", str(profile), "--explain"]
    environment = {**os.environ, "PYTHONCOERCECLOCALE": "0", "XDG_STATE_HOME": str(tmp_path), **how}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"Gr\\xf6\\xdfe" in done.stdout


def test_every_option_of_every_task_is_explained() -> None:
    import tasks

    for name, found in tasks.namespace.tasks.items():
        for argument in found.get_arguments():
            assert argument.help, f"{name} --{argument.name}"


def test_a_word_after_a_task_is_its_argument_and_never_another_task() -> None:
    """Invoke takes no positional word for an argument that has a default: `bench deploy` would run the deploy."""
    import tasks

    for name, found in tasks.namespace.tasks.items():
        for argument in found.get_arguments():
            assert not argument.positional or argument.kind is list or argument.default is None, (
                f"{name} {argument.name}"
            )


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m inferlift --list | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


def test_a_secret_given_as_it_is_is_not_repeated() -> None:
    done = typed("load", "--url", "http://127.0.0.1:9/x", "--key", "sk-planted-4711")
    assert done.returncode == 2
    assert "sk-planted" not in done.stdout + done.stderr
