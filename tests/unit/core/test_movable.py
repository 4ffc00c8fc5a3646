"""What `deploy` still misses of a profile is said at once, with the line to look at, and before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inferlift.declaration import load
from inferlift.errors import DeclarationError
from inferlift.movable import EXAMPLE, deployable, lacking
from inferlift.profile import ROOT, Profile

SAID = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
DNS = SAID["switch"]["dns"]
IMAGE = "registry.example.com/vllm@sha256:" + "0" * 64


def profile(name: str = "llm-13b", **change: Any) -> Profile:
    """A shipped profile with the example's old side, changed."""
    plain = load(name, ROOT).profile.model_dump(mode="json")
    plain |= {"origin": SAID["origin"], "server": {**plain["server"], "image": IMAGE}}
    plain["switch"] = {**plain["switch"], "dns": DNS}
    for key, value in change.items():
        section, _, inner = key.partition("__")
        plain[section] = {**(plain[section] or {}), inner: value} if inner else value
    return Profile.model_validate(plain)


@pytest.mark.parametrize("name", ["llm-13b", "llm-70b", "on-prem", "demo-aws"])
def test_with_an_old_side_it_can_be_moved(name: str) -> None:
    deployable(profile(name, data={"state": "none"}), name)


def test_the_walk_through_shows_what_can_be_declared() -> None:
    text = (ROOT / "docs" / "move.md").read_text(encoding="utf-8")
    said = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    plain = profile().model_dump(mode="json")
    plain["switch"] = {**plain["switch"], **said["switch"]}
    assert lacking(Profile.model_validate({**plain, "origin": said["origin"]})) == []


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"origin__ssh": None}, "origin.ssh"),
        ({"origin__certificate": None}, "origin.certificate"),
        ({"origin__certificate_key": None}, "origin.certificate_key"),
        ({"origin__key": None}, "origin.key"),
        ({"origin__routes": {}}, "origin.routes"),
        ({"switch__dns": None}, "switch.dns"),
        ({"data": {"state": "read-only"}}, "data.source"),
        ({"server__image": None}, "server.image"),
        ({"model__source": "not said yet"}, "model.source"),
        ({"origin__dockerfile": None}, None),  # the plain app answers
        ({"origin__dockerfile": None, "origin__routes": {"/ask": "/ask"}}, "origin.dockerfile"),
        ({"data": {"state": "read-only", "source": "s3://bucket/prefix"}}, None),
        ({"server": {"kind": "llamacpp", "slots": 4}}, None),
    ],
)
def test_each_thing_that_is_missing_is_named(change: dict[str, Any], missing: str | None) -> None:
    assert [key for key, _ in lacking(profile(**change))] == ([missing] if missing else [])


def test_nobody_is_led_to_a_host_that_only_this_machine_reaches() -> None:
    assert [key for key, _ in lacking(profile("demo", data={"state": "none"}))] == ["target"]


def test_pictures_take_an_app_and_the_pictures() -> None:
    edge = profile("image-edge", origin__dockerfile=None, load={"quality_prompts": None})
    assert {"origin.dockerfile", "load.quality_prompts"} <= {key for key, _ in lacking(edge)}


def test_all_of_it_is_said_at_once_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: llm-13b\nname: mine\norigin:\n  name: ai.example.com\n  logs: /var/log/access.log\n")
    declared = load(str(path), ROOT)
    with pytest.raises(DeclarationError, match="7 things stand between") as caught:
        deployable(declared.profile, "mine", declared)
    assert caught.value.exit_code == 2
    rows = caught.value.what.splitlines()[1:]
    assert rows[0] == f"{path}:3: origin.ssh: missing; expected USER@HOST of the old host"
    assert [row.partition(": ")[0] for row in rows[:5]] == [f"{path}:3"] * 5
    assert any("profiles/llm-13b.yaml:" in row and "server.image" in row for row in rows), "as far as it stands there"


@pytest.mark.parametrize("name", ["llm-13b", "llm-70b", "image-edge", "on-prem"])
def test_without_an_old_side_the_section_to_copy_is_shown(name: str) -> None:
    declared = load(name, ROOT)
    with pytest.raises(DeclarationError, match="does not say where its users are now") as caught:
        deployable(declared.profile, name, declared)
    assert EXAMPLE.read_text(encoding="utf-8").rstrip() in caught.value.why
    assert f"profiles/{name}.yaml" in caught.value.why
    assert f"--profile {name}" in caught.value.next_command


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("batch", {}, "the task batch can be planned, not yet deployed"),
        ("llm-13b", {"data": {"state": "read-write", "source": "/srv"}}, "without a freeze and a way back"),
    ],
)
def test_what_the_parts_do_not_carry_is_refused(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        deployable(profile(name, **change), name)


def test_questions_about_pictures_need_pictures_and_a_service_that_exists() -> None:
    lacks = lacking(profile("multimodal"))
    assert [key for key, _ in lacks] == ["load.quality_prompts"]
    deployable(profile("multimodal", load__quality_prompts="seen.jsonl"), "multimodal")


@pytest.mark.parametrize(
    ("edge", "dns", "said"),
    [
        (["eu-north-1"], DNS, "switch.dns of kind route53"),
        (["eu-central-1-ham-1a"], {"kind": "route53", "zone": "example.com", "zone_id": "Z1"}, "no Local Zones"),
    ],
)
def test_sites_whose_users_cannot_be_told_apart_are_refused(edge: list[str], dns: dict[str, Any], said: str) -> None:
    change = {"aws__edge": edge, "switch__dns": dns, "data": {"state": "none"}}
    with pytest.raises(DeclarationError) as caught:
        deployable(profile("llm-13b", **change), "llm-13b")
    assert said in caught.value.why


def test_a_queue_takes_nobody_over() -> None:
    deployable(load("batch", ROOT).profile, "batch")


@pytest.mark.parametrize("name", ["demo", "demo-aws", "demo-image"])
def test_the_labs_own_old_side_needs_no_more(name: str) -> None:
    deployable(load(name, ROOT).profile, name)
