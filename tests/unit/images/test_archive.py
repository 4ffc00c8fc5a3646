"""An archive is read whole once, and again whenever somebody wrote to it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from inferlift.images import archive


def made(path: Path, layer: bytes = b"layer") -> str:
    """An archive with one layer; returns its manifest's digest."""
    manifest = json.dumps({"layers": [{"digest": _digest(layer)}]}).encode()
    index = json.dumps({"manifests": [{"digest": _digest(manifest)}]}).encode()
    blobs = {f"blobs/sha256/{_digest(b).removeprefix('sha256:')}": b for b in (layer, manifest)}
    with tarfile.open(path, "w") as tar:
        for name, data in {**blobs, "index.json": index}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return _digest(manifest)


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Archives that were read whole. The clock stands an hour ahead: what was made now is no longer new."""
    found: list[Path] = []
    read, now = archive._read, time.time

    def counted(path: Path, digest: str) -> str:
        found.append(path)
        return read(path, digest)

    monkeypatch.setattr(archive, "_read", counted)
    monkeypatch.setattr(archive.time, "time", lambda: now() + 3600)
    return found


def test_it_is_read_whole_once(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "a.tar"
    digest = made(path)
    assert [archive.damage(path, digest) for _ in range(3)] == [""] * 3
    assert len(reads) == 1
    assert "no manifest" in archive.damage(path, "sha256:" + "0" * 64)


@pytest.mark.parametrize("kept", [False, True])
def test_a_byte_that_was_changed_is_found_even_with_its_old_times(
    tmp_path: Path, reads: list[Path], kept: bool
) -> None:
    path = tmp_path / "a.tar"
    digest = made(path)
    before = path.stat()
    assert archive.damage(path, digest) == ""
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"layer"))
        file.write(b"L")
    if kept:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "another content" in archive.damage(path, digest)
    assert "another content" in archive.damage(path, digest), "what is damaged is noted nowhere"


def test_another_file_in_its_place_is_read(tmp_path: Path, reads: list[Path]) -> None:
    path, other = tmp_path / "a.tar", tmp_path / "b.tar"
    digest = made(path)
    assert archive.damage(path, digest) == ""
    made(other, b"other")
    other.replace(path)
    assert "no manifest" in archive.damage(path, digest)


def test_what_was_written_just_now_is_read_again(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tar"
    digest = made(path)
    monkeypatch.setattr(archive.time, "time", lambda: path.stat().st_ctime + 0.5)
    assert [archive.damage(path, digest) for _ in range(2)] == ["", ""]
    assert len(reads) == 2


@pytest.mark.parametrize("note", ["", "{", "[]", '{"digest": 1}'])
def test_a_note_that_is_none_is_as_no_note(tmp_path: Path, reads: list[Path], note: str) -> None:
    path = tmp_path / "a.tar"
    digest = made(path)
    (tmp_path / "a.read.json").write_text(note)
    assert archive.damage(path, digest) == ""
    assert len(reads) == 1


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"no")
    assert "unreadable" in archive.damage(tmp_path / "a.tar", "sha256:x")
    assert "unreadable" in archive.damage(tmp_path / "b.tar", "sha256:x")
