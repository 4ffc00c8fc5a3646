"""A public certificate by ACME (RFC 8555) with the DNS-01 challenge: the name needs no server that can be reached."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from inferlift.configure import certificates
from inferlift.errors import CheckFailed, Refusal, Retryable

CHALLENGE = "_acme-challenge"
RENEW_BEFORE = timedelta(days=30)  # of the usual 90
TIMEOUT_S = 30
WAIT_S = 180.0  # for a challenge to be looked at, or a certificate to be made
NONCES = 10  # that may be refused one after the other: an authority behind several servers does not share them at once
BAD_NONCE = "urn:ietf:params:acme:error:badNonce"


@dataclass(frozen=True)
class Dns:
    """How a TXT record comes and goes. `publish` returns once the zone's own name servers answer with it."""

    publish: Callable[[str, str], None]  # name without its final dot, value
    withdraw: Callable[[str, str], None]


def obtain(
    directory: str,
    folder: Path,
    names: Sequence[str],
    dns: Dns,
    say: Callable[[str], None],
    *,
    contact: str | None = None,
    ca: Path | None = None,
    now: Callable[[], datetime] = certificates.utc_now,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Path, Path]:
    """Chain and key, FIRST_NAME.pem and .key in `folder`; what is there is kept until 30 days before its end.

    `directory`: the authority's address. `contact`: a mail address. `ca`: what the authority's own TLS is checked
    with (None: the system's). The account's key is kept beside. Killed anywhere, the same call goes on: records of
    challenges are withdrawn whatever happens, and one left by a kill does no harm. Raises Refusal (the authority says
    no, and why), Retryable (it cannot be reached, or asks to wait), CheckFailed (it answers strangely or too late).
    """
    chain_path, key_path = folder / f"{names[0]}.pem", folder / f"{names[0]}.key"
    with certificates.alone(folder):
        if kept(folder, names, now()):
            return chain_path, key_path
        session = _Session(directory, _key(folder / "acme-account.key"), ca)
        session.join(contact)
        order = session.post(session.directory["newOrder"], {"identifiers": [_named(n) for n in names]})
        for url in order.body["authorizations"]:
            _prove(session, url, dns, say, sleep)
        key = _key(key_path)
        session.post(order.body["finalize"], {"csr": _b64(_request(key, names))})
        done = _until(session, order.location, ("valid",), sleep)
        chain = session.post(done["certificate"], None, raw=True).text
        if not certificates.matches(x509.load_pem_x509_certificate(chain.encode()), key_path):
            raise CheckFailed("the authority's certificate is not for the key that was sent", why=directory)
        certificates.store(chain_path, chain.encode(), 0o644)
        say(f"{names[0]}: a certificate from {directory}")
    return chain_path, key_path


def kept(folder: Path, names: Sequence[str], at: datetime | None = None) -> bool:
    """Is a certificate for just these names there, with its key and more than 30 days?"""
    chain_path, key_path = folder / f"{names[0]}.pem", folder / f"{names[0]}.key"
    found = certificates.load(chain_path)
    return (
        found is not None
        and certificates.matches(found, key_path)
        and _serves(found, names, at or certificates.utc_now())
    )


def _serves(cert: x509.Certificate, names: Sequence[str], at: datetime) -> bool:
    return certificates.names_of(cert)[0] == frozenset(names) and cert.not_valid_after_utc - at > RENEW_BEFORE


def _prove(session: _Session, url: str, dns: Dns, say: Callable[[str], None], sleep: Callable[[float], None]) -> None:
    authorization = session.post(url, None).body
    if authorization["status"] == "valid":
        return
    name = f"{CHALLENGE}.{authorization['identifier']['value']}"
    challenge = next((c for c in authorization["challenges"] if c["type"] == "dns-01"), None)
    if challenge is None:
        raise Refusal("the authority offers no DNS-01 challenge", why=name)
    told = f"{challenge['token']}.{session.thumbprint}".encode()
    value = _b64(hashlib.sha256(told).digest())
    say(f"{name}: the proof is published")
    dns.publish(name, value)
    try:
        session.post(challenge["url"], {})
        _until(session, url, ("valid",), sleep)
    finally:
        dns.withdraw(name, value)


def _until(
    session: _Session, url: str, wanted: Sequence[str], sleep: Callable[[float], None], wait_s: float = WAIT_S
) -> dict[str, Any]:
    """Asked again at the authority's own pace. Raises Refusal with its reason, CheckFailed after `wait_s`."""
    waited = 0.0
    while True:
        answer = session.post(url, None)
        body = answer.body
        if body["status"] in wanted:
            return body
        if body["status"] == "invalid":
            problems = [c.get("error") for c in body.get("challenges", ()) if c.get("error")] or [body.get("error")]
            raise Refusal("the authority found no proof", why=_said(problems[0] or body))
        if waited >= wait_s:
            raise CheckFailed("the authority does not come to an end", why=f"{body['status']} after {wait_s:.0f} s")
        pause = min(max(answer.retry_after_s or 0.0, 1.0), 10.0)
        sleep(pause)
        waited += pause


@dataclass
class _Answer:
    text: str
    location: str
    retry_after_s: float | None
    body: dict[str, Any] = field(default_factory=dict)


