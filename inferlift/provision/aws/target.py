"""AWS as a target: the desired fleet made, read, verified, expired and removed, as the lab's (../targets.py).

Making goes through Pulumi; reading and verifying ask AWS by tag, so that the changer does not judge itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from inferlift.artifacts import Fleet
from inferlift.artifacts.fleet import AwsPlan, DesiredFleet
from inferlift.errors import CheckFailed, InferliftError, Refusal, Uncertain
from inferlift.provision import settling
from inferlift.provision.aws import capacity, listing, naming, notes, power, reading, removal
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.listing import Thing
from inferlift.provision.aws.reading import tag
from inferlift.provision.aws.resolve import resolve
from inferlift.provision.aws.session import Session
from inferlift.provision.models import Drift, Tools
from inferlift.provision.settling import StackFiles

if TYPE_CHECKING:
    from inferlift.provision.aws.policies import Asked
    from inferlift.provision.engine import Engine

Say = Callable[[str], None]
LIST_PAUSE_S = 5.0
GONE_PAUSES_S = (2.0, 5.0, 10.0, 20.0)  # before a list that should be empty is asked again
STACK = ("inferlift-aws", "fleet")  # Pulumi project, stack
# Kinds whose id in the state is AWS' own: of two with one name, the one that the state does not know is told apart.
_BY_ID = (
    "network", "subnet", "route table", "internet gateway", "NAT gateway", "address", "endpoint", "firewall",
    "launch template", "load balancer", "target group", "group", "encryption key", "bucket", "registry",
)  # fmt: skip


def apply(
    desired: DesiredFleet, workdir: Path, tools: Tools, public_key: str, say: Say, session: Session | None = None
) -> Fleet:
    """Make the fleet as described: resolved, capacity held, policies passed, and only then the engine.

    Raises Refusal (policies, quota, rights, another account), NoCapacity, DeclarationError, CheckFailed, Uncertain.
    """
    session = session or Session()
    before = notes.remembered(workdir)
    settled = resolve(desired, session, say, before.aws if before else None, notes.locked(workdir))
    planning.refuse_impossible(settled)
    settled, held = _hold(settled, workdir, session, say)
    notes.remember(workdir, settled)
    try:
        adopted = _prepare(settled, workdir, session, say)
        engine = _engine(workdir, tools, say)
        program = _program(settled, public_key, adopted)
        refuse_unsafe(engine, program)
        try:
            engine.up(program, say)
        except CheckFailed:
            _take_back_failed(engine, settled.label, workdir, session, say)
            raise
        for region in sorted({site.region for site in planning.of(settled).sites}):
            power.boot_stopped(settled.label, region, session, say)
    finally:
        for region, reservations in held.items():
            capacity.release(session, region, reservations)
    _note_for_plain_pulumi(engine.files, settled, tools)
    return wait_listed(settled, lambda: reading.read(desired.label, workdir, session, say), say)


def wait_listed(
    desired: DesiredFleet,
    read: Callable[[], Fleet | None],
    say: Say,
    *,
    limit_s: float = 180,
    sleep: Callable[[float], None] = time.sleep,
) -> Fleet:
    """The fleet once every host of the document is listed: AWS' lists lag behind what was made.

    Raises CheckFailed naming what is not listed within `limit_s`.
    """
    wanted, waited = {name for name, _, _ in planning.hosts(desired)}, 0.0
    bastion = bool(planning.of(desired).settings.admin_ranges)
    while True:
        fleet = read()
        missing = sorted(wanted - {h.name for h in fleet.hosts}) if fleet else sorted(wanted) or ["the queue"]
        if fleet is not None and bastion and any(h.jump is None for h in fleet.hosts):
            missing.append("the bastion")
        if fleet is not None and not missing:
            return fleet
        if waited >= limit_s:
            raise CheckFailed(
                f"AWS does not list {', '.join(missing)}",
                why=f"the engine made it, and {limit_s:.0f} s later no list of AWS' has it",
                next_command="run the same command again: what is made is not made twice",
            )
        say(f"waiting for AWS to list {', '.join(missing)}")
        sleep(LIST_PAUSE_S)
        waited += LIST_PAUSE_S


def refuse_unsafe(engine: Engine, program: Callable[[], None]) -> None:
    """Raises Refusal with every rule of policies.py that the plan breaks; nothing is changed."""
    from inferlift.provision.aws.policies import findings

    broken = findings(asked_of(engine, program))
    if broken:
        raise Refusal(
            f"the plan breaks {len(broken)} rules of safety", why="; ".join(broken[:6]),
            next_command="docs/aws.md: the rules that every plan must pass",
        )  # fmt: skip


def resources(
    desired: DesiredFleet,
    workdir: Path,
    tools: Tools,
    public_key: str,
    say: Say,
    session: Session | None = None,
    *,
    scratch: Path | None = None,
) -> list[Asked]:
    """Every resource that the program asks for, as the engine's preview says; nothing is made, nothing remembered.

    For `policies.findings` and `bill.bill`. `scratch`: where the engine may write; the work folder is only read then.
    Raises Refusal without credentials or the provider.
    """
    known = notes.remembered(workdir)
    settled = resolve(desired, session or Session(), say, known.aws if known else None, notes.locked(workdir))
    return asked_of(_engine(scratch or workdir, tools, say), _program(settled, public_key, {}))


def asked_of(engine: Engine, program: Callable[[], None]) -> list[Asked]:
    from inferlift.provision.aws.policies import Asked

    return [Asked(kind, name, inputs) for op, kind, name, inputs in engine.ask(program) if op != "delete"]


def preview(desired: DesiredFleet, workdir: Path, session: Session | None = None) -> list[str]:
    """What `apply` would make or remove, in words. Without credentials what exists is said to be unknown."""
    session = session or Session()
    plan = planning.of(desired)
    wanted = {name: group for name, group, _ in planning.hosts(desired)}
    lines: list[str] = []
    try:
        present = {
            t.tags.get(naming.NAME, t.name): t
            for site in {s.region for s in plan.sites}
            for t in listing.left(desired.label, site, session)
            if t.kind == "group"
        }
    except InferliftError as error:
        lines.append(f"what exists already is not known: {error.what}")
        present = {}
    for site in plan.sites:
        lines.append(f"site {site.name}: network {plan.settings.vpc_id or site.cidr}, {_front_words(plan)}")
    for name, group in wanted.items():
        if name not in present:
            lines.append(f"make host {name} ({group.instance_type}, {group.market}, {group.site})")
    lines += [f"remove host {name}" for name in sorted(present) if name not in wanted and name != "bastion"]
    if plan.batch:
        lines.append(
            f"a queue for at most {plan.batch.max_vcpus} {plan.batch.market} vCPUs of {plan.batch.instance_types[0]}"
        )
    if plan.expires_at:
        lines.append(f"AWS itself takes the hosts away at {plan.expires_at}")
    return lines


def drift(desired: DesiredFleet, workdir: Path, tools: Tools, public_key: str, say: Say) -> list[Drift]:
    """What Pulumi's refreshing preview finds different from state and document; empty when nothing is."""
    known = notes.remembered(workdir)
    settled = desired.model_copy(update={"aws": known.aws}) if known and desired.aws is not None else desired
    return _engine(workdir, tools, say).refresh_preview(_program(settled, public_key, {}))


