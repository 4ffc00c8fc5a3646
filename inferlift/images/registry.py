"""An OCI archive into a registry, blob by blob, under the very digest it was built with.

The distribution API is spoken directly: no daemon, nothing recompressed, what the registry has already is not sent.
Protocol: OCI distribution specification 1.1 (pushing blobs, pushing manifests); tokens: docker's registry token flow.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin

import requests

from inferlift.artifacts import Image
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable
from inferlift.secret import resolve

_TIMEOUT = (10, 300)
_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?:/.*)?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")


@dataclass(frozen=True)
class Registry:
    """`address` is HOST[:PORT][/PATH]; the password is a reference, read when it is asked for."""

    address: str
    user: str = ""
    password: str = ""  # reference: env:NAME or file:PATH
    ca: str | None = None  # path of the CA that vouches for it; None: the system's
    _secret: str = field(default="", repr=False)  # a login token that a cloud gave us; never stored

    @property
    def host(self) -> str:
        return self.address.partition("/")[0]

    def repository(self, name: str) -> str:
        path = self.address.partition("/")[2].strip("/")
        whole = f"{path}/{name}" if path else name
        if not _REPOSITORY.fullmatch(whole):
            raise DeclarationError(
                f"{whole!r} is no repository name",
                why="lower case letters, digits and single . _ - between them",
                next_command="correct the registry's address or the image's name",
            )
        return whole

    def credentials(self) -> tuple[str, str] | None:
        if self._secret:
            return self.user, self._secret
        return (self.user, resolve(self.password)) if self.user else None


@dataclass(frozen=True)
class Pushed:
    reference: str  # HOST/REPOSITORY@sha256:...
    digest: str
    bytes_sent: int
    bytes_there: int  # of blobs that the registry had already
    seconds: float


def at(address: str, user: str = "", password: str = "", ca: str | None = None, *, name: str = "") -> Registry:
    """The registry at an address; one of AWS' with its own login, and the repository `name` made where it lacks."""
    found = _ECR.fullmatch(address)
    if found is None or user:
        return Registry(address, user, password, ca)
    there = dataclasses.replace(ecr(found[2], found[1]), address=address, ca=ca)
    if name:
        ensure_repository(there, name, found[2])
    return there


def push(image: Image, registry: Registry, say: Callable[[str], None]) -> Pushed:
    """Push the image's archive; the manifest keeps its digest. The same call again sends what is missing.

    Raises Refusal (not let in, no such repository), Retryable (not reached), CheckFailed (it keeps another digest).
    """
    started = time.monotonic()
    repository = registry.repository(image.name)
    with _Session(registry, repository) as there, tarfile.open(image.archive) as tar:
        manifest = _member(tar, image.digest).read()
        body = json.loads(manifest)
        sent = kept = 0
        for blob in {b["digest"]: b for b in (body["config"], *body["layers"])}.values():
            if there.has(blob["digest"]):
                kept += blob["size"]
                continue
            say(f"pushing {blob['digest'][7:19]} of {image.name}, {blob['size'] / 1e6:.1f} MB")
            there.send(blob["digest"], _member(tar, blob["digest"]), blob["size"])
            sent += blob["size"]
        there.put_manifest(image.digest, manifest, body["mediaType"])
        found = there.manifest_digest(image.digest)
    if found != image.digest:
        raise CheckFailed(f"{registry.host} keeps {image.name} as {found}", why=f"pushed was {image.digest}")
    took = time.monotonic() - started
    say(f"{image.name} is {registry.host}/{repository}@{image.digest[:19]}: {sent / 1e6:.1f} MB sent in {took:.1f} s")
    return Pushed(f"{registry.host}/{repository}@{image.digest}", image.digest, sent, kept, round(took, 2))


def is_there(image: Image, registry: Registry) -> bool:
    """Does the registry have the image's manifest under its digest?"""
    with _Session(registry, registry.repository(image.name)) as there:
        return there.manifest_digest(image.digest) == image.digest


