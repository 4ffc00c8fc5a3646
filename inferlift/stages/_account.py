"""What the target's account says of a plan before any money is spent: checks, rules of safety, every billed item."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inferlift.artifacts import Check, DesiredFleet, Evidence, Measurement, Sizing
from inferlift.stages import _wanted
from inferlift.stages._plan import planned
from inferlift.stages.base import Context

if TYPE_CHECKING:
    from inferlift.provision.aws.bill import Billed


@dataclass(frozen=True)
class Account:
    """`billed` None: the target costs nothing."""

    checks: tuple[Check, ...]
    billed: tuple[Billed, ...] | None

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.checks)

    @property
    def usd_per_hour(self) -> float | None:
        """Of what is known and billed by time; None where nothing is."""
        known = [b.usd_per_hour for b in self.billed or () if b.usd_per_hour is not None]
        return sum(known) if known else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Items whose price nobody knows here, and those that cost by use: no sum holds them."""
        return tuple(dict.fromkeys(b.item for b in self.billed or () if b.usd_per_hour is None))


def ask(ctx: Context, *, preview: bool = True) -> Account:
    """The whole fleet as sized: what the account says, and what the engine's preview would make.

    Raises Refusal where nobody is signed in, DeclarationError for a fleet that cannot be.
    """
    from inferlift import provision, toolchain

    wanted = at_full_size(ctx)
    checks = provision.check_before_spending(wanted, ctx.say)
    if not checks:
        return Account((), None)
    checks.append(_residency(ctx, wanted))
    if not preview:
        return Account(tuple(checks), None)
    toolchain.ensure(["pulumi"], ctx.announce)
    tools = provision.Tools(pulumi_bin=toolchain.pulumi_bin() / "pulumi", python_plugin=None, host_image="")
    asked = provision.ask_fleet(wanted, ctx.folder, tools, ctx.say)
    assert asked is not None  # noqa: S101 - what has checks has a bill
    broken = "; ".join(asked.broken) or f"all kept by {asked.resources} resources"
    checks.append(Check(name="rules of safety", ok=not asked.broken, detail=broken))
    return Account(tuple(checks), tuple(_priced(asked.billed)))


def at_full_size(ctx: Context) -> DesiredFleet:
    """The fleet that the scale stage would ask for: replicas for the peak, and the spare."""
    measured = ctx.optional("load", Measurement)
    sizing = measured.sizing if measured else ctx.optional("size", Sizing)
    sizing = sizing or planned(ctx.profile, ctx.optional("audit", Evidence))
    return _wanted.desired(ctx, poc=1, scale=sizing.replicas + sizing.spare)


def lines(account: Account) -> list[str]:
    """For people: checks first, then the bill, dearest first."""
    told = [f"  {_mark(c)} {c.name}: {c.detail}" for c in account.checks]
    for item in sorted(account.billed or (), key=lambda b: -(b.usd_per_hour or 0.0)):
        hourly = item.usd_per_hour
        cost = "by use" if item.unit == "usage" else "price unknown" if hourly is None else f"{hourly:.4f} USD/hour"
        elsewhere = f", price of {item.region}" if item.region not in (None, item.place) else ""
        told.append(f"  {cost:>18}  {item.count} x {item.item} ({item.place}{elsewhere})")
    if account.billed is not None:
        total = account.usd_per_hour
        words = "unknown" if total is None else f"{total:.2f} USD/hour"
        beside = f", beside {', '.join(account.unknown)}" if account.unknown else ""
        told.append(f"  {words} in all{beside}")
    return told


# --- helpers ---------------------------------------------------------------------------------------------------


def _mark(check: Check) -> str:
    return "--" if check.skipped else "ok" if check.ok else "NO"


def _residency(ctx: Context, wanted: DesiredFleet) -> Check:
    """A document that breaks it is refused when it is made; here it is told."""
    allowed = ctx.profile.operations.residency
    places = ", ".join(dict.fromkeys(g.site for g in wanted.groups)) or "the queue's region"
    detail = f"{places}, within {', '.join(allowed)}" if allowed else f"{places}; operations.residency asks for none"
    return Check(name="residency", ok=True, skipped=not allowed, detail=detail)


def _priced(billed: Iterable[Billed]) -> list[Billed]:
    """With the price tables' own prices of hosts and disks. What they do not know stays unknown."""
    from inferlift.prices import extras, offers

    found = []
    for item in billed:
        name, _, market = item.item.rpartition(" ")
        if item.item == "disk gp3, GB":
            extra = extras(item.place)["disk gp3"][0]
            item = replace(item, usd=extra.usd, region=item.place, source=f"{extra.source} ({extra.date})")
        elif market in ("on-demand", "spot", "capacity-block"):
            for offer in offers("aws", item.place):
                if offer.name == name:
                    usd = {"on-demand": offer.usd_per_hour, "spot": offer.usd_spot_per_hour}.get(market)
                    item = replace(item, usd=usd, region=item.place, source=f"{offer.source} ({offer.date})")
        found.append(item)
    return found
