"""A certificate for the users' name from an ACME authority, where the profile gives none.

The name is proved by a TXT record beside it, so it may still lead to the old side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from inferlift.artifacts import Check, Contract, World
from inferlift.profile import Origin
from inferlift.stages import _answers
from inferlift.stages.base import Context


def files(ctx: Context, origin: Origin) -> tuple[str, str]:
    """Chain and reference to its key, as the contract names them: given by the profile, or where ACME puts them."""
    if origin.acme is None:
        return str(ctx.root / (origin.certificate or "")), origin.certificate_key or ""
    folder = ctx.path("acme")
    return str(folder / f"{origin.name}.pem"), f"file:{folder / f'{origin.name}.key'}"


def certify(ctx: Context, ask: Callable[[str, str], Iterable[str]] | None = None) -> None:
    """Have the certificate before the gateway is told to show it; one with more than 30 days left is kept.

    `ask`: TXT values that a name server answers for a name. Raises what acme.obtain and the name server's back end do.
    """
    from inferlift.configure import acme
    from inferlift.dns import answers, proof, settings

    world = ctx.need("world", World)
    if not _due(ctx, world.contract):
        return
    origin = ctx.profile.origin
    assert origin is not None and origin.acme is not None  # noqa: S101, PT018 - else it is not due
    name, authority = world.contract.name, origin.acme
    backend = settings.backend(
        _answers.settings(ctx, world), names=(name,), addresses=(), owner=ctx.owner, run=ctx.ledger.run
    )
    servers = _answers.servers(ctx, world)[0]
    shown = proof.Proof(proof.prover(backend), servers, ctx.say, ask or answers.texts_at)
    planned = {"directory": authority.directory, "record": f"{acme.CHALLENGE}.{name}"}
    with ctx.intent("certificate", name, {}, planned):
        acme.obtain(
            authority.directory, Path(world.contract.certificate).parent, (name,),
            acme.Dns(shown.publish, shown.withdraw), ctx.say, contact=authority.contact,
            ca=ctx.root / authority.ca if authority.ca else None,
        )  # fmt: skip


def in_time(ctx: Context) -> list[Check]:
    """Is the certificate had by ACME still good for a while? Nothing where files were given."""
    if ctx.profile.origin is None or ctx.profile.origin.acme is None:
        return []
    due = _due(ctx, ctx.need("world", World).contract)
    detail = "it ends within 30 days, and is renewed" if due else "more than 30 days are left"
    return [Check(name="certificate", ok=not due, detail=detail)]


def _due(ctx: Context, contract: Contract) -> bool:
    from inferlift.configure import acme

    if ctx.profile.origin is None or ctx.profile.origin.acme is None:
        return False
    return not acme.kept(Path(contract.certificate).parent, (contract.name,))
