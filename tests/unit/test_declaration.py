"""Every wrong profile in declaration_cases/ is refused with its file, line and hint; `.expect` holds the fragments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift.declaration import Declared, load, names, schema
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT
from inferlift.profile_schema import all_keys, table

CASES = Path(__file__).parent / "declaration_cases"
LAB = CASES / "root"
BASE = (LAB / "profiles" / "base.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.yaml")))
def test_case(case: str) -> None:
    fragments = (CASES / f"{case}.expect").read_text(encoding="utf-8").splitlines()
    if not fragments:
        assert load(str(CASES / f"{case}.yaml"), LAB).profile.name == "t"
        return
    with pytest.raises(DeclarationError) as caught:
        load(str(CASES / f"{case}.yaml"), LAB)
    message = caught.value.what
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert caught.value.exit_code == 2
    assert caught.value.next_command
    assert "hunter2-planted" not in str(caught.value)
    assert "48151623" not in str(caught.value)
    lines = [int(found) for found in re.findall(r"\.yaml:(\d+):", message)]
    assert lines == sorted(lines)


def test_every_case_has_a_file_that_says_what_is_expected() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in CASES.glob("*.expect")}


@pytest.mark.parametrize("name", names(ROOT))
def test_shipped_profiles_are_valid(name: str) -> None:
    declared = load(name, ROOT)
    assert declared.profile.name == name
    assert declared.path == ROOT / "profiles" / f"{name}.yaml"


def test_demo_and_demo_small_are_shipped() -> None:
    assert {"demo", "demo-small"} <= set(names(ROOT))
    assert load("demo", ROOT).profile.requests.in_flight_peak == 1000
    small = load("demo-small", ROOT).profile
    assert (small.requests.in_flight_peak, small.load.requests, small.switch.ttl_s) == (100, 100, 1)
    assert small.model == load("demo", ROOT).profile.model


@pytest.mark.parametrize("name", ["bas", "Base", "BASE "])
def test_unknown_name_names_the_nearest(name: str) -> None:
    with pytest.raises(DeclarationError, match="did you mean 'base'"):
        load(name, LAB)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "../../..", "/", "profiles/bse.yaml", "ünï", "-h", "\n"])
def test_odd_names_are_refused_plainly(name: str) -> None:
    with pytest.raises(DeclarationError):
        load(name, LAB)


def test_a_file_beside_that_is_no_shipped_profile_is_hinted_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(BASE, encoding="utf-8")
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path))  # as the launcher tells where the command was typed
    with pytest.raises(DeclarationError, match=r"did you mean the file \./mine\.yaml\?") as caught:
        load("mine", LAB)
    assert caught.value.next_command.startswith("--profile ./mine.yaml")


def test_missing_file_names_the_nearest() -> None:
    with pytest.raises(DeclarationError, match=r"no such file; did you mean .*base\.yaml"):
        load(str(LAB / "profiles" / "bsae.yaml"), LAB)


def test_folder_fifo_dangling_link_and_huge_file(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nothing")
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * 1_000_001)
    for name, said in (
        ("folder", "is a folder"),
        ("fifo", "is not a regular file"),
        ("link", "links to nothing"),
        ("huge", "is larger than 1 MB"),
    ):
        with pytest.raises(DeclarationError, match=said):
            load(str(tmp_path / f"{name}.yaml"), LAB)


def test_name_differs_from_the_file_in_the_profiles_folder(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "templates/workloads/chat").mkdir(parents=True)
    (tmp_path / "profiles" / "other.yaml").write_text(BASE, encoding="utf-8")
    with pytest.raises(DeclarationError, match=r"other\.yaml:1: name: expected 'other'.*got 'base'"):
        load("other", tmp_path)


def test_lines_and_digest() -> None:
    base = load("base", LAB)
    assert base.lines["model.layers"] == 7
    assert base.lines["budget.usd_rate"] == 17
    small = load(str(CASES / "right_anchor.yaml"), LAB)
    assert small.places["targets.p95_ttft_ms"] == (CASES / "right_anchor.yaml", 3)
    assert small.places["model.layers"] == (LAB / "profiles" / "base.yaml", 7)


def test_digest_is_over_meaning(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
        return load(str(tmp_path / "p.yaml"), LAB).digest

    first = digest(BASE)
    assert digest("# a comment\n\n" + BASE) == first
    assert digest(BASE + "server: {slots: 4}\n") == first  # the default, written out
    assert digest(BASE + "server: {slots: 5}\n") != first


def test_norway() -> None:
    profile = load(str(CASES / "right_norway.yaml"), LAB).profile
    assert (profile.description, profile.budget.usd_rate_source) == ("NO", "off")


def test_schema_knows_every_key_and_extends() -> None:
    whole = schema()
    json.dumps(whole)
    assert "extends" in whole["then"]["properties"]
    assert whole["$defs"]["Model"]["required"] == ["name", "source"]
    assert "layers" in whole["$defs"]["Model"]["else"]["required"]  # where no `config` supplies it
    assert {"required", "if", "else"}.isdisjoint(whole["$defs"]["PartialModel"])
    text = json.dumps(whole)
    used = set(re.findall(r'#/\$defs/(\w+)"', text))
    assert used <= set(whole["$defs"])


def _only_valid_or_refused(data: bytes, folder: Path) -> None:
    path = folder / "p.yaml"
    path.write_bytes(data)
    said = "p.yaml:1:"
    try:
        declared = load(str(path), LAB)
    except DeclarationError as error:
        said = error.what
    else:
        assert isinstance(declared, Declared)
    assert "p.yaml:" in said or "base.yaml:" in said


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    _only_valid_or_refused(data, tmp_path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(BASE.splitlines()) - 1), _VALUES, st.booleans())
def test_mutated_values(tmp_path: Path, line: int, value: object, append: bool) -> None:
    lines = BASE.splitlines()
    key = lines[line].split(":")[0]
    shown = json.dumps(value)
    if append:
        lines.insert(line, f"{key}x: {shown}")
    else:
        lines[line] = f"{key}: {shown}"
    _only_valid_or_refused("\n".join(lines).encode(), tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, len(BASE) - 1), st.integers(0, 6), st.text("{}[]&*!|>'\"%@`:-#,?\t\n \\~<é\ud800"[:-1], max_size=4)
)
def test_mutated_text(tmp_path: Path, at: int, cut: int, text: str) -> None:
    _only_valid_or_refused((BASE[:at] + text + BASE[at + cut :]).encode(), tmp_path)


def test_the_table_of_keys_in_the_docs_is_the_profiles_own() -> None:
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    assert text.endswith(table() + "\n"), "write it anew: python -m inferlift.profile_schema"
    assert [key for key in all_keys() if f"`{key}`" not in text] == []


# What a key is for stands in its name only where the name says it all.
SELF_EXPLAINING = {"model.name"}


def test_every_key_says_what_it_means() -> None:
    bare = [row.split("`")[1] for row in table().splitlines() if row.startswith("| `") and row.endswith("|  |")]
    assert [key for key in bare if key not in SELF_EXPLAINING] == []