def lift_expiry(
    desired: DesiredFleet, workdir: Path, tools: Tools, public_key: str, say: Say, session: Session | None = None
) -> None:
    """Take the expiry away, then read back that AWS holds none. Users may be moved only after that.

    Raises CheckFailed naming what still expires.
    """
    session = session or Session()
    lifted = desired.model_copy(update={"aws": planning.of(desired).model_copy(update={"expires_at": None})})
    if reading.expiring(desired.label, workdir, session):
        apply(lifted, workdir, tools, public_key, say, session)
    if still := reading.expiring(desired.label, workdir, session):
        raise CheckFailed(
            f"{len(still)} hosts still expire", why="; ".join(f"{name} at {at}" for name, at in still.items())
        )
    say("nothing of the fleet expires any more: AWS was asked")


def destroy(
    label: str, workdir: Path, tools: Tools, say: Say, *, delete_data: bool = False, session: Session | None = None
) -> list[str]:
    """Remove the fleet. Returns what is left by a new listing over every region used: empty when nothing is.

    What holds data stays, and is named, unless `delete_data`.
    """
    session = session or Session()
    settle(workdir, tools, say, session)
    engine = _engine(workdir, tools, say)
    problem: CheckFailed | None = None
    try:
        engine.destroy(lambda line: None if _is_kept(line) else say(line))
    except CheckFailed as error:
        problem = error
    for region in notes.regions(workdir):
        things = listing.left(label, region, session)
        if things:
            removal.remove(things, session, say, data=delete_data)
    rest = _listed_again(label, workdir, session, data=delete_data)
    kept = [t for t in rest if t.data]
    left = [str(t) for t in rest if not t.data or delete_data]
    if problem is not None:
        if left:
            say(str(problem))
        else:
            engine.destroy(say)  # what was in its way is gone: the state is emptied too
    if kept and not delete_data:
        say(f"kept, since it holds data: {', '.join(f'{t} ({t.id})' for t in kept)}; --delete-data removes it")
    say("nothing is left" if not left else f"left: {', '.join(left)}")
    return left