def ecr(region: str, account: str | None = None, client: Any = None) -> Registry:
    """AWS' registry by a login token of twelve hours, which is kept in memory only.

    Raises Refusal without rights, DeclarationError without credentials.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        asked = client or boto3.client("ecr", region_name=region)
        data = asked.get_authorization_token(**({"registryIds": [account]} if account else {}))["authorizationData"][0]
    except NoCredentialsError:
        raise DeclarationError("there are no AWS credentials", next_command="set AWS_PROFILE or the keys") from None
    except (BotoCoreError, ClientError) as error:
        raise Refusal("AWS gives no login for its registry", why=str(error)) from None
    user, _, token = base64.b64decode(data["authorizationToken"]).decode().partition(":")
    return Registry(str(data["proxyEndpoint"]).removeprefix("https://"), user, _secret=token)


def ensure_repository(registry: Registry, name: str, region: str, client: Any = None) -> None:
    """ECR takes no push into a repository that does not exist. Tags in it cannot be moved."""
    import boto3
    from botocore.exceptions import ClientError

    asked = client or boto3.client("ecr", region_name=region)
    with suppress(asked.exceptions.RepositoryAlreadyExistsException):
        try:
            asked.create_repository(repositoryName=registry.repository(name), imageTagMutability="IMMUTABLE")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "RepositoryAlreadyExistsException":
                return
            raise Refusal(f"the repository {name} cannot be made", why=str(error)) from None


class _Session:
    """One repository of one registry: who we are is found out once, by what the registry asks for."""

    def __init__(self, registry: Registry, repository: str) -> None:
        self.registry, self.repository = registry, repository
        local = registry.host.partition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
        self.base = f"{'http' if local and registry.ca is None else 'https'}://{registry.host}/v2/"
        self.http = requests.Session()
        self.http.trust_env = False  # no ~/.netrc, no proxy that was not asked for
        self.http.verify = registry.ca or True

    def __enter__(self) -> _Session:
        self._login()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def has(self, digest: str) -> bool:
        return self._ask("HEAD", f"{self.repository}/blobs/{digest}", allowed=(200, 404)).status_code == 200

    def send(self, digest: str, blob: BinaryIO, size: int) -> None:
        begun = self._ask("POST", f"{self.repository}/blobs/uploads/", allowed=(202,))
        where = urljoin(begun.url, begun.headers["Location"])
        self._same_host(where)
        place = f"{where}{'&' if '?' in where else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._ask("PUT", place, allowed=(201,), data=blob, headers=headers)

    def put_manifest(self, digest: str, body: bytes, kind: str) -> None:
        """Under its digest, and a tag made of it: some registries remove what has no tag."""
        for name in (digest, f"sha256-{digest[7:19]}"):
            path = f"{self.repository}/manifests/{name}"
            done = self._ask("PUT", path, allowed=(201, 400, 409), data=body, headers={"Content-Type": kind})
            if done.status_code == 400 and "ImageTagAlreadyExists" not in done.text:
                raise CheckFailed(f"{self.registry.host} does not take the manifest", why=done.text[:300])

    def manifest_digest(self, name: str) -> str | None:
        accept = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
        done = self._ask("HEAD", f"{self.repository}/manifests/{name}", allowed=(200, 404), headers={"Accept": accept})
        return done.headers.get("Docker-Content-Digest") if done.status_code == 200 else None

    def _login(self) -> None:
        asked = self._once("GET", "", {})
        if asked.status_code == 200:
            return
        if asked.status_code != 401:
            raise Refusal(f"{self.registry.host} is no registry", why=f"/v2/ answered {asked.status_code}")
        scheme, _, rest = asked.headers.get("WWW-Authenticate", "").partition(" ")
        known = self.registry.credentials()
        if scheme.lower() == "basic":
            if known is None:
                raise self._not_let_in("it asks for a user and a password, and none is declared")
            self.http.auth = known
        elif scheme.lower() == "bearer":
            told = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            self.http.headers["Authorization"] = f"Bearer {self._token(told)}"
        else:
            raise Refusal(f"{self.registry.host} asks for the unknown login {scheme!r}")

    def _token(self, asked: dict[str, str]) -> str:
        realm = asked.get("realm", "")
        if not realm.startswith("https://") and not realm.startswith(self.base.split("/v2/")[0]):
            raise Refusal(f"{self.registry.host} sends us to {realm!r} to log in", why="a password goes over TLS only")
        scope = {"service": asked.get("service", ""), "scope": f"repository:{self.repository}:pull,push"}
        done = self._request("GET", realm, params=scope, auth=self.registry.credentials())
        if done.status_code != 200:
            raise self._not_let_in(f"{realm} answered {done.status_code}")
        body = done.json()
        return str(body.get("token") or body["access_token"])

    def _ask(self, method: str, path: str, *, allowed: tuple[int, ...], **more: Any) -> requests.Response:
        done = self._once(method, path, more)
        if done.status_code in allowed:
            return done
        if done.status_code in (401, 403):
            raise self._not_let_in(done.text[:200])
        if done.status_code in (429, 500, 502, 503, 504):
            raise Retryable(
                f"{self.registry.host} answered {done.status_code}", next_command="run it again: it goes on"
            )
        raise CheckFailed(f"{self.registry.host} answered {done.status_code} to {method}", why=done.text[:300])

    def _once(self, method: str, path: str, more: dict[str, Any]) -> requests.Response:
        return self._request(method, path if "://" in path else self.base + path, **more)

    def _request(self, method: str, url: str, **more: Any) -> requests.Response:
        try:
            return self.http.request(method, url, timeout=_TIMEOUT, allow_redirects=method in ("GET", "HEAD"), **more)
        except requests.exceptions.SSLError as error:
            raise Refusal(
                f"{self.registry.host} has no certificate that is trusted",
                why=str(error)[:200],
                next_command="give the CA that vouches for it",
            ) from None
        except (requests.RequestException, OSError) as error:
            raise Retryable(
                f"{self.registry.host} is not reached", why=str(error)[:200], next_command="run it again: it goes on"
            ) from None

    def _same_host(self, url: str) -> None:
        """The login goes along with the upload: not to another host, and not without TLS."""
        if not url.startswith(self.base.split("/v2/")[0] + "/"):
            raise Refusal(f"{self.registry.host} wants the upload at another place", why=url.partition("?")[0])

    def _not_let_in(self, why: str) -> Refusal:
        return Refusal(
            f"{self.registry.host} does not let us push to {self.repository}",
            why=why,
            next_command="correct the registry's user and the reference of its password",
        )


def _member(tar: tarfile.TarFile, digest: str) -> BinaryIO:
    try:
        stream = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
    except KeyError:
        stream = None
    if stream is None:
        raise CheckFailed(f"the archive {Path(str(tar.name)).name} lacks {digest}", next_command="build it again")
    return stream  # type: ignore[return-value]
