"""The old world's verification: a stopped service is a finding, as a stopped host is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import ssh
from inferlift.errors import Retryable
from inferlift.stages import _raised

AUTHORITY: Any = SimpleNamespace(name="authority", role="authority")


@pytest.mark.parametrize(
    ("said", "ok", "detail"),
    [
        ("active\nactive\n", True, "nginx, pdns"),
        ("active\ninactive\n", False, "pdns is inactive"),
        ("", False, "nginx is unknown, pdns is unknown"),
    ],
)
def test_services_that_do_not_run_are_named(monkeypatch: pytest.MonkeyPatch, said: str, ok: bool, detail: str) -> None:
    monkeypatch.setattr(ssh, "run", lambda *a, **k: SimpleNamespace(stdout=said))
    check = _raised._services(AUTHORITY, ("nginx", "pdns"))
    assert (check.ok, check.detail) == (ok, detail)


def test_a_host_that_does_not_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*a, **k):
        raise Retryable("authority does not answer")

    monkeypatch.setattr(ssh, "run", silent)
    assert not _raised._services(AUTHORITY, ("nginx", "pdns")).ok
