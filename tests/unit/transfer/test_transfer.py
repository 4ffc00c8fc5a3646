"""What needs no host: folders are claimed and compared, rsync's answers read, destinations judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.artifacts import Host, Transfer
from inferlift.errors import CheckFailed, Refusal, Retryable
from inferlift.transfer import copy, on_host, rsync, verify
from inferlift.transfer.manifest import Manifest

ORIGIN = "origin:/srv/data"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(
        name="m-1", role="model", address="127.0.0.1", ssh_port=2222, ssh_key=str(tmp_path / "a key"),
        host_key="ssh-ed25519 AAAA",
    )  # fmt: skip


def _tree(root: Path) -> None:
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file\nname \udcff").write_bytes(b"12345")
    (root / "link").symlink_to("/nowhere")
    (root / "folder").chmod(0o750)
    (root / "folder" / "file\nname \udcff").chmod(0o646)


def test_a_scan_names_kinds_modes_sizes_and_contents(tmp_path: Path) -> None:
    _tree(tmp_path / "d")
    (tmp_path / "d" / on_host.MARKER).write_text("{}")
    (tmp_path / "d" / on_host.PARTIAL).mkdir()
    os.mkfifo(tmp_path / "d" / "pipe")
    found = Manifest.of(json.loads(json.dumps(on_host.scan(str(tmp_path / "d")))))
    digest = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    assert [e for e in found.entries if e[1] != "special"] == [
        ("folder", "folder", 0o750, 0, ""),
        ("folder/file\nname \udcff", "file", 0o646, 5, digest),
        ("link", "link", 0, 0, "/nowhere"),
    ]
    assert found.special == ["pipe"]
    assert (found.files, found.bytes) == (1, 5)


def test_it_runs_as_a_script_from_standard_input(tmp_path: Path) -> None:
    _tree(tmp_path / "d")
    script = Path(on_host.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-", "scan", str(tmp_path / "d")], input=script, capture_output=True, text=True, check=True
    )
    assert Manifest.of(json.loads(done.stdout)) == Manifest.of(on_host.scan(str(tmp_path / "d")))
    lost = subprocess.run([sys.executable, "-", "scan", "/no/such"], input=script, capture_output=True, text=True)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "/no/such" in lost.stderr


def test_only_an_absent_empty_or_own_folder_is_claimed(tmp_path: Path) -> None:
    place = tmp_path / "a" / "data"
    assert on_host.claim(str(place), ORIGIN) == {"ok": True}
    (place / "arrived").write_text("x")
    assert on_host.claim(str(place), ORIGIN) == {"ok": True}
    assert "copied from" in str(on_host.claim(str(place), "other:/srv/data")["refused"])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("x")
    assert "refused" in on_host.claim(str(foreign), ORIGIN)
    assert [p.name for p in foreign.iterdir()] == ["precious"]
    (tmp_path / "link").symlink_to(foreign)
    assert on_host.claim(str(tmp_path / "link"), ORIGIN) == {"refused": "it is no folder"}
    (tmp_path / "file").write_text("x")
    assert on_host.claim(str(tmp_path / "file"), ORIGIN) == {"refused": "it is no folder"}


def _same_size(root: Path) -> None:
    (root / "folder" / "file\nname \udcff").write_bytes(b"54321")


def _mode(root: Path) -> None:
    (root / "folder").chmod(0o777)


def _gone(root: Path) -> None:
    (root / "link").unlink()


def _more(root: Path) -> None:
    (root / "folder" / "more").write_text("")


@pytest.mark.parametrize("change", [_same_size, _mode, _gone, _more])
def test_a_look_sees_what_changed_after_the_seal(tmp_path: Path, change: object) -> None:
    root = tmp_path / "d"
    on_host.claim(str(root), ORIGIN)
    _tree(tmp_path / "from")
    for path in (tmp_path / "from").iterdir():
        path.rename(root / path.name)
    on_host.seal(str(root), ORIGIN, "digest")
    seen = on_host.look(str(root))
    assert seen["now"]["quick"] == seen["sealed"]["quick"]  # type: ignore[index]
    change(root)  # type: ignore[operator]
    seen = on_host.look(str(root))
    assert seen["now"]["quick"] != seen["sealed"]["quick"]  # type: ignore[index]
    assert on_host.claim(str(root), ORIGIN) == {"ok": True}
    assert on_host.look(str(tmp_path / "absent")) == {"absent": True}


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ({"absent": True}, "is not there"),
        ({"now": {"files": 1, "bytes": 5, "quick": "q"}, "sealed": {}}, "not sealed"),
        ({"now": {"files": 1, "bytes": 5, "quick": "q"}, "sealed": {"manifest": "other", "quick": "q"}}, "not sealed"),
        ({"now": {"files": 2, "bytes": 5, "quick": "q"}, "sealed": {"manifest": "m", "quick": "q"}}, "2 files"),
        ({"now": {"files": 1, "bytes": 6, "quick": "q"}, "sealed": {"manifest": "m", "quick": "q"}}, "6 bytes"),
        ({"now": {"files": 1, "bytes": 5, "quick": "z"}, "sealed": {"manifest": "m", "quick": "q"}}, "changed since"),
        ({"now": {"files": 1, "bytes": 5, "quick": "q"}, "sealed": {"manifest": "m", "quick": "q"}}, None),
    ],
)
def test_verify_says_what_is_not_as_it_was(
    answer: dict[str, object], detail: str | None, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["inferlift.transfer.copy"], "_call", lambda host, *arguments: answer)
    made = Transfer(source=ORIGIN, destinations=(), manifest="m", files=1, bytes=5, passes=(), checks=())
    (check,) = verify(made, [host], "/srv/data")
    assert check.ok == (detail is None)
    assert (detail or "1 files") in check.detail


_ENTRY = st.tuples(st.text(max_size=3), st.sampled_from(["file", "folder", "link"]), st.integers(0, 0o777),
                   st.integers(0, 9), st.text("ab", max_size=2))  # fmt: skip
_ENTRIES = st.lists(_ENTRY, max_size=6, unique_by=lambda e: e[0])


@given(_ENTRIES, _ENTRIES)
def test_manifests_are_equal_exactly_when_nothing_differs(a: list[on_host.Entry], b: list[on_host.Entry]) -> None:
    first, second = Manifest.of(a), Manifest.of(b)
    same = sorted(a) == sorted(b)
    assert (first.digest == second.digest) == same
    assert (first.difference(second) == []) == same
    assert Manifest.of(list(reversed(a))).digest == first.digest
    assert first.sealed().sealed() == first.sealed()


@pytest.mark.parametrize("path", ["/", "/srv", "srv/data", "/srv/../etc", "", "/srv/data/../.."])
def test_dangerous_destinations_are_refused_before_anything_is_asked(path: str, host: Host, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be a destination"):
        copy(host, "/srv/data", [host], path, tmp_path, print)


def test_no_destination_is_refused(host: Host, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no destination"):
        copy(host, "/srv/data", [], "/srv/data", tmp_path, print)


def test_rsync_pins_the_host_key_and_never_deletes_the_marker(host: Host, tmp_path: Path) -> None:
    call = rsync.push(host, tmp_path / "staging", "/srv/my data/", checksum=True, bandwidth_kbps=500)
    shell = call.argv[call.argv.index("-e") + 1]
    assert "StrictHostKeyChecking=yes" in shell
    assert f"'{host.ssh_key}'" in shell
    assert shell.endswith("-p 2222")
    assert {"--exclude=/.inferlift-owner", "--checksum", "--bwlimit=500", "--protect-args"} < set(call.argv)
    assert call.argv[-3:] == ["--", f"{tmp_path}/staging/", "root@127.0.0.1:/srv/my data/"]
    plain = rsync.pull(host.model_copy(update={"address": "::1"}), "/d", tmp_path, checksum=False, bandwidth_kbps=None)
    assert plain.argv[-2:] == ["root@[::1]:/d/", f"{tmp_path}/"]
    assert "--checksum" not in plain.argv


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exit 0", None),
        ("exit 24", None),
        ("exit 12", Retryable),
        ("exit 255", Retryable),
        ("exit 30", Retryable),
        ("exit 1", CheckFailed),
        ("kill -9 $$", Retryable),
    ],
)
def test_rsyncs_exit_status_decides(script: str, error: type[Exception] | None, host: Host) -> None:
    lines = ["Number of regular files transferred: 3", "Total file size: 1,024 bytes", "Total bytes sent: 10"]
    say = "echo '" + "\n".join([*lines, "Total bytes received: 5"]) + "'"
    calls = [rsync.Call(host, ["sh", "-c", f"{say}; {script}"]), rsync.Call(host, ["sh", "-c", say])]
    if error:
        with pytest.raises(error):
            rsync.together(calls)
    else:
        first, second = rsync.together(calls)
        assert (first.files, first.bytes_total, first.bytes_moved, first.complete) == (3, 1024, 15, script == "exit 0")
        assert second.complete


def test_an_interrupt_ends_all_children(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    real = subprocess.Popen

    def popen(*arguments: object, **named: object) -> object:
        child = real(*arguments, **named)  # type: ignore[call-overload]
        begun.append(child.pid)
        return child

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rsync.subprocess, "Popen", popen)
    monkeypatch.setattr(rsync.time, "sleep", interrupted)
    monkeypatch.setattr(rsync.process, "end", lambda pids: [os.kill(p, 9) for p in pids])
    with pytest.raises(KeyboardInterrupt):
        rsync.together([rsync.Call(host, ["sleep", "60"])] * 2)
    assert len(begun) == 2
    for pid in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
