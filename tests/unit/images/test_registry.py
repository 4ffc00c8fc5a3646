"""Pushing by digest, against a stand-in registry in this process: it knows blobs, manifests and two kinds of login, and
neither storage limits nor garbage collection. A real one is asked in tests/lab/test_registry.py."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from inferlift.artifacts import Image
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable
from inferlift.images import registry
from inferlift.images.registry import Registry, push

PASSWORD = "planted-registry-password"


class Standin(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.login = ""
        self.upload_to = ""
        self.answer: int | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Standin

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        there, path = self.server, self.path.partition("?")[0]
        basic = "Basic " + base64.b64encode(f"ci:{PASSWORD}".encode()).decode()
        if path == "/token":
            ok = self.headers.get("Authorization") == basic
            return self._say(200 if ok else 401, json.dumps({"token": "granted"}).encode() if ok else b"")
        wanted = {"": None, "basic": basic, "bearer": "Bearer granted"}[there.login]
        if wanted is not None and self.headers.get("Authorization") != wanted:
            realm = f'Bearer realm="http://{there.address}/token",service="s"'
            return self._say(401, b"", {"WWW-Authenticate": 'Basic realm="r"' if there.login == "basic" else realm})
        if there.answer is not None and path != "/v2/":
            return self._say(there.answer, b"no")
        digest = self.path.rpartition("=")[2] if "digest=" in self.path else path.rpartition("/")[2]
        if path == "/v2/":
            return self._say(200)
        if "/blobs/uploads/" in path:
            if self.command == "POST":
                return self._say(202, b"", {"Location": there.upload_to or "/v2/team/app/blobs/uploads/1?state=x"})
            if "sha256:" + hashlib.sha256(body).hexdigest() != digest:
                return self._say(400)
            there.blobs[digest] = body
            return self._say(201)
        if "/manifests/" in path and self.command == "PUT":
            there.manifests[digest] = body
            return self._say(201)
        found = there.manifests if "/manifests/" in path else there.blobs
        if digest not in found:
            return self._say(404)
        known = "sha256:" + hashlib.sha256(found[digest]).hexdigest()
        return self._say(200, b"", {"Docker-Content-Digest": known})

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _say(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def there() -> Iterator[Standin]:
    server = Standin()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def image(tmp_path: Path) -> Image:
    def blob(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        member = tarfile.TarInfo(f"blobs/sha256/{digest}")
        member.size = len(content)
        tar.addfile(member, BytesIO(content))
        return {"digest": f"sha256:{digest}", "size": len(content), "mediaType": "x"}

    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        layers = [blob(b"layer one"), blob(b"layer two")]
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = blob(json.dumps({"mediaType": kind, "config": blob(b"{}"), "layers": [*layers, layers[0]]}).encode())
    return Image(
        name="app", digest=manifest["digest"], archive=str(tmp_path / "image.tar"), bytes=1, base="b", dockerfile="d",
        changes=(), checks=(),
    )  # fmt: skip


def _registry(there: Standin, tmp_path: Path, **more: str) -> Registry:
    (tmp_path / "password").write_text(PASSWORD)
    return Registry(f"{there.address}/team", "ci", f"file:{tmp_path / 'password'}", **more)


@pytest.mark.parametrize("login", ["", "basic", "bearer"])
def test_what_is_lacking_is_sent_once_and_the_digest_stays(
    login: str, there: Standin, image: Image, tmp_path: Path
) -> None:
    there.login = login
    said: list[str] = []
    target = _registry(there, tmp_path)
    assert not registry.is_there(image, target)
    done = push(image, target, said.append)
    assert done.reference == f"{there.address}/team/app@{image.digest}"
    assert (done.bytes_sent, done.bytes_there) == (len(b"{}layer onelayer two"), 0)
    assert len(there.blobs) == 3
    again = push(image, target, said.append)
    assert (again.bytes_sent, again.bytes_there) == (0, done.bytes_sent)
    assert registry.is_there(image, target)
    assert PASSWORD not in "".join(said)
    assert PASSWORD not in repr(target)


def test_a_push_that_was_cut_goes_on(there: Standin, image: Image, tmp_path: Path) -> None:
    there.blobs["sha256:" + hashlib.sha256(b"layer one").hexdigest()] = b"layer one"
    assert push(image, _registry(there, tmp_path), lambda line: None).bytes_there == len(b"layer one")


@pytest.mark.parametrize(
    ("status", "error"), [(403, Refusal), (401, Refusal), (503, Retryable), (429, Retryable), (418, CheckFailed)]
)
def test_what_a_registry_says_decides(
    status: int, error: type[Exception], there: Standin, image: Image, tmp_path: Path
) -> None:
    there.answer = status
    with pytest.raises(error):
        push(image, _registry(there, tmp_path), lambda line: None)


def test_who_is_not_let_in_is_told_without_the_password(there: Standin, image: Image, tmp_path: Path) -> None:
    there.login = "basic"
    with pytest.raises(Refusal, match="does not let us push") as caught:
        push(image, Registry(f"{there.address}/team"), lambda line: None)
    assert "none is declared" in caught.value.why
    target = _registry(there, tmp_path)
    (tmp_path / "password").write_text("wrong-" + PASSWORD)
    with pytest.raises(Refusal) as caught:
        push(image, target, lambda line: None)
    assert PASSWORD not in str(caught.value)


def test_the_login_does_not_follow_an_upload_to_another_host(there: Standin, image: Image, tmp_path: Path) -> None:
    there.upload_to = "http://198.51.100.1/upload"
    with pytest.raises(Refusal, match="at another place"):
        push(image, _registry(there, tmp_path), lambda line: None)


def test_nobody_there(image: Image) -> None:
    with pytest.raises(Retryable, match="is not reached"):
        push(image, Registry("127.0.0.1:9"), lambda line: None)


@pytest.mark.parametrize("name", ["App", "a//b", "-a", "a b", ""])
def test_names_that_no_registry_takes(name: str) -> None:
    with pytest.raises(DeclarationError, match="no repository name"):
        Registry("r.example/team").repository(name)


def test_ecr_gives_a_login_and_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """moto stands in for ECR's API; its token is made up, and nothing is pushed there."""
    import boto3
    from moto import mock_aws

    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    with mock_aws():
        client = boto3.client("ecr", region_name="eu-central-1")
        found = registry.ecr("eu-central-1", client=client)
        assert found.user == "AWS"
        assert found.host.endswith(".dkr.ecr.eu-central-1.amazonaws.com")
        assert found.credentials() is not None
        assert found.credentials()[1] not in repr(found)  # type: ignore[index]
        registry.ensure_repository(found, "app", "eu-central-1", client)
        registry.ensure_repository(found, "app", "eu-central-1", client)
        (row,) = client.describe_repositories()["repositories"]
        assert (row["repositoryName"], row["imageTagMutability"]) == ("app", "IMMUTABLE")
