"""The fleet's CA: kept while it is good, made anew when it is not, keys readable by nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from inferlift.configure.certificates import ensure_ca, issue, serves

START = datetime(2026, 11, 30, tzinfo=UTC)


def at(days: float):  # type: ignore[no-untyped-def]
    return lambda: START + timedelta(days=days)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_client_that_trusts_the_ca_accepts_the_host(tmp_path: Path) -> None:
    ca = ensure_ca(tmp_path, "fleet")
    cert, _ = issue(ca, tmp_path, "model-1", dns=("model-1", "localhost"), ips=("192.0.2.1",))
    verifier = PolicyBuilder().store(Store([load(ca.cert)])).build_server_verifier(x509.DNSName("model-1"))
    assert verifier.verify(load(cert), [])
    stranger = ensure_ca(tmp_path / "other", "fleet")
    with pytest.raises(x509.verification.VerificationError):
        PolicyBuilder().store(Store([load(stranger.cert)])).build_server_verifier(x509.DNSName("model-1")).verify(
            load(cert), []
        )


def test_the_same_call_again_changes_nothing(tmp_path: Path) -> None:
    ca = ensure_ca(tmp_path, "fleet", now=at(0))
    issue(ca, tmp_path, "h", dns=("h", "x"), ips=("192.0.2.1",), now=at(0))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    ensure_ca(tmp_path, "fleet", now=at(300))
    issue(ca, tmp_path, "h", dns=("x", "h"), ips=("192.0.2.1",), now=at(300))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("days_later", "renewed"), [(357.9, False), (358.1, True), (400, True)])
def test_renewed_in_the_last_seven_days_with_the_same_key(tmp_path: Path, days_later: float, renewed: bool) -> None:
    ca = ensure_ca(tmp_path, "fleet", now=at(0))
    cert, key = issue(ca, tmp_path, "h", dns=("h",), days=365, now=at(0))
    old, old_key = cert.read_bytes(), key.read_bytes()
    issue(ca, tmp_path, "h", dns=("h",), days=365, now=at(days_later))
    assert (cert.read_bytes() != old) is renewed
    assert key.read_bytes() == old_key


@pytest.mark.parametrize("changed", [{"dns": ("h", "new")}, {"dns": ("h",), "ips": ("192.0.2.2",)}, {}])
def test_reissued_when_the_names_change(tmp_path: Path, changed: dict[str, tuple[str, ...]]) -> None:
    ca = ensure_ca(tmp_path, "fleet")
    cert, _ = issue(ca, tmp_path, "h", dns=("h",))
    old = load(cert).serial_number
    issue(ca, tmp_path, "h", **changed)
    assert load(cert).serial_number != old


def test_a_new_ca_makes_new_host_certificates(tmp_path: Path) -> None:
    ca = ensure_ca(tmp_path, "fleet")
    cert, _ = issue(ca, tmp_path, "h", dns=("h",))
    old = cert.read_bytes()
    ca.key.unlink()
    again = ensure_ca(tmp_path, "fleet")
    issue(again, tmp_path, "h", dns=("h",))
    assert cert.read_bytes() != old
    load(cert).verify_directly_issued_by(load(again.cert))


@pytest.mark.parametrize("damaged", ["h.pem", "h.key"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nxx\n"])
def test_half_a_pair_left_by_a_killed_run_is_made_good(tmp_path: Path, damaged: str, content: bytes | None) -> None:
    ca = ensure_ca(tmp_path, "fleet")
    cert, key = issue(ca, tmp_path, "h", dns=("h",))
    (tmp_path / damaged).unlink()
    if content is not None:
        (tmp_path / damaged).write_bytes(content)
    issue(ca, tmp_path, "h", dns=("h",))
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    assert load_pem_private_key(key.read_bytes(), None).public_key() == load(cert).public_key()


def test_keys_are_for_the_owner_only(tmp_path: Path) -> None:
    ca = ensure_ca(tmp_path, "fleet")
    _, key = issue(ca, tmp_path, "h", dns=("h",))
    assert [oct(p.stat().st_mode & 0o777) for p in (ca.key, key)] == ["0o600", "0o600"]


@pytest.mark.parametrize(
    ("name", "key", "days_later", "said"),
    [
        ("ai.x.test", "ai.key", 0, ""),
        ("AI.x.test", "ai.key", 0, ""),
        ("b.wild.test", "ai.key", 0, ""),
        ("a.b.wild.test", "ai.key", 0, "not for a.b.wild.test"),
        ("other.test", "ai.key", 0, "it is for *.wild.test, ai.x.test, not for other.test"),
        ("ai.x.test", "ca.key", 0, "ca.key is not its key"),
        ("ai.x.test", "ai.pem", 0, "no private key in PEM"),
        ("ai.x.test", "ai.key", 400, "it ended at"),
    ],
)
def test_what_users_are_shown_is_looked_at_before_anything_is_made(
    tmp_path: Path, name: str, key: str, days_later: float, said: str
) -> None:
    ca = ensure_ca(tmp_path, "theirs", now=at(0))
    cert, _ = issue(ca, tmp_path, "ai", dns=("ai.x.test", "*.wild.test"), days=365, now=at(0))
    (check,) = serves(str(cert), f"file:{tmp_path / key}", name, now=at(days_later))
    assert check.ok is (not said)
    assert said in check.detail


def test_a_file_without_a_certificate_is_said(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("none")
    for path in (tmp_path / "c.pem", tmp_path / "absent.pem"):
        assert not serves(str(path), "env:X", "ai.x.test")[0].ok
