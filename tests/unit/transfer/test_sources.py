"""S3 as a source. moto stands in for S3: it keeps objects and ETags, but shows neither throttling, nor a connection
that is cut, nor what KMS does to an ETag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from inferlift.errors import DeclarationError, Refusal, Retryable
from inferlift.transfer import on_host
from inferlift.transfer.manifest import Manifest
from inferlift.transfer.sources import S3Folder


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="bkt")
        for key, body in (("data/a", b"one"), ("data/deep/b", b"two"), ("data/deep/", b""), ("other", b"no")):
            client.put_object(Bucket="bkt", Key=key, Body=body)
        yield client


def _staging(folder: Path) -> Path:
    (folder / "staging").mkdir(exist_ok=True)
    return folder / "staging"


def _pull(source: S3Folder, staging: Path, *, checksum: bool = False) -> tuple[int, int]:
    stats = source.pull(staging, checksum=checksum, bandwidth_kbps=None)
    return stats.files, stats.bytes_moved


def test_what_was_fetched_is_what_the_listing_says_and_is_not_fetched_twice(s3: Any, tmp_path: Path) -> None:
    source, staging = S3Folder("s3://bkt/data/", s3), _staging(tmp_path)
    assert source.name == "s3://bkt/data"
    assert _pull(source, staging) == (2, 6)
    assert Manifest.of(on_host.scan(str(staging))) == source.scan(staging)
    assert _pull(source, staging, checksum=True) == (0, 0)


def test_only_what_changed_moves_again_and_what_is_gone_goes(s3: Any, tmp_path: Path) -> None:
    source, staging = S3Folder("s3://bkt/data", s3), _staging(tmp_path)
    _pull(source, staging)
    s3.put_object(Bucket="bkt", Key="data/a", Body=b"new")
    s3.delete_object(Bucket="bkt", Key="data/deep/b")
    s3.put_object(Bucket="bkt", Key="data/c/d", Body=b"!")
    assert Manifest.of(on_host.scan(str(staging))).difference(source.scan(staging))
    assert _pull(source, staging) == (2, 4)
    assert sorted(str(p.relative_to(staging)) for p in staging.rglob("*")) == ["a", "c", "c/d"]
    assert Manifest.of(on_host.scan(str(staging))) == source.scan(staging)


def test_a_file_damaged_here_is_fetched_again_when_contents_are_compared(s3: Any, tmp_path: Path) -> None:
    source, staging = S3Folder("s3://bkt/data", s3), _staging(tmp_path)
    _pull(source, staging)
    (staging / "a").write_bytes(b"eno")
    assert _pull(source, staging) == (0, 0)
    assert _pull(source, staging, checksum=True) == (1, 3)
    assert (staging / "a").read_bytes() == b"one"


def test_an_object_that_changes_while_it_is_fetched_is_not_kept(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staging = S3Folder("s3://bkt/data", s3), _staging(tmp_path)
    fetch = s3.download_file

    def changed_first(bucket: str, key: str, *rest: Any, **more: Any) -> None:
        s3.put_object(Bucket=bucket, Key=key, Body=b"xxx")
        fetch(bucket, key, *rest, **more)

    monkeypatch.setattr(s3, "download_file", changed_first)
    with pytest.raises(Retryable, match="changed while it was copied"):
        _pull(source, staging)
    assert not (staging / "a").exists()


def test_keys_that_cannot_be_files_are_refused_by_name(s3: Any, tmp_path: Path) -> None:
    for key in ("data/a/below", "data/../up", "data//twice"):
        s3.put_object(Bucket="bkt", Key=key, Body=b"")
    with pytest.raises(Refusal, match="3 objects") as caught:
        _pull(S3Folder("s3://bkt/data", s3), _staging(tmp_path))
    assert "'../up'" in caught.value.why


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "gs://bkt/x", "bkt/x"])
def test_what_is_no_place_is_said(url: str) -> None:
    with pytest.raises(DeclarationError, match="no place to copy from"):
        S3Folder(url, object())


@pytest.mark.parametrize("url", ["s3://absent/x", "s3://bkt/nothing"])
def test_nothing_to_copy_is_refused(s3: Any, tmp_path: Path, url: str) -> None:
    with pytest.raises(Refusal):
        _pull(S3Folder(url, s3), _staging(tmp_path))
