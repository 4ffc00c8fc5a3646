"""An old side that exists: looked at, never changed. What the profile says of it is held against what is there."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable
from typing import Any

from inferlift import declaration, ssh
from inferlift.artifacts import Artifact, Check, Contract, Host, Route, World
from inferlift.errors import CheckFailed, InferliftError, Refusal
from inferlift.profile import Origin
from inferlift.profile.origin import ssh_place
from inferlift.secret import resolve
from inferlift.stages import _certifying
from inferlift.stages._common import protocol
from inferlift.stages.base import Context, Stage, moved

KEY_LEAST, KEY_MOST = 16, 1024  # characters: what the gateway's role asks of a key, and what fits into a header
# What is asked of the old host, in one look: nothing is written there.
LOOK = """found=$(ls -1t -- {logs} 2>/dev/null | head -n 1)
test -n "$found" || echo 'origin.logs: no file matches {logs}'
test -z "$found" || test -r "$found" || echo "origin.logs: $found may not be read"
command -v rsync >/dev/null || echo 'origin.ssh: rsync, by which logs and data are read, is not installed there'
"""


class Found(Stage):
    name = "world"
    artifact = World

    def key(self, ctx: Context) -> dict[str, Any]:
        return {"origin": _origin(ctx), "dns": ctx.profile.switch.dns, "data": ctx.profile.data.source}

    def preview(self, ctx: Context) -> list[str]:
        origin = _origin(ctx)
        return [f"look at {origin.name} on {origin.ssh}: contract, logs, DNS, two requests; nothing is changed"]

    def run(self, ctx: Context) -> World:
        """Raises Refusal with everything that is not as declared; nothing was made or changed."""
        ctx.say(f"looking at {_origin(ctx).name}")
        world, bad = self._look(ctx)
        if world is None or bad:
            said = declaration.load(str(ctx.profile_path), ctx.root)
            lines = dict.fromkeys(f"{said.where(c.name, ctx.root)}{c.name}: {c.detail}" for c in bad)
            raise Refusal(
                "\n".join([f"the old side of {_origin(ctx).name} is not as the profile says:", *lines]),
                why="it is looked at before anything is made; nothing was changed",
                next_command="correct the profile or the old side (docs/move.md), then run the same command again",
            )
        return world

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        if ctx.ledger.document("decommissioned") is not None:
            return [Check(name="old side", ok=True, skipped=True, detail="decommissioned")]
        assert isinstance(artifact, World)  # noqa: S101
        looks: list[Callable[[], list[Check]]] = [
            lambda: _certificate(_origin(ctx), artifact.contract),
            lambda: _secrets(ctx, artifact.contract),
            lambda: _on_host(ctx, artifact.origin),
            lambda: _answering(ctx, artifact, 1),
        ]
        return [check for look in looks for check in _looked("origin", look)]

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> World:
        """It is somebody's own: it is looked at anew, and whoever runs it mends it."""
        if moved(ctx.ledger):
            raise CheckFailed(
                "the old side is not as it was found, so it is no sure way back",
                why="; ".join(f"{c.name}: {c.detail}" for c in findings),
                next_command=f"mend it, then ./invoke deploy --profile {ctx.profile.name}",
            )
        return self.run(ctx)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, World)  # noqa: S101
        return f"{artifact.contract.name} at {artifact.address}, found as declared; nothing was changed"

    def _look(self, ctx: Context) -> tuple[World | None, list[Check]]:
        """The world as declared and found, with what speaks against it."""
        origin, checks = _origin(ctx), list[Check]()
        contract = _contract(ctx, origin)
        checks += _looked("origin.certificate_key", lambda: _certificate(origin, contract))
        checks += _looked("origin.key", lambda: _secrets(ctx, contract))
        key = "origin.ssh"
        try:
            host = _host(ctx, origin)
            key = "switch.dns"
            address, ttl_s = _in_dns(ctx, origin, contract, host)
        except InferliftError as error:
            return None, [*(c for c in checks if not c.ok), _failed(key, error)]
        dns = ctx.profile.switch.dns
        world = World(
            origin=host,
            address=address,
            contract=contract,
            zone=(dns.zone if dns else None) or "",
            ttl_s=max(ttl_s, origin.old_ttl_s or 0),
            log_glob=origin.logs,
            body_log=origin.body_log or "",
            recorded=str(ctx.root / origin.recorded) if origin.recorded else "",
            data_path=ctx.profile.data.source or "",
            resolvers=tuple(dict.fromkeys((dns.resolver, *dns.authority))) if dns and dns.resolver else (),
        )
        checks += _looked("origin.ssh", lambda: _on_host(ctx, host))
        checks += _looked("origin", lambda: _answering(ctx, world, 2))
        return world, [c for c in checks if not c.ok]


def _origin(ctx: Context) -> Origin:
    assert ctx.profile.origin is not None  # noqa: S101 - the stage is chosen by it
    return ctx.profile.origin


