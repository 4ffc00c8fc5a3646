"""A back end from plain settings: a profile's `switch.dns`, or a file that says the same for the switch alone.

{"kind": "powerdns", "url": "https://10.0.0.3:8443", "key": "env:DNS_KEY", "zone": "example.com"}
{"kind": "rfc2136", "server": "10.0.0.3", "key_name": "inferlift", "key": "file:/etc/tsig", "zone": "example.com"}
{"kind": "route53", "zone_id": "Z123", "zone": "example.com"}
{"kind": "haproxy", "backend": "users", "servers": {"192.0.2.1": "old", "192.0.2.2": "new"}, "front": "192.0.2.9"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from inferlift import process
from inferlift.dns.backend import Backend
from inferlift.dns.eyes import Net
from inferlift.errors import CheckFailed, DeclarationError, Retryable
from inferlift.profile.dns import Dns

Settings = Dns


def read(path: Path) -> Settings:
    """From a YAML or JSON file. Raises DeclarationError."""
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise DeclarationError(f"the back end's settings cannot be read from {path}", why=why) from None
    if not isinstance(given, dict):
        raise DeclarationError(f"{path} holds no settings", why="expected `kind:` and what that kind needs")
    return parse(_beside(path.resolve().parent, given))


def _beside(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Paths on this machine are relative to the file that names them."""
    found = dict(given)
    if isinstance(ca := given.get("ca"), str):
        found["ca"] = str(folder / ca)
    if isinstance(key := given.get("key"), str) and key.startswith("file:"):
        found["key"] = f"file:{folder / key.removeprefix('file:')}"
    return found


def parse(given: dict[str, Any]) -> Settings:
    """Raises DeclarationError naming what is wrong; a value that may be a secret is not repeated."""
    try:
        return Dns.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DeclarationError(
            f"the back end's settings are wrong{' at ' + where if where else ''}",
            why=first["msg"].removeprefix("Value error, "),
            next_command="docs/switch.md, `The switch alone`, shows the settings of each kind",
        ) from None


def backend(
    settings: Settings | dict[str, Any], *, names: Iterable[str], addresses: Iterable[str], owner: str, run: str
) -> Backend:
    """The back end that these settings describe. Raises DeclarationError; asks nothing yet."""
    dns = parse(settings) if isinstance(settings, dict) else settings
    given = dns.settings()
    common: dict[str, Any] = {"names": tuple(names), "owner": owner, "run": run}
    sides = tuple(addresses)
    match given.pop("kind"):
        case "powerdns":
            from inferlift.dns.powerdns import PowerDns

            return PowerDns(given["url"], given["key"], given["zone"], ca=given.get("ca"), addresses=sides, **common)
        case "rfc2136":
            from inferlift.dns.rfc2136 import Rfc2136

            more: dict[str, Any] = {key: given[key] for key in ("algorithm", "port", "both") if key in given}
            return Rfc2136(
                given["server"], given["key_name"], given["key"], given["zone"], addresses=sides, **more, **common
            )
        case "route53":
            from inferlift.dns.route53 import Route53

            return Route53(
                given["zone_id"], given["zone"], profile=given.get("aws_profile"),
                health_checks=given.get("health_checks") or {}, addresses=sides, **common,
            )  # fmt: skip
    from inferlift.dns.gateway import Gateway

    servers = given["servers"]
    if strange := sorted({*servers} ^ {*sides}):
        raise DeclarationError(
            f"the gateway's servers are {', '.join(sorted(servers))}, the sides are {', '.join(sorted(sides))}",
            why=f"{', '.join(strange)} is in one of both only",
        )
    paths: dict[str, Any] = {key: given[key] for key in ("socket", "journal", "state_file") if key in given}
    return Gateway(given.get("ssh"), execute, backend=given["backend"], servers=servers, **paths, **common)


def net(settings: Settings, made: Backend, port: int, ask: Callable[[str], None] | None) -> Net:
    """How answers are looked at: by DNS, or at a gateway by its own counters while `ask(front)` sends it a request
    (None: by its weights alone, as for the way back)."""
    from inferlift.dns.gateway import Gateway

    if not isinstance(made, Gateway):
        return Net.real(port)
    if ask is None:
        return made.net(None)

    def probe(n: int) -> None:
        for _ in range(n):
            ask(settings.front or "")

    return made.net(probe)


def execute(host: Any, command: str) -> str:
    """A shell command on the gateway: over the caller's own SSH, or here. Raises Retryable, CheckFailed."""
    where = str(host or "this machine")
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", str(host), command] if host else None
    done = process.run(argv or ["sh", "-c", command], timeout_s=30, check=False)
    said = (done.stderr or done.stdout).strip()[-300:]
    if argv and done.returncode == 255:
        raise Retryable(f"the gateway {where} does not answer over SSH", why=said)
    if done.returncode:
        raise CheckFailed(f"the gateway {where} cannot be asked", why=said or f"exit code {done.returncode}")
    return done.stdout
