"""The programs against Pulumi's mocks: which resources they ask for. The engine's part is in tests/lab."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from inferlift.artifacts import DesiredFleet, HostGroup
from inferlift.provision.components import fleet_program, world_program
from inferlift.provision.lab_provider import HOST, NETWORK, Lab

from .standin import StandInPodman


class Recorder(pulumi.runtime.Mocks):
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.asked.append((args.typ, args.name, dict(args.inputs)))
        more = {"name": "the-network", "subnet": "10.64.1.0/24"} if args.typ == NETWORK else {"address": "10.64.1.9"}
        return f"{args.name}-id", {**args.inputs, **more}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"nothing is called: {args.token}")


def run(program: Callable[[], None]) -> list[tuple[str, str, dict[str, Any]]]:
    recorder = Recorder()
    asyncio.set_event_loop(asyncio.new_event_loop())
    pulumi.runtime.set_mocks(recorder, preview=False)
    pulumi.runtime.test(lambda: program())()
    return recorder.asked


def fleet(models: int) -> DesiredFleet:
    groups = (
        HostGroup(role="gateway", count=1, cpus=0.3, memory_bytes=2**28),
        HostGroup(role="model", count=models, cpus=0.7, memory_bytes=2**30),
    )
    return DesiredFleet(label="3fa2c1/demo-lab/fleet", groups=groups, floors={})


@pytest.mark.parametrize("models", [1, 3])
def test_the_fleet_is_a_network_and_its_hosts(models: int) -> None:
    asked = run(fleet_program(fleet(models), "image", "key"))
    assert [name for kind, name, _ in asked if kind == NETWORK] == ["network"]
    hosts = {name: inputs for kind, name, inputs in asked if kind == HOST}
    assert sorted(hosts) == ["gateway-1", *(f"model-{n}" for n in range(1, models + 1))]
    lab = Lab(StandInPodman())
    assert all(lab.check(HOST, inputs) == [] for inputs in hosts.values())
    assert {inputs["network"] for inputs in hosts.values()} == {"the-network"}


def test_the_world_gives_the_origin_its_quota() -> None:
    hosts = {n: i for k, n, i in run(world_program("w", 0.4, "ai.demo.test", "image", "key")) if k == HOST}
    assert sorted(hosts) == ["authority", "origin", "resolver"]
    assert hosts["origin"]["cpus"] == 0.4
