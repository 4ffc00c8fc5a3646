"""What is noted on a host before an image is pulled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from inferlift.images import on_host
from inferlift.profile import ROOT


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(on_host, "STAMPS", str(tmp_path / "lib" / "images"))
    monkeypatch.setattr(on_host, "STORES", (str(tmp_path / "storage"), str(tmp_path / "cache")))
    monkeypatch.setattr(on_host, "MANIFEST", str(tmp_path / "etc" / "images.json"))
    return tmp_path


def kept(host: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((host / "etc" / "images.json").read_text())["kept"]
    return found


def test_images_and_what_comes_with_them_are_noted_and_joined(host: Path) -> None:
    (host / "cache").mkdir()
    on_host.note(["r/app@sha256:1", "localhost/app:1"])
    first = {"made": [str(host / "lib"), str(host / "storage")], "stores": [str(host / "storage"), str(host / "cache")]}
    first["folders"] = [str(host / "lib" / "images")]
    assert kept(host) == {**first, "images": ["localhost/app:1", "r/app@sha256:1"]}
    for folder in ("lib", "storage"):  # what the pull makes
        (host / folder / "x").mkdir(parents=True)
    on_host.note(["r/app@sha256:2"])
    assert kept(host) == {**first, "images": ["localhost/app:1", "r/app@sha256:1", "r/app@sha256:2"]}


def test_a_store_that_somebody_uses_is_not_noted(host: Path) -> None:
    (host / "storage" / "overlay").mkdir(parents=True)
    on_host.note(["r/app@sha256:1"])
    assert kept(host)["stores"] == [str(host / "cache")]


def test_the_removal_of_all_roles_names_the_images_and_the_roles_that_run_them_before() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks" / "remove.yml").read_text())
    roles = play["tasks"][0]["vars"]["remove_all"]
    assert Path(on_host.MANIFEST).stem == "images"
    assert set(roles[: roles.index("images")]) >= {"container", "vllm", "triton"}
    assert roles[-1] == "base", "podman is one of its packages"
