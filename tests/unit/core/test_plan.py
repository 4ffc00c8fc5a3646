"""Approvals: what was approved is what is done; what moved since is named and refused."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from inferlift import migration, plan
from inferlift.artifacts import Figure, Memory, Sizing, Status
from inferlift.errors import Held, Refusal

pytestmark = pytest.mark.usefixtures("as_root")


def sizing(cost: float | None = 1.0, verdict: str = "go") -> Sizing:
    figure = Figure(value=cost, unit="EUR/h", basis="assumed", source="test")
    memory = Memory(
        weights_bytes=1, kv_bytes_per_token=1, kv_bytes=1, overhead_bytes=1, total_bytes=4, explain=()
    )  # fmt: skip
    return Sizing.model_validate(
        {
            "verdict": verdict,
            "why": "because",
            "choice": "lab host",
            "replicas": 2,
            "spare": 1,
            "offers": (),
            "memory": memory,
            "currency": "EUR",
            **dict.fromkeys(("peak_rps", "rate_per_replica", "cost_per_hour", "cost_per_1000"), figure),
        }
    )


@pytest.fixture
def ctx(where, table):
    with migration.session(where, "deploy") as ctx:
        sized(ctx, sizing())
        table["build"].approval = "first"
        yield ctx


def sized(ctx, value: Sizing) -> None:
    ctx.ledger.begin("size", "k")
    ctx.ledger.finish("size", value, Status.DONE, 0.1)


def approve(ctx, table, **more) -> None:
    plan.approver(**{"ask": True, "given": None, **more})(ctx, table["build"])


def test_the_lab_approves_itself_and_the_document_is_kept(ctx, table) -> None:
    approve(ctx, table, ask=False)
    assert ctx.ledger.document("approval:first") == plan.document(ctx, "first")


def test_without_a_terminal_the_hash_to_give_is_named(ctx, table, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(Refusal) as refused:
        approve(ctx, table)
    assert refused.value.exit_code == 2
    wanted = plan.plan_hash(plan.document(ctx, "first"))
    assert f"--plan {wanted}" in str(refused.value)
    approve(ctx, table, given=wanted)
    approve(ctx, table)  # approved once, holds on


@pytest.mark.parametrize("wrong", ["000000000000", "abc", ""])
def test_another_hash_is_refused(ctx, table, wrong) -> None:
    with pytest.raises(Refusal, match="is not the plan"):
        approve(ctx, table, given=wrong)


def test_a_hash_that_is_given_counts_even_where_the_lab_approved_itself_before(ctx, table) -> None:
    approve(ctx, table, ask=False)
    with pytest.raises(Refusal, match="is not the plan"):
        approve(ctx, table, ask=False, given="000000000000")
    approve(ctx, table, ask=False, given=plan.plan_hash(plan.document(ctx, "first")))


def test_a_shortened_hash_does_not_match_by_chance(ctx, table) -> None:
    approve(ctx, table, given=plan.plan_hash(plan.document(ctx, "first")))
    sized(ctx, sizing(cost=2.0))
    wanted = plan.plan_hash(plan.document(ctx, "first"))
    with pytest.raises(Refusal, match="no longer holds"):
        approve(ctx, table, given=wanted[:2])
    approve(ctx, table, given=wanted[:6])


def test_the_second_approval_goes_by_the_measured_verdict(ctx, table, monkeypatch) -> None:
    measured = SimpleNamespace(sizing=sizing(verdict="stay"), gates=())
    optional = ctx.optional
    monkeypatch.setattr(ctx, "optional", lambda s, m: measured if s == "load" else optional(s, m))
    approve(ctx, table, ask=False)
    table["build"].approval = "second"
    with pytest.raises(Held, match="stay"):
        approve(ctx, table, ask=False)


def test_what_moved_since_is_named(ctx, table) -> None:
    approve(ctx, table, given=plan.plan_hash(plan.document(ctx, "first")))
    sized(ctx, sizing(cost=2.0))
    with pytest.raises(Refusal, match="no longer holds") as refused:
        approve(ctx, table)
    assert "cost per hour: approved 'about 1 EUR/h', now 'about 1.98 EUR/h'" in str(refused.value)


def test_prices_within_tolerance_are_the_same_plan(ctx, table) -> None:
    approve(ctx, table, given=plan.plan_hash(plan.document(ctx, "first")))
    sized(ctx, sizing(cost=1.02))
    approve(ctx, table)


def test_an_unknown_price_is_part_of_the_plan_as_unknown(ctx) -> None:
    sized(ctx, sizing(cost=None))
    assert plan.document(ctx, "first")["cost per hour"] == "unknown (test)"


def test_no_on_the_terminal_holds(ctx, table, monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    with pytest.raises(Held):
        approve(ctx, table)
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    approve(ctx, table)


@pytest.mark.parametrize("verdict", ["stay", "defer", "conditional", "optimise-first", "buy-as-service"])
def test_any_verdict_but_go_holds_until_approved_with_a_reason(ctx, table, verdict) -> None:
    sized(ctx, sizing(verdict=verdict))
    with pytest.raises(Held, match=verdict):
        approve(ctx, table, ask=False)
    ctx.ledger.set_document("approved", {"size": {"reason": "the contract ends", "overruled": "because"}})
    approve(ctx, table, ask=False)
    assert ctx.ledger.document("held") is None
    sized(ctx, sizing(verdict=verdict).model_copy(update={"why": "because of something else"}))
    with pytest.raises(Held, match=verdict):
        approve(ctx, table, ask=False)


def test_a_plan_can_be_shown_before_anything_exists_and_makes_nothing(where) -> None:
    with migration.looking(where, "plan") as ctx:
        lines, document = plan.show(ctx)
    assert "unknown until the audit" in "\n".join(lines)
    assert document["part"] == "first"
    assert not where.folder.exists()
