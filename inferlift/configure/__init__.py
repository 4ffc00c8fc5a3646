"""Hosts become what their role says: Ansible through ansible-runner over SSH, certificates, validators, the gateway.

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferlift.configure.certificates import Ca, ensure_ca, issue
    from inferlift.configure.drivers import Driver, driver_for
    from inferlift.configure.models import clusters, model_variables
    from inferlift.configure.runner import apply, forget
    from inferlift.configure.servers import ray_variables, server_roles, server_variables
    from inferlift.configure.validators import validate
    from inferlift.configure.variables import (
        HEALTH_PATH,
        MONITOR_PORT,
        MONITOR_USER,
        SYNTHETIC_HEADER,
        FleetVariables,
        fleet_certificates,
        fleet_secrets,
        fleet_variables,
    )

_HOME = {
    "Driver": "drivers",
    "driver_for": "drivers",
    "ray_variables": "servers",
    "server_roles": "servers",
    "server_variables": "servers",
    "clusters": "models",
    "model_variables": "models",
    "apply": "runner",
    "forget": "runner",
    "Ca": "certificates",
    "ensure_ca": "certificates",
    "issue": "certificates",
    "FleetVariables": "variables",
    "fleet_secrets": "variables",
    "fleet_variables": "variables",
    "validate": "validators",
    "HEALTH_PATH": "variables",
    "MONITOR_PORT": "variables",
    "MONITOR_USER": "variables",
    "SYNTHETIC_HEADER": "variables",
    "fleet_certificates": "variables",
}

__all__ = [
    "HEALTH_PATH",
    "MONITOR_PORT",
    "MONITOR_USER",
    "SYNTHETIC_HEADER",
    "Ca",
    "Driver",
    "FleetVariables",
    "apply",
    "clusters",
    "driver_for",
    "ensure_ca",
    "fleet_certificates",
    "fleet_secrets",
    "fleet_variables",
    "forget",
    "issue",
    "model_variables",
    "ray_variables",
    "server_roles",
    "server_variables",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
