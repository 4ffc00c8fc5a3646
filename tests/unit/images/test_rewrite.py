"""Cases are files: `cases/X.in` must become `cases/X.out`, `unchanged/X.in` itself, `refused/X.in` is refused with
the lines in `X.expected`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.errors import DeclarationError
from inferlift.images import rewrite, tables
from inferlift.images.dockerfile import parse
from inferlift.images.rewrite import Rewritten

HERE = Path(__file__).parent
BASE = "debian:12"


def _read(path: Path) -> str:
    return path.read_bytes().decode()


def _cases(folder: str) -> list[Path]:
    found = sorted((HERE / folder).glob("*.in"))
    assert found
    return found


@pytest.mark.parametrize("path", _cases("cases"), ids=lambda p: p.stem)
def test_alpine_moves_to_the_base(path: Path) -> None:
    done = rewrite(_read(path), BASE)
    assert done.text == _read(path.with_suffix(".out"))
    assert done.changes
    assert rewrite(done.text, BASE) == Rewritten(done.text, ())


@pytest.mark.parametrize("path", _cases("cases"), ids=lambda p: p.stem)
def test_every_changed_line_is_explained_with_its_place(path: Path) -> None:
    text = _read(path)
    lines = text.splitlines()
    for change in rewrite(text, BASE).changes:
        assert change.why
        assert change.before != change.after
        first = change.before.split(maxsplit=1)[:1]
        assert not first or first[0] in lines[change.line - 1]


@pytest.mark.parametrize("path", _cases("unchanged"), ids=lambda p: p.stem)
def test_other_dockerfiles_come_back_as_they_are(path: Path) -> None:
    assert rewrite(_read(path), BASE) == Rewritten(_read(path), ())


@pytest.mark.parametrize("path", _cases("refused"), ids=lambda p: p.stem)
def test_all_that_is_unknown_is_listed_with_its_line(path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        rewrite(_read(path), BASE)
    assert caught.value.why.split("; ") == _read(path.with_suffix(".expected")).splitlines()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no FROM"),
        ("# only a comment\n", "has no FROM"),
        ("FROM x\nINSTALL curl\n", "line 2 is no Dockerfile instruction"),
        ("FROM x\n\n=\n", "line 3 is no Dockerfile instruction"),
        ("FROM x\nRUN <<EOF\necho\n", "heredoc EOF begun in line 2 has no end"),
    ],
)
def test_what_is_no_dockerfile_is_said_with_its_line(text: str, what: str) -> None:
    with pytest.raises(DeclarationError, match=what):
        rewrite(text, BASE)


_PIECES = st.sampled_from(
    [
        "FROM alpine:3.20\n", "FROM x AS y\n", "RUN a \\\n  # c\n\n  && b\n", "# comment\n", "\n", "ENV A=b C='d e'\n",
        "RUN <<A cat <<-'B'\nx\nA\n\ty\n\tB\n", 'CMD ["a", "b"]\n', "RUN echo '<<EOF'\n",
        "  copy --from=y a \\\r\n b\r\n",
        "RUN x=$((1<<2))\n", "LABEL a=\\\n b\n",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12))
def test_parsing_keeps_every_byte_and_line_number(pieces: list[str]) -> None:
    text = "FROM a\n" + "".join(pieces)
    nodes = parse(text).nodes
    assert parse(text).text() == text
    line = 1
    for node in nodes:
        assert node.line == line
        line += node.raw.count("\n")


@given(st.lists(st.sampled_from(sorted(tables.packages())), min_size=1, max_size=6, unique=True), st.booleans())
def test_a_mix_of_known_packages_is_translated_and_stays(names: list[str], lines: bool) -> None:
    done = rewrite("FROM alpine\nRUN apk add " + (" \\\n  " if lines else " ").join(names) + " && x\n", BASE)
    assert "apk" not in done.text.replace("libapk", "")
    for name in names:
        for package in tables.packages()[name].apt:
            assert f" {package}" in done.text
    assert rewrite(done.text, BASE).changes == ()


def test_tables_name_their_sources() -> None:
    assert len(tables.packages()) >= 60
    for table in (tables.packages(), tables.bases(), tables.applets()):
        assert all(row.source for row in table.values())
