"""Inventory, refusals and doctor's faces. Nothing here is downloaded or installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift import toolchain
from inferlift.errors import DeclarationError, Refusal
from inferlift.toolchain import debian, doctor, engine, images, python_packages, store, table


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Empty of pulumi, go and uv, whatever the machine has.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    engine._on_path.cache_clear()
    return tmp_path / "cache" / "inferlift"


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_an_empty_cache_lacks_all_that_is_kept_in_it() -> None:
    tools = {t.name: t for t in toolchain.inventory(["pulumi", "pulumi-python", "wheels"])}
    assert {name: (t.present, t.version) for name, t in tools.items()} == dict.fromkeys(tools, (False, None))
    assert all(t.bring.endswith(name) and t.needed_by for name, t in tools.items())
    assert toolchain.wheels() == []


def test_what_the_cache_holds_is_found_with_its_version(own_cache: Path) -> None:
    for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"):
        executable(toolchain.pulumi_bin() / name)
    assert toolchain.pulumi_bin().is_relative_to(own_cache)
    (python_packages.wheel_folder()).mkdir(parents=True)
    (python_packages.wheel_folder() / "xllamacpp-1.2.3-cp310-abi3-linux.whl").touch()
    tools = {t.name: t for t in toolchain.inventory(["pulumi", "pulumi-python", "wheels"])}
    assert all(t.present for t in tools.values())
    assert tools["pulumi"].version == "3.274.1"
    assert tools["wheels"].version == "xllamacpp 1.2.3"


@pytest.mark.parametrize(
    ("version", "plugin", "taken"),
    [("v3.250.0", True, True), ("v3.249.9", True, False), ("v3.300.1", False, False), ("nonsense", True, False)],
)
def test_an_engine_on_path_must_be_new_enough_and_have_its_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, plugin: bool, taken: bool
) -> None:
    folder = tmp_path / "usr"
    executable(folder / "pulumi", f"#!/bin/sh\necho {version}\n")
    if plugin:
        executable(folder / "pulumi-language-python")
        executable(folder / "pulumi-language-python-exec")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    assert (toolchain.pulumi_bin() == folder) is taken
    assert toolchain.inventory(["pulumi"])[0].present is taken


def test_nothing_is_made_when_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"):
        executable(toolchain.pulumi_bin() / name)
    said: list[str] = []
    toolchain.ensure(["pulumi", "pulumi-python"], said.append)
    assert said == []


def test_ensure_makes_what_a_tool_needs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def look(spec: table.Spec) -> table.Tool:
        return spec.tool(present=spec.name in made, version="1", detail="")

    def make(spec: table.Spec, say: store.Say) -> None:
        made.append(spec.name)

    monkeypatch.setattr(toolchain, "_KINDS", {n: toolchain._Kind(look, make) for n in table.catalogue()})
    monkeypatch.setattr(debian, "require_root", lambda *_: None)
    monkeypatch.setattr(debian, "require_debian", lambda: None)
    said: list[str] = []
    toolchain.ensure(["wheels", "host-image", "pulumi-python"], said.append)
    assert made == ["debian-packages", "pulumi", "pulumi-python", "host-image", "wheels"]
    assert said[0].startswith("debian-packages: making it")
    assert len(said) == 2 * len(made)
    toolchain.ensure(["host-image"], said.append)
    assert len(said) == 2 * len(made)


def test_without_root_it_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(spec: table.Spec) -> table.Tool:
        return spec.tool(present=False, version=None, detail="")

    def never(spec: table.Spec, say: store.Say) -> None:
        raise AssertionError(spec.name)

    monkeypatch.setattr(toolchain, "_KINDS", {n: toolchain._Kind(absent, never) for n in table.catalogue()})
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(debian, "require_debian", lambda: None)
    with pytest.raises(Refusal, match="needs root") as caught:
        toolchain.ensure(["pulumi", "host-image"], lambda _: None)
    assert "as root" in caught.value.next_command


def test_another_system_than_debian_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "os_release", lambda: {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 43"})
    with pytest.raises(DeclarationError, match="Fedora Linux 43"):
        debian.require_debian()


def test_a_debian_without_apt_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "os_release", lambda: {"ID": "debian"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="apt-get is not on PATH"):
        debian.require_debian()


def test_an_unknown_tool_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeclarationError) as caught:
        toolchain.inventory(["pulumi", "terraform"])
    assert "terraform" in caught.value.what
    assert "host-image" in caught.value.why


def test_an_image_is_named_by_all_that_it_is_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "debian.sources"
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    monkeypatch.setattr(images, "_codename", lambda: "bookworm")
    monkeypatch.setattr(images, "_sources", lambda: sources)
    monkeypatch.setattr(images, "CERTIFICATES", certificates)
    sources.write_text("Types: deb\n")
    seen = [toolchain.host_image(), toolchain.base_image()]
    assert seen == [toolchain.host_image(), toolchain.base_image()]
    assert seen[0].startswith("localhost/inferlift-host:")
    assert seen[1].startswith("localhost/inferlift-base:")
    sources.write_text("Types: deb \n")
    seen.append(toolchain.host_image())
    (certificates / "ours.crt").write_text("a")
    seen.append(toolchain.host_image())
    (certificates / "ours.crt").write_text("b")
    seen.append(toolchain.host_image())
    monkeypatch.setattr(images, "_codename", lambda: "trixie")
    seen.append(toolchain.host_image())
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"sources.list.d/debian.sources": "Types: deb\nSuites: bookworm\nURIs: mirror/debian\nComponents: main"}, 0),
        ({"sources.list": "deb mirror/debian bookworm main"}, 0),
        (
            {"sources.list.d/a.sources": "Suites: other\nComponents: main", "sources.list": "deb debian bookworm main"},
            1,
        ),
        ({"sources.list": "# deb mirror/debian bookworm main"}, None),
        ({}, None),
    ],
)
def test_debians_own_sources_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], chosen: int | None
) -> None:
    monkeypatch.setattr(images, "_codename", lambda: "bookworm")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    if chosen is None:
        with pytest.raises(DeclarationError, match="no apt sources of Debian"):
            images._sources(tmp_path)
    else:
        assert images._sources(tmp_path) == tmp_path / list(files)[chosen]


def test_podman_gets_our_configuration_only_where_its_store_is_not_netavarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = tmp_path / "choice"
    monkeypatch.setattr(images, "NETWORK_CHOICE", choice)
    choice.write_text("netavark")
    assert toolchain.podman_env() == {}
    for text in ("cni", None):
        choice.unlink()
        if text:
            choice.write_text(text)
        path = toolchain.podman_env()["CONTAINERS_CONF"]
        assert 'network_backend = "netavark"' in Path(path).read_text()
        choice.touch()


def test_doctor_says_complete_or_what_brings_the_rest() -> None:
    there = table.Tool("one", True, "1.2", ("poc",), "here", "make one")
    absent = table.Tool("two", False, None, ("load",), "missing: two", "make two")
    assert doctor.exit_code([there]) == 0
    assert doctor.table([there]).endswith("all there")
    assert doctor.exit_code([there, absent]) == 1
    text = doctor.table([there, absent])
    assert "  make two" in text
    assert "make one" not in text
    said = json.loads(json.dumps(doctor.as_object([there, absent])))
    assert (said["ok"], said["verdict"]) == (False, "missing")
    assert said["figures"] == {"tools": 2, "present": 1, "missing": 1}
    assert said["tools"][1]["version"] is None
    assert doctor.as_object([there])["ok"] is True


def test_doctor_knows_the_targets() -> None:
    assert "host-image" not in toolchain.tools_for("aws")
    assert {t.name for t in doctor.report("static")} == {"pulumi", "pulumi-python"}
    with pytest.raises(DeclarationError, match="no target is called gcp"):
        doctor.report("gcp")


def test_what_is_pinned_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = toolchain.pinned()
    assert set(before) == {"pulumi", "pulumi-python", "host-image", "base-image", "wheels", "triton-wheels"}
    assert before["pulumi"] == "3.274.1"
    monkeypatch.setattr(images, "_codename", lambda: "trixie")
    monkeypatch.setattr(images, "CERTIFICATES", tmp_path)
    assert toolchain.pinned() == before


def test_every_row_has_its_maker_and_a_source() -> None:
    rows = table.catalogue()
    assert set(rows) == set(toolchain._KINDS)
    assert all(spec.source and spec.needed_by and spec.duration for spec in rows.values())
    order = list(rows)
    assert all(order.index(need) < order.index(name) for name, spec in rows.items() for need in spec.needs)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.sampled_from(["", "-alpha.1", "+dirty", "rc2"]))
def test_versions_compare_by_number(numbers: list[int], tail: str) -> None:
    text = "v" + ".".join(map(str, numbers)) + tail
    assert table.version_tuple(text) == tuple(numbers)


@given(st.text())
def test_any_text_is_a_version_or_none(text: str) -> None:
    assert all(n >= 0 for n in table.version_tuple(text))
