"""Variables of playbooks/world.yml: the lab's old world. Pure: files are named here and read by Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PLAYBOOK = "world.yml"
KEY_HEADER = "X-Api-Key"
ROUTE, UPSTREAM_ROUTE = "/api/chat", "/v1/chat/completions"
LOG_GLOB = "/var/log/nginx/access.log*"
BODIES_LOG = "/var/log/nginx/bodies.jsonl"
DATA_PATH = "/srv/data"
API_PORT = 8443
GUARD_PORT = 8444


def world_variables(
    *,
    zone: str,
    host: str,
    ttl_s: int,
    origin: str,
    authority: str,
    networks: Sequence[str],
    workload: Path,
    certificate: str,
    certificate_key: str,
    api_certificate: str,
    api_certificate_key: str,
    wheels: Path,
    context: int = 512,
    threads: int = 1,
    max_body_bytes: int = 65536,
) -> dict[str, Any]:
    """What world.yml needs besides its secrets.

    `zone` with or without its final dot; `host` is the users' name within it; `origin` and `authority` are
    addresses; `networks` may ask the resolver; the certificate of the users' name and the API's (for the address of
    the authority), each with its key, are PEM files on this machine, as are the folders `workload` and `wheels` (of
    the model server). The old side has one slot: users queue behind each other.
    """
    zone = zone.rstrip(".") + "."
    return {
        "origin_name": f"{host}.{zone}".rstrip("."),
        "origin_certificate": certificate,
        "origin_certificate_key": certificate_key,
        "origin_workload": str(workload),
        "origin_key_header": KEY_HEADER,
        "origin_route": ROUTE,
        "origin_upstream_route": UPSTREAM_ROUTE,
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
        "llamacpp_slots": 1,
        "llamacpp_threads": threads,
        "llamacpp_context": context,
        "llamacpp_bind": "127.0.0.1",
        "llamacpp_port": 8081,
        "llamacpp_wheels": str(wheels),
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
