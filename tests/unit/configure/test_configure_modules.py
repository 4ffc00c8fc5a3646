"""The playbooks' own modules, run as Ansible runs them, on files of a temporary folder."""

from __future__ import annotations

import getpass
import grp
import importlib.util
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from inferlift.profile import ROOT

SECRET = "planted-secret-77d0"


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "playbooks" / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Write = Callable[..., dict[str, Any]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Write:
    module = load("library/config_files.py")
    manifests = tmp_path / "manifests"
    monkeypatch.setattr(module, "MANIFESTS", manifests)
    me = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}
    real = module.put
    monkeypatch.setattr(module, "put", lambda m, entry, data: real(m, {**entry, **me}, data))
    done: list[list[str]] = []
    monkeypatch.setattr(module, "do", lambda m, command: done.append(command))

    def run(
        *files: dict[str, Any], check: bool = False, facts: dict[str, Any] | None = None,
        kept: dict[str, Any] | None = None, **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        done.clear()
        rows = [{**row, "path": str(tmp_path / row["path"]), **me} for row in files]
        arguments = {"role": "r", "files": rows, "facts": facts or {}, "kept": kept or {}, "_ansible_check_mode": check}
        arguments |= more
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer | {"done": list(done)}

    return run


def test_a_second_call_changes_nothing(write: Write, tmp_path: Path) -> None:
    file = {"path": "deep/a", "content": "one\n", "mode": "0640"}
    assert write(file)["changed"]
    assert not write(file)["changed"]
    assert (tmp_path / "deep" / "a").read_text() == "one\n"
    assert oct((tmp_path / "deep" / "a").stat().st_mode & 0o777) == "0o640"


def test_a_folder_that_was_there_before_the_role_is_not_the_roles(write: Write, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    kept = {"made": [str(tmp_path / "theirs"), str(tmp_path / "ours")]}
    assert write({"path": "a", "content": ""}, kept=kept)["changed"]
    (tmp_path / "ours").mkdir()  # what the role does next
    assert not write({"path": "a", "content": ""}, kept=kept)["changed"]
    (manifest,) = (tmp_path / "manifests").glob("*.json")
    assert json.loads(manifest.read_text())["kept"] == {"made": [str(tmp_path / "ours")]}


def test_accounts_that_are_not_there_are_made_and_kept_and_others_are_not(write: Write, tmp_path: Path) -> None:
    there = {"groups": [{"name": "root"}], "users": [{"name": "root"}]}
    new = {"groups": [{"name": "our-group", "gid": 880}], "users": [{"name": "our-user"}], "hold": ["nginx-light"]}
    assert write({"path": "a", "content": ""}, **there)["done"] == []
    assert manifest_of(tmp_path)["kept"] == {}
    answer = write({"path": "a", "content": ""}, **new)
    assert answer["changed"]
    assert [command[0] for command in answer["done"]] == ["groupadd", "useradd", "apt-mark"]
    assert answer["done"][0] == ["groupadd", "--system", "--gid", "880", "our-group"]
    assert manifest_of(tmp_path)["kept"] == {"groups": ["our-group"], "users": ["our-user"], "held": ["nginx-light"]}


def test_what_a_kill_leaves_is_known_and_what_was_deployed_before_still_is(write: Write, tmp_path: Path) -> None:
    write({"path": "a", "content": "one\n"})
    before = manifest_of(tmp_path)
    stopped = write({"path": "b", "content": ""}, {"path": "a", "content": "two\n", "validate": "false"})
    assert stopped["failed"]
    begun = manifest_of(tmp_path)
    assert begun["kept"] == {"begun": [str(tmp_path / "b")]}
    assert (begun["digest"], begun["files"]) == (before["digest"], before["files"])
    assert write({"path": "a", "content": "one\n"}, {"path": "b", "content": ""})["changed"]
    assert manifest_of(tmp_path)["kept"] == {}
    assert not write({"path": "a", "content": "one\n"}, {"path": "b", "content": ""})["changed"]


def test_a_mode_or_content_changed_by_somebody_is_put_back(write: Write, tmp_path: Path) -> None:
    file = {"path": "a", "content": "one\n"}
    write(file)
    (tmp_path / "a").chmod(0o600)
    assert write(file)["changed"]
    (tmp_path / "a").write_text("two\n")
    assert write(file)["changed"]
    assert (tmp_path / "a").read_text() == "one\n"


def test_an_invalid_file_does_not_replace_the_old_one(write: Write, tmp_path: Path) -> None:
    write({"path": "a", "content": "good\n", "validate": "grep -q good %s"})
    answer = write({"path": "a", "content": "bad\n", "validate": "grep -q good %s"})
    assert answer["failed"]
    assert "would not be valid" in answer["msg"]
    assert (tmp_path / "a").read_text() == "good\n"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a"]  # no temporary file is left


def test_a_file_no_longer_listed_is_removed_and_others_are_not(write: Write, tmp_path: Path) -> None:
    (tmp_path / "foreign").touch()
    write({"path": "a", "content": ""}, {"path": "b", "content": ""})
    assert write({"path": "b", "content": ""})["changed_paths"][0] == str(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "foreign").exists()


def test_a_dry_run_tells_and_does_nothing(write: Write, tmp_path: Path) -> None:
    assert write({"path": "a", "content": "x"}, check=True)["changed"]
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_in_no_answer_and_in_no_digest(write: Write, tmp_path: Path) -> None:
    first = write({"path": "a", "secret": SECRET})
    second = write({"path": "a", "secret": "another-secret-1"})
    assert second["changed"]
    assert (tmp_path / "a").read_text() == "another-secret-1"
    assert first["inferlift_digests"] == second["inferlift_digests"]
    assert SECRET not in json.dumps(first)


def test_content_facts_and_mode_are_in_the_digest(write: Write) -> None:
    variants = [
        write({"path": "a", "content": "x"}),
        write({"path": "a", "content": "y"}),
        write({"path": "a", "content": "x", "mode": "0600"}),
        write({"path": "a", "content": "x"}, facts={"port": 1}),
    ]
    assert len({row["inferlift_digests"]["r"] for row in variants}) == 4


def manifest_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifests" / "r.json").read_text())
    return found


def test_the_validator_accepts_what_was_written_and_names_each_damage(write: Write, tmp_path: Path) -> None:
    checks = load("roles/base/files/checks.py")
    digest = write({"path": "a", "content": "x"}, {"path": "b", "secret": SECRET})["inferlift_digests"]["r"]
    assert [c["ok"] for c in checks.files("r", manifest_of(tmp_path), digest)] == [True, True]
    assert [c["ok"] for c in checks.files("r", manifest_of(tmp_path), "0" * 64)] == [True, False]
    for damage, words in [
        (lambda: (tmp_path / "b").write_text("other"), "b: content changed"),
        (lambda: (tmp_path / "a").chmod(0o777), "a: mode is 777"),
        (lambda: (tmp_path / "a").unlink(), "a: No such file"),
    ]:
        damage()
        result = checks.files("r", manifest_of(tmp_path), digest)[0]
        assert not result["ok"]
        assert words in result["detail"]
    assert SECRET not in json.dumps(checks.files("r", manifest_of(tmp_path), digest))


def test_containers_with_gpus_end_before_units_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("library/managed_services.py")
    (tmp_path / "vllm.service").write_text("ExecStart=podman run --device nvidia.com/gpu=all x\n")
    (tmp_path / "app.service").write_text("ExecStart=podman run x\n")
    monkeypatch.setattr(module, "UNITS", f"{tmp_path}/")
    monkeypatch.setattr(module, "CONTROL", tmp_path / "nvidiactl")
    ran: list[list[str]] = []

    class Module:
        check_mode = False

        def run_command(self, command: list[str]) -> tuple[int, str, str]:
            ran.append(command)
            return 0, "", ""

    module.Host(Module()).reload()
    assert ran == [["systemctl", "daemon-reload"]]  # no driver is loaded
    (tmp_path / "nvidiactl").touch()
    ran.clear()
    module.Host(Module()).reload()
    verbs = [command[1:] for command in ran if command[1] != "is-active"]
    assert verbs == [["stop", "vllm.service"], ["daemon-reload"], ["start", "vllm.service"]]


def test_a_validator_that_says_no_fails_with_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("library/managed_services.py")
    said = json.dumps([{"name": "port 1", "ok": False, "detail": "nobody listens"}])
    for script, failed in [(f"echo '{said}'; exit 1", True), ("exit 0", False)]:
        with patch_module_args({"validator": ["sh", "-c", script]}), pytest.raises(SystemExit):
            module.main()
        answer = json.loads(capsys.readouterr().out)
        assert answer.get("failed", False) == failed
        assert answer.get("stdout", "").strip() == (said if failed else "")


def test_a_service_started_after_its_files_were_written_runs_with_them(tmp_path: Path) -> None:
    module = load("library/managed_services.py")
    file = tmp_path / "a"
    file.touch()
    now = {"ActiveState": "active", "ActiveEnterTimestampMonotonic": str(int((time.monotonic() + 1) * 1e6))}
    before = now | {"ActiveEnterTimestampMonotonic": str(int((time.monotonic() - 60) * 1e6))}
    assert module.started_after(now, [str(file)])
    assert not module.started_after(before, [str(file)])
    assert not module.started_after(now | {"ActiveState": "inactive"}, [str(file)])
    assert not module.started_after(now, [str(file), str(tmp_path / "absent")])


def test_a_file_written_after_the_stamp_may_have_been_another_in_between(tmp_path: Path) -> None:
    module = load("library/managed_services.py")
    stamp, file, unit = tmp_path / "stamp", tmp_path / "a", f"{module.UNITS}a.service"
    file.touch()
    assert module.started_with(stamp, [str(file)]) == []
    stamp.write_text("units others")
    os.utime(file, (1, 1))
    assert module.started_with(stamp, [str(file), unit]) == ["units", "others"]
    os.utime(file, (stamp.stat().st_mtime + 1,) * 2)
    assert module.started_with(stamp, [str(file)]) == ["units"], "reloaded, not restarted"


def test_what_held_something_before_is_somebodys(write: Write, tmp_path: Path) -> None:
    for name in ("used", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "used" / "overlay").mkdir()
    names = [str(tmp_path / name) for name in ("used", "empty", "absent")]
    for kind in ("stores", "folders"):
        write(role=kind, kept={kind: names})
        assert not write(role=kind, kept={kind: names})["changed"]
    (tmp_path / "empty" / "overlay").mkdir()  # what the role's program does next
    for kind in ("stores", "folders"):
        assert not write(role=kind, kept={kind: names})["changed"]
        kept = json.loads((tmp_path / "manifests" / f"{kind}.json").read_text())["kept"]
        assert kept == {kind: sorted(names[1:]), "theirs": names[:1]}


def test_what_another_role_keeps_is_not_somebodys(write: Write, tmp_path: Path) -> None:
    kept = {"folders": [str(tmp_path / "shared")]}
    write(role="first", kept=kept)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "of-the-first").touch()
    write(kept=kept)
    assert manifest_of(tmp_path)["kept"] == kept


def test_somebodys_folder_is_known_as_such_where_a_kill_ended_the_first_run(write: Write, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "data").touch()
    kept = {"folders": [str(tmp_path / "used"), str(tmp_path / "ours")]}
    assert write({"path": "a", "content": "", "validate": "false"}, kept=kept)["failed"]
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "data").touch()
    (tmp_path / "used" / "data").unlink()
    write({"path": "a", "content": ""}, kept=kept)
    assert manifest_of(tmp_path)["kept"] == {"folders": kept["folders"][1:], "theirs": kept["folders"][:1]}


