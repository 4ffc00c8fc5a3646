"""Where data comes from: a folder of the old host over SSH, or objects of S3. Both fill a staging folder."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from inferlift.artifacts import Host
from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable
from inferlift.transfer import rsync
from inferlift.transfer.manifest import Manifest
from inferlift.transfer.rsync import Stats

KIB = 1024
_OBJECT, _FOLDER = 0o644, 0o755  # objects have no modes


class Source(Protocol):
    """What `copy` reads from; nothing is ever written there."""

    @property
    def name(self) -> str: ...

    def scan(self, staging: Path) -> Manifest:
        """What it holds now."""
        ...

    def pull(self, staging: Path, *, checksum: bool, bandwidth_kbps: int | None) -> Stats:
        """Make `staging` equal to it. Goes on where a killed call stopped."""
        ...


@dataclass(frozen=True)
class HostFolder:
    host: Host
    path: str
    look: Callable[[Host, str], Manifest]

    @property
    def name(self) -> str:
        return f"{self.host.name}:{self.path}"

    def scan(self, staging: Path) -> Manifest:
        return self.look(self.host, self.path)

    def pull(self, staging: Path, *, checksum: bool, bandwidth_kbps: int | None) -> Stats:
        call = rsync.pull(self.host, self.path, staging, checksum=checksum, bandwidth_kbps=bandwidth_kbps)
        return rsync.together([call])[0]


@dataclass
class S3Folder:
    """The objects below `s3://BUCKET/PREFIX`, by boto3's own chain of credentials.

    What was fetched is remembered beside the staging folder by key, size and ETag; an object is fetched again when
    one of them changed or the file's sha256 is not what it was. Where S3 keeps a sha256, or the ETag is an MD5 (an
    object put in one part, not encrypted by KMS), the content is compared with it.
    """

    url: str
    client: Any = None
    _listed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scheme, _, rest = self.url.partition("://")
        self.bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not self.bucket:
            raise DeclarationError(
                f"data.source {self.url!r} is no place to copy from",
                why="expected a folder of the old host, or s3://BUCKET/PREFIX",
                next_command="correct data.source",
            )
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        if self.client is None:
            import boto3

            self.client = boto3.client("s3")

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def scan(self, staging: Path) -> Manifest:
        """Contents are known of what was fetched and has not changed since; of the rest the ETag stands for them."""
        known = _read(_memory(staging))
        rows: list[tuple[str, str, int, int, str]] = []
        folders: set[str] = set()
        for path, row in self._list().items():
            mine = known.get(path)
            same = mine is not None and (mine["size"], mine["etag"]) == (row["size"], row["etag"])
            content = mine["sha256"] if mine is not None and same else f"etag {row['etag']}"
            rows.append((path, "file", _OBJECT, row["size"], content))
            folders |= {str(p) for p in PurePosixPath(path).parents if str(p) != "."}
        return Manifest.of([*rows, *((f, "folder", _FOLDER, 0, "") for f in sorted(folders))])

    def pull(self, staging: Path, *, checksum: bool, bandwidth_kbps: int | None) -> Stats:
        listed, known = self._list(), _read(_memory(staging))
        for old in sorted(staging.rglob("*"), reverse=True):
            inside = str(old.relative_to(staging))
            if old.is_dir() and not old.is_symlink():
                if not any(p.startswith(f"{inside}/") for p in listed):
                    shutil.rmtree(old)
            elif inside not in listed and old.exists():
                old.unlink()
        moved = files = 0
        for path, row in listed.items():
            file, mine = staging / path, known.get(path)
            if mine and (mine["size"], mine["etag"]) == (row["size"], row["etag"]) and _holds(file, mine, checksum):
                continue
            known[path] = {**row, "sha256": self._fetch(row, file, bandwidth_kbps)}
            _write(_memory(staging), {p: k for p, k in known.items() if p in listed})
            moved, files = moved + row["size"], files + 1
        for folder in (p for p in staging.rglob("*") if p.is_dir()):
            folder.chmod(_FOLDER)
        return Stats(files, sum(r["size"] for r in listed.values()), moved, complete=True)

    def _list(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        with _calling(self.name):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            for page in pages:
                for item in page.get("Contents", []):
                    path = item["Key"].removeprefix(self.prefix)
                    if not path or path.endswith("/"):
                        continue  # consoles make such objects to show an empty folder
                    found[path] = {"key": item["Key"], "size": item["Size"], "etag": item["ETag"].strip('"')}
        self._refuse_odd(found)
        return found

    def _refuse_odd(self, found: dict[str, dict[str, Any]]) -> None:
        """Keys are any text; a file's path is not."""
        if not found:
            raise Refusal(
                f"there is nothing in {self.name}",
                why="no object, or none that these credentials may list",
                next_command="correct data.source, or set data.state to none",
            )
        parents = {str(p) for path in found for p in PurePosixPath(path).parents}
        odd = [
            p for p in found if p in parents or str(PurePosixPath(p)) != p or p.startswith("/") or ".." in p.split("/")
        ]
        if odd:
            raise Refusal(
                f"{len(odd)} objects of {self.name} have keys that cannot be files beside the others",
                why=", ".join(repr(p) for p in odd[:5]),
                next_command="rename them, or give a narrower prefix",
            )

    def _fetch(self, row: dict[str, Any], file: Path, bandwidth_kbps: int | None) -> str:
        """By way of a partial file, so that what has its name is whole. Returns its sha256."""
        from boto3.s3.transfer import TransferConfig

        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.inferlift-part")
        limit = bandwidth_kbps * KIB if bandwidth_kbps else None
        with _calling(f"{self.name}, {row['key']}"):
            told = self.client.head_object(Bucket=self.bucket, Key=row["key"], ChecksumMode="ENABLED")
            # one connection: that is what the limit is of
            config = TransferConfig(max_concurrency=1, use_threads=False, max_bandwidth=limit)
            self.client.download_file(self.bucket, row["key"], str(part), Config=config)
        sha256, md5 = _digests(part)
        wanted = told.get("ChecksumSHA256")
        if wanted and "-" not in wanted and base64.b64decode(wanted).hex() != sha256:
            raise CheckFailed(f"{row['key']} arrived with another sha256 than S3 keeps", why=self.name)
        plain = "-" not in row["etag"] and told.get("ServerSideEncryption") != "aws:kms"
        if part.stat().st_size != row["size"] or (plain and md5 != row["etag"]):
            raise Retryable(
                f"{row['key']} changed while it was copied, or arrived damaged",
                why=f"{part.stat().st_size} bytes of {row['size']}",
                next_command="the same command again goes on where it stopped",
            )
        part.chmod(_OBJECT)
        part.replace(file)
        return sha256


class _calling:
    """boto3's errors in ours."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        if isinstance(error, NoCredentialsError):
            raise DeclarationError(
                f"{self.what} cannot be read without credentials",
                why="boto3 looked in the environment, ~/.aws and the instance's role",
                next_command="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from None
        if isinstance(error, ClientError):
            code = error.response.get("Error", {}).get("Code", "?")
            if code in ("AccessDenied", "403", "NoSuchBucket", "404", "InvalidAccessKeyId"):
                raise Refusal(f"{self.what} cannot be read ({code})", next_command="correct data.source") from None
            raise Retryable(f"{self.what} could not be read ({code})", next_command="run the same command again")
        if isinstance(error, BotoCoreError):
            raise Retryable(f"{self.what} could not be read", why=str(error), next_command="run the same command again")


def _memory(staging: Path) -> Path:
    return staging.with_suffix(".s3.json")


def _holds(file: Path, mine: dict[str, Any], checksum: bool) -> bool:
    if not file.is_file() or file.stat().st_size != mine["size"]:
        return False
    return not checksum or _digests(file)[0] == mine["sha256"]


def _digests(file: Path) -> tuple[str, str]:
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            sha256.update(block)
            md5.update(block)
    return sha256.hexdigest(), md5.hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)
