"""The old side's writes rest only while they must, and come back whatever happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import migration, transfer
from inferlift.artifacts import Status, Transfer
from inferlift.errors import CheckFailed, Held, Refusal
from inferlift.profile.hosting import Data
from inferlift.stages import _fleet, _moving
from inferlift.stages.base import Options
from inferlift.stages.migrate import MigrateStage

pytestmark = pytest.mark.usefixtures("as_root")
DONE = Transfer(source="o:/d", destinations=(), manifest="m", files=1, bytes=1, passes=(), checks=())
FREEZE = {"state": "read-write", "freeze": "stop-writes", "thaw": "let-write"}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands on the old host, and copies, in their order."""
    seen: list[str] = []
    host = SimpleNamespace(name="model-1", role="model")
    world = SimpleNamespace(origin="origin", data_path="/srv/old")
    fleet = SimpleNamespace(by_role=lambda role: (host,))
    monkeypatch.setattr(_moving.ssh, "run", lambda host, command, **_: seen.append(command))
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=fleet))
    monkeypatch.setattr(migration.Context, "need", lambda ctx, stage, model: world)

    def copy(source: Any, path: str, *rest: Any, freeze: Any = None) -> Transfer:
        seen.append(f"copy {path} limit {rest[-1]}")
        if freeze is not None:
            freeze()
        return DONE

    monkeypatch.setattr(transfer, "copy", copy)
    return seen


def _with(ctx: migration.Context, **data: Any) -> migration.Context:
    ctx.stage, ctx.key = "migrate", "k"
    ctx.profile = ctx.profile.model_copy(update={"data": Data.model_validate(data)})
    return ctx


def test_data_that_is_written_needs_a_freeze_and_a_way_back(where: Any, ran: list[str]) -> None:
    with migration.session(where, "x") as ctx, pytest.raises(Refusal, match="without a freeze and a way back"):
        MigrateStage().run(_with(ctx, state="read-write"))
    assert ran == []


def test_frozen_before_the_second_pass_and_let_go_by_the_way_back(where: Any, ran: list[str]) -> None:
    with migration.session(where, "x") as ctx:
        stage = MigrateStage()
        ctx.ledger.begin("migrate", "k")
        assert stage.run(_with(ctx, **FREEZE, limit_mb_per_s=2.048)) == DONE
        ctx.ledger.finish("migrate", DONE, Status.DONE, 1.0)
        assert ran == ["copy /srv/old limit 2000", "stop-writes"]
        stage.undo(ctx)
        stage.undo(ctx)
        assert ran[2:] == ["let-write"]
        assert ctx.ledger.stage("migrate") is None  # what was copied is out of date


def test_a_copy_that_fails_or_is_killed_lets_it_go(where: Any, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    good = transfer.copy

    def fails(*given: Any, **more: Any) -> Transfer:
        good(*given, **more)
        raise CheckFailed("still different")

    monkeypatch.setattr(transfer, "copy", fails)
    with migration.session(where, "x") as ctx:
        with pytest.raises(CheckFailed):
            MigrateStage().run(_with(ctx, **FREEZE))
        assert ran[-1] == "let-write"
        _moving.freeze(ctx)  # and a kill here
        assert MigrateStage().settle(ctx, SimpleNamespace()) == "absent"  # type: ignore[arg-type]
        assert ran[-2:] == ["stop-writes", "let-write"]


def test_after_a_rollback_it_is_frozen_again_only_when_asked(where: Any, ran: list[str]) -> None:
    with migration.session(where, "x") as ctx:
        ctx.ledger.set_document("rollback", {"at": "t", "seconds": 1.0})
        with pytest.raises(Held, match="would be frozen again"):
            MigrateStage().run(_with(ctx, **FREEZE))
    with migration.session(where, "x", options=Options(explicit=True)) as ctx:
        MigrateStage().run(_with(ctx, **FREEZE))
    assert ran == ["copy /srv/old limit None", "stop-writes"]


def test_data_that_is_only_read_is_never_frozen(where: Any, ran: list[str]) -> None:
    with migration.session(where, "x") as ctx:
        MigrateStage().run(_with(ctx, state="read-only", source="/srv/other"))
        MigrateStage().undo(ctx)
    assert ran == ["copy /srv/other limit None"]
