"""ELF files are taken from this machine; a musl one is made from one of them by naming another interpreter."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from inferlift.artifacts import Check
from inferlift.errors import DeclarationError
from inferlift.images import checks, elf, heredocs


def _root(folder: Path, *, interpreter: bytes | None = None) -> Path:
    root = folder / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/lib64").mkdir()
    (root / "lib64").symlink_to("usr/lib64")
    program = root / "usr/bin/true"
    shutil.copy("/usr/bin/true", program)
    linkage = elf.read(program)
    assert linkage is not None
    assert linkage.interpreter
    (root / linkage.interpreter.lstrip("/")).write_bytes(b"loader")
    for library in linkage.needed:
        (root / "usr/lib64" / library).write_bytes(b"library")
    if interpreter:
        content = program.read_bytes()
        old = linkage.interpreter.encode()
        assert len(interpreter) <= len(old)
        program.write_bytes(content.replace(old, interpreter.ljust(len(old), b"\0")))
    return root


def _by_name(found: list[Check]) -> dict[str, Check]:
    return {c.name: c for c in found}


def test_a_glibc_image_is_fine(tmp_path: Path) -> None:
    assert all(c.ok for c in checks.linkage(_root(tmp_path)))


def test_a_musl_interpreter_is_found(tmp_path: Path) -> None:
    found = _by_name(checks.linkage(_root(tmp_path, interpreter=b"/lib/ld-musl-x86_64.so.1")))
    assert not found["no musl"].ok
    assert "/usr/bin/true" in found["no musl"].detail


def test_an_absent_interpreter_is_found(tmp_path: Path) -> None:
    found = _by_name(checks.linkage(_root(tmp_path, interpreter=b"/lib64/ld-lsb.so.3")))
    assert found["no musl"].ok
    assert not found["ELF interpreters present"].ok


def test_a_library_that_a_debian_package_only_recommends_is_no_finding(tmp_path: Path) -> None:
    root = _root(tmp_path)
    next((root / "usr/lib64").glob("libc.so*")).unlink()
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "coreutils.list").write_text("/.\n/bin\n/bin/true\n")
    assert _by_name(checks.linkage(root))["libraries present"].ok


def test_a_library_that_is_nowhere_is_found(tmp_path: Path) -> None:
    root = _root(tmp_path)
    next((root / "usr/lib64").glob("libc.so*")).unlink()
    found = _by_name(checks.linkage(root))["libraries present"]
    assert not found.ok
    assert "/usr/bin/true wants libc.so" in found.detail


def test_an_image_without_programs_is_no_proof(tmp_path: Path) -> None:
    assert not _by_name(checks.linkage(tmp_path))["no musl"].ok


def test_a_script_for_ash_is_found(tmp_path: Path) -> None:
    root = _root(tmp_path)
    (root / "entrypoint.sh").write_text("#!/bin/ash\necho\n")
    found = _by_name(checks.linkage(root))
    assert found["script interpreters present"].detail == "/entrypoint.sh wants /bin/ash"


def test_needed_libraries_are_read() -> None:
    linkage = elf.read(Path("/usr/bin/true"))
    assert linkage is not None
    assert any(n.startswith("libc.so") for n in linkage.needed)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 80, b"#!/bin/sh\n"])
def test_what_is_no_elf_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert elf.read(tmp_path / "f") is None


def test_imports_from_outside(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import os, numpy.linalg\nfrom own import x\nfrom . import y\nfrom PIL import Image\n"
    )
    (tmp_path / "own.py").write_text("def f():\n    import torch\n")
    (tmp_path / "broken.py").write_text("import (")
    assert checks.imports(tmp_path) == ["PIL", "numpy"]
    assert "os" in sys.stdlib_module_names


def test_heredocs_become_files(tmp_path: Path) -> None:
    text = (
        "FROM x\nARG A=1\nRUN --mount=type=cache,target=/c <<-EOF\n\techo $A\n\tEOF\nRUN cat <<EOF > /f\n$A\nEOF\n"
        'COPY --chown=1 <<one <<"two" /d/\n$A\none\n$A\ntwo\nRUN echo "<<EOF"\n'
    )
    mount = "--mount=type=bind,from=inferlift-heredocs,target=/run/inferlift-heredocs"
    assert heredocs.lower(text, tmp_path) == (
        f"FROM x\nARG A=1\nRUN --mount=type=cache,target=/c {mount} . /run/inferlift-heredocs/0/script\n"
        f"RUN {mount} . /run/inferlift-heredocs/1/script\n"
        'COPY --from=inferlift-heredocs --chown=1 2/one 2/two /d/\nRUN echo "<<EOF"\n'
    )
    assert (tmp_path / "0/script").read_text() == "echo $A\n"
    assert (tmp_path / "1/script").read_text() == "cat <<EOF > /f\n$A\nEOF\n"
    assert (tmp_path / "2/one").read_text() == "1\n"
    assert (tmp_path / "2/two").read_text() == "$A\n"


def test_a_copy_that_mixes_heredocs_and_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="line 2"):
        heredocs.lower("FROM x\nCOPY <<a b /d/\n1\na\n", tmp_path)


def test_an_image_of_one_static_program_is_fit_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert not all(check.ok for check in checks.linkage(tmp_path))
    (tmp_path / "app").write_bytes(b"\x7fELF\x02\x01" + bytes(58))  # no program header: nothing is asked for
    found = checks.linkage(tmp_path)
    assert all(check.ok for check in found)
    assert found[0].detail == "1 ELF files looked at"