def settle(workdir: Path, tools: Tools, say: Say, session: Session | None = None) -> None:
    """After a kill: what was being made is found by its tag and removed, so that it is not made twice."""
    from inferlift.provision.aws.undo import undo_creates

    files = StackFiles(workdir, *STACK)
    settling.end_orphans(files.home)
    for lock in files.locks():
        if (pid := settling.lock_holder(lock)) is not None:
            raise Uncertain(
                "another update of this fleet is running",
                why=f"process {pid} holds {lock}",
                next_command="wait for it to end, then run the same command again",
            )
    if not files.checkpoint.exists() or not (files.locks() or files.pending() or not files.readable()):
        return
    session = session or Session()
    known = notes.remembered(workdir)
    made = set(files.resources())
    cut = [r for r in files.pending_creates() if r["urn"] not in made]
    if known is not None:
        undo_creates(cut, known.label, notes.regions(workdir), session, say)
    pending = files.pending()
    _engine(workdir, tools, say).clear_pending()
    say(f"settled a killed update of the fleet ({pending} operations were pending)")


# --- helpers ---------------------------------------------------------------------------------------------------


def _listed_again(
    label: str, workdir: Path, session: Session, *, data: bool, sleep: Callable[[float], None] = time.sleep
) -> list[Thing]:
    """Everything of this owner's in every region used. What was just removed may be listed for a while still."""
    for pause in (*GONE_PAUSES_S, None):
        rest = [t for r in notes.regions(workdir) for t in listing.left(label, r, session)]
        if pause is None or all(t.data and not data for t in rest):
            break
        sleep(pause)
    return rest


