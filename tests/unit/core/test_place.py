"""Whose hosts are whose: by the state folder, also where clones are moved, copied and made again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from inferlift.errors import Refusal
from inferlift.place import claim, clone_id


@pytest.fixture(autouse=True)
def _own_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_two_folders_are_two_owners_and_one_keeps_its_id(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    assert clone_id(a) != clone_id(b)
    before = clone_id(a)
    claim(a)
    claim(a)
    assert clone_id(a) == before


def test_a_moved_folder_keeps_its_hosts(tmp_path: Path) -> None:
    claim(tmp_path / "a")
    before = clone_id(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    claim(tmp_path / "b")
    assert clone_id(tmp_path / "b") == before


def test_a_new_clone_where_another_was_moved_away_from_gets_an_id_of_its_own(tmp_path: Path) -> None:
    claim(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    claim(tmp_path / "b")
    fresh = clone_id(tmp_path / "a")
    assert fresh != clone_id(tmp_path / "b")
    claim(tmp_path / "a")
    assert clone_id(tmp_path / "a") == fresh


def test_a_copy_is_refused_as_long_as_the_first_is_there(tmp_path: Path) -> None:
    claim(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(Refusal, match="is a copy of"):
        claim(tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    claim(tmp_path / "b")


def test_a_removed_state_folder_finds_its_hosts_again(tmp_path: Path) -> None:
    claim(tmp_path / "a")
    before = clone_id(tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    assert clone_id(tmp_path / "a") == before


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    claim(tmp_path / "a")
    before = clone_id(tmp_path / "a")
    (tmp_path / "a" / "clone.json").write_text("{")
    assert clone_id(tmp_path / "a") == before
    claim(tmp_path / "a")
