"""Variables: everything the roles require and nothing they do not know; secrets as references only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from configure_hosts import contract, fleet, images, profile

from inferlift.artifacts import Fleet, Images
from inferlift.configure.variables import (
    FleetVariables,
    context_per_slot,
    fleet_certificates,
    fleet_secrets,
    fleet_variables,
    queue_max,
    queue_seconds,
)
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT

ROLES = ("base", "llamacpp", "container", "gateway", "monitor")


def made(
    folder: Path, the_fleet: Fleet | None = None, the_images: Images | None = None, **changes: Any
) -> FleetVariables:
    return fleet_variables(
        profile(**changes),
        the_fleet or fleet(folder),
        contract(folder),
        images(folder) if the_images is None else the_images,
        secrets=fleet_secrets(folder / "secrets"),
        tls_folder=folder / "tls",
        wheels=folder,
    )


def specified(role: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / "playbooks" / "roles" / role / "meta" / "argument_specs.yml").read_text()
    options: dict[str, dict[str, Any]] = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    return options


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_requires_is_given_and_what_is_given_is_known(tmp_path: Path, role: str) -> None:
    result = made(tmp_path)
    given = {n for n in [*result.variables, *result.secrets] if n.startswith(f"{role}_")}
    options = specified(role)
    assert given <= set(options)
    assert {name for name, option in options.items() if option.get("required")} <= given


def test_an_image_comes_as_an_archive_only_where_no_registry_brings_it(tmp_path: Path) -> None:
    alone, there = made(tmp_path).variables, made(tmp_path, registry={"address": "reg.test"}).variables
    assert alone["container_image_archive"] == str(tmp_path / "chat.tar")
    assert there["container_image_archive"] == ""
    assert alone["container_image_digest"] == there["container_image_digest"]


def test_every_variable_belongs_to_a_role(tmp_path: Path) -> None:
    result = made(tmp_path)
    assert not [n for n in [*result.variables, *result.secrets] if n.split("_")[0] not in ROLES]


def test_secret_options_are_secret_and_hidden_in_the_specification(tmp_path: Path) -> None:
    result = made(tmp_path)
    hidden = {n for role in ROLES for n, option in specified(role).items() if option.get("no_log")}
    assert hidden == {*result.secrets, "monitor_webhook_url"}  # given where the profile names one
    assert all(reference.startswith("file:") for reference in result.secrets.values())


def test_no_value_of_a_secret_is_among_the_variables(tmp_path: Path) -> None:
    result = made(tmp_path)
    values = [Path(r.removeprefix("file:")).read_text() for r in fleet_secrets(tmp_path / "secrets").values()]
    assert len(set(values)) == 6
    assert not [v for v in values if v in str(result)]


def test_pure(tmp_path: Path) -> None:
    assert made(tmp_path) == made(tmp_path)


def test_only_the_gateway_and_the_monitor_reach_the_models(tmp_path: Path) -> None:
    variables = made(tmp_path).variables
    assert variables["base_gateway_networks"] == ["192.0.2.10/32"]
    assert variables["base_monitor_networks"] == ["192.0.2.20/32"]
    assert variables["base_operator_networks"] == ["192.0.2.1/32"]


@pytest.mark.parametrize("role", ["gateway", "model", "monitor"])
def test_a_fleet_without_one_of_its_parts_is_refused(tmp_path: Path, role: str) -> None:
    whole = fleet(tmp_path)
    part = whole.model_copy(update={"hosts": tuple(h for h in whole.hosts if h.role != role)})
    with pytest.raises(DeclarationError):
        made(tmp_path, part)


def test_without_an_image_there_is_no_container(tmp_path: Path) -> None:
    assert "container_image_digest" not in made(tmp_path, the_images=Images(images=())).variables


@pytest.mark.parametrize(
    ("p95", "output", "context", "expected"),
    [(60, 6, 2048, 512), (250, 6, 2048, 512), (251, 6, 2048, 768), (1900, 100, 2048, 2048), (200, 50, 256, 256)],
)
def test_a_slot_holds_the_longest_usual_request(p95: int, output: int, context: int, expected: int) -> None:
    model = profile().model.model_dump() | {"context": context}
    requests = {"input_tokens_p50": 10, "input_tokens_p95": p95, "output_tokens": output}
    assert context_per_slot(profile(model=model, requests=requests)) == expected


def test_the_queue_takes_the_whole_peak_and_serves_its_last() -> None:
    assert queue_max(profile()) > 1000
    assert queue_seconds(profile(targets={"acceptance_deadline_s": 420})) == 420
    assert queue_seconds(profile(targets={"acceptance_deadline_s": 10})) == 120


def test_secrets_are_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    first = {n: Path(r.removeprefix("file:")).read_text() for n, r in fleet_secrets(tmp_path).items()}
    (tmp_path / "app_key").write_text("")  # a killed run's empty file is no secret
    second = {n: Path(r.removeprefix("file:")).read_text() for n, r in fleet_secrets(tmp_path).items()}
    assert {n for n in first if first[n] != second[n]} == {"app_key"}
    assert all(len(v) >= 32 for v in second.values())
    assert {oct((tmp_path / n).stat().st_mode & 0o777) for n in second} == {"0o600"}


def test_every_host_gets_a_certificate(tmp_path: Path) -> None:
    ca = fleet_certificates(tmp_path / "tls", fleet(tmp_path))
    assert ca.cert.name == "ca.pem"
    assert {p.stem for p in (tmp_path / "tls").glob("*.key")} == {"ca", "gateway-1", "monitor-1", "model-1", "model-2"}
