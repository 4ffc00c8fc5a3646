"""HAProxy's own words, recorded from 2.6, read right; and the last serving host is never drained."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from configure_hosts import host

from inferlift import ssh
from inferlift.artifacts import Host
from inferlift.configure import gateway
from inferlift.errors import CheckFailed, Refusal

HEAD = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight\n"


def row(proxy: str, name: str, waiting: int, sessions: int, total: int, status: str) -> str:
    return f"{proxy},{name},{waiting},0,{sessions},9,4,{total},0,0,,0,,0,0,0,0,{status},1\n"


class Haproxy:
    """Stand-in for the admin socket: keeps states; proves nothing about HAProxy itself (the lab tests do)."""

    def __init__(self, **status: str) -> None:
        self.status = status
        self.sessions = dict.fromkeys(status, 0)
        self.commands: list[str] = []

    def run(
        self, host: Host, command: str, *, stdin: str | None = None, **_: object
    ) -> subprocess.CompletedProcess[str]:
        assert stdin is not None
        self.commands.append(stdin.strip())
        out = "\n"
        if stdin == "show stat\n":
            out = HEAD + row("users", "FRONTEND", 0, 3, 9, "OPEN") + row("models", "BACKEND", 7, 12, 99, "UP")
            out += "".join(row("models", n, 2, self.sessions[n], 40, s) for n, s in self.status.items())
        elif "state drain" in stdin:
            self.status[stdin.split("/")[1].split()[0]] = "DRAIN"
        elif "state ready" in stdin:
            self.status[stdin.split("/")[1].split()[0]] = "UP"
        return subprocess.CompletedProcess([], 0, stdout=out, stderr="")


@pytest.fixture
def at(tmp_path: Path) -> Host:
    return host(tmp_path, "gateway-1", "gateway")


def test_states_and_queue(at: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "run", Haproxy(m1="UP", m2="DOWN 1/2").run)
    states = gateway.servers(at)
    assert [(s.name, s.status, s.queue, s.requests, s.serving) for s in states] == [
        ("m1", "UP", 2, 40, True),
        ("m2", "DOWN 1/2", 2, 40, False),
    ]
    assert gateway.queue(at) == gateway.Queue(waiting=7, in_flight=12)


def test_drain_and_undrain(at: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    haproxy = Haproxy(m1="UP", m2="UP")
    monkeypatch.setattr(ssh, "run", haproxy.run)
    gateway.drain(at, "m1")
    assert haproxy.status == {"m1": "DRAIN", "m2": "UP"}
    gateway.undrain(at, "m1")
    assert haproxy.status == {"m1": "UP", "m2": "UP"}


def test_the_last_serving_host_is_not_drained(at: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    haproxy = Haproxy(m1="UP", m2="DOWN")
    monkeypatch.setattr(ssh, "run", haproxy.run)
    with pytest.raises(Refusal):
        gateway.drain(at, "m1")
    assert haproxy.commands == ["show stat"]


def test_a_drain_that_does_not_end_is_said(at: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    haproxy = Haproxy(m1="UP", m2="UP")
    haproxy.sessions["m1"] = 3
    monkeypatch.setattr(ssh, "run", haproxy.run)
    with pytest.raises(CheckFailed, match="still answers 3 requests"):
        gateway.drain(at, "m1", timeout_s=0)


@pytest.mark.parametrize("name", ["m3", "", "m1; shutdown", "BACKEND"])
def test_an_unknown_host_is_refused_before_anything_is_sent(
    at: Host, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    haproxy = Haproxy(m1="UP", m2="UP")
    monkeypatch.setattr(ssh, "run", haproxy.run)
    with pytest.raises(CheckFailed, match="knows no model host"):
        gateway.drain(at, name)
    assert haproxy.commands == ["show stat"]


@pytest.mark.parametrize("answer", ["", "Permission denied\n", "\n"])
def test_silence_is_not_an_empty_set(at: Host, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(ssh, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=answer, stderr=""))
    with pytest.raises(CheckFailed):
        gateway.servers(at)


def test_a_refused_command_is_an_error(at: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    haproxy = Haproxy(m1="UP", m2="UP")

    def run(host: Host, command: str, *, stdin: str | None = None, **more: object) -> subprocess.CompletedProcess[str]:
        if stdin and stdin.startswith("set "):
            return subprocess.CompletedProcess([], 0, stdout="No such server.\n\n", stderr="")
        return haproxy.run(host, command, stdin=stdin, **more)

    monkeypatch.setattr(ssh, "run", run)
    with pytest.raises(CheckFailed, match="refused"):
        gateway.undrain(at, "m1")
