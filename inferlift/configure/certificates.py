"""The fleet's own CA and the certificates of its hosts: made once, re-issued when names change or the end is near."""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from inferlift import secret
from inferlift.artifacts import Check

RENEW_BEFORE = timedelta(days=7)
CA_DAYS = 3650
CLOCK_SKEW = timedelta(hours=1)  # hosts whose clocks are behind accept a fresh certificate

Now = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Ca:
    cert: Path
    key: Path


def ensure_ca(folder: Path, name: str, *, now: Now = utc_now) -> Ca:
    """The CA in `folder` (ca.pem, ca.key), made if absent. A new one is made when it ends within seven days."""
    ca = Ca(cert=folder / "ca.pem", key=folder / "ca.key")
    with alone(folder):
        cert = load(ca.cert)
        if cert and matches(cert, ca.key) and _common_name(cert) == name and not _ends_soon(cert, now()):
            return ca
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        builder = (
            _builder(subject, subject, key.public_key(), now(), CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        store(ca.key, pem(key), 0o600)
        store(ca.cert, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)
    return ca


def issue(
    ca: Ca,
    folder: Path,
    name: str,
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
    days: float = 365,
    *,
    now: Now = utc_now,
) -> tuple[Path, Path]:
    """Certificate and key NAME.pem, NAME.key in `folder`, valid for `dns` and `ips` as server and as client.

    The present pair is kept while it has these names, was signed by this CA and lasts seven days or more. The key
    is kept when only the certificate is renewed.
    """
    cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    authority = x509.load_pem_x509_certificate(ca.cert.read_bytes())
    with alone(folder):
        cert = load(cert_path)
        paired = cert is not None and matches(cert, key_path)
        if cert and paired and _signed_by(cert, authority) and not _ends_soon(cert, now()):
            same_names = names_of(cert) == (frozenset(dns), frozenset(ips)) and _common_name(cert) == name
            if same_names:
                return cert_path, key_path
        key = load_key(key_path) if paired else ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_subject(name), authority.subject, key.public_key(), now(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(load_key(ca.key).public_key()), critical=False
            )
        )
        alternatives: list[x509.GeneralName] = [x509.DNSName(d) for d in dns]
        alternatives += [x509.IPAddress(ipaddress.ip_address(i)) for i in ips]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        signed = builder.sign(load_key(ca.key), hashes.SHA256())
        store(key_path, pem(key), 0o600)
        store(cert_path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return cert_path, key_path


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two runs that start together must not each make a CA."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, start: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - CLOCK_SKEW)
        .not_valid_after(start + timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def load(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not an EC key")
    return key


def matches(cert: x509.Certificate, key_path: Path) -> bool:
    """The key file is there and belongs to the certificate: a killed run may have left one half."""
    try:
        return load_key(key_path).public_key() == cert.public_key()
    except (FileNotFoundError, ValueError):
        return False


def _signed_by(cert: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        cert.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return True


def _ends_soon(cert: x509.Certificate, at: datetime) -> bool:
    return cert.not_valid_after_utc - at < RENEW_BEFORE


def names_of(cert: x509.Certificate) -> tuple[frozenset[str], frozenset[str]]:
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset(), frozenset()
    addresses = names.get_values_for_type(x509.IPAddress)
    return frozenset(names.get_values_for_type(x509.DNSName)), frozenset(str(a) for a in addresses)


def _common_name(cert: x509.Certificate) -> str:
    return str(cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def store(path: Path, data: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)


def serves(path: str, key: str, name: str, *, now: Now = utc_now) -> list[Check]:
    """May this chain and key (a reference) be shown for `name`? One check that says all that speaks against it."""
    try:
        cert = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
    except (OSError, ValueError, IndexError) as error:
        return [Check(name="origin.certificate", ok=False, detail=f"{path} holds none: {error}")]
    bad = []
    dns, _ = names_of(cert)
    if not any(_covers(pattern, name) for pattern in dns):
        bad.append(f"it is for {', '.join(sorted(dns)) or 'no name'}, not for {name}")
    if cert.not_valid_after_utc <= now():
        bad.append(f"it ended at {cert.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    try:
        own = serialization.load_pem_private_key(secret.resolve(key).encode(), None).public_key()
    except (ValueError, TypeError):
        bad.append(f"what {key} holds is no private key in PEM, or one with a passphrase")
    else:
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        if own.public_bytes(*form) != cert.public_key().public_bytes(*form):
            bad.append(f"{key} is not its key")
    return [
        Check(name="certificate", ok=not bad, detail="; ".join(bad) or f"until {cert.not_valid_after_utc:%Y-%m-%d}")
    ]


def _covers(pattern: str, name: str) -> bool:
    if pattern.startswith("*."):
        return name.lower().partition(".")[2] == pattern[2:].lower()
    return pattern.lower() == name.lower()
