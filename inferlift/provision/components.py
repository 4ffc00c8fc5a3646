"""The lab's Pulumi programs: one for the desired fleet, one for the old world, of typed components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi

from inferlift.artifacts import DesiredFleet
from inferlift.provision.lab_provider import HOST, NETWORK
from inferlift.provision.models import HostSpec
from inferlift.provision.plan import fleet_specs, world_specs


class LabNetwork(pulumi.CustomResource):
    """A podman network on a free /24."""

    name: pulumi.Output[str]
    subnet: pulumi.Output[str]

    def __init__(self, resource: str, owner: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(NETWORK, resource, {"owner": owner, "name": None, "subnet": None}, opts)


class LabHost(pulumi.CustomResource):
    """A podman host with systemd and sshd."""

    container: pulumi.Output[str]
    address: pulumi.Output[str]
    host_key: pulumi.Output[str]

    def __init__(self, spec: HostSpec, network: LabNetwork, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs: dict[str, Any] = {
            "owner": spec.owner,
            "name": spec.name,
            "role": spec.role,
            "image": spec.image,
            "cpus": spec.cpus,
            "memoryBytes": spec.memory_bytes,
            "publicKey": spec.public_key,
            "site": spec.site,
            "network": network.name,
            "container": None,
            "address": None,
            "hostKey": None,
        }
        super().__init__(HOST, spec.name, inputs, opts)

    def translate_output_property(self, prop: str) -> str:
        return {"hostKey": "host_key", "memoryBytes": "memory_bytes", "publicKey": "public_key"}.get(prop, prop)


class LabHosts(pulumi.ComponentResource):
    """Hosts on one network of their own."""

    def __init__(self, name: str, owner: str, specs: list[HostSpec]) -> None:
        super().__init__("inferlift:lab:Hosts", name)
        self.network = LabNetwork("network", owner, pulumi.ResourceOptions(parent=self))
        self.hosts = {
            spec.name: LabHost(
                spec,
                self.network,
                pulumi.ResourceOptions(parent=self, delete_before_replace=True, depends_on=[self.network]),
            )
            for spec in specs
        }
        self.register_outputs({"addresses": {name: host.address for name, host in self.hosts.items()}})


def fleet_program(desired: DesiredFleet, image: str, public_key: str) -> Callable[[], None]:
    """The fleet as a Pulumi program."""

    def program() -> None:
        fleet = LabHosts("fleet", desired.label, fleet_specs(desired, image, public_key))
        _export(fleet)

    return program


def world_program(owner: str, origin_cpus: float, name: str, image: str, public_key: str) -> Callable[[], None]:
    """The old world as a Pulumi program; `name` is what its users call, e.g. ai.demo.test."""

    def program() -> None:
        world = LabHosts("world", owner, world_specs(owner, origin_cpus, image, public_key))
        _export(world)
        pulumi.export("name", name)

    return program


def _export(hosts: LabHosts) -> None:
    pulumi.export("network", hosts.network.name)
    pulumi.export("subnet", hosts.network.subnet)
    pulumi.export("addresses", {name: host.address for name, host in hosts.hosts.items()})
