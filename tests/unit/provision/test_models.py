from __future__ import annotations

import pytest

from inferlift.provision.models import HostSpec, container_name, network_name

SPEC = HostSpec(
    owner="3fa2c1/demo-lab/fleet",
    name="model-1",
    role="model",
    image="localhost/inferlift-host:1",
    cpus=0.7,
    memory_bytes=2**30,
    public_key="ssh-ed25519 AAAA",
)
OTHER = {
    "owner": "3fa2c1/demo-lab/other",
    "name": "model-2",
    "role": "gateway",
    "image": "localhost/inferlift-host:2",
    "cpus": 0.8,
    "memory_bytes": 2**31,
    "public_key": "ssh-ed25519 BBBB",
    "site": "edge",
}


@pytest.mark.parametrize("field", sorted(HostSpec.model_fields))
def test_every_field_makes_another_host(field: str) -> None:
    assert SPEC.model_copy(update={field: OTHER[field]}).digest != SPEC.digest


def test_the_digest_is_the_same_tomorrow() -> None:
    assert SPEC.digest == HostSpec.model_validate_json(SPEC.model_dump_json()).digest == "5782658c755a2c92"


def test_names_say_whose_they_are() -> None:
    assert network_name(SPEC.owner) == "inferlift-3fa2c1-demo-lab-fleet"
    assert container_name(SPEC.owner, "model-1") == "inferlift-3fa2c1-demo-lab-fleet-model-1"
