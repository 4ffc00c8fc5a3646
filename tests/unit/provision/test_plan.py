from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.artifacts import DesiredFleet, HostGroup
from inferlift.errors import DeclarationError
from inferlift.provision.plan import fleet_specs, world_specs


def fleet(models: int, floors: dict[str, int] | None = None) -> DesiredFleet:
    groups = (
        HostGroup(role="gateway", count=1, cpus=0.3, memory_bytes=2**28),
        HostGroup(role="model", count=models, cpus=0.7, memory_bytes=2**30),
    )
    return DesiredFleet(label="a/b/fleet", groups=groups, floors=floors or {})


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30))
def test_a_smaller_fleet_is_a_prefix_of_a_larger(a: int, b: int) -> None:
    small, large = (fleet_specs(fleet(n), "image", "key") for n in sorted((a, b)))
    assert large[: len(small)] == small


def test_groups_of_one_role_are_numbered_through() -> None:
    groups = tuple(HostGroup(role="model", count=2, cpus=1, memory_bytes=2**30, site=s) for s in ("lab", "edge"))
    specs = fleet_specs(DesiredFleet(label="a", groups=groups, floors={}), "image", "key")
    assert [(s.name, s.site) for s in specs] == [
        ("model-1", "lab"),
        ("model-2", "lab"),
        ("model-3", "edge"),
        ("model-4", "edge"),
    ]


def test_below_a_floor_is_refused_and_names_the_stage() -> None:
    with pytest.raises(DeclarationError, match="asks for 2 model hosts") as caught:
        fleet_specs(fleet(2, {"poc": 1, "scale": 3}), "image", "key")
    assert caught.value.why == "stage scale needs 3"
    assert len(fleet_specs(fleet(3, {"poc": 1, "scale": 3}), "image", "key")) == 4


def test_the_world_has_its_three_hosts_and_the_origins_quota() -> None:
    specs = {s.name: s for s in world_specs("w", 0.4, "image", "key")}
    assert set(specs) == {"origin", "authority", "resolver"}
    assert specs["origin"].cpus == 0.4


def test_a_host_larger_than_the_machine_is_no_capacity() -> None:
    from inferlift.artifacts import DesiredFleet, HostGroup
    from inferlift.errors import NoCapacity
    from inferlift.provision import targets

    def wanted(cpus: float, memory: int) -> DesiredFleet:
        group = HostGroup(role="model", count=1, cpus=cpus, memory_bytes=memory)
        return DesiredFleet(label="a/fleet", groups=(group,), floors={"poc": 1})

    targets._room(wanted(0.5, 2**28))
    for cpus, memory in ((4096.0, 2**28), (0.5, 2**60)):
        with pytest.raises(NoCapacity, match="no room"):
            targets._room(wanted(cpus, memory))
