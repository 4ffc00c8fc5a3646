"""The one fleet document that poc, scale and switch share: how many hosts, and until when."""

from __future__ import annotations

from datetime import UTC, datetime

from inferlift.artifacts import DesiredFleet, Evidence, Sizing
from inferlift.stages import _edge
from inferlift.stages._plan import planned
from inferlift.stages.base import Context


def desired(ctx: Context, **floors: int) -> DesiredFleet:
    """The one fleet document, with this stage's floor raised; nobody's floor is lowered here."""
    known = ctx.ledger.document("floors") or {}
    return document(ctx, {**known, **floors})


def document(ctx: Context, floors: dict[str, int]) -> DesiredFleet:
    from inferlift import provision

    rights = _edge.guard_rights(ctx.profile)
    return provision.fleet_document(ctx.profile, lambda: sized(ctx), f"{ctx.owner}/fleet", floors, rights)


def sized(ctx: Context) -> Sizing:
    """The sizing of its stage; before that has run, what it would say."""
    return ctx.optional("size", Sizing) or planned(ctx.profile, ctx.optional("audit", Evidence))


def lift_expiry(ctx: Context) -> None:
    """Before the first user is moved: nothing of the fleet may end by itself any more, and that is read back.

    Raises CheckFailed naming what still expires. Asked of the world each time: a kill may have been in between.
    """
    known = ctx.ledger.document("expiry")
    if known is None:
        return  # nothing of this fleet was ever to end by itself
    from inferlift import provision

    with ctx.intent("expiry", f"{ctx.owner}/fleet", {"expiry": known["at"]}, {"expiry": None}):
        provision.lift_expiry(desired(ctx), ctx.folder, ctx.tools(), ctx.say)
    ctx.ledger.set_document("expiry", {"at": None})


def expiring(ctx: Context, wanted: DesiredFleet) -> DesiredFleet:
    """With the proof of concept's expiry, until it was lifted."""
    from inferlift import provision

    known = ctx.ledger.document("expiry")
    if known is not None and known["at"] is None:
        return wanted
    at = provision.expires(wanted, known["at"] if known else None, datetime.now(UTC))
    if at is not None:
        ctx.ledger.set_document("expiry", {"at": at})
    return provision.expiring(wanted, at)
