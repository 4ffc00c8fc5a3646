"""world.yml's variables against what its roles ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inferlift.configure.world import dns_api_url, old_server, workload, world_secrets, world_variables
from inferlift.declaration import load
from inferlift.profile import ROOT

PROFILE = {"chat": "demo", "image": "demo-image"}


def variables(name: str = "chat", **changes: Any) -> dict[str, Any]:
    told = workload(ROOT / "templates" / "workloads" / name)
    given: dict[str, Any] = {
        "zone": "demo.test", "host": "ai", "ttl_s": 10, "origin": "192.0.2.2", "authority": "192.0.2.3",
        "networks": ["192.0.2.0/24"], "workload": told,
        "server": old_server(load(PROFILE[name], ROOT).profile, told, Path("/wheels")),
        "certificate": "/c", "certificate_key": "/k", "api_certificate": "/ac", "api_certificate_key": "/ak",
    }  # fmt: skip
    return world_variables(**(given | changes))


SECRETS = world_secrets(users_key="env:A", app_key="env:B", model_key="env:C", dns_key="env:D", guard_key="env:E")


def options(role: str) -> dict[str, dict[str, Any]]:
    specs = yaml.safe_load((ROOT / "playbooks/roles" / role / "meta/argument_specs.yml").read_text())
    found: dict[str, dict[str, Any]] = specs["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize("name", ["chat", "image"])
def test_every_role_gets_what_it_needs_and_nothing_it_does_not_know(name: str) -> None:
    given = variables(name) | SECRETS
    roles = ["origin", "authority", "resolver", *given["origin_server_roles"]]
    known = {name for role in [*roles, "llamacpp"] for name in options(role)}
    assert set(given) <= known
    for role in roles:
        missing = {name for name, option in options(role).items() if option.get("required")} - set(given)
        assert not missing, f"{role}: {missing}"


def test_secrets_are_references_and_never_variables() -> None:
    hidden = {
        name
        for role in ("origin", "authority", "resolver", "llamacpp")
        for name, option in options(role).items()
        if option.get("no_log")
    }
    assert set(SECRETS) == hidden
    assert not hidden & set(variables())
    assert SECRETS["origin_model_key"] == SECRETS["llamacpp_key"] == "env:C"


def test_names_have_their_final_dot_where_dns_wants_it() -> None:
    for zone in ("demo.test", "demo.test."):
        given = variables(zone=zone)
        assert given["origin_name"] == "ai.demo.test"
        assert given["authority_zone"] == given["resolver_zone"] == "demo.test."
        assert given["authority_record"] == "ai.demo.test."
    assert variables()["llamacpp_slots"] == 1
    assert dns_api_url("192.0.2.3") == "https://192.0.2.3:8443"
