"""build and migrate without a migration: what is typed is read before anything is reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferlift import alone_moving, transfer
from inferlift.artifacts import Transfer, TransferPass
from inferlift.errors import DeclarationError, Refusal

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("root@old:/srv/data", ("root", "old", 22, "/srv/data")),
        ("old.example:/srv/my data/", ("root", "old.example", 22, "/srv/my data")),
        (" deploy@10.0.0.1:2222:/d ", ("deploy", "10.0.0.1", 2222, "/d")),
        ("root@[2001:db8::1]:/srv/d", ("root", "2001:db8::1", 22, "/srv/d")),
    ],
)
def test_a_folder_on_a_host(text: str, place: tuple[Any, ...]) -> None:
    assert alone_moving._place(text) == place


@pytest.mark.parametrize(
    "text", ["", "/srv/data", "root@old", "root@old:srv", "root@:/d", "-oProxyCommand=x@h:/d", "root@-oX:/d", "@h:/d"]
)
def test_what_is_no_folder_on_a_host(text: str) -> None:
    with pytest.raises(DeclarationError, match="no folder on a host"):
        alone_moving._place(text)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("INFERLIFT_STATE", str(tmp_path / "state"))
    (tmp_path / "id").write_text("key")
    (tmp_path / "known").write_text(f"old {KEY}\nnew {KEY}\n[other]:2222 {KEY}\n")
    return {"key": str(tmp_path / "id"), "known_hosts": str(tmp_path / "known")}


def test_from_one_host_to_several(operator: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    seen: list[Any] = []

    def copy(*given: Any) -> Transfer:
        seen.extend(given)
        made = TransferPass(files=2, bytes_total=9, bytes_sent=9, seconds=1.0)
        return Transfer(
            source="s", destinations=(), manifest="m", files=2, bytes=9, passes=(made, made), checks=()
        )  # fmt: skip

    monkeypatch.setattr(transfer, "copy", copy)
    assert alone_moving.copy_folder(
        "root@old:/srv/d", "root@new:/srv/e,root@other:2222:/srv/e", limit_mb_per_s=2.048, as_json=True, **operator
    ) == 0  # fmt: skip
    source, path, hosts, destination, _, _, limit = seen
    assert (source.address, source.host_key, path, destination, limit) == ("old", KEY, "/srv/d", "/srv/e", 2000)
    assert [(h.address, h.ssh_port) for h in hosts] == [("new", 22), ("other", 2222)]
    told = json.loads(capsys.readouterr().out)
    assert told["figures"] == {"files": 2, "bytes": 9, "passes": 2, "sent_bytes": 18}


@pytest.mark.parametrize(
    ("source", "to", "error", "said"),
    [
        ("root@old:/d/e", "root@new:/d/e,root@other:2222:/x/y", DeclarationError, "not one folder"),
        ("root@old:/d/e", "", DeclarationError, "not one folder"),
        ("root@stranger:/d/e", "root@new:/d/e", Refusal, "host key of stranger"),
    ],
)
def test_what_cannot_be_is_said(
    source: str, to: str, error: type[Exception], said: str, operator: dict[str, str]
) -> None:
    with pytest.raises(error, match=said):
        alone_moving.copy_folder(source, to, **operator)


def test_a_dockerfile_is_rewritten_and_explained(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "Dockerfile").write_text("FROM alpine\nRUN apk add curl\n")
    out = tmp_path / "out"
    assert alone_moving.build_image(str(tmp_path / "app"), base="debian:12", out=str(out), rewrite_only=True) == 0
    said = capsys.readouterr().out
    assert "line   2  apk add curl" in said
    assert "apt-get install -y --no-install-recommends curl" in (out / "Dockerfile").read_text()
    assert alone_moving.build_image(str(out), base="debian:12", out=str(out), rewrite_only=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "unchanged"
    with pytest.raises(DeclarationError, match="there is no Dockerfile"):
        alone_moving.build_image(str(tmp_path / "nowhere"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Refusal, match="building needs root"):
        alone_moving.build_image(str(tmp_path / "app"), base="debian:12", out=str(out))