def test_where_a_monitor_stores_is_its_roles_own() -> None:
    """A Prometheus that a host had before keeps its data: it is neither read nor thinned out."""
    role = ROOT / "playbooks" / "roles" / "monitor"
    units = [role / "templates" / "prometheus-dropin.conf.j2", role / "files" / "alertmanager-dropin.conf"]
    stored = [re.findall(r"--storage[a-z.]*path=(\S+)", unit.read_text()) for unit in units]
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    (kept,) = (task["config_files"]["kept"] for task in tasks if "config_files" in task)
    assert sorted(path for paths in stored for path in paths) == sorted(kept["folders"])
    for unit, (path,) in zip(units, stored, strict=True):
        assert f"StateDirectory={Path(path).name}\n" in unit.read_text()


def test_what_is_announced_is_known_though_a_kill_comes_before_the_first_file(write: Write, tmp_path: Path) -> None:
    answer = write(kept={"packages": ["p"]}, announce=True)
    assert (answer["changed"], answer["done"]) == (True, [])
    assert manifest_of(tmp_path) == {"digest": "", "facts": {}, "files": {}, "kept": {"packages": ["p"]}}
    write({"path": "a", "content": ""}, kept={"packages": []})  # of the next run, which finds the package there
    whole = manifest_of(tmp_path)
    assert whole["kept"] == {"packages": ["p"]}
    assert not write(kept={"packages": ["p"]}, announce=True)["changed"]
    assert manifest_of(tmp_path) == whole


def test_every_package_that_a_role_installs_is_in_its_manifest_before_and_after() -> None:
    """Else it would stay on a host that is given back."""
    for path in (ROOT / "playbooks" / "roles").glob("*/tasks/*.yml"):
        tasks = yaml.safe_load(path.read_text()) or []
        installs = [at for at, task in enumerate(tasks) if "ansible.builtin.apt" in task]
        notes = [(at, task["config_files"]) for at, task in enumerate(tasks) if "config_files" in task]
        for at in installs:
            name = tasks[at]["ansible.builtin.apt"]["name"]
            there = [(n < at, row.get("announce", False)) for n, row in notes if row["kept"].get("packages") == name]
            assert there == [(True, True), (False, False)], path
