"""What is not as it was left: Pulumi's refreshing preview, Ansible's check, the record as DNS has it. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from inferlift.artifacts import Check, Cutover
from inferlift.stages.base import Context


def drift(ctx: Context) -> list[Check]:
    """One check for each place that was looked at, or each thing that drifted there. What cannot be looked at is no
    proof: its check is not ok and says why."""
    if ctx.ledger.document("service") is None:
        return [Check(name="drift", ok=True, skipped=True, detail="no fleet was made yet")]
    places: dict[str, Callable[[], list[Check]]] = {
        "hosts": lambda: _hosts(ctx),
        "configuration": lambda: _configuration(ctx),
        "DNS": lambda: _dns(ctx),
    }
    with ThreadPoolExecutor(len(places)) as pool:
        found = pool.map(lambda place: _looked(*place), places.items())
        return [check for checks in found for check in checks]


def lines(checks: Sequence[Check]) -> list[str]:
    """For people."""
    words = {True: "as it was left", False: "DRIFT"}
    return [f"{c.name:<14} {'not looked at' if c.skipped else words[c.ok]}: {c.detail}".rstrip(": ") for c in checks]


def _looked(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except Exception as error:  # a look ends no watch, whatever the engines raise
        return [Check(name=name, ok=False, detail=f"could not be looked at: {error!s}".replace("\n", " "))]


def _hosts(ctx: Context) -> list[Check]:
    from inferlift import provision
    from inferlift.stages import _wanted

    floors = ctx.ledger.document("floors") or {}
    wanted = _wanted.document(ctx, floors)
    if wanted.static is not None:
        return [Check(name="hosts", ok=True, skipped=True, detail="own hosts: Pulumi makes nothing of them")]
    drifts = provision.drift_fleet(wanted, ctx.folder, ctx.tools())
    if not drifts:
        return [Check(name="hosts", ok=True, detail="Pulumi's refreshing preview finds no change")]
    return [Check(name="hosts", ok=False, detail=f"{d.resource} is {d.change}") for d in drifts]


def _configuration(ctx: Context) -> list[Check]:
    from inferlift.stages import _configuring, _fleet

    done = _configuring.configure_fleet(ctx, _fleet.current(ctx).fleet, check=True)
    changed = {name: row["changed"] for name, row in done.hosts.items() if row["changed"]}
    if not changed:
        return [Check(name="configuration", ok=True, detail=f"Ansible would change nothing on {len(done.hosts)} hosts")]
    return [
        Check(name="configuration", ok=False, detail=f"Ansible would change {n} things on {name}")
        for name, n in sorted(changed.items())
    ]


def _dns(ctx: Context) -> list[Check]:
    from inferlift.stages.switch import SwitchStage

    cutover = ctx.optional("switch", Cutover)
    if cutover is None:
        return [Check(name="DNS", ok=True, skipped=True, detail="users were not moved yet")]
    checks = SwitchStage().verify(ctx, cutover)
    bad = [Check(name="DNS", ok=False, detail=f"{c.name}: {c.detail}") for c in checks if not c.ok and not c.skipped]
    return bad or [Check(name="DNS", ok=True, detail=f"{cutover.name} is answered as the switch left it")]
