"""The action that sends large files, with this machine's shell in place of a host's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from test_configure_modules import load

Large = load("action_plugins/large_files.py").ActionModule


class Here(Large):  # type: ignore[misc, valid-type]
    def __init__(self, arguments: dict[str, Any], *, check: bool = False, become: object = None) -> None:
        self.calls = 0
        self.folder: Path | None = None
        self._task = SimpleNamespace(args=arguments, check_mode=check)
        shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
        self._connection = SimpleNamespace(put_file=shutil.copy, become=become, _shell=shell)

    def _low_level_execute_command(self, command: str, **_: object) -> dict[str, Any]:
        self.calls += 1
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def _make_tmp_path(self) -> str:
        assert self.folder is not None
        return str(self.folder)

    def _remove_tmp_path(self, path: object) -> None:
        pass


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    for name in ("one-1.0", "two-2.0"):
        (tmp_path / name).write_text(name * 100)
    return {"src": [str(tmp_path / n) for n in ("one-1.0", "two-2.0")], "folder": str(tmp_path / "host"),
            "unless": str(tmp_path / "done")}  # fmt: skip


@pytest.mark.parametrize("become", [None, object()])
def test_what_lacks_is_sent_whole_and_once(given: dict[str, Any], tmp_path: Path, become: object) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "two-2.0").write_text("cut")  # of another size
    first = Here(given, become=become)
    first.folder = tmp_path / "own"
    first.folder.mkdir()
    assert first.run()["changed"]
    assert {p.name: p.read_text() for p in (tmp_path / "host").iterdir()} == {
        n: n * 100 for n in ("one-1.0", "two-2.0")
    }
    again = Here(given)
    assert (again.run(), again.calls) == ({"changed": False, "sent": []}, 1)


def test_nothing_is_sent_where_it_was_put_to_use_nor_in_a_dry_run(given: dict[str, Any], tmp_path: Path) -> None:
    assert Here(given, check=True).run() == {"changed": True, "sent": []}
    (tmp_path / "done").touch()
    assert Here(given).run() == {"changed": False, "sent": []}
    assert not (tmp_path / "host").exists()


def test_a_file_that_arrives_cut_does_not_take_its_place(given: dict[str, Any], tmp_path: Path) -> None:
    here = Here({**given, "names": ["x", "y"]})
    here._connection.put_file = lambda src, path: Path(path).write_text("cut")
    with pytest.raises(AnsibleActionFail):
        here.run()
    assert [p.name for p in (tmp_path / "host").iterdir()] == ["x.part"]
