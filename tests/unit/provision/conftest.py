from __future__ import annotations

from pathlib import Path

import pytest

from inferlift.provision import journal, leftovers
from inferlift.provision import podman as podman_module


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here reads or writes this machine's journal, links or processes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(journal, "LEAKS", tmp_path / "leaks")
    monkeypatch.setattr(leftovers, "routes", list)
    monkeypatch.setattr(leftovers, "clear", lambda subnet: [])
    monkeypatch.setattr(leftovers, "clear_address", lambda *args: None)
    monkeypatch.setattr(leftovers, "end_strays", lambda container_id: None)


@pytest.fixture(autouse=True)
def _no_kernel_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "limit" not in request.node.name:
        monkeypatch.setattr(podman_module, "_room_for_systemd", lambda: None)
