"""A back end from plain settings: what a declaration, a command line or a JSON file says about where answers are made.

{"kind": "powerdns", "url": "https://10.0.0.3:8443", "key": "env:DNS_KEY", "zone": "example.com"}
{"kind": "rfc2136", "server": "10.0.0.3", "key_name": "inferlift", "key": "file:/etc/tsig", "zone": "example.com"}
{"kind": "route53", "zone_id": "Z123", "zone": "example.com"}
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from inferlift.dns.backend import Backend
from inferlift.errors import DeclarationError


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    zone: str


class PowerDnsSettings(_Settings):
    """`key`: secret reference. `ca`: path of the CA that vouches for the API's certificate."""

    kind: Literal["powerdns"]
    url: str
    key: str
    ca: str | None = None
    server: str = "localhost"


class Rfc2136Settings(_Settings):
    """`key`: secret reference to the TSIG key in base64. `both`: may a name answer both sides at once?"""

    kind: Literal["rfc2136"]
    server: str
    key_name: str
    key: str
    algorithm: str = "hmac-sha256"
    port: int = 53
    both: bool = True


class Route53Settings(_Settings):
    """Credentials are the machine's own, `profile` naming one of them. `health_checks`: ids by address."""

    kind: Literal["route53"]
    zone_id: str
    profile: str | None = None
    health_checks: dict[str, str] = Field(default_factory=dict)


Settings = PowerDnsSettings | Rfc2136Settings | Route53Settings
_ADAPTER: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="kind")])


def read(path: Path) -> Settings:
    """From a YAML or JSON file. Raises DeclarationError."""
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeclarationError(f"the back end's settings cannot be read from {path}", why=str(error)) from None
    if not isinstance(given, dict):
        raise DeclarationError(f"{path} holds no settings", why="expected `kind:`, `zone:` and what the kind needs")
    return parse(given)


def parse(given: dict[str, Any]) -> Settings:
    """Raises DeclarationError naming the first thing that is wrong."""
    try:
        return _ADAPTER.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "kind"
        raise DeclarationError(f"the back end's settings are wrong at {where}", why=first["msg"]) from None


def backend(
    settings: Settings | dict[str, Any], *, names: Iterable[str], addresses: Iterable[str], owner: str, run: str
) -> Backend:
    """The back end that these settings describe. Raises DeclarationError; asks nothing yet."""
    given = parse(settings) if isinstance(settings, dict) else settings
    common: dict[str, Any] = {"names": tuple(names), "addresses": tuple(addresses), "owner": owner, "run": run}
    match given:
        case PowerDnsSettings():
            from inferlift.dns.powerdns import PowerDns

            return PowerDns(given.url, given.key, given.zone, ca=given.ca, server=given.server, **common)
        case Rfc2136Settings():
            from inferlift.dns.rfc2136 import Rfc2136

            return Rfc2136(
                given.server, given.key_name, given.key, given.zone, algorithm=given.algorithm, port=given.port,
                both=given.both, **common,
            )  # fmt: skip
        case Route53Settings():
            from inferlift.dns.route53 import Route53

            return Route53(
                given.zone_id, given.zone, profile=given.profile, health_checks=given.health_checks, **common
            )
