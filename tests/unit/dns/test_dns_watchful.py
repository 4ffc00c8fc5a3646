"""Gates in every state (held, paused for an approval), back ends without weights, authorities that do not agree."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, Clock, Killed, StandInDns, StandInZone, gate, simple, switch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift import profile
from inferlift.artifacts import Gate
from inferlift.dns import authorities, settle
from inferlift.dns.answers import Answers
from inferlift.dns.eyes import Net
from inferlift.dns.record import shares
from inferlift.dns.standalone import GateSource, standalone
from inferlift.dns.steps import Rules
from inferlift.dns.switch import WATCH_S, Switch
from inferlift.errors import DeclarationError, Held, Refusal, Retryable

LONG = profile.Switch(ttl_s=60, steps=(10, 100), min_samples=5, failures_to_roll_back=2)


class World:
    def __init__(self, possible: tuple[int, ...] | None = None) -> None:
        self.clock, self.zone = Clock(), StandInZone(possible=possible)
        self.dns = StandInDns(self.zone, self.clock)
        self.looks: list[tuple[int, float]] = []
        self.verdict = lambda weight, at: "pass"

    def gates(self, weight: int) -> tuple[Gate, ...]:
        self.looks.append((weight, self.clock.now))
        return (gate(self.verdict(weight, self.clock.now)),)  # type: ignore[arg-type]

    def net(self) -> Net:
        """Without weights an answer holds every side that has users."""
        net = self.dns.net()

        def both(authority: str, name: str, n: int) -> Answers:
            got = net.shares(authority, name, n)
            listed = tuple(sorted(shares(self.zone.state.weights)))
            return Answers(n, {listed[0]: n}, 0, got.ttl_s, {listed: n}) if listed else got

        return net if self.zone.possible is None else Net(both, net.resolver, net.journal)

    def switch(self, **more: Any) -> Switch:
        return switch(self.zone, self.clock, self.net(), self.gates, **more)


def test_a_long_hold_is_watched_and_a_failing_side_is_left_at_once() -> None:
    world = World()
    world.zone.state = simple(60)
    broken_at = []

    def verdict(weight: int, at: float) -> str:
        if weight == 10 and not broken_at:
            broken_at.append(at)  # the first look inside the hold
        return "fail" if weight == 10 else "pass"

    world.verdict = verdict  # type: ignore[assignment]
    result = world.switch(plan=LONG).run()
    assert result.rolled_back
    assert world.clock.now - broken_at[0] < 2 * WATCH_S  # not the two minutes of the hold
    assert [s.weight for s in result.steps] == [0, 10]


def test_a_pass_inside_a_hold_ends_nothing() -> None:
    world = World()
    world.zone.state = simple(60)
    result = world.switch(plan=LONG).run()
    assert not result.rolled_back
    at_ten = [t for w, t in world.looks if w == 10]
    assert len(at_ten) >= 2 * LONG.ttl_s / WATCH_S - 1
    assert at_ten[-1] - at_ten[0] > 2 * LONG.ttl_s - 2 * WATCH_S
    assert [s.weight for s in result.steps] == [0, 10, 100]  # one step a weight, however often it was looked at


def test_a_pause_for_approval_is_watched_and_then_goes_on() -> None:
    world, asked = World(), []

    def approved(weight: int) -> bool:
        asked.append(weight)
        return weight != 100 or asked.count(100) > 5

    said: list[str] = []
    result = world.switch(approved=approved, say=said.append).run()
    assert not result.rolled_back
    assert [s.weight for s in result.steps] == [0, 1, 10, 50, 100]
    assert sum(w == 50 for w, _ in world.looks) >= 6
    assert sum("waits for an approval" in line for line in said) == 1


def test_a_side_that_fails_while_paused_is_left() -> None:
    world = World()
    world.verdict = lambda weight, at: "fail" if sum(w == 50 for w, _ in world.looks) > 4 else "pass"  # type: ignore[assignment]
    result = world.switch(approved=lambda w: w < 100).run()
    assert result.rolled_back
    assert shares(world.zone.state.weights) == {OLD: 1.0}


def test_no_data_while_paused_holds() -> None:
    world = World()
    world.verdict = lambda weight, at: "inconclusive" if sum(w == 50 for w, _ in world.looks) > 4 else "pass"  # type: ignore[assignment]
    with pytest.raises(Held):
        world.switch(approved=lambda w: w < 100).run()
    assert world.zone.state.weights == {OLD: 50, NEW: 50}


@pytest.mark.parametrize(
    ("steps", "possible", "then"),
    [
        ((1, 10, 50, 100), None, (1, 10, 50, 100)),
        ((1, 10, 50, 100), (0, 50, 100), (50, 100)),
        ((1, 10, 50, 100), (0, 100), (100,)),
        ((5, 100), (0, 50, 100), (100,)),
    ],
)
def test_steps_that_a_back_end_cannot_give_are_left_out(
    steps: tuple[int, ...], possible: tuple[int, ...] | None, then: tuple[int, ...]
) -> None:
    rules = Rules.of(steps, possible, 2, 5)
    assert rules.steps == then
    assert rules.rehearsal == (1 if possible is None else 0)


def test_without_weights_no_user_is_moved_by_the_rehearsal() -> None:
    world = World(possible=(0, 50, 100))
    result = world.switch().run()
    assert result.rehearsed_rollback_s is not None
    moved = [round(100 * shares(s.weights).get(NEW, 0)) for s in world.zone.written]
    assert moved == [0, 0, 0, 0, 0, 50, 100, 100]
    assert {s.kind for s in world.zone.written} == {"simple"}
    world.switch().rollback()
    world.switch().restore()
    assert world.zone.state == simple(10)


def test_an_answer_that_lacks_a_side_is_found_without_weights() -> None:
    world = World(possible=(0, 50, 100))
    net = world.net()

    def half(authority: str, name: str, n: int) -> Answers:
        got = net.shares(authority, name, n)
        return Answers(n, {OLD: n}, 0, 2, {(OLD,): n}) if len(shares(world.zone.state.weights)) == 2 else got

    with pytest.raises(Held) as held:
        switch(world.zone, world.clock, Net(half, net.resolver, net.journal), world.gates).run()
    assert "not 192.0.2.10 and 192.0.2.20" in held.value.why


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([None, (0, 50, 100), (0, 100)]),
    st.lists(st.integers(0, 14), max_size=6),
    st.lists(st.sampled_from(["pass", "pass", "fail", "inconclusive"]), max_size=30),
    st.lists(st.booleans(), max_size=10),
)
def test_any_back_end_any_kill_any_gate_any_approval(
    possible: tuple[int, ...] | None, kills: list[int], looks: list[str], approvals: list[bool]
) -> None:
    """Never no answer or a weight that cannot be given, never weight left on a failed side, always a way back."""
    world, script, yes, left, pending = World(possible), iter(looks), iter(approvals), list(kills), []
    failing = 0

    def look(weight: int, at: float) -> str:
        nonlocal failing
        verdict = next(script, "pass")
        failing = failing + 1 if verdict == "fail" else 0 if verdict == "pass" else failing
        return verdict

    def written() -> None:
        weights = shares(world.zone.state.weights)
        assert weights
        assert possible is None or round(100 * weights.get(NEW, 0)) in possible

    @contextlib.contextmanager
    def intent(action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
        assert "inverse" in before
        pending.append(planned)
        if left and (count := left.pop(0)) % 3 == 0:
            raise Killed
        else:
            count = 1 if not left else count
        yield
        if count % 3 == 2:
            raise Killed
        pending.remove(planned)

    world.verdict, world.zone.after_write = look, written  # type: ignore[assignment]
    for attempt in range(len(kills) + 20):
        for planned in list(pending):
            assert settle(world.zone.state, planned) in ("done", "absent")
            pending.remove(planned)
        world.zone.run, failing = f"run-{attempt}", 0
        try:
            result = world.switch(on_intent=intent, approved=lambda w: next(yes, True)).run()
        except Killed:
            continue
        except Held:
            assert failing == 0
            continue
        assert shares(world.zone.state.weights) == ({OLD: 1.0} if result.rolled_back else {NEW: 1.0})
        # one failing look and then none that decides is enough: nobody is left where it failed last
        assert result.rolled_back or failing < 2
        assert failing >= 1 or not result.rolled_back
        break
    assert world.dns.empty == 0
    world.zone.after_write = lambda: None
    world.switch().rollback()
    assert shares(world.zone.state.weights) == {OLD: 1.0}


# ---- before anything is written


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answers(20, {"192.0.2.66": 20}, 0, 10), "the authority b answers 192.0.2.66"),
        (Answers(20, {OLD: 20}, 0, 10, {(OLD, NEW): 20}), f"the authority b answers {OLD}, {NEW}"),
        (Answers(20, {OLD: 19}, 1, 10), "not 192.0.2.10 alone"),
    ],
)
def test_an_authority_that_answers_something_else_stops_the_switch_before_it_writes(answer: Answers, said: str) -> None:
    world = World()
    net = world.dns.net()

    def shares_(authority: str, name: str, n: int) -> Answers:
        return answer if authority == "b" else net.shares(authority, name, n)

    made = Switch(
        backend=world.zone, name=NAME, old=OLD, new=NEW, plan=LONG, gates=world.gates, authority=("a", "b"),
        resolver="r", clock=world.clock, sleep=world.clock.sleep, on_intent=lambda *_: contextlib.nullcontext(),
        net=Net(shares_, net.resolver, net.journal),
    )  # fmt: skip
    with pytest.raises(Refusal, match=re.escape(said)):
        made.run()
    assert world.zone.written == []


def test_the_longest_ttl_that_any_authority_serves_is_waited_for() -> None:
    world = World()
    net = world.dns.net()

    def lagging(authority: str, name: str, n: int) -> Answers:
        got = net.shares(authority, name, n)
        return got if world.zone.written else Answers(n, got.hits, 0, 900)

    start = world.clock.now
    switch(world.zone, world.clock, Net(lagging, net.resolver, net.journal), world.gates).run()
    assert world.clock.now - start >= 900


def test_authorities_are_found_by_ns(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = {
        ("demo.test.", "NS"): ["ns1.demo.test.", "ns2.other.test."],
        ("ns1.demo.test.", "A"): ["192.0.2.1"],
        ("ns2.other.test.", "A"): ["192.0.2.2", "192.0.2.3"],
    }
    monkeypatch.setattr(authorities, "_ask", lambda resolver, name, type_, port, timeout: zone.get((name, type_), []))
    assert authorities.discover("a.b.demo.test", resolver="r") == (
        "demo.test.", ("192.0.2.1", "192.0.2.2", "192.0.2.3"),
    )  # fmt: skip
    zone["ns2.other.test.", "A"] = []
    with pytest.raises(Refusal, match="has no IPv4 address"):
        authorities.discover("ai.demo.test", resolver="r")
    with pytest.raises(Refusal, match="knows no zone"):
        authorities.discover("ai.elsewhere.example", resolver="r")


def test_a_resolver_that_is_silent_is_said() -> None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(Retryable, match="does not answer"):
            authorities.discover("ai.demo.test", resolver="127.0.0.1", port=silent.getsockname()[1], timeout_s=0.05)


def test_the_systems_resolver(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("# x\nsearch demo.test\nnameserver 192.0.2.53\nnameserver 192.0.2.54\n")
    assert authorities.system_resolver(tmp_path / "resolv.conf") == "192.0.2.53"
    with pytest.raises(Refusal):
        authorities.system_resolver(tmp_path / "none")


# ---- alone


def test_a_switch_alone_without_a_gate_or_with_a_name_for_an_address_is_refused() -> None:
    with pytest.raises(DeclarationError, match="without a gate"):
        GateSource()
    with pytest.raises(DeclarationError, match="no IPv4 address"):
        standalone(NAME, OLD, "new.demo.test", DNS, GateSource(command="true"))


DNS = {"kind": "rfc2136", "zone": "demo.test", "server": "192.0.2.3", "key_name": "k", "key": "env:SWITCH_TEST_KEY"}
AT_GATEWAY = {"kind": "haproxy", "backend": "b", "servers": {OLD: "o", NEW: "n"}, "front": "192.0.2.9"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"new": OLD}, "the same address"),
        ({"authority": ["ns1.demo.test"]}, "no IPv4 address"),
        ({"resolver": "localhost"}, "no IPv4 address"),
        ({"gate": GateSource(url="https://other.demo.test/")}, "the URL names other.demo.test"),
        ({"gate": GateSource(url="ai.demo.test")}, "no URL with a host name"),
        ({"gate": GateSource(url=f"https://{NAME}/", ca="/nowhere/ca.pem")}, "/nowhere/ca.pem"),
        ({"backend": {**DNS, "key": "env:NOT_SET_ANYWHERE"}}, "env:NOT_SET_ANYWHERE"),
        ({"backend": {**DNS, "zone": "another.test"}}, "not in the zone"),
        ({"backend": AT_GATEWAY}, "requests through it"),
        ({"name": f"https://{NAME}"}, "is no DNS name"),
        ({"name": "*.demo.test"}, "is no DNS name"),
        ({"name": "ai"}, "is no DNS name"),
    ],
)
def test_what_cannot_be_is_said_before_any_server_is_asked(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str
) -> None:
    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("a server was asked")

    monkeypatch.setenv("SWITCH_TEST_KEY", "c2VjcmV0")
    for module, name in (("authorities", "discover"), ("answers", "authority_share"), ("pinned", "ask")):
        monkeypatch.setattr(f"inferlift.dns.{module}.{name}", asked)
    given: dict[str, Any] = {"new": NEW, "backend": DNS, "gate": GateSource(command="true"), **changed}
    with pytest.raises(DeclarationError, match=said):
        standalone(
            given.pop("name", NAME), OLD, given.pop("new"), given.pop("backend"), given.pop("gate"), **given
        )  # fmt: skip


def test_as_it_is_typed_every_error_has_a_next_step_and_the_way_back_keeps_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inferlift import alone

    monkeypatch.setenv("SWITCH_TEST_KEY", "c2VjcmV0")
    monkeypatch.setenv("INFERLIFT_CWD", str(tmp_path))
    (tmp_path / "dns.yaml").write_text(json.dumps(DNS))
    named = {"authority": ("192.0.2.3",), "resolver": "192.0.2.4", "owner": "the team", "dns_port": 5353}
    with pytest.raises(DeclarationError) as wrong:
        alone.switch_alone(NAME, OLD, OLD, "dns.yaml", gate="true")
    assert "The switch alone" in wrong.value.next_command
    with pytest.raises(DeclarationError, match="cannot be made") as wrong:
        alone.switch_alone(NAME, OLD, NEW, "dns.yaml", gate="true", ttl=-3)
    assert wrong.value.why.startswith("--ttl: ")

    def held(*_: Any, **__: Any) -> Any:
        raise Held("the gates do not decide")

    monkeypatch.setattr("inferlift.dns.standalone.standalone", held)
    with pytest.raises(Held) as waits:
        alone.switch_alone(NAME, OLD, NEW, "dns.yaml", gate="true", **named)
    assert f"./invoke rollback --name {NAME} --old {OLD} --new {NEW} --dns dns.yaml" in waits.value.next_command
    assert "--authority 192.0.2.3 --resolver 192.0.2.4 --owner 'the team' --dns-port 5353" in waits.value.next_command


@pytest.mark.parametrize(
    ("command", "verdict", "why"),
    [
        ("echo fine; exit 0", "pass", "fine"),
        ("echo slow; exit 1", "fail", "slow"),
        ("exit 3", "inconclusive", "code 3"),
        ("exit 7", "inconclusive", "code 7"),
        ("test -f here.txt", "pass", "code 0"),  # run in its own folder
        ('test "$WEIGHT" = 10 && test "$NEW" = 192.0.2.20', "pass", "code 0"),
        ("sleep 5", "inconclusive", "longer than"),
    ],
)
def test_the_gate_commands_exit_code_decides(tmp_path: Path, command: str, verdict: str, why: str) -> None:
    from inferlift.dns.standalone import _gates

    (tmp_path / "here.txt").touch()
    (found,) = _gates(
        GateSource(command=command, timeout_s=0.5, folder=str(tmp_path)), None, NAME, OLD, NEW, LONG, "r", 53
    )(10)
    assert found.verdict == verdict
    assert why in found.why
