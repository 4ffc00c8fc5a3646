"""The service as it is now: how it is looked at, and what its users rely on. Only looked at, never changed."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from inferlift.profile.base import Reference, Section, impossible

_NAME = re.compile(r"(?=.{1,253}$)([A-Za-z0-9_]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]\.?")
_SSH = re.compile(r"(?:([A-Za-z_][\w.-]*)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(?::(\d{1,5}))?")
_THERE = re.compile(
    r"/[\w./+@%=:,*?\[\]-]*"
)  # what a shell on the old host reads as one word, or as a pattern of files


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("expected a DNS name such as ai.example.com")
    return text.rstrip(".").lower()


def _ssh(text: str) -> str:
    ssh_place(text)
    return text


def _there(text: str) -> str:
    if not _THERE.fullmatch(text):
        raise ValueError(
            "expected an absolute path on the old host, of letters, digits and ./_-+@%=:, (a glob: * ? [])"
        )
    return text


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError("expected an IPv4 address: a switch moves A records") from None


def _header(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", text):
        raise ValueError("expected the name of a header such as X-Api-Key")
    return text


class Acme(Section):
    """An authority that gives the new side its certificate, by a TXT record at _acme-challenge of the name (DNS-01)."""

    directory: str = Field(
        pattern=r"^https://", description="address of its directory: https://acme-v02.api.letsencrypt.org/directory"
    )
    contact: str | None = Field(None, pattern=r"^[^@\s]+@[^@\s]+$", description="mail address it may write to")
    ca: str | None = Field(None, description="path of the CA of its own TLS; null: the system's")


class Origin(Section):
    """The old side: a service that exists. It is only looked at. Without this section the lab raises one (`lab:`)."""

    name: Annotated[str, AfterValidator(_name)] = Field(description="DNS name that users call")
    logs: Annotated[str, AfterValidator(_there)] = Field(
        description="absolute path or glob of its access logs on the old host"
    )
    ssh: Annotated[str, AfterValidator(_ssh)] | None = Field(
        None, description="USER@HOST or USER@HOST:PORT of the old host; null: not said yet, planning needs none"
    )
    ssh_key: str = Field("~/.ssh/id_ed25519", description="path of the private key that the old host accepts")
    known_hosts: str = Field(
        "~/.ssh/known_hosts", description="path of the file with the old host's own key, which is never learned by us"
    )
    address: Annotated[str, AfterValidator(_address)] | None = Field(
        None,
        description="IPv4 address that DNS gives users for the old side; null: the one in `ssh`, else DNS' only one",
    )
    old_ttl_s: int | None = Field(
        None, ge=1, description="longest TTL the old record was served with; null: as it has it"
    )
    body_log: Annotated[str, AfterValidator(_there)] | None = Field(
        None,
        description="path on the old host of request bodies as JSON lines (uri, status, body); null: none are kept",
    )
    recorded: str | None = Field(
        None, description="path on this machine of requests recorded before, in the same form; null: none were"
    )
    certificate: str | None = Field(None, description="path of the PEM chain for the name")
    certificate_key: Reference | None = None
    acme: Acme | None = Field(None, description="where the new side's certificate is had if no file is given")
    ca: str | None = Field(None, description="path of the CA that users trust for it; null: the system's")
    key_header: Annotated[str, AfterValidator(_header)] = Field(
        "Authorization", description="header with the users' key"
    )
    key: Reference | None = None
    routes: dict[str, str] = Field(
        {}, description="path as users call it: path as the app is called; the first is tried"
    )
    max_body_bytes: int = Field(1_000_000, gt=0, description="largest body of a request that the old side takes")
    dockerfile: str | None = Field(
        None, description="path of the app's Dockerfile on this machine; null: a model server alone answers"
    )

    @model_validator(mode="after")
    def _whole(self) -> Origin:
        if re.search(r"[*?\[]", self.logs.rpartition("/")[0]):
            raise impossible(
                "logs", "a pattern may stand in the file's name alone; logs of one service are in one folder"
            )
        if self.body_log is not None and self.recorded is not None:
            raise impossible(
                "recorded", "requests come from the old host's body_log or from a file; expected one of both"
            )
        if self.acme is not None and (self.certificate is not None or self.certificate_key is not None):
            raise impossible(
                "acme", "the certificate is given as files, or had from an authority; expected one of both"
            )
        for path, upstream in self.routes.items():
            if not re.fullmatch(r"/[\w./~-]*", path) or not re.fullmatch(r"/[\w./~-]*", upstream):
                raise impossible("routes", f"expected `/path: /path`, got `{path}: {upstream}`"[:200])
        return self


def ssh_place(text: str) -> tuple[str, str, int]:
    """User, host and port of `[USER@]HOST[:PORT]`. Raises ValueError."""
    found = _SSH.fullmatch(text)
    port = int(found[3] or 22) if found else 0
    if found is None or not 0 < port < 65536:
        raise ValueError("expected USER@HOST, with :PORT where SSH is not on 22, such as root@192.0.2.10")
    return found[1] or "root", found[2].strip("[]"), port
