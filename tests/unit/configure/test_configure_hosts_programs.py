"""Programs that roles leave on hosts: disks that are taken and disks that are not, and a role taken away again."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from datetime import UTC, datetime
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from inferlift.profile import ROOT


def load(path: str) -> ModuleType:
    loader = SourceFileLoader(Path(path).name.replace("-", "_"), str(ROOT / "playbooks" / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# --- scratch ----------------------------------------------------------------------------------------------------


class Disks:
    """Stand-in for blkid, mdadm, mkfs and mount: keeps what is on each disk. It proves nothing about mdadm itself."""

    def __init__(self, **signs: dict[str, str]) -> None:
        self.signs = {f"/dev/{name}": sign for name, sign in signs.items()}
        self.array: list[str] = []  # members of the array that is running
        self.said: list[str] = []

    def run(self, command: Any, **_: Any) -> subprocess.CompletedProcess[Any]:
        words = [str(word) for word in command]
        self.said.append(" ".join(words))
        disks = [word for word in words if word.startswith("/dev/n")]
        status, out = 0, ""
        if words[0] == "blkid":
            found = self.signs.get(words[-1], {})
            status, out = (0 if found else 2), "".join(f"{k}={v}\n" for k, v in found.items())
        elif "--assemble" in words:
            whole = all(self.signs.get(d, {}).get("ARRAY") == " ".join(disks) for d in disks)
            status = 0 if whole else 1
            self.array = disks if whole else []
        elif "--create" in words:
            for disk in disks:
                self.signs[disk] = member(" ".join(disks))
            self.signs.pop("/dev/md/inferlift", None)
            self.array = disks
        elif "--stop" in words:
            self.array = []
        elif words[0] == "mkfs.ext4":
            self.signs[words[-1]] = {"TYPE": "ext4", "LABEL": "inferlift"}
        return subprocess.CompletedProcess(words, status, stdout=out, stderr="")

    def did(self, word: str) -> bool:
        return any(word in line.split() for line in self.said)


def member(array: str) -> dict[str, str]:
    return {"TYPE": "linux_raid_member", "LABEL": "any:inferlift", "ARRAY": array}


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("roles/scratch/files/scratch-host")


def volume(scratch: ModuleType, monkeypatch: pytest.MonkeyPatch, disks: Disks, *names: str) -> tuple[str, bool]:
    monkeypatch.setattr(scratch.subprocess, "run", disks.run)
    monkeypatch.setattr(scratch, "parts", lambda _: [])
    monkeypatch.setattr(scratch, "array_of", lambda wanted: "/dev/md/inferlift" if disks.array else None)
    monkeypatch.setattr(scratch, "members", lambda _: sorted(disks.array))
    monkeypatch.setattr(scratch, "level", lambda _: "raid0")
    answer: tuple[str, bool] = scratch.volume([f"/dev/{name}" for name in names])
    return answer


def test_two_empty_disks_become_one_array(scratch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks()
    assert volume(scratch, monkeypatch, disks, "n0", "n1") == ("/dev/md/inferlift", True)
    assert disks.did("--level=0")
    assert disks.did("mkfs.ext4")


def test_after_a_reboot_the_array_is_put_together_and_nothing_is_made(
    scratch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks()
    volume(scratch, monkeypatch, disks, "n0", "n1")
    disks.array, disks.said = [], []
    assert volume(scratch, monkeypatch, disks, "n0", "n1") == ("/dev/md/inferlift", False)
    assert not disks.did("--create")
    assert not disks.did("mkfs.ext4")


@pytest.mark.parametrize("emptied", [("n0", "n1"), ("n1",)])
def test_disks_that_a_stop_has_emptied_are_made_anew(
    scratch: ModuleType, monkeypatch: pytest.MonkeyPatch, emptied: tuple[str, ...]
) -> None:
    disks = Disks()
    volume(scratch, monkeypatch, disks, "n0", "n1")
    disks.array, disks.said = [], []
    for name in emptied:
        disks.signs[f"/dev/{name}"] = {}
    assert volume(scratch, monkeypatch, disks, "n0", "n1")[1] is True
    assert disks.did("--create")
    assert disks.did("mkfs.ext4")


def test_an_array_put_together_from_some_of_the_disks_is_stopped(
    scratch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(n0=member("/dev/n0 /dev/n1"), n1=member("/dev/n0 /dev/n1"))
    disks.array = ["/dev/n0"]
    volume(scratch, monkeypatch, disks, "n0", "n1")
    assert disks.did("--stop")


@pytest.mark.parametrize(
    "sign",
    [
        {"TYPE": "ext4", "LABEL": "precious"},
        {"TYPE": "LVM2_member"},
        {"PTTYPE": "gpt"},
        {"TYPE": "linux_raid_member", "LABEL": "db:data"},
    ],
)
def test_a_disk_that_holds_something_is_never_touched(
    scratch: ModuleType, monkeypatch: pytest.MonkeyPatch, sign: dict[str, str]
) -> None:
    disks = Disks(n0=sign)
    with pytest.raises(scratch.Trouble, match="wipefs"):
        volume(scratch, monkeypatch, disks, "n0", "n1")
    assert all(line.startswith("blkid") for line in disks.said)


def test_one_disk_needs_no_array(scratch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks()
    assert volume(scratch, monkeypatch, disks, "n0") == ("/dev/n0", True)
    assert volume(scratch, monkeypatch, disks, "n0") == ("/dev/n0", False)
    assert not disks.did("mdadm")


def test_network_disks_and_parts_are_no_local_disks(
    scratch: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1",
        "nvme-Amazon_Elastic_Block_Store_vol1",
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1-part1",
        "nvme-eui.001",
        "nvme-SAMSUNG_X_1",
    ]
    real = [n for n in names if "part1" not in n and "eui" not in n]
    assert [n for n in real if not scratch.NETWORK.search(n)] == [names[0], names[4]]


# --- a role taken away ------------------------------------------------------------------------------------------


def removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, check: bool = False
) -> tuple[dict[str, Any], list[list[str]]]:
    module = load("library/role_removed.py")
    monkeypatch.setattr(module, "MANIFESTS", tmp_path)
    monkeypatch.setattr(module, "STAMPS", tmp_path)
    ran: list[list[str]] = []

    def run(_: Any, command: list[str], **more: Any) -> tuple[int, str, str]:
        if command[0] == "dpkg-query":
            return 1, "p installed\nnever not-installed\n", "no packages found matching unheard-of"
        ran.append(command)
        return 0, "", ""

    monkeypatch.setattr(module.AnsibleModule, "run_command", run)
    with patch_module_args({"role": "r", "_ansible_check_mode": check}), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out), ran


def manifest(tmp_path: Path) -> Path:
    (tmp_path / "theirs").touch()
    (tmp_path / "ours").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "by-somebody").touch()
    (tmp_path / "before").mkdir()
    record = {
        "facts": {"services": ["r.service", "ssh.service"]},
        "files": {str(tmp_path / "ours"): {}, str(tmp_path / "gone"): {}},
        "kept": {
            "packages": ["never", "p", "unheard-of"],
            "held": ["p"],
            "folders": [str(tmp_path / "folder")],
            "users": ["u"],
            "theirs": [str(tmp_path / "before"), str(tmp_path / "they-took-it-away")],
            "made": [str(tmp_path / "deep"), str(tmp_path / "deep" / "er"), str(tmp_path / "used")],
        },
    }
    path = tmp_path / "r.json"
    path.write_text(json.dumps(record))
    return path


def test_what_the_role_put_there_goes_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path)
    answer, ran = removed(tmp_path, monkeypatch, capsys)
    assert answer["changed"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["before", "theirs", "used"]
    assert answer["inferlift_skipped"] == [
        f"{tmp_path / 'before'} held something before role r came: it is left as it is"
    ]
    assert not path.exists()
    assert ["systemctl", "disable", "--now", "--quiet", "r.service"] in ran
    assert not [c for c in ran if "ssh.service" in c and "disable" in c]
    assert [c[c.index("--autoremove") + 1 :] for c in ran if "purge" in c] == [["p"]]
    assert ["apt-mark", "unhold", "p"] in ran
    again, ran = removed(tmp_path, monkeypatch, capsys)
    assert (again["changed"], ran) == (False, [])


def test_a_dry_run_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(tmp_path)
    answer, ran = removed(tmp_path, monkeypatch, capsys, check=True)
    assert answer["changed"]
    assert ran == []
    assert (tmp_path / "ours").exists()


# --- check-monitor ----------------------------------------------------------------------------------------------


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "playbooks" / "roles" / "base" / "files"))
    monkeypatch.setattr("sys.exit", lambda code: None)
    monkeypatch.setattr("sys.argv", ["check-monitor"])
    return load("roles/monitor/files/check-monitor")


@pytest.mark.parametrize(
    ("health", "interval", "since_s", "ok", "skipped"),
    [
        ("up", "30s", 5, True, False),
        ("unknown", "30s", 5, True, True),  # the first look is still to come
        ("unknown", "30s", 45, False, False),  # it should have come
        ("unknown", "2s", 1, False, False),  # comes within the patience: waited for
        ("down", "30s", 5, False, False),
        ("unknown", "1m30s", 80, True, True),
    ],
)
def test_a_probe_that_has_not_looked_yet_is_not_known(
    monitor: ModuleType, monkeypatch: pytest.MonkeyPatch, health: str, interval: str, since_s: int, ok: bool,
    skipped: bool,
) -> None:  # fmt: skip
    began = datetime.fromtimestamp(1_800_000_000, UTC).isoformat().replace("+00:00", ".123456789Z")
    row = {"labels": {"job": "probe", "instance": "x"}, "health": health, "lastError": "", "scrapeInterval": interval}
    answers = {
        "/api/v1/targets?state=active": {"activeTargets": [row, {**row, "health": "up"}]},
        "/api/v1/status/runtimeinfo": {"startTime": "2026-01-01T00:00:00Z", "lastConfigTime": began},
    }
    monkeypatch.setattr(monitor, "ask", lambda headers, path: answers[path])
    monkeypatch.setattr(monitor.time, "time", lambda: 1_800_000_000 + since_s)
    found = monitor.scraped({}, "probe", 2, 5)
    assert (found["ok"], found["skipped"]) == (ok, skipped), found
    assert not monitor.scraped({}, "probe", 3, 5)["ok"]  # a target that is not there at all is never waited for


@pytest.mark.parametrize("theirs", ["", "0a1b2c\n"])
def test_images_go_and_the_store_with_them_unless_somebody_else_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], theirs: str
) -> None:
    """podman is a stand-in: it says whether anything of somebody else's is left."""
    store = tmp_path / "storage"
    (store / "overlay" / "diff").mkdir(parents=True)
    (store / "lock").touch()
    record = {"facts": {}, "files": {}, "kept": {"images": ["localhost/ours:1"], "stores": [str(store)]}}
    (tmp_path / "r.json").write_text(json.dumps(record))
    module = load("library/role_removed.py")
    monkeypatch.setattr(module, "MANIFESTS", tmp_path)
    ran: list[list[str]] = []

    def run(_: Any, command: list[str], **more: Any) -> tuple[int, str, str]:
        ran.append(command)
        return 0, theirs, ""

    monkeypatch.setattr(module.AnsibleModule, "run_command", run)
    with patch_module_args({"role": "r"}), pytest.raises(SystemExit):
        module.main()
    capsys.readouterr()
    assert ["podman", "rmi", "localhost/ours:1"] in ran
    assert len(list(store.iterdir())) == (2 if theirs else 0)
