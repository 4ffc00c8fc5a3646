"""The switch as a stage of a migration, on whatever makes the answers: ledger, settling, holds and ways back are real.

Stand-ins: both sides' hosts (nobody is asked there), the parity replay, the gates' figures, the clock (faster).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from inferlift import migration, place, teardown
from inferlift.artifacts import (
    Artifact,
    Configured,
    Contract,
    Cutover,
    Endpoint,
    Figure,
    Fleet,
    Gate,
    Host,
    ParityCase,
    RaisedLab,
    Route,
    Service,
    Status,
    World,
)
from inferlift.declaration import load
from inferlift.errors import Held
from inferlift.profile import ROOT
from inferlift.profile.dns import Dns, Guard
from inferlift.stages import _judging, _old_side
from inferlift.stages import switch as stage
from inferlift.stages.base import Context, Options
from inferlift.stages.switch import SwitchStage

SPEED = 10  # of the clock, where real servers answer


class Killed(BaseException):
    """The process is gone: nothing after it runs, no handler either."""


@contextmanager
def migration_on(
    dns: Dns, folder: Path, name: str, old: str, new: str | dict[str, str], patch: pytest.MonkeyPatch, *,
    ca: str | None = None, speed: float = SPEED,
) -> Iterator[place.Place]:  # fmt: skip
    """A migration that stands before its switch, with `switch.dns` as given. `new`: the new side's address, or one for
    each of its sites. `ca`: of both sides' certificate."""
    patch.setattr("os.geteuid", lambda: 0)
    patch.setattr(SwitchStage, "_parity", lambda *_: (ParityCase(request="stand-in", same=True, detail=""),))
    patch.setattr(_judging, "Judge", lambda *_: passes)
    patch.setattr(_old_side, "quiet", lambda world, **_: None)
    base = time.time()
    fast = SimpleNamespace(
        time=lambda: base + speed * (time.time() - base), sleep=lambda seconds: time.sleep(seconds / speed)
    )
    patch.setattr(stage, "time", fast)
    profile = load("demo-small", ROOT).profile
    assert profile.lab is not None
    plan = profile.switch.model_copy(
        update={"dns": dns, "steps": (10, 50, 100), "ttl_s": 1, "guard": Guard(enabled=False)}
    )
    profile = profile.model_copy(update={"switch": plan, "lab": profile.lab.model_copy(update={"users": 0})})
    where = place.Place(profile, ROOT / "profiles" / "demo-small.yaml", folder / "m", f"{uuid4().hex[:8]}/m")
    (folder / "key").write_text("a-key")
    with migration.session(where, "test") as ctx:
        for upstream in ("world", *migration.ORDER[: migration.ORDER.index("switch")]):
            ctx.ledger.begin(upstream, "k")
            made = _world(folder, name, old, ca) if upstream == "world" else None
            ctx.ledger.finish(upstream, made, Status.DONE, 1.0)
        ctx.ledger.set_document("service", service_at(folder, {"lab": new} if isinstance(new, str) else new))
    yield where


def passes(weight: int) -> tuple[Gate, ...]:
    figure = Figure(value=0.0, unit="share", basis="assumed", source="stand-in")
    return (Gate(name="stand-in", verdict="pass", target=0.0, figure=figure, why="stand-in"),)


