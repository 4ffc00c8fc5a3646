"""The switch and the ways back as stages: who decides, what is kept, what a kill leaves."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from inferlift import migration, secret, steering, teardown
from inferlift.artifacts import Check, Cutover, Status
from inferlift.errors import CheckFailed, DeclarationError, Held, Refusal
from inferlift.profile import Origin
from inferlift.stages import _fleet, _users
from inferlift.stages import switch as stage
from inferlift.stages.base import Options, all_back
from inferlift.stages.scale import ScaleStage
from inferlift.stages.switch import SwitchStage

WORLD = SimpleNamespace(contract=SimpleNamespace(name="ai.demo.test"))
pytestmark = pytest.mark.usefixtures("as_root")
DONE = Cutover(
    name="ai.demo.test", old="a", new="b", ttl_before_s=1, ttl_s=1, steps=(), parity=(), rehearsed_rollback_s=None,
    users=(), rolled_back=False,
)  # fmt: skip


@pytest.fixture
def ctx(where, table):
    with migration.session(where, "deploy") as ctx:
        ctx.stage = "switch"
        ctx.ledger.begin("switch", "k")
        ctx.ledger.finish("switch", DONE, Status.DONE, 1.0)
        yield ctx


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> SwitchStage:
    """A switch that gets as far as its parity replay; `ok` is what DNS says."""

    class Reached(Exception):
        pass

    made = SwitchStage()
    made.ok, made.reached = False, Reached  # type: ignore[attr-defined]
    made.journal = None  # type: ignore[attr-defined]
    read = SimpleNamespace(read=lambda name: SimpleNamespace(journal=made.journal))  # type: ignore[attr-defined]
    monkeypatch.setattr(made, "_backend", lambda ctx, world: read)

    def parity(ctx, world):
        raise Reached

    monkeypatch.setattr(made, "verify", lambda ctx, a: [Check(name="dns", ok=made.ok, detail="b 0 %")])  # type: ignore[attr-defined]
    monkeypatch.setattr(made, "_parity", parity)
    fleet = SimpleNamespace(by_role=lambda role: [])
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=fleet))
    return made


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlift.stages.base.Context.need", lambda self, stage, model: WORLD)


def test_a_record_that_someone_changed_holds_every_deploy_until_a_person_decides(ctx, switch) -> None:
    with pytest.raises(Held, match="not as the switch left it"):
        switch.repair(ctx, DONE, switch.verify(ctx, DONE))
    for _ in range(2):
        with pytest.raises(Held, match="not as the switch left it"):
            switch.run(ctx)
    ctx.ledger.set_document("approved", {"switch": {"at": "9999", "reason": "it was me", "overruled": "x"}})
    with pytest.raises(switch.reached):
        switch.run(ctx)


def test_a_record_that_was_put_right_again_needs_no_second_switch(ctx, switch) -> None:
    with pytest.raises(Held):
        switch.repair(ctx, DONE, switch.verify(ctx, DONE))
    switch.ok = True
    assert switch.run(ctx) == DONE
    assert ctx.ledger.document("taken") is None


def test_a_switch_asked_for_by_name_is_a_decision_that_outlives_a_kill(ctx, switch) -> None:
    for document in ("rollback", "taken"):
        ctx.ledger.set_document(document, {"at": "2026", "seconds": 1.0, "why": "x"})
    ctx.options = Options(explicit=True)
    with pytest.raises(switch.reached):
        switch.run(ctx)
    ctx.options = Options()
    with pytest.raises(switch.reached):
        switch.run(ctx)


def by_guard(ctx, sequence: int = 4) -> SimpleNamespace:
    return SimpleNamespace(run="guard", phase="rolled-back", owner=ctx.owner, sequence=sequence)


def test_what_the_guard_took_back_holds_every_deploy_until_a_person_decides(ctx, switch) -> None:
    ctx.ledger.set_document("switch_steps", {"attempt": "x", "steps": [{"weight": 10}]})
    switch.journal = by_guard(ctx)
    for _ in range(2):
        with pytest.raises(Held, match="taken back") as held:
            switch.run(ctx)
        assert "by the guard" in held.value.why
    assert ctx.ledger.document("switch_steps")["back"]  # nobody is on the fleet any more
    ctx.options = Options(explicit=True)
    with pytest.raises(switch.reached):
        switch.run(ctx)
    ctx.options = Options()  # killed before its first write: that somebody decided is not forgotten
    with pytest.raises(switch.reached):
        switch.run(ctx)
    switch.journal = by_guard(ctx, sequence=9)  # it acted once more
    with pytest.raises(Held, match="taken back"):
        switch.run(ctx)


def test_a_finished_switch_that_the_guard_took_back_says_so(ctx, switch) -> None:
    switch.journal = by_guard(ctx)
    with pytest.raises(Held, match="taken back"):
        switch.repair(ctx, DONE, switch.verify(ctx, DONE))


@pytest.mark.parametrize("other", [{"run": "run-1"}, {"phase": "stepping"}, {"owner": "another"}])
def test_other_journals_are_not_the_guards(ctx, switch, other) -> None:
    switch.journal = SimpleNamespace(**{**vars(by_guard(ctx)), **other})
    with pytest.raises(switch.reached):
        switch.run(ctx)


def test_a_step_waits_for_an_approval_that_needs_no_lock(ctx, monkeypatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr("inferlift.stages._notice.tell", lambda ctx, event, why: told.append((event, why)))
    plan = ctx.profile.switch.model_copy(update={"approve_from": 50})
    ctx.profile = ctx.profile.model_copy(update={"switch": plan})
    assert stage._approved(ctx, "run-1", 10)
    assert not steering.approve_step(ctx.folder, "too early")
    assert not stage._approved(ctx, "run-1", 50)
    assert not stage._approved(ctx, "run-1", 50)
    assert told == [("held", "50 % waits for an approval")]
    assert steering.approve_step(ctx.folder, "looks fine")  # while this run holds the lock
    assert stage._approved(ctx, "run-1", 50)
    assert not stage._approved(ctx, "run-1", 100)  # each step is its own
    assert not stage._approved(ctx, "run-2", 50)  # and so is each attempt
    all_back(ctx.ledger)
    assert not steering.approve_step(ctx.folder, "nobody waits after a roll-back")


def test_rollback_is_on_record_before_dns_changes(ctx, switch, monkeypatch) -> None:
    class Killed(BaseException):
        pass

    def killed(self, ctx):
        raise Killed

    monkeypatch.setattr(SwitchStage, "rollback", killed)
    with pytest.raises(Killed):
        teardown.rollback(ctx)
    with pytest.raises(Held, match="taken back"):
        switch.run(ctx)


def test_a_refused_rollback_leaves_no_trace_and_a_failed_one_does(ctx, monkeypatch) -> None:
    def refused(self, ctx):
        raise Refusal("the record is foreign")

    def failed(self, ctx):
        raise CheckFailed("the authority does not show it")

    monkeypatch.setattr(SwitchStage, "rollback", refused)
    with pytest.raises(Refusal):
        teardown.rollback(ctx)
    assert ctx.ledger.document("rollback") is None
    monkeypatch.setattr(SwitchStage, "rollback", failed)
    with pytest.raises(CheckFailed):
        teardown.rollback(ctx)
    assert ctx.ledger.document("rollback") is not None


def test_users_of_an_earlier_attempt_do_not_count(ctx) -> None:
    folder = ctx.path("users", "switch")
    for run, ok in (("20261130T100000-aaaaaa", False), ("20261130T110000-bbbbbb", True)):
        line = {"t": 1.0, "client": "resolving", "side": "a", "ok": ok}
        (folder / f"{run}.jsonl").write_text(json.dumps(line) + "\n")
    world = SimpleNamespace(address="a")
    (seen, _) = _users.counts(ctx, world, "b", "switch", since_run="20261130T110000-bbbbbb")
    assert (seen.old, seen.failed) == (1, 0)


def test_power_that_a_killed_test_had_cut_comes_back(ctx, monkeypatch) -> None:
    hosts = [SimpleNamespace(name="model-1"), SimpleNamespace(name="model-2")]
    fleet = SimpleNamespace(by_role=lambda role: hosts)
    on: list[str] = []
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=fleet))
    monkeypatch.setattr("inferlift.provision.power_on", lambda host, tools: on.append(host.name), raising=False)
    monkeypatch.setattr(type(ctx), "tools", lambda self: None)
    assert ScaleStage().settle(ctx, SimpleNamespace(action="loss", subject="model-2")) == "absent"  # type: ignore[arg-type]
    assert on == ["model-2"]


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_secret_that_cannot_be_read_names_the_reference(tmp_path, content) -> None:
    path = tmp_path / "key"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(DeclarationError, match=f"file:{path}"):
        secret.resolve(f"file:{path}")


def test_answers_by_side_become_one_series_a_client() -> None:
    def seen(t: float, client: str, side: str, ok: bool = True) -> dict[str, object]:
        return {"t": t, "client": client, "side": side, "ok": ok}

    records = [seen(0, "r", "old"), seen(0.5, "r", "new"), seen(120, "r", "new"), seen(60, "k", "old")]
    records += [seen(60, "k", "elsewhere"), seen(60, "k", "new", ok=False)]
    k, r = _users.by_side(records, "old", "new")
    assert (k.name, [value for _, value in k.points]) == ("k", [0.0])
    assert [value for _, value in r.points] == [0.5, 1.0]
    assert _users.by_side([], "old", "new") == ()


def test_a_service_that_exists_is_switched_without_users_of_ours_and_says_what_was_not_looked_at(
    ctx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch itself is a stand-in: what is left out around it is the stage's own."""
    found = SimpleNamespace(
        contract=SimpleNamespace(name="ai.x.test"), address="a", lab=None, body_log="", recorded="", ttl_s=60
    )
    moved = SimpleNamespace(
        run=lambda: SimpleNamespace(
            ttl_before_s=60, ttl_s=5, rehearsed_rollback_s=0.1, rolled_back=False, rollback_s=None, why=""
        )
    )
    origin = Origin(name="ai.x.test", logs="/var/log/a.log")
    ctx.profile = ctx.profile.model_copy(update={"origin": origin})
    ctx.key, said = "k", list[str]()
    monkeypatch.setattr("inferlift.stages.base.Context.need", lambda self, name, model: found)
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(endpoint=SimpleNamespace(address="b")))
    monkeypatch.setattr(SwitchStage, "_hold_after_guard", lambda self, ctx, world: None)
    monkeypatch.setattr(SwitchStage, "_switch", lambda self, *a: moved)
    monkeypatch.setattr(stage._guarding, "ensure", lambda ctx, world: stage._guarding.Guarded(why="no key"))
    monkeypatch.setattr(stage._wanted, "lift_expiry", lambda ctx: None)
    monkeypatch.setattr(stage, "_who_is_left", lambda ctx, world, since: None)
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: pytest.fail("nobody plays users"))
    monkeypatch.setattr(type(ctx.progress), "note", lambda self, line: said.append(line))
    cutover = SwitchStage().run(ctx)
    assert (cutover.old, cutover.new, cutover.users, cutover.sides, cutover.parity) == ("a", "b", (), (), ())
    assert any("parity not looked at: no requests were recorded" in line for line in said)
    assert SwitchStage().summary(cutover) == "ai.x.test at b in 0 steps"