class _Session:
    """Signed requests of one account. Nonces are used once; a bad one is replaced and the request sent again."""

    def __init__(self, directory: str, key: ec.EllipticCurvePrivateKey, ca: Path | None) -> None:
        self._tls = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
        self._key, self._account, self._nonce = key, "", ""
        self.directory: dict[str, Any] = json.loads(self._get(directory).text)
        numbers = key.public_key().public_numbers()
        x, y = (_b64(n.to_bytes(32, "big")) for n in (numbers.x, numbers.y))
        self._jwk = {"crv": "P-256", "kty": "EC", "x": x, "y": y}

    @property
    def thumbprint(self) -> str:
        canonical = json.dumps(self._jwk, sort_keys=True, separators=(",", ":"))
        return _b64(hashlib.sha256(canonical.encode()).digest())

    def join(self, contact: str | None) -> None:
        """The account of this key, made if it is new."""
        told: dict[str, Any] = {"termsOfServiceAgreed": True}
        if contact is not None:
            told["contact"] = [f"mailto:{contact}"]
        self._account = self.post(self.directory["newAccount"], told).location

    def post(self, url: str, payload: dict[str, Any] | None, *, raw: bool = False) -> _Answer:
        """Signed; None asks for what is there (POST-as-GET)."""
        for _ in range(NONCES):
            if not self._nonce:
                self._get(self.directory["newNonce"], method="HEAD")
            try:
                answer = self._send(url, self._signed(url, payload))
            except _Problem as problem:
                if problem.kind == BAD_NONCE:
                    continue
                raise problem.told(url) from None
            if not raw:
                answer.body = json.loads(answer.text or "{}")
            return answer
        raise CheckFailed("the authority takes no nonce", why=url)

    def _get(self, url: str, method: str = "GET") -> _Answer:
        try:
            return self._send(url, None, method)
        except _Problem as problem:
            raise problem.told(url) from None

    def _signed(self, url: str, payload: dict[str, Any] | None) -> bytes:
        head: dict[str, Any] = {"alg": "ES256", "nonce": self._nonce, "url": url}
        head |= {"kid": self._account} if self._account else {"jwk": self._jwk}
        self._nonce = ""
        protected = _b64(json.dumps(head).encode())
        text = "" if payload is None else _b64(json.dumps(payload).encode())
        r, s = decode_dss_signature(self._key.sign(f"{protected}.{text}".encode(), ec.ECDSA(hashes.SHA256())))
        signature = _b64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return json.dumps({"protected": protected, "payload": text, "signature": signature}).encode()

    def _send(self, url: str, body: bytes | None, method: str | None = None) -> _Answer:
        if not url.startswith("https://"):
            raise Refusal("an ACME authority is asked over https only", why=url)
        headers = {"Content-Type": "application/jose+json", "User-Agent": "inferlift"}
        request = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - https, above
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
                self._nonce = answer.headers.get("Replay-Nonce") or self._nonce
                text = answer.read().decode()
                return _Answer(text, answer.headers.get("Location") or "", _retry_after_s(answer.headers))
        except urllib.error.HTTPError as error:
            self._nonce = error.headers.get("Replay-Nonce") or self._nonce
            raise _Problem(error.code, error.read(4000)) from None
        except (OSError, ValueError) as error:
            raise Retryable(f"the ACME authority does not answer: {url}", why=str(error)) from None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After as seconds, whether it says them or a date (RFC 9110, 10.2.3), which is by the authority's clock."""
    told = headers.get("Retry-After") or ""
    if told.isdecimal():
        return float(told)
    try:
        began = parsedate_to_datetime(headers["Date"]) if headers.get("Date") else certificates.utc_now()
        return (parsedate_to_datetime(told) - began).total_seconds()
    except (ValueError, TypeError):  # neither form, or one of both without its zone
        return None


class _Problem(Exception):
    """A problem document (RFC 7807), or whatever else came with a status of 400 and above."""

    def __init__(self, status: int, data: bytes) -> None:
        super().__init__()
        self.status = status
        try:
            self.document: dict[str, Any] = json.loads(data)
        except ValueError:
            self.document = {"detail": data[:200].decode(errors="replace")}
        self.kind = str(self.document.get("type", ""))

    def told(self, url: str) -> Refusal | Retryable:
        why = _said(self.document)
        if self.status >= 500 or self.kind.endswith(":rateLimited"):
            return Retryable("the ACME authority asks to come again", why=why)
        return Refusal(f"the ACME authority refuses {url.rsplit('/', 1)[0]}", why=why)


def _said(problem: dict[str, Any]) -> str:
    return f"{problem.get('type', '')} {problem.get('detail', '')}".strip()[:400] or "no reason given"


def _named(name: str) -> dict[str, str]:
    return {"type": "dns", "value": name}


def _request(key: ec.EllipticCurvePrivateKey, names: Sequence[str]) -> bytes:
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = builder.add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in that file, made once (0600)."""
    if not path.is_file():
        certificates.store(path, certificates.pem(ec.generate_private_key(ec.SECP256R1())), 0o600)
    return certificates.load_key(path)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
