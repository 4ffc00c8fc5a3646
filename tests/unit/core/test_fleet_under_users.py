"""Host changes under users: drained first, and given back whatever happens in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import provision
from inferlift.artifacts import Configured
from inferlift.configure import gateway as gateway_api
from inferlift.errors import CheckFailed, Held
from inferlift.provision.models import Drift
from inferlift.stages import _configuring, _fleet

HOSTS = {
    role: [SimpleNamespace(name=n, role=role, container=n) for n in names]
    for role, names in {"gateway": ["gateway-1"], "model": ["model-1", "model-2"]}.items()
}
FLEET: Any = SimpleNamespace(hosts=[h for hosts in HOSTS.values() for h in hosts], by_role=lambda role: HOSTS[role])
FLEET.at_sites = lambda: (FLEET,)
CTX: Any = SimpleNamespace(say=lambda line: None)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the gateway was told; model-1 is drained already, model-2 would change."""
    told: list[str] = []
    states = [gateway_api.ServerState("model-1", "DRAIN", 0, 0, 0), gateway_api.ServerState("model-2", "UP", 0, 0, 0)]
    rows = {"model-1": {"changed": 0}, "model-2": {"changed": 1}}
    monkeypatch.setattr(gateway_api, "servers", lambda host: states)
    monkeypatch.setattr(gateway_api, "drain", lambda host, name: told.append(f"drain {name}"))
    monkeypatch.setattr(gateway_api, "undrain", lambda host, name: told.append(f"undrain {name}"))
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=FLEET))
    monkeypatch.setattr(_configuring, "_wait_up", lambda ctx, gateway, names: told.append(f"up {names[0]}"))

    def configured(ctx, fleet, only=(), check=False):
        return Configured(hosts=rows, changed=0, seconds=0.0)

    monkeypatch.setattr(_configuring, "configure_fleet", configured)
    return told


def test_what_a_killed_run_drained_takes_requests_again(told: list[str]) -> None:
    _configuring.configure_under_users(CTX, FLEET, FLEET)
    assert told == ["undrain model-1", "drain model-2", "undrain model-2", "up model-2"]


def test_a_host_that_could_not_be_drained_is_not_left_drained(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def late(host, name):
        raise CheckFailed("requests are left")

    monkeypatch.setattr(gateway_api, "drain", late)
    with pytest.raises(CheckFailed):
        _configuring.configure_under_users(CTX, FLEET, FLEET)
    assert told[-1] == "undrain model-2"


def would(monkeypatch: pytest.MonkeyPatch, *anew: str, overruled: str = "") -> Any:
    """Pulumi's preview, a stand-in here, would make these hosts anew; one more is gone."""
    drifts = [Drift(resource=f"host {name}", change="changed") for name in anew]
    drifts.append(Drift(resource="host model-9", change="gone"))
    fleet = SimpleNamespace(hosts=FLEET.hosts, by_role=FLEET.by_role, generation="abcdef0123")
    monkeypatch.setattr(_fleet, "current", lambda ctx: SimpleNamespace(fleet=fleet))
    monkeypatch.setitem(provision.__dict__, "drift_fleet", lambda *given: drifts)
    return SimpleNamespace(
        folder=None, tools=lambda: None, stage="scale", profile=SimpleNamespace(name="p"),
        overruled=lambda stage, why: why == overruled,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("anew", "left"),
    [(("model-2",), 1), (("model-1", "model-2"), 0), (("gateway-1",), 0), (("gateway-1", "model-1"), 0)],
)
def test_hosts_are_made_anew_in_place_only_when_somebody_takes_the_downtime(monkeypatch, anew, left) -> None:
    with pytest.raises(Held, match="made anew in their place") as held:
        _fleet._consented(would(monkeypatch, *anew), FLEET)
    assert held.value.why == f"{', '.join(anew)} of fleet abcdef01: {left} of 2 replicas answer meanwhile"
    _fleet._consented(would(monkeypatch, *anew, overruled=held.value.why), FLEET)
    with pytest.raises(Held):  # another fleet, another approval
        _fleet._consented(would(monkeypatch, *anew, overruled=held.value.why.replace("abcdef01", "99999999")), FLEET)


def test_a_host_that_is_gone_is_made_again_without_asking(monkeypatch) -> None:
    _fleet._consented(would(monkeypatch), FLEET)
