"""Host changes under users: drained first, and given back whatever happens in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferlift.configure import gateway as gateway_api
from inferlift.errors import CheckFailed
from inferlift.stages import _fleet

HOSTS = {
    role: [SimpleNamespace(name=n, role=role, container=n) for n in names]
    for role, names in {"gateway": ["gateway-1"], "model": ["model-1", "model-2"]}.items()
}
FLEET: Any = SimpleNamespace(hosts=[h for hosts in HOSTS.values() for h in hosts], by_role=lambda role: HOSTS[role])
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
    monkeypatch.setattr(_fleet, "_wait_up", lambda ctx, gateway, names: told.append(f"up {names[0]}"))

    def configured(ctx, fleet, only=(), check=False):
        made = SimpleNamespace(hosts=rows, changed=0, seconds=0.0, skipped=())
        made.model_copy = lambda update: made
        return made

    monkeypatch.setattr(_fleet, "configure_fleet", configured)
    return told


def test_what_a_killed_run_drained_takes_requests_again(told: list[str]) -> None:
    _fleet.configure_under_users(CTX, FLEET)
    assert told == ["undrain model-1", "drain model-2", "undrain model-2", "up model-2"]


def test_a_host_that_could_not_be_drained_is_not_left_drained(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def late(host, name):
        raise CheckFailed("requests are left")

    monkeypatch.setattr(gateway_api, "drain", late)
    with pytest.raises(CheckFailed):
        _fleet.configure_under_users(CTX, FLEET)
    assert told[-1] == "undrain model-2"