def moved_killed_changed_and_back(where: place.Place, patch: pytest.MonkeyPatch, foreign: Any) -> Cutover:
    """Killed inside the write of its first weight, gone on with, verified, changed by somebody else (`foreign()`),
    rolled back, held, moved again by name: what every back end must be able to carry. The first cutover."""
    world, new = _sides(where)
    with patch.context() as meanwhile:
        _kill_with_users_out(meanwhile)
        with pytest.raises(Killed), migration.session(where, "deploy") as ctx:
            migration.advance(ctx, SwitchStage())
    with migration.session(where, "deploy") as ctx:  # settles first
        assert ctx.ledger.open_intents() == []
        cutover = migration.advance(ctx, SwitchStage())
        assert isinstance(cutover, Cutover)
        assert set(SwitchStage().users_at(ctx) or ()) == new
        assert migration.advance(ctx, SwitchStage()) == cutover  # verified, not repeated
    foreign()
    with migration.session(where, "deploy") as ctx, pytest.raises(Held, match="not as the switch left it"):
        migration.advance(ctx, SwitchStage())
    with migration.session(where, "rollback") as ctx:
        teardown.rollback(ctx)
        assert set(SwitchStage().users_at(ctx) or ()) == {world.origin.address}
    with migration.session(where, "deploy") as ctx, pytest.raises(Held, match="taken back"):
        migration.advance(ctx, SwitchStage())
    with migration.session(where, "switch", options=Options(explicit=True)) as ctx:
        assert isinstance(migration.advance(ctx, SwitchStage(), again=True), Cutover)
        assert set(SwitchStage().users_at(ctx) or ()) == new
    return cutover


def _kill_with_users_out(patch: pytest.MonkeyPatch) -> None:
    """The server has the write of the first weight, and nobody here knows."""
    made = SwitchStage._backend

    def backend(self: SwitchStage, ctx: Context, world: World, attempt: str = "") -> Any:
        found = made(self, ctx, world, attempt)
        apply = found.apply

        def apply_and_die(change: Any) -> None:
            apply(change)
            if change.after.journal is not None and change.after.journal.phase == "stepping":
                raise Killed

        found.apply = apply_and_die
        return found

    patch.setattr(SwitchStage, "_backend", backend)


def _sides(where: place.Place) -> tuple[World, set[str]]:
    with migration.session(where, "test") as ctx:
        endpoints = ctx.ledger.document("service")["fleet"]["endpoints"]
        return ctx.need("world", World), {e["address"] for e in endpoints}


def _host(folder: Path, name: str, role: Any, address: str) -> Host:
    return Host(name=name, role=role, address=address, ssh_key=str(folder / "key"), host_key="ssh-ed25519 AAAA")


def _contract(folder: Path, name: str, ca: str | None) -> Contract:
    return Contract(
        name=name, certificate=str(folder / "c"), certificate_key=f"file:{folder / 'key'}", ca=ca,
        key_header="X-Api-Key", key=f"file:{folder / 'key'}", routes=(Route(path="/api/chat", upstream="/v1"),),
    )  # fmt: skip


def _world(folder: Path, name: str, old: str, ca: str | None) -> Artifact:
    origin = _host(folder, "origin", "origin", old)
    raised = RaisedLab(
        label="m/world", network="n", subnet="192.0.2.0/24", authority=origin, resolver=origin,
        dns_api="https://192.0.2.53", dns_key=f"file:{folder / 'key'}",
    )  # fmt: skip
    return World(
        origin=origin, address=old, contract=_contract(folder, name, ca), zone="elsewhere.test.", ttl_s=1,
        log_glob="/var/log/access.log*", body_log="/var/log/bodies", data_path="/srv/data", lab=raised,
    )  # fmt: skip


def service_at(folder: Path, sites: dict[str, str]) -> Artifact:
    """A service at sites, each with its gateway and monitor at that address."""
    hosts = [
        _host(folder, f"{role}-{site}", role, address).model_copy(update={"site": site})
        for site, address in sites.items()
        for role in ("gateway", "monitor")
    ]
    fleet = Fleet(
        label="m/fleet", network=None, subnet=None, hosts=tuple(hosts), generation="1",
        endpoints=tuple(Endpoint(site=site, address=address) for site, address in sites.items()),
    )  # fmt: skip
    return Service(
        fleet=fleet, configured=Configured(hosts={}, changed=0, seconds=0.0), endpoint=fleet.endpoints[0],
        contract=_contract(folder, "x", None), replicas=1, checks=(),
    )  # fmt: skip
