"""Variables of playbooks/world.yml: the lab's old world. Pure: files are named here and read by Ansible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from inferlift.configure.servers import server_variables
from inferlift.errors import DeclarationError
from inferlift.profile import Profile

PLAYBOOK = "world.yml"
KEY_HEADER = "X-Api-Key"
LOG_GLOB = "/var/log/nginx/access.log*"
BODIES_LOG = "/var/log/nginx/bodies.jsonl"
DATA_PATH = "/srv/data"
API_PORT = 8443
GUARD_PORT = 8444


@dataclass(frozen=True)
class Workload:
    """What workload.yaml says of a folder under templates/workloads."""

    folder: Path
    app: str  # user, unit and folders of the app on the old host
    route: str  # as users call it
    upstream_route: str  # as the app calls it
    files: tuple[str, ...]
    server: str  # kind of its model server
    server_url: str

    @property
    def server_roles(self) -> tuple[str, ...]:
        """llama.cpp brings its model; the others' is fetched."""
        return (self.server,) if self.server == "llamacpp" else ("weights", self.server)

    @property
    def services(self) -> tuple[str, ...]:
        return ("nginx", self.app, self.server)


def workload(folder: Path) -> Workload:
    """Raises DeclarationError where the folder does not say what it is."""
    path = folder / "workload.yaml"
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Workload(**{**told, "folder": folder, "files": tuple(told["files"])})
    except (OSError, TypeError, KeyError, yaml.YAMLError) as error:
        raise DeclarationError(f"the workload {folder.name} is not described", why=f"{path}: {error}") from None


def old_server(profile: Profile, workload: Workload, wheels: Path | None) -> dict[str, object]:
    """What the old side's model server is told: one slot and no batches, so that users queue behind each other."""
    if workload.server == "llamacpp":
        return {
            "llamacpp_slots": 1,
            "llamacpp_threads": 1,
            "llamacpp_context": 512,
            "llamacpp_bind": "127.0.0.1",
            "llamacpp_port": 8081,
            "llamacpp_wheels": str(wheels),
        }
    server = profile.server.model_copy(update={"kind": workload.server, "slots": 1, "threads": 1})
    one = profile.model_copy(update={"server": server})
    made = server_variables(one, serving=None, batching=None, driver=None, wheels=wheels, secrets={})
    return {n: v for n, v in made.variables.items() if not n.startswith(("inferlift_", "container_"))}


def world_variables(
    *,
    zone: str,
    host: str,
    ttl_s: int,
    origin: str,
    authority: str,
    networks: Sequence[str],
    workload: Workload,
    certificate: str,
    certificate_key: str,
    api_certificate: str,
    api_certificate_key: str,
    server: Mapping[str, object],
    max_body_bytes: int = 65536,
) -> dict[str, Any]:
    """What world.yml needs besides its secrets.

    `zone` with or without its final dot; `host` is the users' name within it; `origin` and `authority` are
    addresses; `networks` may ask the resolver; the certificate of the users' name and the API's (for the address of
    the authority), each with its key, are PEM files on this machine. `server`: what the workload's model server is
    told, as `old_server` has it.
    """
    zone = zone.rstrip(".") + "."
    return {
        "origin_name": f"{host}.{zone}".rstrip("."),
        "origin_certificate": certificate,
        "origin_certificate_key": certificate_key,
        "origin_workload": str(workload.folder),
        "origin_app": workload.app,
        "origin_app_files": list(workload.files),
        "origin_server_roles": list(workload.server_roles),
        "origin_server_unit": f"{workload.server}.service",
        "origin_model_url": workload.server_url,
        "origin_key_header": KEY_HEADER,
        "origin_route": workload.route,
        "origin_upstream_route": workload.upstream_route,
        "origin_max_body_bytes": max_body_bytes,
        "origin_data": DATA_PATH,
        "authority_zone": zone,
        "authority_address": authority,
        "authority_record": f"{host}.{zone}",
        "authority_record_address": origin,
        "authority_ttl_s": ttl_s,
        "authority_api_port": API_PORT,
        "authority_guard_port": GUARD_PORT,
        "authority_certificate": api_certificate,
        "authority_certificate_key": api_certificate_key,
        "resolver_zone": zone,
        "resolver_authority": authority,
        "resolver_networks": list(networks),
        **server,
    }


def world_secrets(*, users_key: str, app_key: str, model_key: str, dns_key: str, guard_key: str) -> dict[str, str]:
    """References (`env:`, `file:`) of world.yml's secrets: for the secrets of a playbook run, not its variables.

    Keys have 16 characters or more, and none that a web server's configuration reads otherwise: letters, digits, -_.
    """
    return {
        "origin_key": users_key,
        "origin_app_key": app_key,
        "origin_model_key": model_key,
        "llamacpp_key": model_key,
        "authority_key": dns_key,
        "authority_guard_key": guard_key,
    }


def dns_api_url(authority: str) -> str:
    """Base URL of the PowerDNS API for an authority's address."""
    return f"https://{authority}:{API_PORT}"


def guard_api_url(authority: str) -> str:
    """Base URL where the guard's own key may read and change the one zone."""
    return f"https://{authority}:{GUARD_PORT}"
