"""Where the answers to the users' name are made, and what guards them while nobody looks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from inferlift.profile.base import Reference, Section, impossibles

NEEDED: dict[str, tuple[str, ...]] = {
    "powerdns": ("zone", "url", "key"),
    "rfc2136": ("zone", "server", "key_name", "key"),
    "route53": ("zone", "zone_id"),
    "haproxy": ("backend", "servers", "front"),
}
MAY: dict[str, tuple[str, ...]] = {
    "powerdns": ("ca",),
    "rfc2136": ("algorithm", "port", "both"),
    "route53": ("aws_profile", "health_checks"),
    "haproxy": ("ssh", "socket", "journal", "state_file"),
}


class Dns(Section):
    """The back end that decides the answers (docs/switch.md). In the lab it is the lab's own name server."""

    kind: Literal["powerdns", "rfc2136", "route53", "haproxy"] = Field(description="what decides the answers")
    zone: str | None = Field(None, description="the zone that the name is in; haproxy has none")
    authority: tuple[str, ...] = Field((), description="addresses of its name servers; empty: found by NS")
    resolver: str | None = Field(None, description="address of a resolver as users have it; null: this machine's")
    url: str | None = Field(None, description="powerdns: base URL of the API")
    ca: str | None = Field(None, description="powerdns: path of the CA that vouches for the API")
    key: Reference | None = Field(None, description="powerdns: the API's key; rfc2136: the TSIG key in base64")
    server: str | None = Field(None, description="rfc2136: address of the primary")
    key_name: str | None = Field(None, description="rfc2136: name of the TSIG key")
    algorithm: str | None = Field(None, description="rfc2136: of the TSIG key; null: hmac-sha256")
    port: int | None = Field(None, gt=0, lt=65536, description="rfc2136: of the primary; null: 53")
    both: bool | None = Field(None, description="rfc2136: may both sides be answered at once (50 %)? null: true")
    zone_id: str | None = Field(None, description="route53: the hosted zone's id")
    aws_profile: str | None = Field(None, description="route53: named credentials; null: the machine's own")
    health_checks: dict[str, str] | None = Field(None, description="route53: health check id by address")
    backend: str | None = Field(None, description="haproxy: name of the backend with both sides")
    servers: dict[str, str] | None = Field(None, description="haproxy: server name by address, both sides")
    front: str | None = Field(None, description="haproxy: address where users reach it")
    ssh: str | None = Field(None, description="haproxy: user@host of the gateway; null: this machine")
    socket: str | None = Field(None, description="haproxy: path of the admin socket")
    journal: str | None = Field(None, description="haproxy: path of the journal's file on the gateway")
    state_file: str | None = Field(None, description="haproxy: its server-state-file, so that a restart keeps weights")

    @model_validator(mode="after")
    def _whole(self) -> Dns:
        missing = [(key, f"missing; {self.kind} needs it") for key in NEEDED[self.kind] if not getattr(self, key)]
        own = {"kind", "authority", "resolver", *NEEDED[self.kind], *MAY[self.kind]}
        strange = [(key, f"is not for {self.kind}") for key in self.model_fields_set - own if getattr(self, key)]
        if found := [*missing, *sorted(strange)]:
            raise impossibles(found)
        return self

    def settings(self) -> dict[str, Any]:
        """What the back end itself is told: the keys of its kind that are given."""
        given = {key: getattr(self, key) for key in ("kind", *NEEDED[self.kind], *MAY[self.kind])}
        return {key: value for key, value in given.items() if value is not None}


class Guard(Section):
    """The unit on the monitor host that takes users back when the operator's machine is gone."""

    enabled: bool = Field(True, description="whether it is installed before the first user is moved")
    key: Reference | None = Field(
        None, description="a key of its own, narrower than the operator's (docs/switch.md); null: none but the lab's"
    )
    key_name: str | None = Field(None, description="rfc2136: name of that TSIG key")
    url: str | None = Field(None, description="powerdns: URL of the narrowing proxy; null: the API's own")
