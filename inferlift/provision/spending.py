"""What costs money: asked of the account before it is spent, ended by itself, and pinned by a lock file.

The lab spends nothing: there each of these is nothing to do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from inferlift.artifacts import Check, DesiredFleet
from inferlift.profile import Profile
from inferlift.provision.models import Tools
from inferlift.provision.targets import public_key, ssh_key

if TYPE_CHECKING:
    from inferlift.provision.aws.bill import Billed

Say = Callable[[str], None]
# AWS takes no time for an action that has passed, or is about to while hosts are still being made.
SOONEST = timedelta(minutes=30)


@dataclass(frozen=True)
class Asking:
    """What a plan would make on a target that costs money."""

    resources: int
    broken: tuple[str, ...]  # rules of safety, in words; empty when all are kept
    billed: tuple[Billed, ...]


def ready(profile: Profile) -> None:
    """What can be said before anything at all is made, the lab's old world included.

    Raises Refusal where nobody is signed in, DeclarationError where no user would get through.
    """
    if profile.target != "aws":
        return
    from inferlift.provision.aws import checks
    from inferlift.provision.aws import plan as planning
    from inferlift.provision.aws.session import Session

    checks.refuse_examples(profile.aws, queue=profile.task == "batch")
    region = profile.aws.region or next(iter(profile.operations.regions), planning.REGION)
    Session().account(planning.parent_region(region))


def check_before_spending(desired: DesiredFleet, say: Say) -> list[Check]:
    """Identity, quotas, offerings, images, rights, what exists already; reads only.

    Raises Refusal where nobody is signed in.
    """
    if desired.aws is None:
        return []
    from inferlift.provision.aws.checks import before_spending
    from inferlift.provision.aws.session import Session

    return before_spending(desired, Session(), say)


def ask_fleet(desired: DesiredFleet, workdir: Path, tools: Tools, say: Say) -> Asking | None:
    """What the engine's own preview says would be made: rules that it breaks, and every billed item. None: the lab's.

    Changes nothing: the engine writes into a folder that is gone afterwards. Raises Refusal without credentials or
    provider.
    """
    if desired.aws is None:
        return None
    from inferlift.provision.aws import bill, policies, target

    with tempfile.TemporaryDirectory(prefix="inferlift-plan-") as place:
        scratch = Path(place)
        asked = target.resources(desired, workdir, tools, public_key(ssh_key(scratch)), say, scratch=scratch)
    billed = tuple(bill.bill(asked, desired.aws.sites[0].region))
    return Asking(resources=len(asked), broken=tuple(policies.findings(asked)), billed=billed)


def expires(desired: DesiredFleet, known: str | None, now: datetime) -> str | None:
    """When the proof of concept ends by itself, in UTC to the minute; None where nothing of it does.

    `known`: what was decided before; it stays until it has passed, else every run would move it.
    """
    hours = desired.aws.settings.expires_hours if desired.aws is not None else None
    if hours is None:
        return None
    if known is not None and datetime.fromisoformat(known) - now > SOONEST:
        return known
    return f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M}:00Z"


def expiring(desired: DesiredFleet, at: str | None) -> DesiredFleet:
    """The document with its expiry; `at` None: it does not end by itself."""
    if desired.aws is None:
        return desired
    return desired.model_copy(update={"aws": desired.aws.model_copy(update={"expires_at": at})})


def lift_expiry(desired: DesiredFleet, workdir: Path, tools: Tools, say: Say) -> None:
    """Nothing of the fleet may end by itself any more: taken away, then read back.

    Raises CheckFailed naming what still expires.
    """
    if desired.aws is None:
        return
    from inferlift.provision.aws import target

    target.lift_expiry(desired, workdir, tools, public_key(ssh_key(workdir)), say)


def kept(label: str, workdir: Path) -> list[str]:
    """What of a removed fleet holds data, and goes on costing: asked of AWS. The lab keeps nothing."""
    from inferlift.provision.aws import listing, notes
    from inferlift.provision.aws.session import Session

    if not notes.is_here(label, workdir):
        return []
    session = Session()
    things = [t for region in notes.regions(workdir) for t in listing.left(label, region, session)]
    return [f"{t} ({t.id}, {t.region})" for t in things if t.data]


def lock_images(workdir: Path, images: dict[str, dict[str, str]]) -> None:
    """Images of a lock file, as site -> role -> id: what is made in this work folder from now on boots them."""
    from inferlift.provision.aws import notes

    notes.lock(workdir, images)
