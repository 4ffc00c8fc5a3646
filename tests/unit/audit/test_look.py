"""The live look: the real script on this machine's shell, and answers of other hosts."""

from __future__ import annotations

import subprocess

import pytest

from inferlift.audit import look as looking
from inferlift.audit.look import look, over_ssh
from inferlift.errors import DeclarationError

ANSWER = """cores=8
load=7.9
memory_total=1000
memory_available=200
cpu_before=cpu  100 0 100 800 0 0 0 0 0 0
net_before=1000000
cpu_after=cpu  250 0 140 806 4 0 0 0 0 0
net_after=21000000
net_speed=1000
gpu=NVIDIA A10G, 570.133.20, 40
gpu=NVIDIA A10G, 570.133.20, [N/A]
gpu_tool=1
gpu_device=1
process=  12 2048000 90000 /opt/llama-server -m model.gguf
process=  13 2048000 90000 /usr/sbin/mysqld
disk=268435456 bytes (268 MB, 256 MiB) copied, 0.5 s, 537 MB/s
"""


def test_an_answer() -> None:
    seen = look(lambda _: ANSWER, "old")
    assert (seen.cores, seen.cpu_busy_share, seen.io_wait_share) == (8, 0.95, 0.02)
    assert (seen.gpus, seen.driver, seen.gpu_percent) == (("NVIDIA A10G", "NVIDIA A10G"), "570.133.20", 40.0)
    assert (seen.network_mb_s, seen.network_limit_mb_s, seen.disk_read_mb_s) == (10.0, 125.0, 537.0)
    assert (seen.memory_total_bytes, seen.model_kept_in_memory) == (1_024_000, True)
    assert seen.model_processes == ("llama-server (pid 12): 2000 MiB for 90000 s",)


def test_no_gpu_and_one_that_does_not_answer() -> None:
    bare = "\n".join(row for row in ANSWER.splitlines() if not row.startswith(("gpu", "process", "disk")))
    none = look(lambda _: bare, "old")
    assert (none.gpus, none.gpu_percent, none.model_kept_in_memory, none.disk_read_mb_s) == ((), None, None, None)
    assert look(lambda _: bare + "\ngpu_device=1", "old").gpus is None


def test_nothing_said_is_nothing_known() -> None:
    seen = look(lambda _: "", "old")
    assert (seen.cores, seen.cpu_busy_share, seen.memory_total_bytes, seen.network_mb_s) == (None, None, None, None)


def test_the_script_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = looking._SCRIPT.replace(f"sleep {looking.SECONDS}", "sleep 0.1")
    monkeypatch.setattr(looking, "_SCRIPT", quick)
    done: list[subprocess.CompletedProcess[str]] = []

    def run(command: str) -> str:
        done.append(subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30))
        return done[0].stdout

    seen = look(run, "here")
    assert done[0].returncode == 0
    assert (seen.cores or 0) >= 1
    assert (seen.memory_total_bytes or 0) > 2**20
    assert seen.load_1m is not None


@pytest.mark.parametrize("target", ["-oProxyCommand=x", "a b", "", "a;b"])
def test_a_target_is_no_option(target: str) -> None:
    with pytest.raises(DeclarationError):
        over_ssh(target)
