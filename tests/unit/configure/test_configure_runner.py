"""Real ansible-runner runs against loopback ports: nobody answers, or somebody never does."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from configure_hosts import host

from inferlift.configure import runner
from inferlift.configure.runner import apply
from inferlift.errors import CheckFailed, DeclarationError, Interrupted, Retryable

pytestmark = pytest.mark.programs

PLAYBOOK = """
- name: Try
  hosts: all
  gather_facts: false
  tasks:
    - name: Say {{ greeting }}
      ansible.builtin.ping:
"""
SECRET = "planted-secret-9c41"


@pytest.fixture
def playbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "playbooks"
    folder.mkdir()
    (folder / "try.yml").write_text(PLAYBOOK)
    (folder / "nobody.yml").write_text(PLAYBOOK.replace("hosts: all", "hosts: absent"))
    (folder / "broken.yml").write_text("- hosts: [")
    (folder / "ansible.cfg").write_text((runner.PLAYBOOKS / "ansible.cfg").read_text().replace("retries = 2", ""))
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setattr(runner, "PLAYBOOKS", folder)
    return tmp_path


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def run(folder: Path, playbook: str, port: int, say: Callable[[str], None] = lambda _: None, **more: float) -> None:
    there = host(folder, "h1", "model", "127.0.0.1", port)
    secrets = {"a_key": f"file:{folder}/secret"}
    apply([there], playbook, {"greeting": "hello"}, secrets, folder / "work", say, **more)  # type: ignore[arg-type]


def everything_written(folder: Path) -> str:
    files = [p for p in (folder / "work").rglob("*") if p.is_file()]
    assert files
    return "\n".join([str(files), *(p.read_text(errors="replace") for p in files)])


def test_a_host_that_refuses_is_retryable_and_nothing_holds_the_secret(playbooks: Path) -> None:
    said: list[str] = []
    with pytest.raises(Retryable) as caught:
        run(playbooks, "try.yml", closed_port(), said.append)
    assert "1 of 1 hosts not configured: h1" in caught.value.what
    assert "Connection refused" in caught.value.why
    assert said == ["Say hello"]
    text = everything_written(playbooks)
    assert SECRET not in text
    assert not list(playbooks.glob("work/**/secrets.json"))
    assert "artifacts" in text
    assert not list(playbooks.glob("work/ansible/*/artifacts/*/command"))


def test_a_play_that_matches_nobody_is_no_success(playbooks: Path) -> None:
    with pytest.raises(CheckFailed, match="1 of 1 hosts were not processed: h1"):
        run(playbooks, "nobody.yml", closed_port())


def test_a_playbook_that_cannot_be_read_says_why(playbooks: Path) -> None:
    with pytest.raises(CheckFailed) as caught:
        run(playbooks, "broken.yml", closed_port())
    assert "broken.yml" in caught.value.why


def test_ctrl_c_leaves_no_process_and_no_secret(playbooks: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # ssh connects, and waits for a greeting that never comes

        def stop(_: str) -> None:
            deadline = time.monotonic() + 5
            while not ssh_children(playbooks) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert ssh_children(playbooks)
            raise KeyboardInterrupt

        with pytest.raises(Interrupted):
            run(playbooks, "try.yml", silent.getsockname()[1], stop)
    ident = next((playbooks / "work" / "ansible").iterdir()).name
    assert runner._children(ident) == []
    assert SECRET not in everything_written(playbooks)


def ssh_children(folder: Path) -> list[int]:
    ident = next((folder / "work" / "ansible").iterdir()).name
    return [p for p in runner._children(ident) if b"ssh" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")[0]]


def test_a_run_that_takes_too_long_is_ended(playbooks: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(CheckFailed, match="took longer than 2 s"):
            run(playbooks, "try.yml", silent.getsockname()[1], timeout_s=2)
    assert runner._children(next((playbooks / "work" / "ansible").iterdir()).name) == []


def test_a_killed_runs_secret_file_is_removed_by_the_next(playbooks: Path) -> None:
    left = playbooks / "work" / "ansible" / "killed"
    left.mkdir(parents=True)
    (left / "secrets.json").write_text(json.dumps({"a_key": SECRET}))
    with pytest.raises(Retryable):
        run(playbooks, "try.yml", closed_port())
    assert SECRET not in everything_written(playbooks)


@pytest.mark.parametrize(
    ("names", "limit"), [((), ()), (("a", "a"), ()), (("a",), ("b",))], ids=["none", "twice", "unknown limit"]
)
def test_unclear_hosts_are_refused(playbooks: Path, names: tuple[str, ...], limit: tuple[str, ...]) -> None:
    hosts = [host(playbooks, n, "model") for n in names]
    with pytest.raises(DeclarationError):
        apply(hosts, "try.yml", {}, {}, playbooks / "work", lambda _: None, limit=limit)


def test_an_unreadable_secret_is_named_by_its_reference(playbooks: Path) -> None:
    there = host(playbooks, "h1", "model")
    with pytest.raises(DeclarationError, match="file:/absent"):
        apply([there], "try.yml", {}, {"a_key": "file:/absent"}, playbooks / "work", lambda _: None)
    assert not (playbooks / "work" / "ansible").exists()


def test_the_last_ten_attempts_are_kept(tmp_path: Path) -> None:
    for number in range(14):
        folder = runner._fresh(tmp_path)
        os.utime(folder, (number, number))
    assert len(list((tmp_path / "ansible").iterdir())) == 10
