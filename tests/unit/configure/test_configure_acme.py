"""What an ACME authority says of waiting. The rest is tried against a real one: tests/lab/test_acme.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift.configure import acme, certificates
from inferlift.errors import CheckFailed

DATE = "Tue, 01 Dec 2026 10:47:23 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "Tue, 01 Dec 2026 10:47:28 GMT", "Date": DATE}, 5.0),
        ({"Retry-After": "Tue, 01 Dec 2026 10:47:20 GMT", "Date": DATE}, -3.0),
        ({"Retry-After": "Tue, 01 Dec 2026 10:47:28 GMT"}, 8.0),  # by our own clock
        ({}, None),
        ({"Retry-After": "soon", "Date": DATE}, None),
        ({"Retry-After": "-1"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], seconds: float | None
) -> None:
    monkeypatch.setattr(certificates, "utc_now", lambda: datetime(2026, 12, 1, 10, 47, 20, tzinfo=UTC))
    assert acme._retry_after_s(headers) == seconds


@pytest.mark.parametrize(("told", "pause"), [(None, 1.0), (-3.0, 1.0), (0.0, 1.0), (4.0, 4.0), (3600.0, 10.0)])
def test_an_authority_that_comes_to_no_end_is_asked_at_its_pace_and_given_up(told: float | None, pause: float) -> None:
    answer, slept = acme._Answer("", "", told, {"status": "processing"}), list[float]()
    session: Any = SimpleNamespace(post=lambda url, payload: answer)
    with pytest.raises(CheckFailed, match="does not come to an end"):
        acme._until(session, "https://ca.test/order/1", ("valid",), slept.append, 20.0)
    assert set(slept) == {pause}
    assert 20.0 <= sum(slept) < 20.0 + pause


@pytest.mark.parametrize(("refused", "answered"), [(0, True), (acme.NONCES - 1, True), (acme.NONCES, False)])
def test_a_refused_nonce_is_replaced_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch, refused: int, answered: bool
) -> None:
    sent: list[str] = []

    def send(session: Any, url: str, body: bytes | None) -> acme._Answer:
        sent.append(url)
        if len(sent) <= refused:
            raise acme._Problem(400, json.dumps({"type": acme.BAD_NONCE}).encode())
        return acme._Answer("{}", "", None)

    monkeypatch.setattr(acme._Session, "_send", send)
    monkeypatch.setattr(acme._Session, "_signed", lambda session, url, payload: b"")
    session = object.__new__(acme._Session)
    session._nonce = "one"
    if answered:
        assert session.post("https://ca.test/order", None).body == {}
    else:
        with pytest.raises(CheckFailed, match="takes no nonce"):
            session.post("https://ca.test/order", None)
    assert len(sent) == min(refused + 1, acme.NONCES)
