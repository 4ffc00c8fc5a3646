"""lock.json: what differs is named; what is no lock file is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferlift import lockfile
from inferlift.errors import DeclarationError
from inferlift.provision.aws import notes


def write(path: Path, **parts) -> Path:
    path.write_text(json.dumps({"lock": {}, "figures": {}, **parts}))
    return path


def test_two_runs_differ_by_what_differs(tmp_path: Path) -> None:
    a = write(tmp_path / "a", lock={"tools": {"pulumi": "1", "go": "1"}}, figures={"rate_rps": 8.0, "quality": None})
    b = write(tmp_path / "b", lock={"tools": {"pulumi": "2", "go": "1"}}, figures={"rate_rps": 4.0, "quality": None})
    assert lockfile.diff(a, b) == ["lock.tools.pulumi: 1 -> 2", "figures.rate_rps: 8 -> 4 (0.50 times)"]
    assert lockfile.diff(a, a) == []


def test_unknown_against_known_is_a_difference(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", figures={"quality": None}), write(tmp_path / "b", figures={"quality": 0.0})
    assert lockfile.diff(a, b) == ["figures.quality: unknown -> 0"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"lock": 3}',
        "\x00",
        '{"lock": {}, "figures": [1]}',
        '{"lock": {}, "resolved": null}',
        "[" * 200_000,
    ],
)
def test_what_is_no_lock_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(DeclarationError, match="not a lock file"):
        lockfile.read(path)
    with pytest.raises(DeclarationError, match="not a lock file"):
        lockfile.read(tmp_path / "absent")


def test_a_run_is_found_by_id_and_an_unknown_one_names_the_known(tmp_path: Path) -> None:
    (tmp_path / "runs" / "20261130T1").mkdir(parents=True)
    one = write(tmp_path / "runs" / "20261130T1" / "lock.json")
    assert lockfile.find(tmp_path, "20261130T1") == one
    for unknown in ("20261130T2", "", "x" * 300, "../.."):
        with pytest.raises(DeclarationError, match="20261130T1"):
            lockfile.find(tmp_path, unknown)


def test_a_file_without_suffix_is_found_in_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path / "mine")
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path))
    assert lockfile.find(tmp_path / "state", "mine") == one


def test_images_of_the_lock_file_are_what_new_hosts_boot(tmp_path: Path) -> None:
    resolved = {"image/eu-central-1/model": "ami-1", "image/eu-central-1/gateway": "ami-2", "haproxy": "2.6"}
    lockfile.pin(SimpleNamespace(folder=tmp_path), write(tmp_path / "lock", resolved=resolved))
    assert notes.locked(tmp_path) == {"eu-central-1": {"model": "ami-1", "gateway": "ami-2"}}


def test_a_lock_file_of_the_lab_pins_no_image(tmp_path: Path) -> None:
    lockfile.pin(SimpleNamespace(folder=tmp_path), write(tmp_path / "lock", resolved={"haproxy": "2.6"}))
    assert notes.locked(tmp_path) == {}
    assert not notes.root(tmp_path).exists()
