"""Machines: the desired fleet on its target and the lab's old world, made by Pulumi's engine.

The public names load on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Pulumi's engine is spoken to over gRPC in this process. gRPC's own fork handlers abort one in twenty of the children
# that are forked later (ansible-runner's pexpect does); none of them speaks gRPC, so they are not needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from inferlift.provision.desired import fleet_document, in_words
    from inferlift.provision.models import Tools, WorldHosts
    from inferlift.provision.power import power_off, power_on
    from inferlift.provision.spending import (
        Asking,
        ask_fleet,
        check_before_spending,
        expires,
        expiring,
        kept,
        lift_expiry,
        lock_images,
        ready,
    )
    from inferlift.provision.static.target import staying_hosts
    from inferlift.provision.targets import (
        apply_fleet,
        apply_world,
        destroy_fleet,
        destroy_world,
        drift_fleet,
        preview_fleet,
        read_fleet,
        read_world,
        settle,
        verify_fleet,
        verify_world,
    )

_HOMES = {
    "fleet_document": "desired", "in_words": "desired", "Tools": "models", "WorldHosts": "models",
    "power_off": "power", "power_on": "power", "staying_hosts": "static.target",
    **dict.fromkeys(
        (
            "Asking", "ask_fleet", "check_before_spending", "expires", "expiring", "kept", "lift_expiry",
            "lock_images", "ready",
        ),
        "spending",
    ),
}  # fmt: skip
__all__ = [
    "Asking",
    "Tools",
    "WorldHosts",
    "apply_fleet",
    "apply_world",
    "ask_fleet",
    "check_before_spending",
    "destroy_fleet",
    "destroy_world",
    "drift_fleet",
    "expires",
    "expiring",
    "fleet_document",
    "in_words",
    "kept",
    "lift_expiry",
    "lock_images",
    "power_off",
    "power_on",
    "preview_fleet",
    "read_fleet",
    "read_world",
    "ready",
    "settle",
    "staying_hosts",
    "verify_fleet",
    "verify_world",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'targets')}"), name)