def _contract(ctx: Context, origin: Origin) -> Contract:
    certificate, key = _certifying.files(ctx, origin)
    return Contract(
        name=origin.name,
        certificate=certificate,
        certificate_key=key,
        ca=str(ctx.root / origin.ca) if origin.ca else None,
        key_header=origin.key_header,
        key=origin.key or "",
        routes=tuple(Route(path=path, upstream=upstream) for path, upstream in origin.routes.items()),
        max_body_bytes=origin.max_body_bytes,
    )


def _host(ctx: Context, origin: Origin) -> Host:
    return ssh.operators_host(
        ssh_place(origin.ssh or ""), name="origin", role="origin", key=origin.ssh_key, known_hosts=origin.known_hosts,
        folder=ctx.path("ssh", "origin"),
    )  # fmt: skip


def _in_dns(ctx: Context, origin: Origin, contract: Contract, host: Host) -> tuple[str, int]:
    """The address that users are sent to on the old side, and the TTL of it as it was before any switch.

    Raises Refusal where the record is none that a switch may move, or names the declared address nowhere.
    """
    from inferlift.dns import settings

    dns = ctx.profile.switch.dns
    assert dns is not None  # noqa: S101 - place() lets nothing else through
    at_gateway = tuple(dns.servers or ())
    backend = settings.backend(dns, names=(contract.name,), addresses=at_gateway, owner=ctx.owner, run=ctx.ledger.run)
    state = backend.read(contract.name)
    if state.kind in ("absent", "foreign"):
        raise Refusal(f"the record of {contract.name} cannot be moved", why=state.why or f"it is {state.kind}")
    named = sorted({*state.weights, *(state.journal.intended if state.journal else ())})
    declared = origin.address or (host.address if _is_v4(host.address) else None)
    if declared is None and len(named) == 1:
        declared = named[0]
    if declared is None or declared not in named:
        said = f"{declared} is declared" if declared else "no address is declared"
        raise Refusal(
            f"{contract.name} leads users to {', '.join(named)}; {said}",
            why="a switch moves them away from the one address of the old side",
            next_command="set origin.address to the one that DNS gives for the old side",
        )
    return declared, (state.journal.ttl_before_s if state.journal else state.ttl_s) or 0


def _certificate(origin: Origin, contract: Contract) -> list[Check]:
    from inferlift.configure import certificates

    if origin.acme is not None:
        return [Check(name="certificate", ok=True, detail=f"from {origin.acme.directory}, before the gateway is made")]
    return certificates.serves(contract.certificate, contract.certificate_key, contract.name)


def _secrets(ctx: Context, contract: Contract) -> list[Check]:
    dns = ctx.profile.switch.dns
    if dns is not None and dns.key is not None:
        resolve(dns.key)
    why = _unfit(resolve(contract.key))
    return [Check(name="origin.key", ok=not why, detail=why)]


def _unfit(key: str) -> str:
    """Why this is no users' key; empty where it may be one. What a file holds by mistake is sent nowhere."""
    fits = KEY_LEAST <= len(key) <= KEY_MOST and key.isascii() and key.isprintable()
    return "" if fits else f"expected one line of {KEY_LEAST} to {KEY_MOST} letters, as the gateway's role takes it"


def _on_host(ctx: Context, host: Host) -> list[Check]:
    """Login, logs, and what is read of the host later. One look; nothing is written there."""
    origin, source = _origin(ctx), ctx.profile.data.source
    script = LOOK.format(logs=origin.logs)
    if origin.body_log:
        script += (
            f"test -r {origin.body_log} || echo 'origin.body_log: {origin.body_log} may not be read, or is not there'\n"
        )
    if ctx.profile.data.state != "none" and source is not None and "://" not in source:
        place = shlex.quote(source)
        script += f"test -d {place} -a -r {place} || echo data.source: {place} is no folder that may be read\n"
    said = ssh.run(host, script, timeout_s=30).stdout.splitlines()
    checks = [Check(name=name, ok=False, detail=why) for name, _, why in (s.partition(": ") for s in said)]
    return checks or [Check(name="old host", ok=True, detail=f"{host.address}: logs are there")]


def _answering(ctx: Context, world: World, n: int) -> list[Check]:
    """It answers its users' requests with what is declared: name, certificate, key, first route."""
    from inferlift.load import probe
    from inferlift.load.target import from_contract

    if _unfit(resolve(world.contract.key)):
        return []  # told by _secrets
    target = from_contract(world.contract, address=world.address, timeout_s=ctx.profile.load.request_timeout_s)
    wait = ctx.profile.load.request_timeout_s
    found = probe.complete(target, n, ctx.say, timeout_s=wait, protocol=protocol(ctx))
    return [
        c.model_copy(update={"name": "origin", "detail": f"it does not answer: {c.detail}"}) for c in found if not c.ok
    ]


def _looked(key: str, look: Callable[[], list[Check]]) -> list[Check]:
    """A look that fails is a finding at `key` of the profile, and does not end the other looks."""
    try:
        return look()
    except InferliftError as error:
        return [_failed(key, error)]


def _failed(key: str, error: InferliftError) -> Check:
    why = f"; {error.why}" if error.why else ""
    then = f"; next: {error.next_command}" if error.next_command else ""
    return Check(name=key, ok=False, detail=f"{error.what}{why}{then}".replace("\n", " "))


def _is_v4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