def _hold(
    desired: DesiredFleet, workdir: Path, session: Session, say: Say
) -> tuple[DesiredFleet, dict[str, list[str]]]:
    """Capacity for the model hosts that do not exist yet; their zones in the order in which it was granted.

    Returns the document and, by region, the reservations to end once the hosts run. A kept reservation is in the
    document instead.
    """
    plan = planning.of(desired)
    kind = planning.model_type(desired)
    to_end: dict[str, list[str]] = {}
    if kind is None or plan.reservation == "capacity-block":
        return desired, to_end
    sites = []
    for site in plan.sites:
        numbers = [n for _, g, n in planning.hosts(desired) if g.role == "model" and g.site == site.name]
        if not numbers or any(g.market == "spot" for g in desired.groups if g.role == "model"):
            sites.append(site)
            continue
        exist = {
            tag(i, naming.NAME) for i in listing.instances(desired.label, site.region, session)
            if tag(i, naming.ROLE) == "model" and tag(i, naming.SITE) == site.name
        }  # fmt: skip
        width = min(2, len(site.zones)) if plan.spread_zones else 1
        new = numbers[len(exist) :]
        counts = [sum((n - 1) % width == slot for n in new) for slot in range(width)]
        forever = plan.reservation == "on-demand-capacity"
        zones = site.zones if not exist else site.zones[:width]
        ordered = [zones[slot] for slot in range(width) if counts[slot]] if exist else zones
        held = capacity.hold(
            session, site.region, kind, ordered, counts, desired.label, say, forever=forever,
            tenancy="dedicated" if plan.tenancy == "dedicated" else "default",
        )  # fmt: skip
        if not forever:
            to_end.setdefault(site.region, []).extend(held.reservations.values())
        sites.append(
            site.model_copy(
                update={
                    "zones": site.zones if exist else held.zones,
                    "reservations": {**site.reservations, **held.reservations} if forever else site.reservations,
                }
            )
        )
    return desired.model_copy(update={"aws": plan.model_copy(update={"sites": tuple(sites)})}), to_end


def _prepare(desired: DesiredFleet, workdir: Path, session: Session, say: Say) -> dict[str, str]:
    """What exists with our tag and is not in the state: data is adopted, all else came of a create that was cut off.

    Returns what to adopt, as name in the program -> id. Raises Refusal where hosts stand and the state is gone:
    users may be on them.
    """
    files = StackFiles(workdir, *STACK)
    ids, names = files.known()
    places = sorted({s.region for s in planning.of(desired).sites})
    strange = [
        t for place in places for t in listing.left(desired.label, place, session)
        if t.kind not in ("instance", "volume", "capacity reservation")
        and t.id not in ids and (t.kind in _BY_ID or t.name not in names)
    ]  # fmt: skip
    if not ids and any(t.kind == "group" for t in strange):
        raise Refusal(
            "hosts of this fleet exist, and the state that they were made with is gone",
            why=", ".join(str(t) for t in strange if t.kind == "group"),
            next_command="bring the state back (pulumi/state in the work folder), or ./invoke destroy and start anew",
        )
    removal.remove([t for t in strange if not t.data], session, say)
    return {t.name: t.id for t in strange if t.data}


def _take_back_failed(engine: Engine, label: str, workdir: Path, session: Session, say: Say) -> None:
    """A create that failed may have made something all the same: the provider can die before it says so."""
    from inferlift.provision.aws.undo import undo_creates

    made = set(engine.files.resources())
    cut = [r for r in engine.failed if r["urn"] not in made]
    undo_creates(cut, label, notes.regions(workdir), session, say)


def _engine(workdir: Path, tools: Tools, say: Say) -> Engine:
    from inferlift.provision.aws.plugin import provider_folder
    from inferlift.provision.engine import Engine

    folder = provider_folder(tools.pulumi_bin, say)
    return Engine(workdir, *STACK, tools, kinds="aws:", more_path=folder)


def _program(desired: DesiredFleet, public_key: str, adopted: dict[str, str]) -> Callable[[], None]:
    from inferlift.provision.aws.program import fleet_program

    return fleet_program(desired, public_key, adopted)


def _note_for_plain_pulumi(files: StackFiles, desired: DesiredFleet, tools: Tools) -> None:
    from inferlift.provision.engine import write_shell_environment

    write_shell_environment(files, tools)


def _is_kept(line: str) -> bool:
    """The engine says "removed" of what it only takes out of its state."""
    return line.startswith(("removed key ", "removed bucket", "removed repository ", "removed lustrefilesystem "))


def _front_words(plan: AwsPlan) -> str:
    words = {"nlb": "a load balancer that passes TCP on", "alb": "a load balancer that ends TLS"}
    return "no front" if plan.batch else words.get(plan.settings.front, "the gateway's own address")
