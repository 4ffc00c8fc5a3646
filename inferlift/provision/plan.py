"""Which hosts a desired fleet and a world consist of."""

from __future__ import annotations

from inferlift.artifacts import DesiredFleet
from inferlift.errors import DeclarationError
from inferlift.provision.models import HostSpec

MIB = 2**20


def fleet_specs(desired: DesiredFleet, image: str, public_key: str) -> list[HostSpec]:
    """Hosts numbered from 1 within their role, so that a smaller count drops the highest numbers.

    Raises DeclarationError when there are fewer model hosts than a stage's floor needs.
    """
    numbers: dict[str, int] = {}
    specs = []
    for group in desired.groups:
        for _ in range(group.count):
            numbers[group.role] = numbers.get(group.role, 0) + 1
            specs.append(
                HostSpec(
                    owner=desired.label,
                    name=f"{group.role}-{numbers[group.role]}",
                    role=group.role,
                    image=image,
                    cpus=group.cpus,
                    memory_bytes=group.memory_bytes,
                    public_key=public_key,
                    site=group.site,
                )
            )
    floor = max(desired.floors.values(), default=0)
    if numbers.get("model", 0) < floor:
        stage = max(desired.floors, key=lambda name: desired.floors[name])
        raise DeclarationError(
            f"the fleet document asks for {numbers.get('model', 0)} model hosts",
            why=f"stage {stage} needs {floor}",
        )
    return specs


def world_specs(owner: str, origin_cpus: float, image: str, public_key: str) -> list[HostSpec]:
    """The old server with its CPU quota, the authority and the resolver of its zone."""
    sizes = {"origin": (origin_cpus, 1024 * MIB), "authority": (0.3, 256 * MIB), "resolver": (0.3, 256 * MIB)}
    return [
        HostSpec(owner=owner, name=role, role=role, image=image, cpus=cpus, memory_bytes=memory, public_key=public_key)
        for role, (cpus, memory) in sizes.items()
    ]
