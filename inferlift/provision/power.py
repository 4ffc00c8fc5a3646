"""A host's power: cut and given back, for the test that loses a replica on purpose."""

from __future__ import annotations

from inferlift import process
from inferlift.artifacts import Host
from inferlift.errors import Refusal
from inferlift.provision.aws import power as aws
from inferlift.provision.models import Tools
from inferlift.provision.static import power as own


def power_off(host: Host, tools: Tools) -> None:
    """As if the plug were pulled: no shutdown, no drain."""
    if aws.is_instance(host):
        aws.off(host)
        return
    if own.is_own(host):
        own.off(host)
        return
    _podman(tools, "kill", host)


def power_on(host: Host, tools: Tools) -> None:
    """Boot it again, same disk, same address. Nothing happens when it runs already."""
    if aws.is_instance(host):
        aws.on(host)
        return
    if own.is_own(host):
        own.on(host)
        return
    _podman(tools, "start", host)


def _podman(tools: Tools, verb: str, host: Host) -> None:
    if host.container is None:
        raise Refusal(f"{host.name} is no machine of the lab", why="its power is not ours to switch")
    process.run(["podman", verb, host.container], timeout_s=60, env={**process.unmarked(), **tools.podman_env})
