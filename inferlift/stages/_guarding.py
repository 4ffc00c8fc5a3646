"""The guard on the monitor host: put there before the first user is moved, and what it did when nobody was there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inferlift import ssh
from inferlift.artifacts import Artifact, Configured, Host, Service, World
from inferlift.errors import InferliftError
from inferlift.ledger import write_atomically
from inferlift.stages import _edge, _fleet
from inferlift.stages.base import Context

FOLDER = "/etc/inferlift-guard"
UNIT = "inferlift-guard.service"


class Guarded(Artifact):
    """`why` says why there is no guard; empty where there is one. `open`: what its credentials cannot be kept from."""

    why: str = ""
    open: str = ""
    configured: Configured | None = None


def ensure(ctx: Context, world: World) -> Guarded:
    """Install the guard, or say why there is none; of several sites each monitor guards its own region's name.

    Raises what Ansible's run raises: nobody is moved without it.
    """
    backend, key, why = _backend(ctx, world)
    if backend is None:
        return Guarded(why=why)
    parts = _edge.legs(ctx, world) or {world.contract.name: _fleet.current(ctx)}
    return [_install(ctx, world, backend, key, name, part) for name, part in parts.items()][-1]


def _install(ctx: Context, world: World, backend: Any, key: str | None, name: str, service: Service) -> Guarded:
    from inferlift import configure
    from inferlift.dns import guard

    monitor, hook = service.fleet.by_role("monitor")[0], ctx.profile.switch.webhook
    every_s = 5.0 if ctx.profile.lab is not None else 15.0
    secrets = {"prometheus-password": "guard_prometheus_password"}
    references = {"guard_prometheus_password": service.monitor_password}
    for what, reference in (("key", key), ("webhook", hook)):
        if reference is not None:
            secrets[what], references[f"guard_{what}"] = f"guard_{what}", reference
    zone = ctx.profile.switch.dns.zone or "" if ctx.profile.switch.dns else world.zone
    files = guard.render(
        name, zone,
        world.address, service.endpoint.address, ctx.owner, backend,
        _gates(ctx), prometheus="https://127.0.0.1:9090", prometheus_user=service.monitor_user,
        prometheus_password_file=f"{FOLDER}/prometheus-password", prometheus_ca="/etc/inferlift/tls/ca.pem",
        failures=ctx.profile.switch.failures_to_roll_back + 1, every_s=every_s,
        webhook_file=f"{FOLDER}/webhook" if hook else None,
        hardened=not _container(monitor),
    )  # fmt: skip
    folder = ctx.path("fleet", "guard", monitor.name)
    texts = [(f.path, f.text, f.mode, f.owner) for f in files]
    ca = ctx.profile.switch.dns.ca if ctx.profile.switch.dns else world.contract.ca
    if backend.ca is not None and ca is not None:
        texts.append((backend.ca, (ctx.root / ca).read_text(encoding="utf-8"), "0644", "root"))
    listed = []
    for path, text, mode, owner in texts:
        src = folder / Path(path).name
        write_atomically(src, text)
        listed.append({"path": path, "src": str(src), "mode": mode, "owner": owner})
    variables: dict[str, object] = {
        "guard_files": listed,
        "guard_secrets": [{"path": f"{FOLDER}/{what}", "from": variable} for what, variable in secrets.items()],
        "guard_packages": list(guard.PACKAGES[backend.kind]),
        "guard_state": guard.STATE,
        "guard_every_s": every_s,
    }
    done = configure.apply(
        service.fleet.hosts, "guard.yml", variables, references, ctx.path("fleet"), ctx.say, limit=[monitor.name]
    )
    narrowed = guard.narrowing(backend.kind, name, zone, zone_id=backend.zone_id)
    return Guarded(open=narrowed["open"], configured=done)


def acted(ctx: Context, state: Any) -> str | None:
    """What the guard took users back for; None when the record's last writer was not the guard."""
    from inferlift.dns.guard import RUN, STATE

    journal = state.journal
    if journal is None or (journal.run, journal.phase, journal.owner) != (RUN, "rolled-back", ctx.owner):
        return None
    parts = _edge.legs(ctx, ctx.need("world", World))
    service = parts[state.name] if parts else _fleet.current(ctx)
    try:
        monitor = service.fleet.by_role("monitor")[0]
        told = json.loads(ssh.run(monitor, f"cat {STATE}", timeout_s=20).stdout)["rolled_back"]
        return f"{told['why']} (at {told['at']}, unix seconds)"
    except (InferliftError, LookupError, TypeError, ValueError):
        return "its own record of why cannot be read"


def stand_down(ctx: Context) -> Guarded:
    """What was watched has passed: users stay where they are, whatever happens to a host from now on."""
    for monitor in _fleet.current(ctx).fleet.by_role("monitor"):
        stop(monitor)
    return Guarded(why="the watch has passed")


def stop(monitor: Host) -> None:
    """After this nobody takes users back by itself, until a switch arms the guard again."""
    ssh.run(monitor, f"systemctl disable --now {UNIT} 2>/dev/null || ! systemctl cat {UNIT} >/dev/null 2>&1")


def _container(host: Host) -> bool:
    """A container gives its services no mount namespaces: the lab's hosts, and hosts of one's own that are some."""
    return ssh.run(host, "systemd-detect-virt --container --quiet", timeout_s=20, check=False).returncode == 0


def _gates(ctx: Context) -> Any:
    """Users alone are counted, since nobody sends synthetic requests then: few decide."""
    from inferlift.dns.fleet_gates import fleet_gates

    return fleet_gates(ctx.profile, 60, minimum=5)


def _backend(ctx: Context, world: World) -> tuple[Any, str | None, str]:
    """(back end of the guard, reference to its key, why there is none)."""
    from inferlift.dns.guard import GuardBackend

    given, dns = ctx.profile.switch.guard, ctx.profile.switch.dns
    if not given.enabled:
        return None, None, "the profile says switch.guard.enabled: false"
    key_file, ca = f"{FOLDER}/key", f"{FOLDER}/ca.pem"
    if dns is None:
        lab = world.made
        if not lab.guard_api or lab.guard_key is None:
            return None, None, "the lab's world was made without a key for it: ./invoke lab up makes one"
        return GuardBackend("powerdns", url=lab.guard_api, key_file=key_file, ca=ca), lab.guard_key, ""
    if dns.kind == "haproxy":
        return None, None, "a gateway's admin socket is its own: no other host may write its weights"
    if dns.kind == "route53":
        return GuardBackend("route53", zone_id=dns.zone_id or ""), None, ""
    if given.key is None:
        return None, None, "it would have the operator's own key: give switch.guard.key"
    if dns.kind == "powerdns":
        url = given.url or dns.url or ""
        return GuardBackend("powerdns", url=url, key_file=key_file, ca=ca if dns.ca else None), given.key, ""
    return (
        GuardBackend(
            "rfc2136", server=dns.server or "", port=dns.port or 53, key_name=given.key_name or dns.key_name or "",
            key_file=key_file, algorithm=dns.algorithm or "hmac-sha256",
        ),
        given.key,
        "",
    )  # fmt: skip
