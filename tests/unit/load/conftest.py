from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mock_server import Mock

from inferlift.artifacts import LoadRun
from inferlift.load.client import LoadPlan, run
from inferlift.load.standalone import Asked, standalone
from inferlift.load.target import Target


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(certificate, key) for ai.demo.test, its own CA."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ai.demo.test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("ai.demo.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture
def tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The load test of stand-ins with these options: its exit code and its JSON."""
    # the stand-in shares this process's interpreter, which can really hold the client up; see the test of that
    monkeypatch.setattr("inferlift.load.result.client_limit", lambda *_: "")

    def whole(*servers: Mock, **more: Any) -> tuple[int, dict[str, Any]]:
        said: list[str] = []
        urls = tuple(f"http://127.0.0.1:{server.port}" for server in servers)
        wanted = Asked(urls, **({"requests": 40, "users": 4, "check_self": False, "folder": tmp_path / "out"} | more))
        code = standalone(wanted, as_json=True, say=lambda _: None, out=said.append)
        assert len(said) == 1
        return code, json.loads(said[0])

    return whole


@pytest.fixture
def sent(tmp_path: Path) -> Any:
    """One run against a server or a port: four users, if no schedule is given."""

    def one(server: Mock | int, requests: int, **more: Any) -> LoadRun:
        say, stop = more.pop("say", None), more.pop("stop", None)
        port = server if isinstance(server, int) else server.port
        target = more.pop("target", Target("127.0.0.1", port=port, tls=False))
        if "schedule_s" not in more:
            more.setdefault("users", 4)
        plan = LoadPlan(target, requests, more.pop("prompts", ["hello"]), tmp_path / "samples.jsonl", **more)
        return run(plan, say, stop)

    return one
