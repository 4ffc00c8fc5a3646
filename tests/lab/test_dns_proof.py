"""The TXT proof that a certificate is asked for with, at name servers for real, on loopback."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dns_sides import AUTHORITY, NAME, NAMES, OLD, OWNER, ZONE

from inferlift.dns import answers, loopback
from inferlift.dns.proof import Proof, prover
from inferlift.dns.settings import backend

pytestmark = pytest.mark.lab
PROOF_AT = f"_acme-challenge.{NAME}"


@pytest.mark.parametrize("kind", ["rfc2136", "powerdns"])
def test_a_proof_is_answered_beside_another_and_gone_alone(
    kind: str, found: loopback.Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"kind": kind, "zone": ZONE, "key": "env:PROOF_KEY"}
    with contextlib.ExitStack() as stack:
        if kind == "powerdns":
            at = stack.enter_context(loopback.powerdns(found, tmp_path / "dns", ZONE, [(NAME, "A", 2, OLD)]))
            given |= {"url": f"http://{AUTHORITY}:{at.api}"}
        else:
            names = [*NAMES, "_acme-challenge.ai"]
            at = stack.enter_context(loopback.knot(found, tmp_path / "dns", ZONE, [f"ai 2 A {OLD}"], names=names))
            given |= {"server": AUTHORITY, "port": at.port, "key_name": "inferlift"}
        monkeypatch.setenv("PROOF_KEY", at.secret)
        ask = partial(answers.texts_at, port=at.port)
        made = backend(given, names=(NAME,), addresses=(), owner=OWNER, run="r")
        proof = Proof(prover(made), (AUTHORITY,), print, ask)
        for value in ("first", "second", "second"):
            proof.publish(PROOF_AT, value)
        assert sorted(ask(AUTHORITY, PROOF_AT)) == ["first", "second"]
        for value, left in (("first", ("second",)), ("second", ())):
            proof.withdraw(PROOF_AT, value)
            assert ask(AUTHORITY, PROOF_AT) == left
